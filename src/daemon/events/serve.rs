//! What the engine does for those who ask about events.

use super::{Asker, EventsError, Outcome, answers};
use crate::daemon::engine::Engine;
use crate::door::event::{EventAnswer, EventRequest};
use crate::door::frame::ToClient;
use crate::event::refusal::{Kind, Refusal};
use crate::time::Now;

impl Engine {
    /// Opens the journal before anybody asks, so that what is wrong with it is told at the start.
    pub(crate) fn open_events(&mut self) -> Result<(), EventsError> {
        self.events.journal().map(drop)
    }

    /// Somebody asks something about events; refused at once, or told later.
    pub(crate) fn ask_events(&mut self, now: Now, asker: Asker, request: EventRequest) {
        let publisher = self.events.publisher(now, &mut self.clients);
        let begun = match self.is_running() {
            true => self.events.begin((now, publisher), &self.mailbox, &asker, request),
            false => Err(Refusal::stopping()),
        };
        if let Err(refusal) = begun {
            self.refuse_events(&asker, refusal);
        }
    }

    /// The journal is done with a request.
    pub(crate) fn on_events_done(&mut self, outcome: Outcome) {
        self.events.end(&outcome);
        match outcome.done {
            Ok(done) => {
                if let super::Done::Registered(events) = &done {
                    self.events.registered += events.len() as u64;
                }
                self.tell_events(&outcome.asker, answers(done).into_iter().map(Ok).collect());
            }
            Err(refusal) => self.refuse_events(&outcome.asker, refusal),
        }
    }

    fn refuse_events(&mut self, asker: &Asker, refusal: Refusal) {
        self.events.refused += 1;
        if matches!(refusal.kind, Kind::Unavailable | Kind::Full) {
            tracing::warn!(client = asker.client().0, reason = %refusal, "request about events refused");
        }
        self.tell_events(asker, vec![Err(refusal)]);
    }

    fn tell_events(&mut self, asker: &Asker, answers: Vec<Result<EventAnswer, Refusal>>) {
        match asker {
            Asker::Attached(client, id) => {
                let Some(connection) = self.clients.connection(*client) else { return };
                let answers = if connection.outbox.is_glutted() { vec![Err(Refusal::busy())] } else { answers };
                for answer in answers {
                    self.clients.answer(*client, &ToClient::Events { id: *id, answer });
                }
            }
            // Who asked may have stopped waiting.
            Asker::Embedded(_, told) => answers.into_iter().for_each(|answer| drop(told.send(answer))),
        }
    }
}
