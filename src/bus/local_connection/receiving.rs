//! Receiving without a hand-over: with shared memory, the thread that waits for a notice reads the ring itself.
//!
//! One thread at a time drives a connection. At first it is the thread of the connection. When a receiver waits and
//! nobody else does, that thread yields to the receivers. It takes the connection back when somebody waits
//! for something else, or when the receivers have not come back for a while. Only the receivers of the only queue of a
//! connection may drive it, since others would wait for the first.

use super::{ConnectionDriver, LocalConnection, LocalConnectionState, READS_MAX, lock};
use crate::clock::Clock;
use crate::daemon::subscription_queue::{PopError, QueueItem, SubscriptionQueue};
use crate::time::Instant;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval between checks of the connection's thread whether the receivers still drive.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Number of looks of a busy receiver at the ring between two looks at the socket.
const UNPOLLED_MAX: u32 = 256;

/// Number of looks at the ring between two offers of the processor to other programs.
const LOOKS_PER_YIELD: u32 = 32;

/// The place of the driver while it passes between threads.
#[derive(Default)]
pub(super) struct DriverSlot {
    /// The driver, if the thread of the connection has yielded it and no receiver uses it now.
    parked: Option<Box<ConnectionDriver>>,
    /// True if the thread is to take the connection back.
    needs_thread: bool,
    /// True if the thread sleeps until a receiver returns the driver.
    is_thread_resting: bool,
    /// Number of receivers that wait while another thread drives.
    receivers_waiting: usize,
    /// Number of callers that wait for a notification of a queue in another way than [`LocalConnection::receive`].
    notifications_awaited: usize,
    /// True if a receiver that does not wait has found another thread driving since the last yield.
    is_wanted: bool,
    /// Number of times that a receiver has driven.
    drives: u64,
    /// Queue of all subscriptions, if they have one.
    only_queue: Option<Arc<SubscriptionQueue>>,
}

impl LocalConnectionState {
    /// Returns whether somebody waits for something other than a notice.
    fn has_other_waiters(&self) -> bool {
        0 < self.writers_waiting
            || 0 < self.driver_slot.notifications_awaited
            || !self.out.is_empty()
            || self.is_closing
            || self.end_reason.is_some()
            || !self.pending_subscribes.is_empty()
            || !self.pending_shows.is_empty()
            || !self.pending_questions.is_empty()
            || !self.pending_flushes.is_empty()
            || !self.events.is_empty()
            || !self.streams.is_empty()
    }

    /// Returns whether receivers wait for this thread to yield, and nobody else waits.
    fn may_yield(&self) -> bool {
        self.driver_slot.only_queue.is_some()
            && (0 < self.driver_slot.receivers_waiting || self.driver_slot.is_wanted)
            && !self.has_other_waiters()
    }
}

impl LocalConnection {
    /// Takes the next item of a queue, and waits for one: without limit, or for at most `timeout`. Drives the connection
    /// meanwhile if it may.
    pub(in crate::bus) fn receive(
        &self,
        queue: &SubscriptionQueue,
        timeout: Option<Duration>,
    ) -> Result<QueueItem, PopError> {
        let is_busy = timeout == Some(Duration::ZERO);
        let mut until = None;
        loop {
            let notifications = queue.notifications();
            match queue.pop() {
                Err(PopError::Empty) => {}
                item => return item,
            }
            let left = match timeout {
                Some(timeout) if !is_busy => {
                    let now = Clock::now().instant;
                    Some(until.get_or_insert(now + timeout).since(now))
                }
                timeout => timeout,
            };
            let is_last = left == Some(Duration::ZERO);
            let mut state = lock(&self.state);
            if !state.driver_slot.only_queue.as_ref().is_some_and(|only| std::ptr::eq(&**only, queue)) {
                drop(state);
                return queue.pop_wait(left);
            }
            let needs_thread = state.driver_slot.needs_thread;
            match state.driver_slot.parked.take_if(|_| !needs_thread) {
                Some(driver) => {
                    state.driver_slot.drives += 1;
                    drop(state);
                    ReceiverDriver { connection: self, driver: Some(driver) }.turn(queue, left);
                }
                None if is_last => state.driver_slot.is_wanted = true,
                None => {
                    state.driver_slot.receivers_waiting += 1;
                    drop(state);
                    queue.wait_notification(notifications, left);
                    lock(&self.state).driver_slot.receivers_waiting -= 1;
                }
            }
            if is_last {
                return queue.pop();
            }
        }
    }

    /// Waits until the number of notifications of a queue differs from `since`: without limit, or for at most `timeout`.
    /// The thread of the connection drives it meanwhile.
    pub(in crate::bus) fn wait_notification(&self, queue: &SubscriptionQueue, since: u64, timeout: Option<Duration>) {
        let mut state = lock(&self.state);
        state.driver_slot.notifications_awaited += 1;
        self.request_thread(&mut state);
        drop(state);
        queue.wait_notification(since, timeout);
        lock(&self.state).driver_slot.notifications_awaited -= 1;
    }

    /// Has the thread of the connection drive it from now on: somebody waits for a notice in another way than
    /// [`LocalConnection::receive`].
    pub(in crate::bus) fn require_thread(&self) {
        if !self.is_thread_required.swap(true, Relaxed) {
            let mut state = lock(&self.state);
            state.driver_slot.only_queue = None;
            self.request_thread(&mut state);
        }
    }

    /// Has the thread take the driver back from the receivers, since somebody waits for something other than a notice.
    pub(super) fn request_thread(&self, state: &mut LocalConnectionState) {
        if !std::mem::replace(&mut state.driver_slot.needs_thread, true) && state.driver_slot.parked.is_some() {
            self.thread_request.notify_one();
        }
    }

    /// Records a subscription that begins with this queue.
    pub(super) fn add_queue(&self, queue: &Arc<SubscriptionQueue>, is_first: bool) {
        let mut state = lock(&self.state);
        let only = &mut state.driver_slot.only_queue;
        if is_first && !self.is_thread_required.load(Relaxed) {
            *only = Some(queue.clone());
        } else if only.as_ref().is_some_and(|only| !Arc::ptr_eq(only, queue)) {
            *only = None;
            self.request_thread(&mut state);
        }
    }

    /// Records that the last subscription of a queue may have ended.
    pub(super) fn remove_queue(&self, remaining: Option<&Arc<SubscriptionQueue>>) {
        let remaining = remaining.filter(|_| !self.is_thread_required.load(Relaxed));
        lock(&self.state).driver_slot.only_queue = remaining.cloned();
    }

    /// Yields the driver to the receivers, and returns it when this thread is to drive the connection again.
    pub(super) fn yield_to_receivers(&self, driver: Box<ConnectionDriver>) -> Box<ConnectionDriver> {
        let mut state = lock(&self.state);
        let needs_thread = state.has_other_waiters();
        let slot = &mut state.driver_slot;
        (slot.parked, slot.needs_thread, slot.is_wanted) = (Some(driver), needs_thread, false);
        let queue = slot.only_queue.clone();
        drop(state);
        queue.iter().for_each(|queue| queue.notify());
        let mut state = lock(&self.state);
        loop {
            let drives = state.driver_slot.drives;
            state = self.await_request(state);
            let has_driven = drives != state.driver_slot.drives;
            match state.driver_slot.parked.take() {
                Some(driver) if state.driver_slot.needs_thread || !has_driven => {
                    state.driver_slot.needs_thread = false;
                    return driver;
                }
                parked => state.driver_slot.parked = parked,
            }
            if state.driver_slot.parked.is_none() && !has_driven {
                // A receiver waits for long. It ends this sleep when it returns the driver.
                state.driver_slot.is_thread_resting = true;
                let rests = |state: &mut LocalConnectionState| state.driver_slot.is_thread_resting;
                state = self.thread_request.wait_while(state, rests).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Waits a limited time until the thread is to drive and can.
    fn await_request<'a>(&self, state: MutexGuard<'a, LocalConnectionState>) -> MutexGuard<'a, LocalConnectionState> {
        let is_idle =
            |state: &mut LocalConnectionState| !state.driver_slot.needs_thread || state.driver_slot.parked.is_none();
        let waited = self.thread_request.wait_timeout_while(state, CHECK_INTERVAL, is_idle);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The driver of a connection in the hands of a receiver. It goes back with this value.
struct ReceiverDriver<'a> {
    connection: &'a LocalConnection,
    driver: Option<Box<ConnectionDriver>>,
}

impl ReceiverDriver<'_> {
    /// Moves bytes both ways once, and waits at most `left` if no notice has come (`None`: without limit).
    fn turn(mut self, queue: &SubscriptionQueue, left: Option<Duration>) {
        let Some(driver) = &mut self.driver else { return };
        match driver.turn_for(queue, left) {
            Ok(None) => {}
            Ok(Some(reason)) => self.connection.end(reason),
            Err(error) => self.connection.end(format!("the connection to the peer broke: {error}")),
        }
    }
}

impl Drop for ReceiverDriver<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.connection.end("a receiver has failed".to_owned());
        }
        let mut state = lock(&self.connection.state);
        let has_other_waiters = state.has_other_waiters();
        let slot = &mut state.driver_slot;
        slot.parked = self.driver.take();
        slot.needs_thread |= has_other_waiters || 0 < slot.receivers_waiting;
        let is_resting = std::mem::take(&mut slot.is_thread_resting);
        let is_called = slot.needs_thread || is_resting;
        drop(state);
        if is_called {
            self.connection.thread_request.notify_one();
        }
    }
}

impl ConnectionDriver {
    /// Returns whether the thread is to yield to a receiver now.
    pub(super) fn may_yield(&self) -> bool {
        self.reader.is_some() && lock(&self.shared.state).may_yield()
    }

    /// Moves bytes both ways for a receiver: until it has a notice, or has waited once for at most `left`. Returns the
    /// reason if the connection has ended.
    fn turn_for(&mut self, queue: &SubscriptionQueue, left: Option<Duration>) -> io::Result<Option<String>> {
        let is_closing = self.write()?;
        // A receiver that does not wait may come back late: it reads as much as the thread of the connection would.
        let reads_max = if left == Some(Duration::ZERO) { READS_MAX } else { 1 };
        if let Some(reason) = self.read(reads_max)? {
            return Ok(Some(reason));
        }
        if is_closing || queue.has_items() {
            return Ok(None);
        }
        if left != Some(Duration::ZERO) {
            return self.wait_for_frames(is_closing, left).map(|()| None);
        }
        // A receiver that does not wait needs the socket only to see its end.
        self.unpolled += 1;
        if UNPOLLED_MAX <= self.unpolled {
            self.unpolled = 0;
            self.wait(left)?;
        }
        Ok(None)
    }

    /// Waits at most `left` for frames in the ring or an event of the socket: with a poll first, while that succeeds.
    fn wait_for_frames(&mut self, is_closing: bool, left: Option<Duration>) -> io::Result<()> {
        let start = Clock::now().instant;
        let time = self.short_poll.time();
        if !time.is_zero() {
            let has_come = self.poll_ring(start + left.map_or(time, |left| time.min(left)));
            self.short_poll.on_poll(Clock::now().instant.since(start), has_come);
            if has_come {
                return Ok(());
            }
        }
        let left = left.map(|left| (start + left).since(Clock::now().instant));
        let is_idle = self.is_idle(is_closing);
        self.wait(if is_idle { left } else { Some(Duration::ZERO) })?;
        if time.is_zero() {
            self.short_poll.on_sleep(Clock::now().instant.since(start));
        }
        Ok(())
    }

    /// Looks at the ring until `until`. Returns false if no frame came.
    fn poll_ring(&self, until: Instant) -> bool {
        let Some(reader) = &self.reader else { return false };
        loop {
            for _ in 0..LOOKS_PER_YIELD {
                if reader.has_bytes() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if until <= Clock::now().instant {
                return false;
            }
            // The programs that poll may be more than the processors.
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Ends, delivery, ends_with, greeted};
    use super::super::{READ_BYTES, READS_MAX};
    use super::*;
    use crate::bus::peer_link::PeerLink;
    use crate::bus::{RecvError, Subscription};
    use crate::daemon::short_poll::ShortPoll;
    use crate::daemon::subscription_queue::QueueLimits;
    use crate::listener::frame::{ByeReason, PeerFrame};
    use crate::message::SubId;
    use crate::shared_memory::{RingWriter, send_doorbell};
    use bytes::BytesMut;
    use mio::net::UnixStream;
    use std::io::Write;

    const SUB: SubId = SubId(1);

    /// A connection that a receiver may drive, its only queue, and the other end of its ring and its socket.
    struct ParkedEnds {
        connection: Arc<LocalConnection>,
        queue: Arc<SubscriptionQueue>,
        peer_writer: RingWriter,
        _socket: UnixStream,
    }

    fn parked_ends() -> ParkedEnds {
        let Ends { connection, reader, poll, peer_writer, socket, .. } = ends_with(READS_MAX * READ_BYTES);
        let queue = Arc::new(SubscriptionQueue::new(QueueLimits { count_max: 10_000, bytes_max: 16 << 20 }));
        lock(&connection.queues).insert(SUB, queue.clone());
        connection.add_queue(&queue, true);
        let driver = ConnectionDriver::new(connection.clone(), poll, greeted(), Some(reader));
        lock(&connection.state).driver_slot.parked = Some(Box::new(driver));
        ParkedEnds { connection, queue, peer_writer, _socket: socket }
    }

    fn write(peer_writer: &mut RingWriter, frame: &PeerFrame) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        peer_writer.write_all(&bytes).unwrap();
    }

    fn message(payload: &str) -> PeerFrame {
        PeerFrame::Message { subs: vec![SUB], delivery: delivery(payload) }
    }

    #[test]
    fn receiver_without_patience_reads_the_whole_ring() {
        let ParkedEnds { connection, queue, mut peer_writer, _socket } = parked_ends();
        let payload = "x".repeat(READ_BYTES / 10);
        (0..100).for_each(|_| write(&mut peer_writer, &message(&payload)));
        assert!(connection.receive(&queue, Some(Duration::ZERO)).is_ok());
        assert_eq!(queue.drain(|_| {}), Ok(99));
    }

    #[test]
    fn wait_for_a_notification_needs_the_thread() {
        let ParkedEnds { connection, queue, .. } = parked_ends();
        // A receiver that does not wait would drive.
        lock(&connection.state).driver_slot.is_wanted = true;
        let since = queue.notifications();
        std::thread::scope(|scope| {
            scope.spawn(|| connection.wait_notification(&queue, since, None));
            while lock(&connection.state).driver_slot.notifications_awaited == 0 {
                std::thread::yield_now();
            }
            let state = lock(&connection.state);
            let thread_drives = state.driver_slot.needs_thread && !state.may_yield();
            drop(state);
            queue.notify();
            assert!(thread_drives, "until the wait ends");
        });
        let state = lock(&connection.state);
        assert!(state.may_yield() && !state.has_other_waiters());
    }

    #[test]
    fn drain_counts_notices_before_the_end() {
        let ParkedEnds { connection, queue, mut peer_writer, _socket } = parked_ends();
        write(&mut peer_writer, &message("last"));
        write(&mut peer_writer, &PeerFrame::Bye { reason: ByeReason::Stopping, text: "the end".to_owned() });
        let link = PeerLink::LocalConnection(connection);
        let subscription = Subscription::new(queue, vec![SUB], link, None);
        assert_eq!(subscription.drain(|_| {}), Ok(1));
        assert_eq!(subscription.drain(|_| {}), Err(RecvError::Closed));
    }

    /// Makes the next wait of the parked driver begin with a poll.
    fn poll_next(connection: &LocalConnection) {
        let mut state = lock(&connection.state);
        state.driver_slot.parked.as_mut().expect("the driver is parked").short_poll = ShortPoll::polling();
    }

    #[test]
    fn frame_around_the_end_of_a_poll_arrives() {
        let ParkedEnds { connection, queue, mut peer_writer, _socket: socket } = parked_ends();
        for number in 0..500 {
            poll_next(&connection);
            std::thread::scope(|scope| {
                let received = scope.spawn(|| connection.receive(&queue, Some(Duration::from_secs(20))));
                let until = Clock::now().instant + Duration::from_nanos(number * 400);
                while Clock::now().instant < until {}
                write(&mut peer_writer, &message("soon"));
                if peer_writer.take_doorbell_request() {
                    send_doorbell(&socket);
                }
                assert!(received.join().unwrap().is_ok(), "message {number}");
            });
        }
    }

    #[test]
    fn receiver_that_polls_returns_in_time() {
        let ParkedEnds { connection, queue, _socket, .. } = parked_ends();
        poll_next(&connection);
        assert_eq!(connection.receive(&queue, Some(Duration::from_millis(20))).err(), Some(PopError::Empty));
        let state = lock(&connection.state);
        let short_poll = &state.driver_slot.parked.as_ref().unwrap().short_poll;
        assert_eq!(short_poll.time(), Duration::ZERO, "the poll was in vain");
    }

    #[test]
    fn receiver_that_returns_drives_the_connection() {
        let ParkedEnds { connection, queue, mut peer_writer, _socket: socket } = parked_ends();
        let driver = lock(&connection.state).driver_slot.parked.take().unwrap();
        let running = std::thread::spawn(move || driver.run());
        let until = Clock::now().instant + Duration::from_secs(20);
        let mut send = || {
            write(&mut peer_writer, &message("more"));
            if peer_writer.take_doorbell_request() {
                send_doorbell(&socket);
            }
        };
        send();
        // At first the thread drives. It yields at its next event.
        while lock(&connection.state).driver_slot.drives < 100 && Clock::now().instant < until {
            match connection.receive(&queue, Some(Duration::ZERO)) {
                Ok(_) => send(),
                Err(error) => assert_eq!(error, PopError::Empty),
            }
        }
        assert!(100 <= lock(&connection.state).driver_slot.drives, "the receiver drives");
        connection.close();
        running.join().unwrap();
        assert_eq!(connection.end_reason().as_deref(), Some("closed"));
    }
}
