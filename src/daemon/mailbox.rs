//! The bounded mailbox through which embedded clients and the threads of services pass requests to the engine.
//!
//! The engine takes all requests at once, so the cost of each is small. A request wakes the engine only if it sleeps.

use crate::daemon::answer_parts::{PartReceiver, PartSender, part_channel};
use crate::daemon::event_request::{EventRequestCost, EventServiceCommand};
#[cfg(feature = "links")]
use crate::daemon::link::lan_query::LanQuery;
use crate::daemon::stream_request::StreamServiceCommand;
use crate::daemon::subscription_queue::SubscriptionQueue;
use crate::listener::refusal::RefusalReason;
use crate::listener::session_request::ReceiverCondition;
use crate::message::{ClientId, DeliveryMode, Message, PeerRef, QuestionFailure, SubId, SubscriptionFilter};
use crate::proto::question::{ANSWER_BYTES_MAX, Answer, PART_BYTES_MAX, Question};
use crate::subject::Subject;
use crossbeam_channel::{RecvTimeoutError, Sender, TryRecvError};
use mio::Waker;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of waiting requests of each kind. The engine can hold the same number in addition.
const COMMANDS_MAX: usize = 16 * 1024;
/// Maximum bytes of waiting messages, apart from the first message.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes charged for a request in addition to its message.
const COMMAND_BYTES: usize = 128;

/// Bytes charged for each poll or fetch of a question.
const ITEM_BYTES: usize = 64;

/// A part of an answer, or the reason why there is none.
pub(crate) type AnswerResult = Result<Answer, QuestionFailure>;

/// Maximum number of unread parts of an answer. A valid answer fits: of two consecutive parts either one fills half a
/// part, or both together exceed one part.
const PARTS_MAX: usize = 64;
const _: () = assert!(2 * (ANSWER_BYTES_MAX / PART_BYTES_MAX) + 2 <= PARTS_MAX);

/// Sender of the parts of an answer. If too many parts are unread, the question ends: [`AnswerReceiver`] returns the
/// unread parts, and then [`QuestionFailure::TooMany`].
#[derive(Clone, Debug)]
pub(crate) struct AnswerSender {
    parts: PartSender<AnswerResult>,
    /// Queue of the subscription whose reader also waits for this answer.
    queue: Option<Arc<SubscriptionQueue>>,
}

impl AnswerSender {
    /// Makes the two ends of a question's answer.
    pub(crate) fn new(queue: Option<Arc<SubscriptionQueue>>) -> (AnswerSender, AnswerReceiver) {
        let (sender, parts) = part_channel(PARTS_MAX);
        (AnswerSender { parts: sender, queue }, AnswerReceiver { parts })
    }

    /// Sends a part without waiting. Returns false if the receiver is gone, or if too many parts are unread.
    pub(crate) fn send(&self, answer: AnswerResult) -> bool {
        let is_accepted = self.parts.send(answer);
        self.queue.iter().for_each(|queue| queue.notify());
        is_accepted
    }
}

impl Drop for AnswerSender {
    /// Wakes the waiting reader, which then detects the end of the answer.
    fn drop(&mut self) {
        self.queue.iter().for_each(|queue| queue.notify());
    }
}

/// Receiver of the parts of an answer.
#[derive(Debug)]
pub(crate) struct AnswerReceiver {
    parts: PartReceiver<AnswerResult>,
}

impl AnswerReceiver {
    /// Waits for the next part for at most `timeout`.
    pub(crate) fn recv_timeout(&self, timeout: Duration) -> Result<AnswerResult, RecvTimeoutError> {
        self.parts.recv_timeout(timeout).or_else(|error| match error {
            RecvTimeoutError::Disconnected => self.overflow().ok_or(error),
            RecvTimeoutError::Timeout => Err(error),
        })
    }

    /// Takes the next part, if there is one.
    pub(crate) fn try_recv(&self) -> Result<AnswerResult, TryRecvError> {
        self.parts.try_recv().or_else(|error| match error {
            TryRecvError::Disconnected => self.overflow().ok_or(error),
            TryRecvError::Empty => Err(error),
        })
    }

    fn overflow(&self) -> Option<AnswerResult> {
        self.parts.has_overflowed().then_some(Err(QuestionFailure::TooMany))
    }
}

/// Subscription that a program requests.
#[derive(Clone, Debug)]
pub(crate) struct SubscriptionRequest {
    pub(crate) wanted: SubscriptionFilter,
    /// Delivery mode; `None` for the default.
    pub(crate) mode: Option<DeliveryMode>,
    /// True if the subscription is notified of publishers.
    pub(crate) wants_discovery: bool,
}

/// A request to the engine.
#[derive(Debug)]
pub(crate) enum EngineCommand {
    Publish {
        client: ClientId,
        message: Message,
    },
    /// Publishes the stored events of a request, in order, then ends it.
    PublishEvents {
        client: ClientId,
        messages: VecDeque<Message>,
        /// Cost of the request.
        ended: EventRequestCost,
    },
    Subscribe {
        client: ClientId,
        sub: SubId,
        request: SubscriptionRequest,
        /// Queue for the events of the subscription.
        queue: Arc<SubscriptionQueue>,
        /// Receives the outcome once the subscription is active or refused.
        answer: Sender<Result<(), RefusalReason>>,
    },
    Unsubscribe {
        client: ClientId,
        sub: SubId,
    },
    /// Queries a peer's history.
    QueryHistory {
        client: ClientId,
        peer: PeerRef,
        question: Question,
        timeout: Duration,
        /// Receives every part of the answer, or the reason why there is none.
        answer: AnswerSender,
    },
    /// Notifies a subscription of this client once the condition holds.
    AwaitReceivers {
        client: ClientId,
        sub: SubId,
        condition: ReceiverCondition,
        subject: Subject,
        timeout: Duration,
    },
    /// For the service of events.
    Events(EventServiceCommand),
    /// For the streams.
    Streams(StreamServiceCommand),
    Show {
        query: serde_json::Value,
        answer: Sender<serde_json::Value>,
    },
    /// Counts subscriptions for the link to other sites.
    #[cfg(feature = "links")]
    Link(LanQuery),
    /// Reports when everything published before has been sent through the socket.
    Flush {
        answer: Sender<()>,
    },
    /// Reports that the client has departed.
    Detach {
        client: ClientId,
    },
    /// Begins a graceful stop.
    Stop,
}

impl EngineCommand {
    fn bytes(&self) -> usize {
        match self {
            EngineCommand::Publish { message, .. } => COMMAND_BYTES + message.body_bytes(),
            EngineCommand::PublishEvents { messages, .. } => {
                let bytes: usize = messages.iter().map(|message| COMMAND_BYTES + message.body_bytes()).sum();
                // The charge is bounded: a larger command would wait for an empty mailbox, which busy publishers could
                // prevent.
                bytes.min(BYTES_MAX / 2)
            }
            EngineCommand::QueryHistory { question, .. } => {
                COMMAND_BYTES
                    + match question {
                        Question::Poll(polls) => ITEM_BYTES * polls.len(),
                        Question::Fetch(fetches) => ITEM_BYTES * fetches.len(),
                        Question::List { .. } => 0,
                        Question::Report(query) => query.len(),
                    }
            }
            _ => COMMAND_BYTES,
        }
    }

    /// Returns whether a full mailbox accepts the command: a command that frees room, or ends something, must not wait
    /// for room.
    fn is_urgent(&self) -> bool {
        use EngineCommand::{Detach, Stop, Streams, Unsubscribe};
        let is_report = matches!(self, Streams(StreamServiceCommand::Report(_)));
        is_report || matches!(self, Unsubscribe { .. } | Detach { .. } | Stop)
    }

    /// Returns whether the command must wait while publishers are blocked. All other commands overtake it then.
    pub(crate) fn must_wait(&self) -> bool {
        use EngineCommand::{AwaitReceivers, Flush, Publish, PublishEvents, QueryHistory};
        let waits_for_room = matches!(self, Publish { .. } | PublishEvents { .. } | Flush { .. });
        waits_for_room || matches!(self, QueryHistory { .. } | AwaitReceivers { .. })
    }
}

/// Commands, each with its arrival number.
#[derive(Debug, Default)]
pub(crate) struct CommandQueue {
    /// Commands that must wait while publishers are blocked.
    waiting: VecDeque<(u64, EngineCommand)>,
    /// All other commands.
    quick: VecDeque<(u64, EngineCommand)>,
}

impl CommandQueue {
    /// Takes the oldest command. While publishers are blocked it takes the oldest that need not wait.
    pub(crate) fn pop(&mut self, is_publish_blocked: bool) -> Option<EngineCommand> {
        let arrival = |queue: &VecDeque<(u64, EngineCommand)>| queue.front().map_or(u64::MAX, |(arrival, _)| *arrival);
        let is_quick = is_publish_blocked || arrival(&self.quick) < arrival(&self.waiting);
        let queue = if is_quick { &mut self.quick } else { &mut self.waiting };
        queue.pop_front().map(|(_, command)| command)
    }

    /// Puts a partly processed command back, in front of all waiting ones.
    pub(crate) fn put_back(&mut self, command: EngineCommand) {
        self.waiting.push_front((0, command));
    }

    /// Returns whether a command can be taken.
    pub(crate) fn has_command(&self, is_publish_blocked: bool) -> bool {
        !self.quick.is_empty() || (!is_publish_blocked && !self.waiting.is_empty())
    }

    /// Returns the number of commands that must wait while publishers are blocked.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// Reason why a command was not accepted.
#[derive(Debug)]
pub(crate) enum PushError {
    /// The mailbox is full, even after the requested wait. The command is returned.
    Full(Box<EngineCommand>),
    /// The engine has ended.
    Closed,
}

#[derive(Debug)]
pub(crate) struct Mailbox {
    state: Mutex<MailboxState>,
    room: Condvar,
    waker: Waker,
}

#[derive(Debug, Default)]
struct MailboxState {
    commands: CommandQueue,
    /// Number of commands accepted so far.
    count: u64,
    /// Bytes of the commands that must wait while publishers are blocked.
    bytes: usize,
    writers_waiting: usize,
    sleep: SleepState,
    /// Reason why the engine has ended, once it has.
    end_reason: Option<String>,
}

/// State of the engine's sleep: it decides which commands must wake the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SleepState {
    #[default]
    Awake,
    /// Asleep until a command arrives that need not wait while publishers are blocked.
    Quick,
    /// Asleep until any command arrives.
    Any,
}

impl MailboxState {
    /// Returns whether there is no room for a command of `bytes` bytes. Publishes that wait while publishers are
    /// blocked take no room from other commands.
    fn is_full_for(&self, must_wait: bool, bytes: usize) -> bool {
        if !must_wait {
            return COMMANDS_MAX <= self.commands.quick.len();
        }
        COMMANDS_MAX <= self.commands.waiting.len() || (0 < self.bytes && BYTES_MAX < self.bytes + bytes)
    }
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Mailbox {
        Mailbox { state: Mutex::default(), room: Condvar::new(), waker }
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState> {
        // No code panics while it holds the lock. If one did, the mailbox would still be consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a command. Waits for room for at most `timeout`; zero means no wait.
    pub(crate) fn push(&self, command: EngineCommand, timeout: Duration) -> Result<(), PushError> {
        let (must_wait, bytes) = (command.must_wait(), command.bytes());
        let mut state = self.lock();
        if !command.is_urgent() && state.is_full_for(must_wait, bytes) && !timeout.is_zero() {
            state.writers_waiting += 1;
            let is_full = |state: &mut MailboxState| state.is_full_for(must_wait, bytes) && state.end_reason.is_none();
            state = self.room.wait_timeout_while(state, timeout, is_full).unwrap_or_else(PoisonError::into_inner).0;
            state.writers_waiting -= 1;
        }
        if state.end_reason.is_some() {
            return Err(PushError::Closed);
        }
        if !command.is_urgent() && state.is_full_for(must_wait, bytes) {
            return Err(PushError::Full(Box::new(command)));
        }
        state.count += 1;
        let arrival = state.count;
        if must_wait {
            state.bytes += bytes;
            state.commands.waiting.push_back((arrival, command));
        } else {
            state.commands.quick.push_back((arrival, command));
        }
        let wakes = match state.sleep {
            SleepState::Awake => false,
            SleepState::Quick => !must_wait,
            SleepState::Any => true,
        };
        if wakes {
            state.sleep = SleepState::Awake;
            drop(state);
            self.waker.wake().expect("an eventfd takes one more wake-up");
        }
        Ok(())
    }

    /// Appends commands to `taken`. Commands that must wait stay in the mailbox if publishers are blocked, or if
    /// `taken` still holds some of that kind.
    pub(crate) fn take(&self, taken: &mut CommandQueue, is_publish_blocked: bool) {
        let mut state = self.lock();
        taken.quick.append(&mut state.commands.quick);
        if !is_publish_blocked && taken.waiting.is_empty() {
            std::mem::swap(&mut state.commands.waiting, &mut taken.waiting);
            state.bytes = 0;
        }
        if 0 < state.writers_waiting {
            drop(state);
            self.room.notify_all();
        }
    }

    /// Returns the number of commands that must wait while publishers are blocked.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().commands.waiting()
    }

    /// Prepares the engine to sleep: from now on a push that the engine can take wakes it. Returns false if a command
    /// is already available.
    pub(crate) fn sleep(&self, is_publish_blocked: bool) -> bool {
        let mut state = self.lock();
        state.sleep = match (state.commands.has_command(is_publish_blocked), is_publish_blocked) {
            (true, _) => SleepState::Awake,
            (false, true) => SleepState::Quick,
            (false, false) => SleepState::Any,
        };
        state.sleep != SleepState::Awake
    }

    /// Closes the mailbox after the engine has ended: it accepts no more commands, and drops the waiting ones, which
    /// notifies their requesters.
    pub(crate) fn close(&self, reason: &str) {
        let mut state = self.lock();
        state.end_reason.get_or_insert_with(|| reason.to_owned());
        state.commands = CommandQueue::default();
        drop(state);
        self.room.notify_all();
    }

    /// Returns the reason why the engine has ended, if it has.
    pub(crate) fn end_reason(&self) -> Option<String> {
        self.lock().end_reason.clone()
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

    fn publish(bytes: usize) -> EngineCommand {
        EngineCommand::Publish { client: ClientId(1), message: Message::new("a".parse().unwrap(), vec![0u8; bytes]) }
    }

    #[test]
    fn full_mailbox_returns_publishes_but_accepts_stop() {
        let (_poll, mailbox) = mailbox();
        while mailbox.push(publish(1 << 20), Duration::ZERO).is_ok() {}
        let Err(PushError::Full(back)) = mailbox.push(publish(1 << 20), Duration::ZERO) else {
            panic!("the mailbox is full")
        };
        assert!(matches!(*back, EngineCommand::Publish { .. }));
        assert!(matches!(mailbox.push(publish(1 << 20), Duration::from_millis(2)), Err(PushError::Full(_))));
        assert!(mailbox.push(EngineCommand::Stop, Duration::ZERO).is_ok());
        let mut taken = CommandQueue::default();
        mailbox.take(&mut taken, false);
        assert!((14..=16).contains(&taken.waiting()), "{}", taken.waiting());
        assert!(mailbox.push(publish(64 << 20), Duration::ZERO).is_ok(), "the first message always fits");
        mailbox.close("stopped");
        assert!(matches!(mailbox.push(EngineCommand::Stop, Duration::ZERO), Err(PushError::Closed)));
    }

    #[test]
    fn writer_waits_for_room() {
        let (_poll, mailbox) = mailbox();
        while mailbox.push(publish(1 << 20), Duration::ZERO).is_ok() {}
        let writer = {
            let mailbox = mailbox.clone();
            std::thread::spawn(move || mailbox.push(publish(1 << 20), Duration::from_secs(30)).is_ok())
        };
        while mailbox.lock().writers_waiting == 0 {
            std::thread::yield_now();
        }
        mailbox.take(&mut CommandQueue::default(), false);
        assert!(writer.join().unwrap());
    }

    #[test]
    fn sleeping_engine_is_woken_once() {
        let (mut poll, mailbox) = mailbox();
        assert!(mailbox.sleep(false));
        mailbox.push(publish(1), Duration::ZERO).unwrap();
        mailbox.push(publish(1), Duration::ZERO).unwrap();
        let mut events = mio::Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::from_secs(30))).unwrap();
        assert_eq!(events.iter().count(), 1);
        assert!(!mailbox.sleep(false), "a command is waiting");
    }

    #[test]
    fn other_commands_overtake_blocked_publishes() {
        let (mut poll, mailbox) = mailbox();
        let detach = |client| EngineCommand::Detach { client: ClientId(client) };
        let mut taken = CommandQueue::default();
        let mut next = |is_publish_blocked| {
            mailbox.take(&mut taken, is_publish_blocked);
            taken.pop(is_publish_blocked).map(|command| match command {
                EngineCommand::Publish { .. } => 0,
                EngineCommand::Detach { client } => client.0,
                other => panic!("{other:?}"),
            })
        };
        for command in [publish(1), detach(1), publish(1), publish(1), detach(2), publish(1)] {
            mailbox.push(command, Duration::ZERO).unwrap();
        }
        assert_eq!([next(false), next(true), next(true), next(true)], [Some(0), Some(1), Some(2), None]);
        mailbox.push(detach(3), Duration::ZERO).unwrap();
        let rest: Vec<Option<u32>> = (0..5).map(|_| next(false)).collect();
        assert_eq!(rest, [Some(0), Some(0), Some(0), Some(3), None], "unblocked commands keep their order");
        assert!(mailbox.sleep(true));
        mailbox.push(publish(1), Duration::ZERO).unwrap();
        let mut events = mio::Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty(), "a blocked publish does not wake the engine");
        mailbox.push(detach(4), Duration::ZERO).unwrap();
        poll.poll(&mut events, Some(Duration::from_secs(30))).unwrap();
        assert_eq!(events.iter().count(), 1);
    }

    #[test]
    fn returned_command_is_taken_first() {
        let (_poll, mailbox) = mailbox();
        let mut taken = CommandQueue::default();
        mailbox.push(EngineCommand::Detach { client: ClientId(1) }, Duration::ZERO).unwrap();
        mailbox.push(publish(7), Duration::ZERO).unwrap();
        mailbox.take(&mut taken, false);
        taken.put_back(publish(3));
        let payload = |command| match command {
            Some(EngineCommand::Publish { message, .. }) => message.payload.len(),
            _ => 0,
        };
        assert_eq!([taken.pop(false), taken.pop(false), taken.pop(false)].map(payload), [3, 0, 7]);
    }

    #[test]
    fn unread_parts_beyond_limit_end_question() {
        let (sender, answers) = AnswerSender::new(None);
        let sent =
            (0..PARTS_MAX + 2).map(|_| sender.send(Err(QuestionFailure::Gone))).filter(|is_sent| *is_sent).count();
        assert_eq!(sent, PARTS_MAX);
        drop(answers.try_recv().unwrap());
        assert!(!sender.send(Err(QuestionFailure::Gone)), "a part is missing already");
        drop(sender);
        let read = std::iter::from_fn(|| answers.try_recv().ok()).take(2 * PARTS_MAX);
        let (rest, end): (Vec<_>, Vec<_>) = read.partition(|part| *part == Err(QuestionFailure::Gone));
        assert_eq!(rest.len(), PARTS_MAX - 1);
        assert_eq!(end[0], Err(QuestionFailure::TooMany));
    }
}
