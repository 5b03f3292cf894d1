//! The connection to a peer through its Unix socket, or through shared memory beside it. One thread reads and writes,
//! so that publishing never blocks. In shared memory the publishers write themselves, and the thread writes only what
//! did not fit; a receiver may take its place.

mod buffers;
mod receiving;

use self::buffers::ProgramBuffers;
use self::receiving::DriverSlot;
use super::events::{EventError, EventReply};
use super::local_handshake::{connect, handshake, request_rings};
use super::streams::{StreamError, StreamReply};
use super::{FOREVER, OpenError, PublishError, SubscribeError, WaitError};
use crate::daemon::answer_parts::PartSender;
use crate::daemon::clients::distinct;
use crate::daemon::engine::shutdown::panic_text;
use crate::daemon::local_socket::check_directory;
use crate::daemon::mailbox::{AnswerSender, SubscriptionRequest};
use crate::daemon::short_poll::ShortPoll;
use crate::daemon::subscription_queue::{Notice, SubscriptionQueue};
use crate::delivery::Deliveries;
use crate::listener::event::{EventAnswer, EventRequest};
use crate::listener::frame::{ClientFrame, PeerFrame, Welcome};
use crate::listener::local::ClientEndpoint;
use crate::listener::publish_run::PublishRunBuilder;
use crate::listener::refusal::RefusalReason;
use crate::listener::session_request::ReceiverCondition;
use crate::listener::stream::StreamRequest;
use crate::message::{Loss, LossScope, Message, MessageRef, PeerRef, QuestionFailure, SubId, SubscriptionFilter};
use crate::proto::question::{Answer, Question};
use crate::shared_memory::{
    BorrowedBuffers, DescriptorQueue, RingFault, RingReader, RingWriter, UnreadBuffers, send_doorbell,
};
use crate::subject::Subject;
use bytes::{Buf, Bytes, BytesMut};
use crossbeam_channel::Sender;
use mio::net::UnixStream;
use mio::{Events, Interest, Poll, Token, Waker};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of bytes queued for the peer; the thread may hold the same amount again.
const OUT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum bytes of one read.
const READ_BYTES: usize = 64 * 1024;
/// Maximum number of reads of the thread between two writes.
const READS_MAX: usize = 16;
/// Unread bytes in the ring at which the client starts to pack messages. Packed messages cost the peer less, and do not
/// wait longer.
const UNREAD_MIN: u64 = 512;
/// Maximum number of bytes packed while the peer reads.
const PACKED_BYTES: usize = 32 * 1024;
/// Time that closing waits for the peer to accept the remaining output.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

const STREAM: Token = Token(0);
const WAKER: Token = Token(1);

/// State shared by the users' threads and the connection thread.
pub(super) struct LocalConnection {
    state: Mutex<LocalConnectionState>,
    queues: Mutex<BTreeMap<SubId, Arc<SubscriptionQueue>>>,
    send_space: Condvar,
    waker: Waker,
    /// The socket. With shared memory it carries only doorbells.
    stream: UnixStream,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Wakes the thread while receivers have the driver.
    thread_request: Condvar,
    /// True if receivers must not drive the connection.
    is_thread_required: AtomicBool,
}

#[derive(Default)]
struct LocalConnectionState {
    out: BytesMut,
    /// Ring to the peer, if frames go through shared memory.
    ring: Option<RingWriter>,
    /// Buffers that the peer has, and whose frames it has not read yet.
    unread_buffers: UnreadBuffers,
    /// Buffers of this program, if frames go through shared memory.
    buffers: Option<ProgramBuffers>,
    /// Builder of the last publish run in `out`, to which further messages can be added.
    run: PublishRunBuilder,
    is_sleeping: bool,
    driver_slot: DriverSlot,
    writers_waiting: usize,
    /// True once the user closes the connection: the thread writes the remaining output, then stops.
    is_closing: bool,
    /// True once the peer no longer reads.
    is_write_closed: bool,
    /// Reason why the connection has ended, if it has.
    end_reason: Option<String>,
    next_token: u64,
    pending_subscribes: BTreeMap<SubId, Sender<Result<(), RefusalReason>>>,
    pending_shows: BTreeMap<u32, Sender<Value>>,
    pending_questions: BTreeMap<u64, AnswerSender>,
    pending_flushes: BTreeMap<u64, Sender<Result<(), RefusalReason>>>,
    events: BTreeMap<u64, PartSender<EventReply>>,
    streams: BTreeMap<u64, Sender<StreamReply>>,
    /// Refusal reason of the first message refused since the last flush was answered.
    refused: Option<RefusalReason>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of the locks. If one did, the data inside would still be consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalConnection {
    /// Connects, exchanges greetings, and starts the thread. Requests shared memory if `wants_rings`.
    pub(super) fn open(
        path: &Path,
        name: &str,
        wants_rings: bool,
    ) -> Result<(Arc<LocalConnection>, Welcome), OpenError> {
        let system = |step| move |error| OpenError::System { step, error };
        let no_peer = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => OpenError::NoPermission { path: path.to_owned() },
            _ => OpenError::NoPeer { path: path.to_owned(), error },
        };
        check_directory(path).map_err(OpenError::Directory)?;
        let mut socket = connect(path).map_err(no_peer)?;
        let mut endpoint = ClientEndpoint::new();
        let welcome = handshake(&mut socket, &mut endpoint, path, name)?;
        let rings = match wants_rings && welcome.offers_shared_memory {
            true => match request_rings(&mut socket, &mut endpoint, path) {
                Err(OpenError::System { step, error }) => {
                    // The peer now expects frames in the memory, so this connection is of no use. The process may have
                    // no descriptor left for a second one.
                    drop(socket);
                    tracing::warn!(%error, "cannot {step}; the socket is used");
                    return LocalConnection::open(path, name, false);
                }
                rings => rings?,
            },
            false => None,
        };
        socket.set_nonblocking(true).map_err(system("prepare the connection"))?;
        let mut stream = UnixStream::from_std(OwnedFd::from(socket).into());
        let poll = Poll::new().map_err(system("open an event queue"))?;
        // With rings the socket has room whenever the peer reads a doorbell, which concerns nobody.
        let interest = match rings {
            Some(_) => Interest::READABLE,
            None => Interest::READABLE | Interest::WRITABLE,
        };
        poll.registry().register(&mut stream, STREAM, interest).map_err(system("watch the connection"))?;
        let (reader, ring) = rings.unzip();
        let buffers = ring.as_ref().map(ProgramBuffers::new);
        let local_connection = Arc::new(LocalConnection {
            state: Mutex::new(LocalConnectionState { ring, buffers, ..LocalConnectionState::default() }),
            queues: Mutex::default(),
            send_space: Condvar::new(),
            waker: Waker::new(poll.registry(), WAKER).map_err(system("make a waker"))?,
            stream,
            thread: Mutex::default(),
            thread_request: Condvar::new(),
            is_thread_required: AtomicBool::new(false),
        });
        let driver = ConnectionDriver::new(local_connection.clone(), poll, endpoint, reader);
        let thread = std::thread::Builder::new().name("seqcast-attached".into()).spawn(move || driver.run());
        *lock(&local_connection.thread) = Some(thread.map_err(system("start a thread"))?);
        Ok((local_connection, welcome))
    }

    pub(super) fn publish(&self, message: Message, timeout: Duration) -> Result<(), PublishError> {
        let bytes = message.body_bytes();
        if MessageRef::from(&message).is_plain() && PublishRunBuilder::packs(bytes) {
            return self.publish_payload(&message.subject, &message.payload, timeout);
        }
        if let Some(buffer) = self.buffer_of(&message.payload) {
            return self.publish_buffer(message, &buffer, timeout);
        }
        let mut state = self.send_space(bytes, timeout)?;
        state.push(&ClientFrame::Publish(message));
        self.submit(state, false);
        Ok(())
    }

    /// Publishes a message that has only a subject and a payload.
    pub(super) fn publish_payload(
        &self,
        subject: &Subject,
        payload: &[u8],
        timeout: Duration,
    ) -> Result<(), PublishError> {
        if !PublishRunBuilder::packs(payload.len()) {
            return self.publish(Message::new(subject.clone(), Bytes::copy_from_slice(payload)), timeout);
        }
        let mut state = self.send_space(payload.len(), timeout)?;
        let LocalConnectionState { run, out, .. } = &mut *state;
        run.push(out, subject, payload);
        self.submit(state, true);
        Ok(())
    }

    /// Waits at most `timeout` until the queue has room for `bytes`.
    #[inline]
    fn send_space(
        &self,
        bytes: usize,
        timeout: Duration,
    ) -> Result<MutexGuard<'_, LocalConnectionState>, PublishError> {
        self.await_space(timeout, |state| state.is_full(bytes))
    }

    /// Waits at most `timeout` while `is_full` holds.
    fn await_space(
        &self,
        timeout: Duration,
        mut is_full: impl FnMut(&mut LocalConnectionState) -> bool,
    ) -> Result<MutexGuard<'_, LocalConnectionState>, PublishError> {
        let mut state = lock(&self.state);
        if !timeout.is_zero() && is_full(&mut state) {
            state.writers_waiting += 1;
            self.request_thread(&mut state);
            let waits = |state: &mut LocalConnectionState| is_full(state) && state.is_open();
            state = self.send_space.wait_timeout_while(state, timeout, waits).unwrap_or_else(PoisonError::into_inner).0;
            state.writers_waiting -= 1;
        }
        if !state.is_open() {
            return Err(PublishError::Closed);
        }
        if is_full(&mut state) { Err(PublishError::Full) } else { Ok(state) }
    }

    pub(super) fn subscribe(
        &self,
        sub: SubId,
        request: SubscriptionRequest,
        queue: Arc<SubscriptionQueue>,
        answer: Sender<Result<(), RefusalReason>>,
    ) -> Result<(), SubscribeError> {
        let mut queues = lock(&self.queues);
        self.add_queue(&queue, queues.is_empty());
        queues.insert(sub, queue);
        drop(queues);
        let SubscriptionRequest { wanted: SubscriptionFilter { pattern, queue: group, .. }, mode, wants_discovery } =
            request;
        let sent = self.send(&ClientFrame::Subscribe { sub, pattern, queue: group, mode, wants_discovery }, |state| {
            state.pending_subscribes.insert(sub, answer);
        });
        if sent.is_err() {
            lock(&self.queues).remove(&sub);
            return Err(SubscribeError::Closed);
        }
        Ok(())
    }

    pub(super) fn unsubscribe(&self, sub: SubId) {
        let mut queues = lock(&self.queues);
        if let Some(queue) = queues.remove(&sub) {
            queue.close();
            if queues.len() <= 1 {
                self.remove_queue(queues.values().next());
            }
        }
        drop(queues);
        // If the peer is gone, its subscriptions are gone too.
        let _ = self.send(&ClientFrame::Unsubscribe { sub }, |_| {});
    }

    pub(super) fn request_history(
        &self,
        peer: PeerRef,
        question: &Question,
        timeout: Duration,
        answer: AnswerSender,
    ) -> Result<(), WaitError> {
        let id = {
            let mut state = lock(&self.state);
            if OUT_BYTES_MAX < state.out.len() {
                return Err(WaitError::Timeout);
            }
            state.token()
        };
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        self.send(&ClientFrame::History { id, timeout_ms, peer, question: question.encode() }, |state| {
            state.pending_questions.insert(id, answer);
        })
    }

    pub(super) fn begin_await(
        &self,
        sub: SubId,
        condition: ReceiverCondition,
        subject: Subject,
        timeout: Duration,
    ) -> Result<(), WaitError> {
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        self.send(&ClientFrame::Await { sub, condition, timeout_ms, subject }, |_| {})
    }

    pub(super) fn show(&self, query: &Value, answer: Sender<Value>) -> Result<(), WaitError> {
        let query = serde_json::to_vec(query).expect("JSON values can be written").into();
        let id = lock(&self.state).token() as u32;
        self.send(&ClientFrame::Show { id, query }, |state| {
            state.pending_shows.insert(id, answer);
        })
    }

    pub(super) fn flush(&self, answer: Sender<Result<(), RefusalReason>>) -> Result<(), WaitError> {
        let token = lock(&self.state).token();
        self.send(&ClientFrame::Flush { token }, |state| {
            state.pending_flushes.insert(token, answer);
        })
    }

    /// Sends a request about events; waits while too much output is queued.
    pub(super) fn request_events(
        &self,
        request: EventRequest,
        answer: PartSender<EventReply>,
    ) -> Result<(), EventError> {
        let send_space = self.send_space(0, FOREVER).map_err(|error| match error {
            PublishError::Full => EventError::Timeout,
            _ => EventError::Closed,
        });
        let id = send_space?.token();
        let sent = self.send(&ClientFrame::Events { id, request }, |state| {
            state.events.insert(id, answer);
        });
        sent.map_err(|_| EventError::Closed)
    }

    /// Sends a request about streams; waits while too much output is queued.
    pub(super) fn request_stream(
        &self,
        request: StreamRequest,
        answer: Sender<StreamReply>,
    ) -> Result<(), StreamError> {
        let send_space = self.send_space(0, FOREVER).map_err(|error| match error {
            PublishError::Full => StreamError::Timeout,
            _ => StreamError::Closed,
        });
        let id = send_space?.token();
        let sent = self.send(&ClientFrame::Streams { id, request }, |state| {
            state.streams.insert(id, answer);
        });
        sent.map_err(|_| StreamError::Closed)
    }

    /// Writes the queued output, as far as the peer accepts it in time, and ends the connection.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closing = true;
        self.wake(state);
        if let Some(thread) = lock(&self.thread).take() {
            // The thread has printed its panic already; there is nothing to add.
            let _ = thread.join();
        }
    }

    /// Returns whether frames go through shared memory.
    pub(super) fn uses_rings(&self) -> bool {
        lock(&self.state).ring.is_some()
    }

    /// Returns the reason why the connection has ended, if it has.
    pub(super) fn end_reason(&self) -> Option<String> {
        lock(&self.state).end_reason.clone()
    }

    fn send(&self, frame: &ClientFrame, register: impl FnOnce(&mut LocalConnectionState)) -> Result<(), WaitError> {
        let mut state = lock(&self.state);
        if !state.is_open() {
            return Err(WaitError::Closed);
        }
        state.push(frame);
        register(&mut state);
        self.request_thread(&mut state);
        self.submit(state, false);
        Ok(())
    }

    /// Writes queued output to the ring, or wakes the thread to write it to the socket. Output for the ring may be packed
    /// with later messages if `may_wait`.
    #[inline]
    fn submit(&self, mut state: MutexGuard<'_, LocalConnectionState>, may_wait: bool) {
        if state.ring.is_none() {
            return self.wake(state);
        }
        let queued = state.out.len();
        let written = state.write_ring(may_wait);
        // The ring no longer asks for the doorbell that would let the thread wake them.
        let frees_waiting_writers = state.out.len() < queued && 0 < state.writers_waiting;
        if !state.out.is_empty() {
            self.request_thread(&mut state);
        }
        drop(state);
        if frees_waiting_writers {
            self.send_space.notify_all();
        }
        match written {
            Ok(true) => send_doorbell(&self.stream),
            Ok(false) => {}
            Err(fault) => self.end(violation(fault)),
        }
    }

    fn wake(&self, mut state: MutexGuard<'_, LocalConnectionState>) {
        self.request_thread(&mut state);
        if std::mem::take(&mut state.is_sleeping) {
            drop(state);
            self.waker.wake().expect("an eventfd takes one more wake-up");
        }
    }

    /// Ends the connection and notifies every waiting caller.
    fn end(&self, reason: String) {
        let mut state = lock(&self.state);
        state.end_reason.get_or_insert(reason);
        state.pending_subscribes.clear();
        state.pending_shows.clear();
        state.pending_questions.clear();
        state.pending_flushes.clear();
        state.events.clear();
        state.streams.clear();
        state.discard();
        // The program may keep its handle for long; the memory is of no more use.
        (state.ring, state.buffers) = (None, None);
        drop(state);
        // It fails if the peer has closed the connection already.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.send_space.notify_all();
        for queue in lock(&self.queues).values() {
            queue.close();
        }
    }

    /// Handles a frame. Queues that received an item and whose readers have yet to be woken go to `unnotified`.
    fn on_frame(&self, frame: PeerFrame, unnotified: &mut Vec<Arc<SubscriptionQueue>>) {
        match frame {
            PeerFrame::Message { subs, delivery } => self.on_messages(&subs, &delivery.into(), unnotified),
            PeerFrame::MessageRun { subs, deliveries } => self.on_messages(&subs, &deliveries, unnotified),
            PeerFrame::Loss { subs, loss } => self.on_loss(&subs, &loss),
            PeerFrame::Dropped { counts } => self.on_dropped(counts.into_iter()),
            PeerFrame::Subscribed { sub } => {
                if let Some(answer) = lock(&self.state).pending_subscribes.remove(&sub) {
                    // The caller may have stopped waiting.
                    let _ = answer.send(Ok(()));
                }
            }
            PeerFrame::Refused(refused) => {
                let mut state = lock(&self.state);
                match refused.sub {
                    Some(sub) => {
                        if let Some(answer) = state.pending_subscribes.remove(&sub) {
                            let _ = answer.send(Err(refused.reason));
                        }
                    }
                    None => {
                        tracing::warn!(reason = %refused.reason, "message refused by the peer");
                        if refused.reason == RefusalReason::BufferLost {
                            state.buffers.iter_mut().for_each(ProgramBuffers::reset_descriptors);
                        }
                        state.refused.get_or_insert(refused.reason);
                    }
                }
            }
            PeerFrame::Shown { id, answer } => {
                let json = serde_json::from_slice(&answer)
                    .unwrap_or_else(|error| serde_json::json!({ "error": format!("the answer is no JSON: {error}") }));
                if let Some(waiting) = lock(&self.state).pending_shows.remove(&id) {
                    let _ = waiting.send(json);
                }
            }
            PeerFrame::Flushed { token } => {
                let mut state = lock(&self.state);
                if let Some(waiting) = state.pending_flushes.remove(&token) {
                    let _ = waiting.send(state.refused.take().map_or(Ok(()), Err));
                }
            }
            PeerFrame::Answered { id, answer } => self.on_answered(id, answer),
            PeerFrame::Discovered { sub, publisher } => {
                lock(&self.queues).get(&sub).into_iter().for_each(|queue| queue.push_publisher(publisher.clone()));
            }
            PeerFrame::Awaited { sub } => {
                lock(&self.queues).get(&sub).into_iter().for_each(|queue| queue.push_awaited());
            }
            PeerFrame::Events { id, answer } => self.on_events(id, answer),
            PeerFrame::Streams { id, answer } => {
                if let Some(waiting) = lock(&self.state).streams.remove(&id) {
                    // The caller may have stopped waiting.
                    let _ = waiting.send(answer);
                }
            }
            PeerFrame::Bye { text, .. } => self.end(text),
            PeerFrame::MessageBuffer { .. } | PeerFrame::BuffersFreed => unreachable!("the driver has the buffers"),
            PeerFrame::Segment(_) => self.end(violation("it answers a request that was not made")),
            PeerFrame::Welcome(_) => unreachable!("a second greeting is a fault"),
        }
    }

    fn on_dropped(&self, counts: impl Iterator<Item = (SubId, u64)>) {
        let queues = lock(&self.queues);
        for (sub, count) in counts {
            queues.get(&sub).into_iter().for_each(|queue| queue.push(Notice::Dropped(count)));
        }
    }

    fn on_messages(&self, subs: &[SubId], deliveries: &Deliveries, unnotified: &mut Vec<Arc<SubscriptionQueue>>) {
        let queues = lock(&self.queues);
        for queue in distinct(subs.iter().filter_map(|sub| queues.get(sub)).collect()) {
            queue.push_messages_silently(deliveries.clone());
            if !unnotified.last().is_some_and(|last| Arc::ptr_eq(last, queue)) {
                unnotified.push(queue.clone());
            }
        }
    }

    /// Delivers a part of an answer. Parts arrive in order; a part that cannot be decoded ends the request as if there
    /// were none.
    fn on_answered(&self, id: u64, answer: Result<Bytes, QuestionFailure>) {
        let answer = answer.and_then(|part| {
            Answer::decode(&part).map_err(|error| {
                tracing::warn!(%error, "an answer of the peer cannot be read");
                QuestionFailure::Malformed
            })
        });
        let mut state = lock(&self.state);
        let is_last = answer.as_ref().map_or(true, |part| part.last);
        let waiting =
            if is_last { state.pending_questions.remove(&id) } else { state.pending_questions.get(&id).cloned() };
        // The caller may have stopped waiting.
        if waiting.is_some_and(|waiting| !waiting.send(answer)) {
            state.pending_questions.remove(&id);
        }
    }

    /// Delivers a part of an answer about events; the last part ends the request.
    fn on_events(&self, id: u64, answer: EventReply) {
        let is_last = !matches!(&answer, Ok(EventAnswer::Found(part)) if !part.is_last);
        let mut state = lock(&self.state);
        let waiting = if is_last { state.events.remove(&id) } else { state.events.get(&id).cloned() };
        // The caller may have stopped waiting, or too many parts are queued.
        if waiting.is_some_and(|waiting| !waiting.send(answer)) {
            state.events.remove(&id);
        }
    }

    /// Reports a loss. A loss that cannot be assigned to subjects concerns every subscription.
    fn on_loss(&self, subs: &[SubId], loss: &Loss) {
        let queues = lock(&self.queues);
        let queues = distinct(match loss.what {
            LossScope::Messages { .. } => subs.iter().filter_map(|sub| queues.get(sub)).collect(),
            _ => queues.values().collect(),
        });
        queues.iter().for_each(|queue| queue.push(Notice::Loss(loss.clone())));
    }
}

impl LocalConnectionState {
    /// Returns whether the queue has no room for `bytes` more bytes.
    fn is_full(&self, bytes: usize) -> bool {
        !self.out.is_empty() && OUT_BYTES_MAX < self.out.len() + bytes
    }

    fn push(&mut self, frame: &ClientFrame) {
        self.run.close();
        frame.encode(&mut self.out);
    }

    /// Moves the queued output out for writing; `spare`, which is empty, takes its place.
    fn take_output(&mut self, spare: &mut BytesMut) {
        self.run.close();
        std::mem::swap(&mut self.out, spare);
    }

    /// Writes the queued output to the ring, as far as there is room. Returns whether the peer is to get a doorbell. If
    /// `may_wait`, output is packed with later messages while the peer is behind; it rings the doorbell when it has read.
    fn write_ring(&mut self, may_wait: bool) -> Result<bool, RingFault> {
        let Some(ring) = &mut self.ring else { return Ok(false) };
        if self.out.is_empty() {
            return Ok(false);
        }
        if may_wait && self.out.len() < PACKED_BYTES && UNREAD_MIN <= ring.unread()? {
            ring.await_reader();
            if UNREAD_MIN <= ring.unread()? {
                return Ok(false);
            }
        }
        // Closing the run for each message that does not fit would make each a frame of its own.
        if ring.is_full()? {
            return Ok(false);
        }
        self.run.close();
        loop {
            match ring.write(&self.out) {
                Ok(count) if count == self.out.len() => self.out.clear(),
                Ok(count) => self.out.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(ring.take_doorbell_request()),
                Err(_) => return Err(RingFault),
            }
            if self.out.is_empty() {
                return Ok(ring.take_doorbell_request());
            }
        }
    }

    /// Discards the queued output, which the peer will not read.
    fn discard(&mut self) {
        self.run.close();
        self.out.clear();
    }

    fn is_open(&self) -> bool {
        self.end_reason.is_none() && !self.is_closing && !self.is_write_closed
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }
}

/// The driver of a connection: it moves bytes both ways, on the thread of the connection or on that of a receiver.
struct ConnectionDriver {
    shared: Arc<LocalConnection>,
    poll: Poll,
    endpoint: ClientEndpoint,
    /// Ring from the peer, if frames go through shared memory.
    reader: Option<RingReader>,
    /// Descriptors of buffers whose frames are not read yet.
    descriptors: DescriptorQueue,
    /// Buffers of the peer, if frames come through shared memory.
    borrowed: Option<BorrowedBuffers>,
    /// True once the peer has closed the socket. What it has written to the ring before is still read.
    is_socket_closed: bool,
    writing: BytesMut,
    /// Queues whose readers are woken once everything of one read has been delivered.
    unnotified: Vec<Arc<SubscriptionQueue>>,
    is_readable: bool,
    is_writable: bool,
    events: Events,
    /// Buffer for one read from the socket.
    scratch: Vec<u8>,
    /// Number of looks at the ring since the last look at the socket.
    unpolled: u32,
    /// Decision of a receiver whether it polls before it sleeps.
    short_poll: ShortPoll,
}

impl ConnectionDriver {
    fn new(
        shared: Arc<LocalConnection>,
        poll: Poll,
        endpoint: ClientEndpoint,
        reader: Option<RingReader>,
    ) -> ConnectionDriver {
        ConnectionDriver {
            shared,
            poll,
            endpoint,
            borrowed: reader.as_ref().map(|reader| BorrowedBuffers::new(reader.buffer_returns())),
            reader,
            descriptors: DescriptorQueue::default(),
            is_socket_closed: false,
            writing: BytesMut::new(),
            unnotified: Vec::new(),
            is_readable: true,
            is_writable: true,
            events: Events::with_capacity(8),
            scratch: vec![0; READ_BYTES],
            unpolled: 0,
            short_poll: ShortPoll::new(),
        }
    }

    fn run(self) {
        let (shared, mut driver) = (self.shared.clone(), Box::new(self));
        let reason = loop {
            // A panic must not leave callers waiting; the state is used only to end their requests.
            match catch_unwind(AssertUnwindSafe(|| driver.run_until_yield())) {
                Ok(Ok(None)) => driver = shared.yield_to_receivers(driver),
                Ok(Ok(Some(reason))) => break reason,
                Ok(Err(error)) => break format!("the connection to the peer broke: {error}"),
                Err(panic) => break format!("the thread of the connection has failed: {}", panic_text(&*panic)),
            }
        };
        shared.end(reason);
    }

    /// Runs until the connection has ended, and returns the reason, or until the thread is to yield to a receiver.
    fn run_until_yield(&mut self) -> io::Result<Option<String>> {
        let mut closing_waits = 0;
        loop {
            let is_closing = self.write()?;
            if let Some(reason) = self.read(READS_MAX)? {
                return Ok(Some(reason));
            }
            if is_closing && (self.is_all_written() || CLOSE_TIMEOUT.as_millis() / 100 <= closing_waits) {
                return Ok(Some("closed".to_owned()));
            }
            if !is_closing && self.may_yield() {
                return Ok(None);
            }
            let timeout = match self.is_idle(is_closing) {
                true if is_closing => Some(Duration::from_millis(100)),
                true => None,
                false => Some(Duration::ZERO),
            };
            closing_waits += u128::from(is_closing && self.is_idle(is_closing));
            self.wait(timeout)?;
        }
    }

    /// Waits at most `timeout` for an event of the socket, or for the waker.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        for event in self.events.iter().filter(|event| event.token() == STREAM) {
            self.is_readable |= event.is_readable() || event.is_read_closed();
            self.is_writable |= event.is_writable();
        }
        Ok(())
    }

    /// Returns whether there is nothing to do before the next event. From then on a new frame, or the close, wakes the
    /// thread. `is_closing` says whether the thread knows of the close: it may have come since the last write.
    fn is_idle(&mut self, is_closing: bool) -> bool {
        let mut state = lock(&self.shared.state);
        let has_work = match &mut self.reader {
            // A doorbell comes when the ring to the peer has room for what is queued.
            Some(reader) => {
                reader.arm();
                self.is_socket_closed || reader.has_bytes()
            }
            None => self.is_writable && (!state.out.is_empty() || !self.writing.is_empty()),
        };
        state.is_sleeping = !self.is_readable && !has_work && state.is_closing == is_closing;
        state.is_sleeping
    }

    /// Writes as much as the ring accepts. Returns whether the user closes the connection.
    fn write_ring(&self) -> io::Result<bool> {
        let mut state = lock(&self.shared.state);
        let owes_doorbell = state.write_ring(false)?;
        let (is_closing, has_waiters) = (state.is_closing, 0 < state.writers_waiting);
        drop(state);
        if owes_doorbell {
            send_doorbell(&self.shared.stream);
        }
        if has_waiters {
            self.shared.send_space.notify_all();
        }
        Ok(is_closing)
    }

    /// Writes as much as the stream accepts. Returns whether the user closes the connection.
    fn write(&mut self) -> io::Result<bool> {
        if self.reader.is_some() {
            return self.write_ring();
        }
        loop {
            if self.writing.is_empty() {
                let mut state = lock(&self.shared.state);
                state.take_output(&mut self.writing);
                if self.writing.is_empty() {
                    return Ok(state.is_closing);
                }
                if 0 < state.writers_waiting {
                    drop(state);
                    self.shared.send_space.notify_all();
                }
            }
            if !self.is_writable {
                return Ok(lock(&self.shared.state).is_closing);
            }
            match (&self.shared.stream).write(&self.writing) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.writing.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_disconnect(&error) => self.on_write_closed(),
                Err(error) => return Err(error),
            }
        }
    }

    /// Handles the peer's close. Its last frames, perhaps with the reason, can still be read; nothing can be sent any
    /// more.
    fn on_write_closed(&mut self) {
        self.writing.clear();
        let mut state = lock(&self.shared.state);
        state.is_write_closed = true;
        state.discard();
        drop(state);
        self.shared.send_space.notify_all();
    }

    /// Returns whether no output waits.
    fn is_all_written(&self) -> bool {
        self.writing.is_empty() && lock(&self.shared.state).out.is_empty()
    }

    /// Handles the frames read so far. Returns the reason if the peer violates the protocol.
    fn handle_frames(&mut self) -> Option<String> {
        loop {
            match self.endpoint.poll_frame() {
                Ok(Some(PeerFrame::BuffersFreed)) => self.borrowed.iter_mut().for_each(BorrowedBuffers::clear),
                Ok(Some(PeerFrame::MessageBuffer { subs, delivery, payload })) => {
                    if let Some(reason) = self.on_buffer(&subs, delivery, payload) {
                        return Some(reason);
                    }
                }
                Ok(Some(frame)) => self.shared.on_frame(frame, &mut self.unnotified),
                Ok(None) => break,
                // The end of the connection closes all queues, which wakes their readers.
                Err(fault) => return Some(violation(fault)),
            }
        }
        self.unnotified.drain(..).for_each(|queue| queue.notify());
        None
    }

    /// Records that a doorbell has come, perhaps with a descriptor.
    fn on_doorbell(&mut self) -> io::Result<()> {
        if self.descriptors.has_fault() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it sends descriptors without frames"));
        }
        self.reader.iter_mut().for_each(RingReader::on_doorbell);
        lock(&self.shared.state).ring.iter_mut().for_each(RingWriter::on_doorbell);
        Ok(())
    }

    /// Reads doorbells, which show that the peer has written or read, and the descriptors beside them.
    fn read_doorbells(&mut self) -> io::Result<()> {
        if !self.is_readable {
            return Ok(());
        }
        match self.descriptors.receive(&self.shared.stream, &mut self.scratch) {
            Ok(0) => self.is_socket_closed = true,
            Ok(_) => return self.on_doorbell(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) if is_disconnect(&error) => self.is_socket_closed = true,
            Err(error) => return Err(error),
        }
        self.is_readable = false;
        Ok(())
    }

    /// Reads from the ring at most `reads_max` times, and returns the reason if the connection has ended.
    fn read_ring(&mut self, reads_max: usize) -> io::Result<Option<String>> {
        self.read_doorbells()?;
        for _ in 0..reads_max {
            let Some(reader) = &mut self.reader else { break };
            match self.endpoint.push_with(|buffer| reader.read(READ_BYTES, buffer)) {
                Ok(0) if self.is_socket_closed => return Ok(Some("the peer closed the connection".to_owned())),
                Ok(0) => break,
                Ok(_) => {}
                Err(fault) => return Ok(Some(violation(fault))),
            }
            if reader.take_doorbell_request() {
                send_doorbell(&self.shared.stream);
            }
            if let Some(reason) = self.handle_frames() {
                return Ok(Some(reason));
            }
        }
        Ok(None)
    }

    /// Reads at most `reads_max` times, and returns the reason if the connection has ended.
    fn read(&mut self, reads_max: usize) -> io::Result<Option<String>> {
        if self.reader.is_some() {
            return self.read_ring(reads_max);
        }
        for _ in 0..reads_max {
            if !self.is_readable {
                break;
            }
            match (&self.shared.stream).read(&mut self.scratch) {
                Ok(0) => return Ok(Some("the peer closed the connection".to_owned())),
                Ok(count) => {
                    self.endpoint.push(&self.scratch[..count]);
                    if let Some(reason) = self.handle_frames() {
                        return Ok(Some(reason));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_disconnect(&error) => return Ok(Some("the peer closed the connection".to_owned())),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Returns the reason of an end for a violation of the protocol.
fn violation(fault: impl std::fmt::Display) -> String {
    format!("the peer violates the local protocol: {fault}")
}

/// Returns whether the other side has closed the connection.
fn is_disconnect(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests;
