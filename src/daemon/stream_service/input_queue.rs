//! The queue of inputs to the stream service: bounded, since clients fill it.
//!
//! A full queue refuses an input from a client, and the client is notified. Stored events are refused at half of the
//! limits: the streams then read them from the journal. Fetched events wait for room. The queue always takes all other
//! inputs, because their number is bounded elsewhere; see [`InputSender::push`].

use super::input::StreamInput;
use crate::daemon::event_request::RegistrationReceiver;
use crate::daemon::events::JournalObserver;
use crate::event::follower::FetchedEvent;
use crate::event::model::{Event, EventId, ServerId};
use crate::event::refusal::EventRefusal;
use crate::listener::ftn18::call::Call;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes that each call counts in addition to its data.
const CALL_BYTES: usize = 128;
/// Bytes that a call counts for each type that it names.
const TYPE_BYTES: usize = 64;

/// Limits of the queued inputs of clients and of the journal.
#[derive(Clone, Copy, Debug)]
pub struct InputLimits {
    /// Maximum number of inputs.
    pub count_max: usize,
    /// Maximum bytes of their calls and events.
    pub bytes_max: usize,
}

impl InputLimits {
    /// Default limits of a peer: the inputs of a few turns of the stream service.
    pub const USUAL: InputLimits = InputLimits { count_max: 16_384, bytes_max: 32 << 20 };
}

/// Reason why an input was not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum InputPushError {
    /// Too many inputs of clients and of the journal wait.
    Full,
    /// The stream service has ended.
    Closed,
}

#[derive(Debug)]
struct InputQueue {
    limits: InputLimits,
    state: Mutex<InputQueueState>,
    arrived: Condvar,
    space_available: Condvar,
}

#[derive(Debug, Default)]
struct InputQueueState {
    inputs: VecDeque<StreamInput>,
    /// Number of the inputs that count against the limits.
    count: usize,
    /// Bytes of these inputs.
    bytes: usize,
    /// Servers with a [`StreamInput::JournalGrown`] in the queue.
    grown_servers: BTreeSet<ServerId>,
    is_closed: bool,
}

/// Sender of the queue.
#[derive(Clone, Debug)]
pub struct InputSender(Arc<InputQueue>);

/// Receiver of the queue. Dropping it closes the queue.
#[derive(Debug)]
pub struct InputReceiver(Arc<InputQueue>);

/// Both ends of a queue.
#[derive(Debug)]
pub struct InputChannel {
    /// Its sender, which can be cloned.
    pub sender: InputSender,
    /// Its receiver.
    pub receiver: InputReceiver,
}

impl InputChannel {
    /// Creates a queue. It exists before the stream service, so that other threads can hold its sender.
    pub fn new(limits: InputLimits) -> InputChannel {
        let (state, arrived, space_available) = (Mutex::default(), Condvar::new(), Condvar::new());
        let queue = Arc::new(InputQueue { limits, state, arrived, space_available });
        InputChannel { sender: InputSender(Arc::clone(&queue)), receiver: InputReceiver(queue) }
    }
}

/// Returns the bytes of an input that count against the limits; `None` if the limits do not apply to it.
fn counted_bytes(input: &StreamInput) -> Option<usize> {
    match input {
        StreamInput::Opened(..) | StreamInput::Answered { .. } => Some(CALL_BYTES),
        StreamInput::Called { what, .. } => Some(
            CALL_BYTES
                + match what {
                    Call::Add { data, .. } => data.bytes().len(),
                    Call::Poll { want, .. } | Call::Ready { want, .. } => {
                        TYPE_BYTES * want.as_ref().map_or(0, BTreeSet::len)
                    }
                    Call::Ping { .. } | Call::Register(_) => 0,
                },
        ),
        StreamInput::Fetched(events) => Some(size_of_val(events.as_slice())),
        StreamInput::Stored(events) => Some(events.iter().map(|event| size_of_val(event) + event.payload_size()).sum()),
        StreamInput::Closed(_)
        | StreamInput::Requested(..)
        | StreamInput::Registered { .. }
        | StreamInput::JournalGrown(_)
        | StreamInput::Found { .. }
        | StreamInput::Stop => None,
    }
}

impl InputQueue {
    fn state(&self) -> MutexGuard<'_, InputQueueState> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self, state: &InputQueueState, bytes: usize) -> bool {
        let InputLimits { count_max, bytes_max } = self.limits;
        count_max <= state.count || (0 < state.bytes && bytes_max < state.bytes + bytes)
    }

    fn is_half_full(&self, state: &InputQueueState, bytes: usize) -> bool {
        let InputLimits { count_max, bytes_max } = self.limits;
        count_max / 2 <= state.count || bytes_max / 2 < state.bytes + bytes
    }

    fn add(&self, mut state: MutexGuard<'_, InputQueueState>, input: StreamInput, counted: Option<usize>) {
        if let Some(bytes) = counted {
            (state.count, state.bytes) = (state.count + 1, state.bytes + bytes);
        }
        state.inputs.push_back(input);
        drop(state);
        self.arrived.notify_one();
    }
}

impl InputSender {
    /// Adds an input without waiting.
    ///
    /// Inputs of clients, stored events and fetched events are refused beyond the limits. The others are always taken,
    /// since their number is bounded:
    /// - one [`StreamInput::Closed`] for each registered client,
    /// - one [`StreamInput::Registered`] or [`StreamInput::Found`] for each request of the stream service,
    /// - one [`StreamInput::JournalGrown`] for each server,
    /// - the number of [`StreamInput::Requested`] that the engine allows.
    ///
    /// # Errors
    /// The limits are reached, or the stream service has ended. The input is dropped.
    pub fn push(&self, input: StreamInput) -> Result<(), InputPushError> {
        let counted = counted_bytes(&input);
        let mut state = self.0.state();
        match &input {
            _ if state.is_closed => return Err(InputPushError::Closed),
            // Stored events leave half of the queue to clients.
            StreamInput::Stored(_) if self.0.is_half_full(&state, counted.unwrap_or_default()) => {
                return Err(InputPushError::Full);
            }
            _ if counted.is_some_and(|bytes| self.0.is_full(&state, bytes)) => return Err(InputPushError::Full),
            StreamInput::JournalGrown(server) if !state.grown_servers.insert(*server) => return Ok(()),
            _ => {}
        }
        self.0.add(state, input, counted);
        Ok(())
    }

    /// Adds an input, and waits for room while the stream service runs.
    ///
    /// # Errors
    /// The stream service has ended. The input is dropped.
    pub fn push_wait(&self, input: StreamInput) -> Result<(), InputPushError> {
        let counted = counted_bytes(&input);
        let is_full =
            |state: &mut InputQueueState| !state.is_closed && counted.is_some_and(|bytes| self.0.is_full(state, bytes));
        let state = self.0.space_available.wait_while(self.0.state(), is_full).unwrap_or_else(PoisonError::into_inner);
        if state.is_closed {
            return Err(InputPushError::Closed);
        }
        self.0.add(state, input, counted);
        Ok(())
    }
}

impl RegistrationReceiver for InputSender {
    fn on_registered(&self, number: u64, registered: Result<EventId, EventRefusal>) {
        // A thread that has ended needs no outcome.
        drop(self.push(StreamInput::Registered { number, registered }));
    }
}

impl JournalObserver for InputSender {
    fn on_stored(&self, events: &[Event]) {
        for of_server in events.chunk_by(|one, next| one.id.server == next.id.server) {
            // If there is no room, the streams read the journal later. A closed queue means that the peer is stopping.
            if self.push(StreamInput::Stored(of_server.to_vec())) == Err(InputPushError::Full) {
                drop(self.push(StreamInput::JournalGrown(of_server[0].id.server)));
            }
        }
    }

    fn on_fetched(&self, events: Vec<FetchedEvent>) {
        // A closed queue means that the peer is stopping.
        drop(self.push_wait(StreamInput::Fetched(events)));
    }
}

impl InputReceiver {
    /// Takes the next input; waits for at most `timeout`.
    pub fn pop_wait(&self, timeout: Duration) -> Option<StreamInput> {
        let is_empty = |state: &mut InputQueueState| state.inputs.is_empty();
        let state = self.0.arrived.wait_timeout_while(self.0.state(), timeout, is_empty);
        self.take(state.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Takes the next input if there is one.
    pub fn pop(&self) -> Option<StreamInput> {
        self.take(self.0.state())
    }

    fn take(&self, mut state: MutexGuard<'_, InputQueueState>) -> Option<StreamInput> {
        let input = state.inputs.pop_front()?;
        if let StreamInput::JournalGrown(server) = &input {
            state.grown_servers.remove(server);
        }
        if let Some(bytes) = counted_bytes(&input) {
            (state.count, state.bytes) = (state.count - 1, state.bytes - bytes);
            drop(state);
            self.0.space_available.notify_all();
        }
        Some(input)
    }
}

impl Drop for InputReceiver {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_closed = true;
        // Dropping an input can send its missing answer, which takes other locks.
        let inputs = std::mem::take(&mut state.inputs);
        drop(state);
        self.0.space_available.notify_all();
        drop(inputs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::timestamp::Timestamp;
    use crate::listener::ftn18::stream_service::ConnectionId;
    use std::thread;

    fn opened(number: u64) -> StreamInput {
        StreamInput::Opened(ConnectionId(number), Box::new(|_| {}))
    }

    fn fetched() -> StreamInput {
        let id = EventId { server: ServerId(1), session: 1, instance: 1 };
        StreamInput::Fetched(vec![FetchedEvent { id, is_lost: false }])
    }

    #[test]
    fn full_queue_refuses_clients_but_accepts_closes() {
        let InputChannel { sender: inputs, receiver } =
            InputChannel::new(InputLimits { count_max: 2, bytes_max: 1 << 20 });
        assert_eq!([1, 2, 3].map(|number| inputs.push(opened(number)).is_ok()), [true, true, false]);
        assert_eq!(inputs.push(opened(3)), Err(InputPushError::Full));
        assert_eq!(inputs.push(StreamInput::Closed(ConnectionId(1))), Ok(()));
        assert!(matches!(receiver.pop(), Some(StreamInput::Opened(ConnectionId(1), _))));
        assert_eq!(inputs.push(opened(3)), Ok(()), "there is room again");
        drop(receiver);
        assert_eq!(inputs.push(StreamInput::Closed(ConnectionId(2))), Err(InputPushError::Closed));
    }

    #[test]
    fn full_bytes_refuse_more_than_one_call() {
        let InputChannel { sender: inputs, receiver } =
            InputChannel::new(InputLimits { count_max: 9, bytes_max: CALL_BYTES });
        assert_eq!([1, 2].map(|number| inputs.push(opened(number)).is_ok()), [true, false]);
        drop(receiver.pop());
        assert_eq!(inputs.push(opened(2)), Ok(()));
    }

    #[test]
    fn growth_of_one_server_is_queued_once() {
        let InputChannel { sender: inputs, receiver } = InputChannel::new(InputLimits { count_max: 0, bytes_max: 0 });
        for server in [1, 1, 2, 1] {
            inputs.push(StreamInput::JournalGrown(ServerId(server))).unwrap();
        }
        let servers = |receiver: &InputReceiver| {
            let next = || match receiver.pop()? {
                StreamInput::JournalGrown(server) => Some(server.0),
                other => panic!("{other:?}"),
            };
            std::iter::from_fn(next).collect::<Vec<u32>>()
        };
        assert_eq!(servers(&receiver), [1, 2]);
        inputs.push(StreamInput::JournalGrown(ServerId(1))).unwrap();
        assert_eq!(servers(&receiver), [1], "later growth is queued again");
    }

    #[test]
    fn stored_events_leave_half_of_the_queue() {
        let InputChannel { sender: inputs, receiver } =
            InputChannel::new(InputLimits { count_max: 4, bytes_max: 1 << 20 });
        let event = |session| Event {
            id: EventId { server: ServerId(1), session, instance: 1 },
            event_type: "a".parse().unwrap(),
            timestamp: Timestamp::MIN,
            source_timestamp: None,
            payload: None,
        };
        (1..=3).for_each(|session| inputs.on_stored(&[event(session)]));
        assert_eq!([3, 4, 5].map(|number| inputs.push(opened(number)).is_ok()), [true, true, false]);
        let stored = || match receiver.pop().unwrap() {
            StreamInput::Stored(events) => events[0].id.session,
            StreamInput::JournalGrown(_) => 0,
            other => panic!("{other:?}"),
        };
        assert_eq!([stored(), stored(), stored()], [1, 2, 0]);
    }

    #[test]
    fn fetched_events_wait_for_room() {
        let InputChannel { sender: inputs, receiver } =
            InputChannel::new(InputLimits { count_max: 1, bytes_max: 1 << 20 });
        inputs.push(opened(1)).unwrap();
        assert_eq!(inputs.push(fetched()), Err(InputPushError::Full));
        let waiting = thread::spawn({
            let inputs = inputs.clone();
            move || [inputs.push_wait(fetched()), inputs.push_wait(fetched())]
        });
        assert!(matches!(receiver.pop_wait(Duration::from_secs(60)), Some(StreamInput::Opened(..))));
        assert!(matches!(receiver.pop_wait(Duration::from_secs(60)), Some(StreamInput::Fetched(_))));
        while receiver.0.state().count == 0 {
            thread::yield_now();
        }
        let last = thread::spawn(move || inputs.push_wait(fetched()));
        drop(receiver);
        assert_eq!(waiting.join().unwrap(), [Ok(()), Ok(())]);
        assert_eq!(last.join().unwrap(), Err(InputPushError::Closed));
    }
}
