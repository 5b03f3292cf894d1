//! The bounded mailbox in which programs of the same process leave requests for the engine.
//!
//! The engine takes everything at once, so its cost per request is small, and it is woken only if it sleeps.

use crate::daemon::queue::EventQueue;
use crate::door::frame::Why;
use crate::message::{ClientId, DeliveryMode, Message, PeerRef, SubId};
use crate::proto::effect::Unanswered;
use crate::proto::question::{Answer, Question};
use crate::subject::Pattern;
use crossbeam_channel::Sender;
use mio::Waker;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Requests that wait at most. As many again can be in the engine's hands.
const COMMANDS_MAX: usize = 16 * 1024;
/// Bytes of messages that wait at most, apart from the first message.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes that a request counts beside its message.
const COMMAND_BYTES: usize = 128;

/// Bytes that each poll or fetch of a question counts.
const ITEM_BYTES: usize = 64;

/// Parts of an answer, or why there is none.
pub(crate) type Answered = Result<Answer, Unanswered>;

/// Where the parts of an answer go.
#[derive(Clone, Debug)]
pub(crate) struct AnswerTo {
    parts: Sender<Answered>,
    /// The queue of the subscription that waits for it, beside what it waits for in its queue.
    queue: Option<Arc<EventQueue>>,
}

impl AnswerTo {
    pub(crate) fn new(parts: Sender<Answered>, queue: Option<Arc<EventQueue>>) -> AnswerTo {
        AnswerTo { parts, queue }
    }

    /// Hands a part on. False if nobody waits for it any more.
    pub(crate) fn send(&self, answer: Answered) -> bool {
        let is_wanted = self.parts.send(answer).is_ok();
        self.queue.iter().for_each(|queue| queue.ring());
        is_wanted
    }
}

impl Drop for AnswerTo {
    /// Who waits finds that nothing more comes.
    fn drop(&mut self) {
        self.queue.iter().for_each(|queue| queue.ring());
    }
}

/// A request to the engine.
#[derive(Debug)]
pub(crate) enum Command {
    Publish {
        client: ClientId,
        message: Message,
    },
    Subscribe {
        client: ClientId,
        sub: SubId,
        pattern: Pattern,
        /// `None`: as configured.
        mode: Option<DeliveryMode>,
        /// Whether it is told of publishers.
        news: bool,
        /// Where its events go.
        queue: Arc<EventQueue>,
        /// Told whether it is active.
        answer: Sender<Result<(), Why>>,
    },
    Unsubscribe {
        client: ClientId,
        sub: SubId,
    },
    /// Ask a peer's history.
    Ask {
        client: ClientId,
        peer: PeerRef,
        question: Question,
        timeout: Duration,
        /// Told every part up to the last one, or why there is none.
        answer: AnswerTo,
    },
    Show {
        query: serde_json::Value,
        answer: Sender<serde_json::Value>,
    },
    /// Answered when all that was published before has left the socket.
    Flush {
        answer: Sender<()>,
    },
    /// The client is gone.
    Detach {
        client: ClientId,
    },
    /// Begin a graceful stop.
    Stop,
}

impl Command {
    fn bytes(&self) -> usize {
        match self {
            Command::Publish { message, .. } => COMMAND_BYTES + message.body_bytes(),
            Command::Ask { question, .. } => {
                COMMAND_BYTES
                    + match question {
                        Question::Poll(polls) => ITEM_BYTES * polls.len(),
                        Question::Fetch(fetches) => ITEM_BYTES * fetches.len(),
                        Question::List { .. } => 0,
                    }
            }
            _ => COMMAND_BYTES,
        }
    }

    /// Whether it may pass a full mailbox: what makes room, or ends, must not wait for room.
    fn is_urgent(&self) -> bool {
        matches!(self, Command::Unsubscribe { .. } | Command::Detach { .. } | Command::Stop)
    }
}

/// Why a command was not taken.
#[derive(Debug)]
pub(crate) enum Rejected {
    /// No room, even after waiting as long as was asked; it comes back.
    Full(Box<Command>),
    /// The engine has ended.
    Closed,
}

#[derive(Debug)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    room: Condvar,
    waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    commands: VecDeque<Command>,
    bytes: usize,
    writers_waiting: usize,
    /// The engine waits for events and must be woken.
    is_sleeping: bool,
    closed: bool,
}

impl State {
    fn is_full_for(&self, bytes: usize) -> bool {
        COMMANDS_MAX <= self.commands.len() || (0 < self.bytes && BYTES_MAX < self.bytes + bytes)
    }
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Mailbox {
        Mailbox { state: Mutex::default(), room: Condvar::new(), waker }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock; if some did, the mailbox would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a command; waits for room for at most `timeout`, zero for not at all.
    pub(crate) fn push(&self, command: Command, timeout: Duration) -> Result<(), Rejected> {
        let bytes = command.bytes();
        let mut state = self.lock();
        if !command.is_urgent() && state.is_full_for(bytes) && !timeout.is_zero() {
            state.writers_waiting += 1;
            let is_full = |state: &mut State| state.is_full_for(bytes) && !state.closed;
            state = self.room.wait_timeout_while(state, timeout, is_full).unwrap_or_else(PoisonError::into_inner).0;
            state.writers_waiting -= 1;
        }
        if state.closed {
            return Err(Rejected::Closed);
        }
        if !command.is_urgent() && state.is_full_for(bytes) {
            return Err(Rejected::Full(Box::new(command)));
        }
        state.bytes += bytes;
        state.commands.push_back(command);
        if std::mem::take(&mut state.is_sleeping) {
            drop(state);
            self.waker.wake().expect("an eventfd takes one more wake-up");
        }
        Ok(())
    }

    /// Moves all commands into `taken`, which must be empty.
    pub(crate) fn take(&self, taken: &mut VecDeque<Command>) {
        debug_assert!(taken.is_empty());
        let mut state = self.lock();
        std::mem::swap(&mut state.commands, taken);
        state.bytes = 0;
        if 0 < state.writers_waiting {
            drop(state);
            self.room.notify_all();
        }
    }

    /// The engine is about to wait: from now on a push wakes it. False if there is something to take instead.
    pub(crate) fn sleep(&self) -> bool {
        let mut state = self.lock();
        state.is_sleeping = state.commands.is_empty();
        state.is_sleeping
    }

    /// The engine has ended: nothing more is taken, and what waits is dropped, which tells those who wait for answers.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.commands.clear();
        drop(state);
        self.room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Poll, Token};

    fn mailbox() -> (Poll, Arc<Mailbox>) {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        (poll, Arc::new(Mailbox::new(waker)))
    }

    fn publish(bytes: usize) -> Command {
        Command::Publish { client: ClientId(1), message: Message::new("a".parse().unwrap(), vec![0u8; bytes]) }
    }

    #[test]
    fn a_full_mailbox_gives_the_command_back_but_takes_what_ends_things() {
        let (_poll, mailbox) = mailbox();
        while mailbox.push(publish(1 << 20), Duration::ZERO).is_ok() {}
        let Err(Rejected::Full(back)) = mailbox.push(publish(1 << 20), Duration::ZERO) else { panic!("it is full") };
        assert!(matches!(*back, Command::Publish { .. }));
        assert!(matches!(mailbox.push(publish(1 << 20), Duration::from_millis(2)), Err(Rejected::Full(_))));
        assert!(mailbox.push(Command::Stop, Duration::ZERO).is_ok());
        let mut taken = VecDeque::new();
        mailbox.take(&mut taken);
        assert!((15..=17).contains(&taken.len()), "{}", taken.len());
        assert!(mailbox.push(publish(64 << 20), Duration::ZERO).is_ok(), "the first message always fits");
        mailbox.close();
        assert!(matches!(mailbox.push(Command::Stop, Duration::ZERO), Err(Rejected::Closed)));
    }

    #[test]
    fn a_writer_waits_for_room() {
        let (_poll, mailbox) = mailbox();
        while mailbox.push(publish(1 << 20), Duration::ZERO).is_ok() {}
        let writer = {
            let mailbox = mailbox.clone();
            std::thread::spawn(move || mailbox.push(publish(1 << 20), Duration::from_secs(30)).is_ok())
        };
        while mailbox.lock().writers_waiting == 0 {
            std::thread::yield_now();
        }
        mailbox.take(&mut VecDeque::new());
        assert!(writer.join().unwrap());
    }

    #[test]
    fn a_sleeping_engine_is_woken_once() {
        let (mut poll, mailbox) = mailbox();
        assert!(mailbox.sleep());
        mailbox.push(publish(1), Duration::ZERO).unwrap();
        mailbox.push(publish(1), Duration::ZERO).unwrap();
        let mut events = mio::Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::from_secs(30))).unwrap();
        assert_eq!(events.iter().count(), 1);
        assert!(!mailbox.sleep(), "there is something to take");
    }
}
