//! The thread that appends to a journal. It stores pending requests in batches that share the wait for the disk (group
//! commit). While it writes one batch, requests for the next one are queued. Between batches it removes a few events
//! that exceed the retention.

use super::error::StoreError;
use crate::clock::Clock;
use crate::event::model::{Event, Payload, Registration};
use crate::event::sequencer::EventSequencer;
use crate::event::store::Journal;
use crate::event::store::retention::Retention;
use crate::event::timestamp::Timestamp;
use crate::time::Instant;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Maximum number of pending requests. Further requests are refused, which bounds the memory of the queue.
const WAITING_MAX: usize = 65_536;
/// Maximum number of requests in a batch.
const BATCH_REQUESTS: usize = 4096;
/// Payload bytes at which a batch takes no further request.
const BATCH_BYTES: usize = 4 << 20;
/// Interval between removals while no event exceeds the retention.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// Target duration of one removal, for which a batch may have to wait.
const TRIM_TIME: Duration = Duration::from_millis(5);
/// Minimum and maximum number of events removed at a time. The number adapts to the disk, so that a removal takes about
/// [`TRIM_TIME`]. It is at least twice the number of events appended since the last removal, so that more events are
/// removed than added.
const TRIM_EVENTS: [usize; 2] = [256, 16_384];

/// A request to store events.
#[derive(Debug)]
pub enum AppendOp {
    /// New events of this server, to which the writer assigns ids and a timestamp. They form one session; an empty list
    /// forms no session.
    Register {
        /// The events to register.
        registrations: Vec<Registration>,
        /// The current time.
        now: Timestamp,
    },
    /// Events of other servers, in the order of their ids for each server. Events that are stored already are skipped.
    Follow(Vec<Event>),
}

impl AppendOp {
    fn bytes(&self) -> usize {
        match self {
            AppendOp::Register { registrations, .. } => {
                registrations.iter().filter_map(|one| one.payload.as_ref()).map(Payload::size).sum()
            }
            AppendOp::Follow(events) => events.iter().map(Event::payload_size).sum(),
        }
    }
}

/// Callback that receives the outcome of a request on the writer thread. After success, the events survive a crash of
/// the host. After an error, none of them is stored.
pub type AppendCallback = Box<dyn FnOnce(Result<Vec<Event>, StoreError>) + Send>;

struct AppendRequest {
    op: AppendOp,
    callback: CallbackGuard,
}

/// Guard of a callback. If it is dropped without an outcome because the thread panics, it reports
/// [`StoreError::Ended`].
struct CallbackGuard(Option<AppendCallback>);

impl CallbackGuard {
    fn complete(mut self, outcome: Result<Vec<Event>, StoreError>) {
        self.take()(outcome);
    }

    fn take(&mut self) -> AppendCallback {
        self.0.take().expect("each method that takes it consumes the guard")
    }
}

impl Drop for CallbackGuard {
    fn drop(&mut self) {
        if let Some(callback) = self.0.take() {
            callback(Err(StoreError::Ended));
        }
    }
}

/// Handle of the writer thread of a journal. Dropping the handle first stores all pending requests.
#[derive(Debug)]
pub struct JournalWriter {
    requests: Option<Sender<AppendRequest>>,
    trimmed: Arc<TrimCounters>,
    thread: Option<JoinHandle<()>>,
}

/// Counters of retention. They only rise.
#[derive(Debug, Default)]
pub struct TrimCounters {
    /// Events removed by each rule, in the order of the rules.
    pub removed: Vec<AtomicU64>,
    /// Number of failed removals.
    pub failed: AtomicU64,
}

/// A refused request.
pub struct AppendError {
    /// The reason: [`StoreError::Busy`] if the caller can retry, [`StoreError::Ended`] if not.
    pub error: StoreError,
    /// The refused request.
    pub op: AppendOp,
    /// Callback of the request.
    pub callback: AppendCallback,
}

impl fmt::Debug for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AppendError { error, op, .. } = self;
        f.debug_struct("AppendError").field("error", error).field("op", op).finish_non_exhaustive()
    }
}

impl JournalWriter {
    /// Starts the thread of a journal that retains all events forever. `sequencer` continues after the journal's last
    /// session.
    ///
    /// # Errors
    /// The system cannot create the thread.
    pub fn start<J>(journal: J, sequencer: EventSequencer) -> io::Result<JournalWriter>
    where
        J: Journal<Error = StoreError> + Send + 'static,
    {
        JournalWriter::start_retaining(journal, sequencer, Retention::default())
    }

    /// Starts the thread of a journal that removes the events beyond `retention`.
    ///
    /// # Errors
    /// The system cannot create the thread.
    pub fn start_retaining<J>(journal: J, sequencer: EventSequencer, retention: Retention) -> io::Result<JournalWriter>
    where
        J: Journal<Error = StoreError> + Send + 'static,
    {
        let (sender, requests) = bounded(WAITING_MAX);
        let removed = retention.rules.iter().map(|_| AtomicU64::new(0)).collect();
        let trimmed = Arc::new(TrimCounters { removed, failed: AtomicU64::new(0) });
        let trim = TrimSchedule {
            retention,
            trimmed: Arc::clone(&trimmed),
            due: Clock::now().instant,
            events: TRIM_EVENTS[0],
            appended: 0,
        };
        let run = move || {
            let rest = requests.clone();
            let batches = WriterThread { journal, sequencer, requests, trim };
            if catch_unwind(AssertUnwindSafe(|| batches.run())).is_err() {
                // The thread has reported the panic. Pending and later requests receive [`StoreError::Ended`].
                rest.iter().for_each(drop);
            }
        };
        let thread = thread::Builder::new().name("journal".into()).spawn(run)?;
        Ok(JournalWriter { requests: Some(sender), trimmed, thread: Some(thread) })
    }

    /// Returns the counters of retention.
    pub fn trimmed(&self) -> &TrimCounters {
        &self.trimmed
    }

    /// Enqueues a request.
    ///
    /// # Errors
    /// Too many requests are pending, or the thread has ended.
    pub fn append(&self, op: AppendOp, callback: AppendCallback) -> Result<(), AppendError> {
        let requests = self.requests.as_ref().expect("open until it is dropped");
        let request = AppendRequest { op, callback: CallbackGuard(Some(callback)) };
        let (error, AppendRequest { op, mut callback }) = match requests.try_send(request) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(request)) => (StoreError::Busy, request),
            Err(TrySendError::Disconnected(request)) => (StoreError::Ended, request),
        };
        Err(AppendError { error, op, callback: callback.take() })
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already reported the fault.
            drop(thread.join());
        }
    }
}

struct WriterThread<J> {
    journal: J,
    sequencer: EventSequencer,
    requests: Receiver<AppendRequest>,
    trim: TrimSchedule,
}

/// Schedule of the removal of events that exceed the retention.
struct TrimSchedule {
    retention: Retention,
    trimmed: Arc<TrimCounters>,
    /// Time of the next removal.
    due: Instant,
    /// Number of events removed at a time.
    events: usize,
    /// Events appended since the last removal.
    appended: usize,
}

impl TrimSchedule {
    /// Removes some events, if the removal is due.
    fn run<J: Journal<Error = StoreError>>(&mut self, journal: &mut J) {
        let now = Clock::now();
        if self.retention.rules.is_empty() || now.instant < self.due {
            return;
        }
        let budget = self.events.max(2 * self.appended);
        self.appended = 0;
        self.due = now.instant + TRIM_INTERVAL;
        let removed = match journal.trim(&self.retention, now.wall.into(), budget) {
            Ok(removed) => removed,
            Err(error) => {
                let failed = 1 + self.trimmed.failed.fetch_add(1, Ordering::Relaxed);
                if failed.is_power_of_two() {
                    tracing::warn!(%error, failed, "events beyond the retention could not be removed from the journal");
                }
                return;
            }
        };
        if removed.iter().sum::<u64>() == budget as u64 {
            // There may be more events to remove.
            self.due = now.instant;
            let elapsed = Clock::now().instant.since(now.instant);
            let events = if elapsed < TRIM_TIME { 2 * self.events } else { self.events / 2 };
            self.events = events.clamp(TRIM_EVENTS[0], TRIM_EVENTS[1]);
        }
        for (sum, count) in self.trimmed.removed.iter().zip(removed) {
            sum.fetch_add(count, Ordering::Relaxed);
        }
    }
}

impl<J: Journal<Error = StoreError>> WriterThread<J> {
    fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            let first = match self.next() {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.trim.run(&mut self.journal);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let mut bytes = first.op.bytes();
            batch.push(first);
            while batch.len() < BATCH_REQUESTS
                && bytes < BATCH_BYTES
                && let Ok(next) = self.requests.try_recv()
            {
                bytes += next.op.bytes();
                batch.push(next);
            }
            self.store(&mut batch);
            self.trim.run(&mut self.journal);
        }
    }

    /// Waits for the next request, at most until a removal is due.
    fn next(&self) -> Result<AppendRequest, RecvTimeoutError> {
        if self.trim.retention.rules.is_empty() {
            return self.requests.recv().map_err(|_| RecvTimeoutError::Disconnected);
        }
        self.requests.recv_timeout(self.trim.due.since(Clock::now().instant))
    }

    /// Stores all requests of the batch or none, and passes the outcome to the callback of each.
    fn store(&mut self, batch: &mut Vec<AppendRequest>) {
        let before = self.sequencer.session();
        let (mut events, mut callbacks) = (Vec::new(), Vec::with_capacity(batch.len()));
        for AppendRequest { op, callback } in batch.drain(..) {
            let start = events.len();
            let is_storable = match op {
                AppendOp::Register { registrations, now } => {
                    events.extend(self.sequencer.register(now, registrations));
                    true
                }
                // An event that cannot be stored must not prevent the others from being stored.
                AppendOp::Follow(followed) if !followed.iter().all(is_storable) => false,
                AppendOp::Follow(followed) => {
                    events.extend(followed);
                    true
                }
            };
            callbacks.push((callback, is_storable.then(|| events.len() - start)));
        }
        let appended = self.journal.append(&events);
        self.trim.appended += *appended.as_ref().unwrap_or(&0);
        if appended.is_err() && before < self.sequencer.session() {
            self.sequencer.roll_back(before + 1);
        }
        let mut events = events.into_iter();
        for (callback, count) in callbacks {
            callback.complete(match (count, &appended) {
                (None, _) => Err(StoreError::Range),
                (Some(count), Ok(_)) => Ok(events.by_ref().take(count).collect()),
                (Some(_), Err(error)) => Err(error.clone()),
            });
        }
    }
}

/// Returns whether the numbers in the event's id are below 2^63.
fn is_storable(event: &Event) -> bool {
    i64::try_from(event.id.session.max(event.id.instance)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::model::ServerId;
    use crate::event::store::memory::MemoryJournal;
    use crate::event::store::retention::Rule;
    use crate::event::store::{LastSession, Query, QueryPage};
    use crate::rng::Rng;
    use std::sync::{Arc, Mutex};

    /// A journal that fails at random, and blocks while it is locked.
    struct Flaky {
        journal: Arc<Mutex<MemoryJournal>>,
        rng: Rng,
        failure: f64,
    }

    impl Journal for Flaky {
        type Error = StoreError;

        fn last_session(&mut self, _: ServerId) -> Result<LastSession, StoreError> {
            Ok(LastSession::NONE)
        }

        fn append(&mut self, events: &[Event]) -> Result<usize, StoreError> {
            let mut journal = self.journal.lock().unwrap();
            if self.rng.chance(self.failure) { Err(StoreError::Full) } else { Ok(journal.append(events).unwrap()) }
        }

        fn trim(&mut self, retention: &Retention, now: Timestamp, budget: usize) -> Result<Vec<u64>, StoreError> {
            Ok(self.journal.lock().unwrap().trim(retention, now, budget).unwrap())
        }

        fn query(&mut self, query: &Query) -> Result<QueryPage, StoreError> {
            Ok(self.journal.lock().unwrap().query(query).unwrap())
        }
    }

    fn start(failure: f64) -> (JournalWriter, Arc<Mutex<MemoryJournal>>) {
        let journal = Arc::new(Mutex::new(MemoryJournal::default()));
        let flaky = Flaky { journal: Arc::clone(&journal), rng: Rng::new(3), failure };
        (JournalWriter::start(flaky, EventSequencer::new(ServerId(1), 0, Timestamp::MIN)).unwrap(), journal)
    }

    fn registrations(types: &[&str]) -> AppendOp {
        let one =
            |text: &&str| Registration { event_type: text.parse().unwrap(), source_timestamp: None, payload: None };
        AppendOp::Register { registrations: types.iter().map(one).collect(), now: Timestamp::MIN }
    }

    type Outcomes = Arc<Mutex<Vec<Result<Vec<String>, StoreError>>>>;

    fn recorder(outcomes: &Outcomes) -> AppendCallback {
        let outcomes = Arc::clone(outcomes);
        Box::new(move |outcome| {
            let ids = outcome.map(|events| events.iter().map(|event| event.id.to_string()).collect());
            outcomes.lock().unwrap().push(ids);
        })
    }

    #[test]
    fn requests_are_stored_and_reported_in_order() {
        let (writer, journal) = start(0.0);
        let outcomes = Outcomes::default();
        {
            // All requests are pending while the journal is blocked, and form one or two batches.
            let _locked = journal.lock().unwrap();
            for append in [registrations(&["a", "b"]), registrations(&[]), registrations(&["c"])] {
                writer.append(append, recorder(&outcomes)).unwrap();
            }
        }
        drop(writer);
        let ids = |ids: &[&str]| Ok(ids.iter().map(|id| (*id).to_owned()).collect());
        assert_eq!(*outcomes.lock().unwrap(), [ids(&["1/1/1", "1/1/2"]), ids(&[]), ids(&["1/2/1"])]);
        assert_eq!(journal.lock().unwrap().events().len(), 3);
    }

    #[test]
    fn failed_append_uses_no_session() {
        let (writer, journal) = start(0.4);
        let outcomes = Outcomes::default();
        for _ in 0..400 {
            writer.append(registrations(&["a"]), recorder(&outcomes)).unwrap();
        }
        drop(writer);
        let stored: Vec<String> = journal.lock().unwrap().events().iter().map(|event| event.id.to_string()).collect();
        let outcomes = outcomes.lock().unwrap();
        assert_eq!(outcomes.len(), 400);
        let reported: Vec<String> =
            outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).flatten().cloned().collect();
        assert_eq!(reported, stored);
        let expected: Vec<String> = (1..=stored.len()).map(|session| format!("1/{session}/1")).collect();
        assert_eq!(stored, expected);
    }

    #[test]
    fn unstorable_event_fails_alone() {
        let (writer, _) = start(0.0);
        let outcomes = Outcomes::default();
        let mut events = EventSequencer::new(ServerId(2), 0, Timestamp::MIN).register(
            Timestamp::MIN,
            vec![Registration { event_type: "a".parse().unwrap(), source_timestamp: None, payload: None }],
        );
        writer.append(AppendOp::Follow(events.clone()), recorder(&outcomes)).unwrap();
        events[0].id.session = 1 << 63;
        writer.append(AppendOp::Follow(events), recorder(&outcomes)).unwrap();
        drop(writer);
        assert_eq!(*outcomes.lock().unwrap(), [Ok(vec!["2/1/1".to_owned()]), Err(StoreError::Range)]);
    }

    #[test]
    fn events_beyond_retention_are_removed_and_counted() {
        let journal = Arc::new(Mutex::new(MemoryJournal::default()));
        let flaky = Flaky { journal: Arc::clone(&journal), rng: Rng::new(3), failure: 0.0 };
        let rule = |pattern: &str, count| Rule {
            pattern: pattern.parse().unwrap(),
            age: None,
            count: Some(count),
            bytes: None,
        };
        let retention = Retention { rules: vec![rule("a", 30), rule("*", 5)] };
        let sequencer = EventSequencer::new(ServerId(1), 0, Timestamp::MIN);
        let writer = JournalWriter::start_retaining(flaky, sequencer, retention).unwrap();
        for _ in 0..100 {
            writer.append(registrations(&["a", "b", "c"]), Box::new(|done| drop(done.unwrap()))).unwrap();
        }
        let removed = || writer.trimmed().removed.iter().map(|sum| sum.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let begun = Clock::now().instant;
        while removed() != [70, 195] {
            assert!(Clock::now().instant.since(begun) < Duration::from_secs(30), "{:?} removed", removed());
            thread::yield_now();
        }
        assert_eq!(journal.lock().unwrap().events().len(), 35);
        assert_eq!(writer.trimmed().failed.load(Ordering::Relaxed), 0);
    }

    /// Requests handed in before, during and after a panic of the thread are all answered.
    #[test]
    fn panicked_writer_answers_every_request() {
        let (writer, journal) = start(0.0);
        let outcomes = Outcomes::default();
        let taken = thread::scope(|scope| {
            let (writer, outcomes) = (&writer, &outcomes);
            // Panicking with the lock poisons it, so the journal panics when it locks.
            let panicking = scope.spawn(move || {
                let _locked = journal.lock().unwrap();
                for _ in 0..3 {
                    writer.append(registrations(&["a"]), recorder(outcomes)).unwrap();
                }
                panic!("on purpose");
            });
            assert!(panicking.join().is_err());
            (0..1000).for_each(|_| writer.append(registrations(&["a"]), recorder(outcomes)).unwrap());
            1003
        });
        let begun = Clock::now().instant;
        while outcomes.lock().unwrap().len() < taken {
            assert!(
                Clock::now().instant.since(begun) < Duration::from_secs(30),
                "{taken} taken, {outcomes:?} reported"
            );
            thread::yield_now();
        }
        assert!(outcomes.lock().unwrap().iter().all(|outcome| *outcome == Err(StoreError::Ended)));
    }

    #[test]
    fn request_beyond_the_limit_can_be_retried() {
        let (writer, journal) = start(0.0);
        let outcomes = Outcomes::default();
        let locked = journal.lock().unwrap();
        let mut taken = 0;
        let busy = loop {
            // The refused request has an event. The first ones have none, since the journal in memory compares each
            // new event with all earlier ones.
            let types: &[&str] = if taken < WAITING_MAX { &[] } else { &["a"] };
            match writer.append(registrations(types), recorder(&outcomes)) {
                Ok(()) => taken += 1,
                Err(busy) => break busy,
            }
        };
        assert!(WAITING_MAX <= taken && taken <= WAITING_MAX + BATCH_REQUESTS, "{taken}");
        assert_eq!(busy.error, StoreError::Busy);
        drop(locked);
        let AppendError { mut op, mut callback, .. } = busy;
        while let Err(busy) = writer.append(op, callback) {
            (op, callback) = (busy.op, busy.callback);
        }
        drop(writer);
        let outcomes = outcomes.lock().unwrap();
        assert_eq!(outcomes.len(), taken + 1);
        let stored = outcomes.iter().flatten().map(Vec::len).sum::<usize>();
        assert_eq!(stored, taken + 1 - WAITING_MAX, "each event is stored");
    }
}
