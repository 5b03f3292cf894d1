//! A client of the stream service: its registration, its calls, and the messages to it.

use super::context::{BUSY, HttpShared, RequestContext};
use crate::daemon::stream_service::client_memory::MemoryReservation;
use crate::daemon::stream_service::input::{ClientMessage, StreamInput};
use crate::daemon::stream_service::input_queue::InputPushError;
use crate::event::stream::model::StreamEvent;
use crate::listener::ftn18::call_permission::call_denial;
use crate::listener::ftn18::fault::{CallFault, FaultName};
use crate::listener::ftn18::session::{CallOutput, CallResult, CallSession};
use crate::listener::ftn18::stream_service::ConnectionId;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, channel};

/// Maximum number of messages that wait for a client: all calls that it may leave unanswered, and a few hundred
/// groups. A client with more is evicted.
pub(super) const CLIENT_QUEUE_MAX: usize = 4096;

/// A connection or a request that is registered with the stream service until this is dropped.
pub(super) struct StreamClient {
    conn: ConnectionId,
    shared: Arc<HttpShared>,
}

/// A message to a client.
pub(super) struct AccountedMessage {
    pub(super) message: ClientMessage,
    /// Memory that the client holds for the message.
    pub(super) reservation: Option<MemoryReservation>,
}

impl StreamClient {
    /// Registers the client with the stream service; `None` if too many inputs wait there.
    pub(super) fn open(context: &RequestContext) -> Option<(StreamClient, Receiver<AccountedMessage>)> {
        let conn = ConnectionId(context.shared.next.fetch_add(1, Ordering::Relaxed));
        let (sender, messages) = channel(CLIENT_QUEUE_MAX);
        let account = Arc::clone(&context.account);
        let notify = move |message: ClientMessage| {
            let reservation =
                events(&message).map(|events| account.reserve(events.iter().map(StreamEvent::bytes).sum()));
            // A client that has ended needs no further message.
            if let Err(TrySendError::Full(_)) = sender.try_send(AccountedMessage { message, reservation }) {
                account.evict_slow();
            }
        };
        match context.shared.inputs.push(StreamInput::Opened(conn, Box::new(notify))) {
            Err(InputPushError::Full) => {
                context.shared.counts.on_busy();
                None
            }
            // If the thread has ended, this connection ends soon too, and no message can reach it.
            Ok(()) | Err(InputPushError::Closed) => {
                Some((StreamClient { conn, shared: Arc::clone(&context.shared) }, messages))
            }
        }
    }

    /// Forwards an output of the session. Returns a message to send. The session has the answer to a refused call at
    /// once.
    ///
    /// # Errors
    /// Too many inputs wait, and the refused output cannot be answered.
    pub(super) fn call(
        &self,
        output: CallOutput,
        stream: usize,
        session: &mut CallSession,
    ) -> Result<Option<String>, Overload> {
        if let CallOutput::Call { id, call, permissions, .. } = &output
            && let Some(denial) = call_denial(permissions, &self.shared.settings.streams[stream], call)
        {
            self.shared.counts.on_denied(&denial);
            session.on_result(*id, Err(CallFault::new(FaultName::Unauthorized, denial.to_string())));
            return Ok(None);
        }
        let (called, input) = match output {
            CallOutput::Send(text) => return Ok(Some(text)),
            CallOutput::Malformed(fault) => {
                self.shared.counts.on_malformed(&fault);
                return Ok(None);
            }
            CallOutput::Call { id: call, user, call: what, .. } => {
                (Some(call), StreamInput::Called { conn: self.conn, call, stream, user, what })
            }
            CallOutput::Answered { push, seq, is_accepted } => {
                (None, StreamInput::Answered { conn: self.conn, push, seq, is_accepted })
            }
        };
        match (self.shared.inputs.push(input), called) {
            // If the thread has ended, the connection ends soon too.
            (Ok(()) | Err(InputPushError::Closed), _) => Ok(None),
            (Err(InputPushError::Full), Some(call)) => {
                self.shared.counts.on_busy();
                session.on_result(call, Err(CallFault::new(FaultName::DefenseRejected, BUSY)));
                Ok(None)
            }
            (Err(InputPushError::Full), None) => {
                self.shared.counts.on_busy();
                Err(Overload)
            }
        }
    }
}

/// Error: too many inputs wait for the stream service.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overload;

impl Drop for StreamClient {
    fn drop(&mut self) {
        // The queue always takes this input, unless the thread has ended.
        drop(self.shared.inputs.push(StreamInput::Closed(self.conn)));
    }
}

/// Returns the events of a message to a client, if it has any.
fn events(message: &ClientMessage) -> Option<&[StreamEvent]> {
    match message {
        ClientMessage::CallResult(_, Ok(CallResult::Events(events))) => Some(events),
        ClientMessage::Group { events, .. } => Some(events),
        ClientMessage::CallResult(..) | ClientMessage::PushEnd { .. } => None,
    }
}
