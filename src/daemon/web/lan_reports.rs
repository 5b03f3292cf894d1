//! The reports that the other peers give of themselves. While a page is open, each peer is asked for its summary every
//! few seconds, all together at a bounded rate. A page of one peer asks it for whole reports.

use super::live::LiveFeed;
use super::remote_query::{QueryFailure, RemoteQuery};
use crate::clock::Clock;
use crate::daemon::mailbox::Mailbox;
use crate::message::{ClientId, Epoch, PeerRef};
use crate::time::Instant;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Maximum number of peers that are asked. The snapshots have no more of them.
const PEERS_MAX: usize = 256;
/// Maximum number of losses in a summary.
const ROWS_MAX: usize = 256;
/// Minimum interval between two questions: eight a second. More than 40 peers are asked less often than every
/// [`PEER_INTERVAL`].
const QUESTION_INTERVAL: Duration = Duration::from_millis(125);
/// Interval between two questions to one peer.
const PEER_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two questions to a peer that reports nothing to others.
const REFUSED_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum time for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(3);
/// Maximum number of requests of pages that wait for whole reports.
const DETAILS_MAX: usize = 8;
/// Minimum interval between two questions for whole reports.
const DETAIL_INTERVAL: Duration = Duration::from_millis(250);
/// Interval between two looks whether whole reports have come.
const DETAIL_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of rows of each of the whole reports.
const DETAIL_ROWS_MAX: u32 = 256;
/// Maximum characters of a text in a summary.
const TEXT_CHARS_MAX: usize = 128;

/// The last summary of a peer, and the time of the next question.
#[derive(Debug)]
struct PeerEntry {
    /// Time from which the peer may be asked again.
    due: Instant,
    /// The last summary, or the reason why there is none, for pages.
    content: Option<Value>,
    /// True until the next snapshot has it.
    is_new: bool,
}

/// The summaries of the other peers, and the questions to them.
#[derive(Debug)]
pub(super) struct LanReports {
    mailbox: Arc<Mailbox>,
    /// The web server, as a client of the peer.
    client: ClientId,
    peers: Mutex<BTreeMap<Epoch, PeerEntry>>,
    waiting: Semaphore,
    /// Time from which the next question for whole reports may be asked.
    next_detail: tokio::sync::Mutex<Instant>,
}

impl LanReports {
    /// Creates the reports that are asked for as this client of the peer.
    pub(super) fn new(mailbox: Arc<Mailbox>, client: ClientId) -> LanReports {
        let next_detail = tokio::sync::Mutex::new(Clock::now().instant);
        LanReports { mailbox, client, peers: Mutex::default(), waiting: Semaphore::new(DETAILS_MAX), next_detail }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Epoch, PeerEntry>> {
        // No code panics while it holds the lock.
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the rows of `show peers`: those that are up are asked, and the others are forgotten.
    pub(super) fn update_peers(&self, rows: &Value) {
        let rows = rows.as_array().into_iter().flatten().filter(|row| row["state"] == "up");
        let up: Vec<Epoch> = rows.filter_map(|row| parse_epoch(row["epoch"].as_str()?)).take(PEERS_MAX).collect();
        let now = Clock::now().instant;
        let mut peers = self.lock();
        peers.retain(|epoch, _| up.contains(epoch));
        for epoch in up {
            peers.entry(epoch).or_insert(PeerEntry { due: now, content: None, is_new: false });
        }
    }

    /// Returns what has come since the last call.
    pub(super) fn take_new(&self) -> Vec<Value> {
        let mut peers = self.lock();
        let new = |entry: &mut PeerEntry| std::mem::take(&mut entry.is_new).then(|| entry.content.clone()).flatten();
        peers.values_mut().filter_map(new).collect()
    }

    /// Returns everything that is known.
    pub(super) fn all(&self) -> Vec<Value> {
        self.lock().values().filter_map(|entry| entry.content.clone()).collect()
    }

    /// Returns the peer that has waited longest for its question, and delays its next one.
    fn next_peer(&self, now: Instant) -> Option<Epoch> {
        let mut peers = self.lock();
        let (epoch, entry) = peers.iter_mut().min_by_key(|(_, entry)| entry.due)?;
        if now < entry.due {
            return None;
        }
        entry.due = now + PEER_INTERVAL;
        Some(*epoch)
    }

    /// Keeps the outcome of a question.
    fn on_outcome(&self, epoch: Epoch, outcome: Result<Value, QueryFailure>) {
        let now = Clock::now();
        let mut content = match outcome.and_then(|report| reduce(&report).ok_or(QueryFailure::Misfit)) {
            Ok(content) => content,
            Err(failure) => json!({ "state": failure.state(), "reason": failure.to_string() }),
        };
        content["epoch"] = epoch.to_string().into();
        content["time"] = (now.wall.as_nanos() / 1_000_000).into();
        let mut peers = self.lock();
        // A peer that has left meanwhile has no entry.
        if let Some(entry) = peers.get_mut(&epoch) {
            if content["state"] == QueryFailure::NO_REPORTS {
                entry.due = now.instant + REFUSED_INTERVAL;
            }
            (entry.content, entry.is_new) = (Some(content), true);
        }
    }

    /// Asks the peers for their summaries while there are viewers; never ends.
    pub(super) async fn run(&self, live: &LiveFeed) {
        let mut interval = tokio::time::interval(QUESTION_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let query = json!({ "show": "summary", "limit": ROWS_MAX });
        let mut pending: Vec<(Epoch, RemoteQuery)> = Vec::new();
        loop {
            if live.viewers() == 0 {
                pending.clear();
                self.lock().clear();
                live.wait_for_viewers().await;
            }
            interval.tick().await;
            pending.retain_mut(|(epoch, query)| match query.poll() {
                None => true,
                Some(outcome) => {
                    self.on_outcome(*epoch, outcome);
                    false
                }
            });
            if let Some(epoch) = self.next_peer(Clock::now().instant) {
                match RemoteQuery::send(&self.mailbox, self.client, epoch, &query, ANSWER_TIME) {
                    Ok(sent) => pending.push((epoch, sent)),
                    Err(failure) => self.on_outcome(epoch, Err(failure)),
                }
            }
        }
    }

    /// Asks a peer for the whole reports that its page shows: an object with the rows or the fields of each.
    ///
    /// # Errors
    /// Returns the reason why there are none.
    pub(super) async fn detail(&self, epoch: Epoch) -> Result<Value, QueryFailure> {
        let _waiting = self.waiting.try_acquire().map_err(|_| QueryFailure::TooManyRequests)?;
        let mut next = self.next_detail.lock().await;
        tokio::time::sleep(next.since(Clock::now().instant)).await;
        *next = Clock::now().instant + DETAIL_INTERVAL;
        drop(next);
        let names = ["status", "health", "loss", "clients", "subs"];
        let query = json!({ "show": names, "limit": DETAIL_ROWS_MAX });
        let mut query = RemoteQuery::send(&self.mailbox, self.client, epoch, &query, ANSWER_TIME)?;
        let mut answer = loop {
            if let Some(outcome) = query.poll() {
                break outcome?;
            }
            tokio::time::sleep(DETAIL_CHECK_INTERVAL).await;
        };
        let reports = answer["reports"].as_array_mut().ok_or(QueryFailure::Misfit)?;
        let mut detail = Map::new();
        for (name, report) in names.into_iter().zip(reports) {
            let content = if report["rows"].is_array() { report["rows"].take() } else { report[name].take() };
            detail.insert(name.to_owned(), content);
        }
        Ok(Value::Object(detail))
    }
}

/// Parses an epoch as reports write it: 16 lower-case hexadecimal digits.
pub(super) fn parse_epoch(text: &str) -> Option<Epoch> {
    match text.parse() {
        Ok(PeerRef::Epoch(epoch)) if epoch.to_string() == text => Some(epoch),
        _ => None,
    }
}

/// Returns the known fields of a summary, within their bounds, for pages. `None` if it is no summary.
fn reduce(report: &Value) -> Option<Value> {
    let (summary, rows) = (report["summary"].as_object()?, report["rows"].as_array()?);
    let text = |value: &Value| value.as_str().map(|text| text.chars().take(TEXT_CHARS_MAX).collect::<String>());
    let texts = ["name", "version", "phase", "health"].map(|name| (name, json!(summary.get(name).and_then(text))));
    let counts =
        ["uptime_ms", "peers_up", "clients", "dropped", "listeners", "messages_published", "messages_delivered"]
            .map(|name| (name, json!(summary.get(name).and_then(Value::as_u64))));
    let fields: Map<String, Value> =
        texts.into_iter().chain(counts).map(|(name, value)| (name.to_owned(), value)).collect();
    let row = |row: &Value| {
        let count = |name: &str| row[name].as_u64().unwrap_or_default();
        let (min, max) = (row["lost"]["min"].as_u64(), row["lost"]["max"].as_u64());
        let lost = min.zip(max).map_or_else(|| json!(count("lost")), |(min, max)| json!({ "min": min, "max": max }));
        Some(json!({
            "publisher": text(&row["publisher"]),
            "epoch": parse_epoch(row["epoch"].as_str()?)?.to_string(),
            "lost": lost,
            "inbox_lost": count("inbox_lost"),
            "repaired": count("repaired"),
            "pending": count("pending"),
        }))
    };
    let rows: Vec<Value> = rows.iter().take(ROWS_MAX).filter_map(row).collect();
    let omitted = report["omitted"].as_u64().unwrap_or_default();
    Some(json!({ "state": "reported", "summary": fields, "rows": rows, "omitted": omitted }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Poll, Token, Waker};

    fn epoch(number: u64) -> Epoch {
        Epoch::new(number).unwrap()
    }

    fn reports(peers: u64) -> (Poll, LanReports) {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        let reports = LanReports::new(Arc::new(Mailbox::new(waker)), ClientId(1));
        reports.update_peers(&rows(1..=peers, "up"));
        (poll, reports)
    }

    fn rows(peers: impl Iterator<Item = u64>, state: &str) -> Value {
        peers.map(|peer| json!({ "epoch": epoch(peer).to_string(), "state": state })).collect()
    }

    #[test]
    fn each_peer_is_asked_once_an_interval() {
        let (_poll, reports) = reports(3);
        let now = Clock::now().instant;
        let asked: Vec<Option<Epoch>> = (0..4).map(|_| reports.next_peer(now)).collect();
        assert_eq!(asked, [Some(epoch(1)), Some(epoch(2)), Some(epoch(3)), None]);
        assert_eq!(reports.next_peer(now + PEER_INTERVAL), Some(epoch(1)));
    }

    #[test]
    fn refusing_peer_is_asked_rarely() {
        let (_poll, reports) = reports(1);
        let now = Clock::now().instant;
        assert_eq!(reports.next_peer(now), Some(epoch(1)));
        reports.on_outcome(epoch(1), Err(QueryFailure::Refused(crate::proto::question::Refused::NoReports)));
        assert_eq!(reports.next_peer(now + PEER_INTERVAL), None);
        assert_eq!(reports.take_new()[0]["state"], QueryFailure::NO_REPORTS);
        assert_eq!(reports.next_peer(now + 2 * REFUSED_INTERVAL), Some(epoch(1)));
    }

    #[test]
    fn peers_beyond_the_limit_are_not_asked() {
        let (_poll, reports) = reports(1000);
        assert_eq!(reports.lock().len(), PEERS_MAX);
        reports.on_outcome(epoch(1), Err(QueryFailure::NoAnswer));
        assert_eq!(reports.all().len(), 1);
        reports.update_peers(&rows(1..=1, "left"));
        assert!(reports.all().is_empty(), "it is not up");
    }

    #[test]
    fn summary_is_kept_within_its_bounds() {
        let row = json!({ "epoch": epoch(7).to_string(), "publisher": "x".repeat(1000), "lost": { "min": 1, "max": 2 },
            "repaired": -1, "script": "x" });
        let invalid = json!({ "epoch": "7", "lost": 3 });
        let mut rows = vec![row; 1000];
        rows[0] = invalid;
        let reduced = reduce(&json!({ "summary": { "name": 7, "health": "ok", "clients": 3 }, "rows": rows })).unwrap();
        assert_eq!((&reduced["summary"]["name"], &reduced["summary"]["clients"]), (&Value::Null, &3.into()));
        assert_eq!(reduced["rows"].as_array().unwrap().len(), ROWS_MAX - 1);
        let expected = json!({ "epoch": epoch(7).to_string(), "publisher": "x".repeat(TEXT_CHARS_MAX),
            "lost": { "min": 1, "max": 2 }, "inbox_lost": 0, "repaired": 0, "pending": 0 });
        assert_eq!(reduced["rows"][0], expected);
        for other in [json!([]), json!({ "error": "no report" }), json!({ "summary": {}, "rows": 7 })] {
            assert_eq!(reduce(&other), None, "{other}");
        }
    }
}
