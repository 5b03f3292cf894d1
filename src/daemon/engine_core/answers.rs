//! Answers of the services, on their way to the clients and threads that sent the requests.

use super::EngineCore;
use crate::daemon::event_request::EventRequester;
use crate::daemon::stream_request::StreamRequester;
use crate::event::model::EventId;
use crate::event::refusal::EventRefusal;
use crate::listener::event::EventAnswer;
use crate::listener::frame::PeerFrame;
use crate::listener::stream::{StreamAnswer, StreamRefusal};

impl EngineCore {
    /// Sends the answers to the requester. Clients of listeners get theirs from the listeners, and the peer itself
    /// awaits none.
    pub(crate) fn answer_event_request(
        &mut self,
        requester: &EventRequester,
        answers: Vec<Result<EventAnswer, EventRefusal>>,
    ) {
        match requester {
            EventRequester::Attached(client, id) => {
                // After BYE the peer sends no more answers.
                let Some(connection) = self.clients.connection(*client).filter(|it| !it.flow.is_closing) else {
                    return;
                };
                let answers =
                    if connection.outbox.exceeds_answer_limit() { vec![Err(EventRefusal::busy())] } else { answers };
                for answer in answers {
                    self.clients.answer(*client, &PeerFrame::Events { id: *id, answer });
                }
            }
            // The caller may have stopped waiting. A full channel reports the missing parts to the caller itself.
            EventRequester::Embedded(_, parts) => {
                answers.into_iter().for_each(|answer| {
                    parts.send(answer);
                });
            }
            EventRequester::Service { number, outcome, .. } => {
                for answer in answers {
                    let registered = answer.map(|answer| match answer {
                        EventAnswer::Registered(of) => EventId { server: of.server, session: of.session, instance: 1 },
                        EventAnswer::Found(..) => unreachable!("services register events and find them by themselves"),
                    });
                    outcome.on_registered(*number, registered);
                }
            }
            EventRequester::Listener(..) | EventRequester::Internal => {}
        }
    }

    /// Sends the answer to the requester.
    pub(crate) fn answer_stream_request(
        &mut self,
        requester: StreamRequester,
        answer: Result<StreamAnswer, StreamRefusal>,
    ) {
        match requester {
            StreamRequester::Attached(client, id) => {
                let Some(connection) = self.clients.connection(client) else { return };
                // After BYE the peer sends no more answers.
                if !connection.flow.is_closing {
                    let answer =
                        if connection.outbox.exceeds_answer_limit() { Err(StreamRefusal::busy()) } else { answer };
                    self.clients.answer(client, &PeerFrame::Streams { id, answer });
                }
            }
            // The requester may have stopped waiting.
            StreamRequester::Embedded(_, sender) => drop(sender.send(answer)),
        }
    }
}
