//! The thread that answers queries of a journal, so that no other thread waits for the disk. Requesters take turns.
//! Each turn runs one slice of the requester's first query. So a requester waits for at most one slice of each other
//! requester.

use super::error::StoreError;
use super::sqlite::{QueryCursor, SqliteReader};
use crate::event::store::{Query, QueryPage};
use crate::message::ClientId;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Maximum number of pending queries of one requester. Further queries are refused.
const CLIENT_QUERIES_MAX: usize = 1024;
/// Maximum number of pending queries of all requesters.
const WAITING_MAX: usize = 65_536;

/// Callback that receives the answer on the reader thread.
pub type QueryCallback = Box<dyn FnOnce(Result<QueryPage, StoreError>) + Send>;

/// The query thread of a journal. Dropping it discards the pending queries unanswered.
#[derive(Debug)]
pub struct JournalReader {
    queries: Arc<QueryQueue>,
    thread: Option<JoinHandle<()>>,
}

impl JournalReader {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot create the thread.
    pub fn start(reader: SqliteReader) -> io::Result<JournalReader> {
        let queries = Arc::new(QueryQueue::default());
        let run = {
            let queries = Arc::clone(&queries);
            move || queries.run(reader)
        };
        let thread = thread::Builder::new().name("journal-reader".into()).spawn(run)?;
        Ok(JournalReader { queries, thread: Some(thread) })
    }

    /// Enqueues a valid query. Returns false, without calling `callback`, if too many queries are pending.
    pub fn request(&self, requester: ClientId, query: Query, callback: QueryCallback) -> bool {
        let mut state = self.queries.lock();
        let pending_count = state.waiting.get(&requester).map_or(0, VecDeque::len);
        if CLIENT_QUERIES_MAX <= pending_count || WAITING_MAX <= state.count {
            return false;
        }
        state.count += 1;
        state
            .waiting
            .entry(requester)
            .or_default()
            .push_back(PendingQuery { progress: QueryProgress::Queued(query), callback });
        // A requester whose query is running gets its next turn when the slice is done.
        if pending_count == 0 && state.in_progress != Some(requester) {
            state.turns.push_back(requester);
        }
        drop(state);
        self.queries.work_available.notify_one();
        true
    }

    /// Removes the queries of a requester that has disconnected, without answers. Returns their number.
    pub fn cancel_queries(&self, requester: ClientId) -> usize {
        let mut state = self.queries.lock();
        let waiting = state.waiting.remove(&requester).map_or(0, |queries| queries.len());
        state.turns.retain(|other| *other != requester);
        state.count -= waiting;
        let in_progress = state.in_progress.take_if(|other| *other == requester);
        waiting + usize::from(in_progress.is_some())
    }
}

impl Drop for JournalReader {
    fn drop(&mut self) {
        self.queries.lock().is_closed = true;
        self.queries.work_available.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already reported the fault.
            drop(thread.join());
        }
    }
}

#[derive(Debug, Default)]
struct QueryQueue {
    state: Mutex<QueryQueueState>,
    work_available: Condvar,
}

#[derive(Debug, Default)]
struct QueryQueueState {
    /// Pending queries of each requester, without the running query. Requesters without pending queries are absent.
    waiting: BTreeMap<ClientId, VecDeque<PendingQuery>>,
    /// Number of pending queries.
    count: usize,
    /// Requesters with pending queries, in the order of their turns.
    turns: VecDeque<ClientId>,
    /// Requester of the running query; `None` if that requester has disconnected.
    in_progress: Option<ClientId>,
    is_closed: bool,
}

struct PendingQuery {
    progress: QueryProgress,
    callback: QueryCallback,
}

#[derive(Debug)]
enum QueryProgress {
    Queued(Query),
    Started(Box<QueryCursor>),
}

impl fmt::Debug for PendingQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingQuery").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl QueryQueue {
    fn lock(&self) -> MutexGuard<'_, QueryQueueState> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut reader: SqliteReader) {
        while let Some((requester, PendingQuery { progress, callback })) = self.next() {
            let mut cursor = match progress {
                QueryProgress::Queued(query) => Box::new(QueryCursor::new(query)),
                QueryProgress::Started(cursor) => cursor,
            };
            let outcome = match reader.advance(&mut cursor) {
                Ok(true) => reader.check_names(&cursor).map(|()| true),
                outcome => outcome,
            };
            let mut state = self.lock();
            if state.in_progress.take().is_none() {
                // The requester has disconnected.
                continue;
            }
            let completed = match outcome {
                Ok(false) => {
                    state.count += 1;
                    state
                        .waiting
                        .entry(requester)
                        .or_default()
                        .push_front(PendingQuery { progress: QueryProgress::Started(cursor), callback });
                    None
                }
                outcome => Some((callback, outcome.map(|_| cursor.end()))),
            };
            if state.waiting.contains_key(&requester) {
                state.turns.push_back(requester);
            }
            drop(state);
            if let Some((callback, answer)) = completed {
                callback(answer);
            }
        }
    }

    /// Waits for the first query of the next requester in turn. Returns `None` once the reader is dropped.
    fn next(&self) -> Option<(ClientId, PendingQuery)> {
        let is_empty = |state: &mut QueryQueueState| state.turns.is_empty() && !state.is_closed;
        let mut state = self.work_available.wait_while(self.lock(), is_empty).unwrap_or_else(PoisonError::into_inner);
        if state.is_closed {
            return None;
        }
        let requester = state.turns.pop_front()?;
        let queries = state.waiting.get_mut(&requester).expect("a requester with a turn has a query");
        let query = queries.pop_front().expect("a requester with a turn has a query");
        if queries.is_empty() {
            state.waiting.remove(&requester);
        }
        state.count -= 1;
        state.in_progress = Some(requester);
        Some((requester, query))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::model::{Registration, ServerId};
    use crate::event::sequencer::EventSequencer;
    use crate::event::store::{Journal, Series, TimeSpan};
    use crate::event::timestamp::Timestamp;
    use crate::storage::journal::sqlite::SqliteJournal;
    use crossbeam_channel::{Receiver, bounded};
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    const EVENTS: usize = 40_000;
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A directory that is deleted on drop.
    struct JournalDirectory(PathBuf);

    impl JournalDirectory {
        fn new(name: &str) -> JournalDirectory {
            let dir = std::env::temp_dir().join(format!("seqcast-reader-{}-{name}", std::process::id()));
            fs::create_dir(&dir).unwrap();
            let registration = Registration { event_type: "a".parse().unwrap(), source_timestamp: None, payload: None };
            let events = EventSequencer::new(ServerId(1), 0, Timestamp::MIN)
                .register(Timestamp::MIN, vec![registration; EVENTS]);
            SqliteJournal::open(&dir.join("events.db")).unwrap().append(&events).unwrap();
            JournalDirectory(dir)
        }

        fn reader(&self) -> JournalReader {
            JournalReader::start(SqliteJournal::reader(&self.0.join("events.db")).unwrap()).unwrap()
        }
    }

    impl Drop for JournalDirectory {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    /// Returns a query that takes several slices and finds nothing.
    fn long() -> Query {
        let source_time = TimeSpan { from: Some(Timestamp::MAX), to: None };
        Query::Series(Series { source_time, ..Series::default() })
    }

    /// The requesters of a test, with the channel of their answers.
    struct TestRequesters {
        reader: JournalReader,
        callback: Receiver<(ClientId, usize)>,
        answers: crossbeam_channel::Sender<(ClientId, usize)>,
    }

    impl TestRequesters {
        fn new(directory: &JournalDirectory) -> TestRequesters {
            let (answers, callback) = bounded(4 * CLIENT_QUERIES_MAX);
            TestRequesters { reader: directory.reader(), callback, answers }
        }

        fn request(&self, requester: u32, query: Query) -> bool {
            let (requester, answers) = (ClientId(requester), self.answers.clone());
            let callback = move |answer: Result<QueryPage, StoreError>| {
                answers.send((requester, answer.unwrap().events.len())).unwrap();
            };
            self.reader.request(requester, query, Box::new(callback))
        }

        fn next(&self) -> (u32, usize) {
            let (requester, found) = self.callback.recv_timeout(PATIENCE).expect("an answer");
            (requester.0, found)
        }
    }

    #[test]
    fn busy_client_delays_others_by_one_slice() {
        let directory = JournalDirectory::new("turns");
        let requesters = TestRequesters::new(&directory);
        let taken = (0..2 * CLIENT_QUERIES_MAX).filter(|_| requesters.request(1, long())).count();
        assert!(
            CLIENT_QUERIES_MAX <= taken && taken <= CLIENT_QUERIES_MAX + 8,
            "{taken}, as some are answered meanwhile"
        );
        assert!(requesters.request(2, Query::Latest(None)) && requesters.request(2, Query::Latest(None)));
        let mut before = 0;
        let mut answers = Vec::new();
        while answers.len() < 2 {
            match requesters.next() {
                (1, found) => (before, _) = (before + 1, assert_eq!(found, 0)),
                (_, found) => answers.push(found),
            }
        }
        assert_eq!(answers, [1, 1]);
        assert!(before < 8, "{before} of the long ones came first");
        // A requester that is gone takes no time from the others. One of its queries may be running right now.
        let cancelled = requesters.reader.cancel_queries(ClientId(1));
        assert!(requesters.request(3, Query::Latest(None)));
        let rest = std::iter::from_fn(|| Some(requesters.next())).take_while(|(requester, _)| *requester == 1).count();
        assert_eq!(before + rest + cancelled, taken);
        assert!(requesters.request(1, long()), "there is room again");
        assert_eq!((requesters.next(), requesters.reader.cancel_queries(ClientId(1))), ((1, 0), 0));
    }

    #[test]
    fn dropped_reader_discards_pending_queries() {
        let directory = JournalDirectory::new("dropped");
        let requesters = TestRequesters::new(&directory);
        (0..CLIENT_QUERIES_MAX).for_each(|_| assert!(requesters.request(1, long())));
        drop(requesters.reader);
        drop(requesters.answers);
        assert!(requesters.callback.iter().count() < CLIENT_QUERIES_MAX / 2);
    }
}
