//! The peers of the LAN as they report themselves: each is asked for its summary, at a bounded rate.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bus::{Bus, PendingReport};
use crate::cli::group_reports::GroupPeer;
use crate::clock::Clock;
use crate::message::PeerRef;
use crate::time::Instant;

/// Minimum interval between two questions: 20 a second.
const QUESTION_INTERVAL: Duration = Duration::from_millis(50);
/// Minimum interval between two questions to one peer.
const PEER_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(3);
/// Maximum number of peers that are asked.
const PEERS_MAX: usize = 512;

/// Reason why a silent peer has no summary.
const SILENT: &str = "nothing was heard of it for a few heartbeats";

/// A peer of the LAN, and its last summary.
#[derive(Debug)]
struct LanPeer {
    name: String,
    peer: PeerRef,
    /// True if nothing has been heard of it for a few heartbeats. It is not asked.
    is_silent: bool,
    /// Time from which the peer may be asked again.
    due: Instant,
    pending: Option<PendingReport>,
    /// Time of the last outcome: a summary or a reason.
    at: Option<Instant>,
    summary: Option<Value>,
    /// Messages published and delivered a second, between the last two summaries.
    rates: [Option<f64>; 2],
    /// Reason why there is no summary.
    reason: String,
}

/// The peers of the LAN, and the questions to them.
#[derive(Debug)]
pub(super) struct LanSampler {
    /// The peers, by epoch.
    peers: BTreeMap<String, LanPeer>,
    /// Time from which the next question may be sent.
    next: Instant,
}

impl LanSampler {
    /// Creates a sampler that knows no peers.
    pub(super) fn new() -> LanSampler {
        LanSampler { peers: BTreeMap::new(), next: Clock::now().instant }
    }

    /// Takes the peers that are up or silent, and forgets the others.
    pub(super) fn update_peers(&mut self, present: &[GroupPeer]) {
        let now = Clock::now().instant;
        self.peers.retain(|epoch, _| present.iter().any(|peer| peer.epoch == *epoch));
        for GroupPeer { name, epoch, is_silent, .. } in present.iter().take(PEERS_MAX) {
            let Ok(peer) = epoch.parse() else { continue };
            let entry = self.peers.entry(epoch.clone()).or_insert_with(|| LanPeer {
                name: String::new(),
                peer,
                is_silent: false,
                due: now,
                pending: None,
                at: None,
                summary: None,
                rates: [None; 2],
                reason: "it is not asked yet".to_owned(),
            });
            name.clone_into(&mut entry.name);
            entry.is_silent = *is_silent;
        }
    }

    /// Asks all peers again, as soon as the rate of questions allows it.
    pub(super) fn ask_all(&mut self) {
        let now = Clock::now().instant;
        self.peers.values_mut().for_each(|peer| peer.due = now);
    }

    /// Takes the answers that have come, and asks the peer that has waited longest if it is due.
    pub(super) fn poll(&mut self, bus: &Bus) {
        let now = Clock::now().instant;
        for peer in self.peers.values_mut() {
            if let Some(outcome) = peer.pending.as_mut().and_then(|pending| pending.try_recv().transpose()) {
                peer.on_outcome(now, outcome.map_err(|error| error.to_string()));
            }
        }
        if now < self.next {
            return;
        }
        let due = self.peers.values_mut().filter(|peer| !peer.is_silent && peer.pending.is_none() && peer.due <= now);
        let Some(peer) = due.min_by_key(|peer| peer.due) else { return };
        self.next = now + QUESTION_INTERVAL;
        peer.due = now + PEER_INTERVAL;
        match bus.request_report(peer.peer.clone(), &json!({ "show": "summary" }), ANSWER_TIME) {
            Ok(pending) => peer.pending = Some(pending),
            Err(error) => peer.on_outcome(now, Err(error.to_string())),
        }
    }

    /// Returns whether there is an outcome of each peer since this time. Of silent peers none is awaited.
    pub(super) fn is_complete(&self, since: Instant) -> bool {
        self.peers.values().all(|peer| peer.is_silent || peer.at.is_some_and(|at| since <= at))
    }

    /// Returns a row for each peer, in the order of their epochs.
    pub(super) fn rows(&self) -> Vec<Value> {
        self.peers.iter().map(|(epoch, peer)| peer.row(epoch)).collect()
    }
}

impl LanPeer {
    fn on_outcome(&mut self, now: Instant, outcome: Result<Value, String>) {
        (self.pending, self.at) = (None, Some(now));
        let outcome = outcome.and_then(|report| match report["summary"].is_object() {
            true => Ok(report),
            false => Err(report["error"].as_str().unwrap_or("the answer is no summary").to_owned()),
        });
        match outcome {
            Ok(summary) => {
                let before = self.summary.as_ref();
                self.rates = ["messages_published", "messages_delivered"].map(|name| rate(before?, &summary, name));
                self.summary = Some(summary);
            }
            Err(reason) => (self.summary, self.rates, self.reason) = (None, [None; 2], reason),
        }
    }

    fn row(&self, epoch: &str) -> Value {
        let report = match &self.summary {
            Some(report) if !self.is_silent => report,
            _ => {
                let reason = if self.is_silent { SILENT } else { &self.reason };
                return json!({ "epoch": epoch, "name": self.name, "reason": reason });
            }
        };
        let losses = report["rows"].as_array().map_or(&[][..], Vec::as_slice);
        let sum = |field: fn(&Value) -> u64| losses.iter().fold(0, |sum: u64, row| sum.saturating_add(field(row)));
        let worst = losses.iter().max_by_key(|row| lost(row)).filter(|row| lost(row) != 0);
        json!({
            "epoch": epoch,
            "name": self.name,
            "health": report["summary"]["health"],
            "clients": report["summary"]["clients"],
            "published_rate": self.rates[0],
            "delivered_rate": self.rates[1],
            "lost": sum(lost),
            "repaired": sum(|row| row["repaired"].as_u64().unwrap_or_default()),
            "pending": sum(|row| row["pending"].as_u64().unwrap_or_default()),
            "worst": worst.map(|row| if row["publisher"].is_string() { &row["publisher"] } else { &row["epoch"] }),
        })
    }
}

/// Returns the lower bound of the messages lost from a publisher, with those sent to the receiver alone.
fn lost(row: &Value) -> u64 {
    let lost = row["lost"].as_u64().or_else(|| row["lost"]["min"].as_u64()).unwrap_or_default();
    lost.saturating_add(row["inbox_lost"].as_u64().unwrap_or_default())
}

/// Returns the increase of a count a second between two summaries, by the uptime of the peer itself.
fn rate(before: &Value, now: &Value, name: &str) -> Option<f64> {
    let rise = |name: &str| now["summary"][name].as_u64()?.checked_sub(before["summary"][name].as_u64()?);
    let (count, millis) = (rise(name)?, rise("uptime_ms")?);
    (millis != 0).then(|| count as f64 * 1000.0 / millis as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(uptime_ms: u64, published: u64) -> Value {
        let counts = json!({ "uptime_ms": uptime_ms, "messages_published": published, "clients": 3, "health": "ok" });
        let rows = json!([
            { "publisher": "A", "epoch": "1", "lost": 2, "inbox_lost": 1, "repaired": 4, "pending": 0 },
            { "publisher": null, "epoch": "2", "lost": { "min": 5, "max": 9 }, "inbox_lost": 0, "repaired": 1 },
        ]);
        json!({ "summary": counts, "rows": rows })
    }

    fn sampler() -> LanSampler {
        let mut sampler = LanSampler::new();
        let peer = |epoch: u64| GroupPeer {
            name: format!("P{epoch}"),
            epoch: format!("{epoch:016x}"),
            is_local: false,
            is_silent: epoch == 2,
        };
        sampler.update_peers(&[peer(1), peer(2)]);
        sampler
    }

    #[test]
    fn row_has_the_sums_of_the_summary() {
        let mut sampler = sampler();
        let began = Clock::now().instant;
        let one = sampler.peers.values_mut().next().unwrap();
        one.on_outcome(began, Ok(summary(1_000, 10)));
        one.on_outcome(began, Ok(summary(3_000, 50)));
        assert!(sampler.is_complete(began), "a silent peer is not awaited");
        let rows = sampler.rows();
        let fields = ["lost", "repaired", "pending", "worst", "published_rate", "delivered_rate", "clients"];
        let row: Vec<Value> = fields.iter().map(|name| rows[0][name].clone()).collect();
        assert_eq!(row, [json!(8), json!(5), json!(0), json!("2"), json!(20.0), Value::Null, json!(3)]);
        assert_eq!((&rows[1]["reason"], &rows[1]["lost"]), (&json!(SILENT), &Value::Null));
    }

    #[test]
    fn other_answers_are_no_summary() {
        let mut sampler = sampler();
        let now = Clock::now().instant;
        for (answer, reason) in [(json!({ "error": "no report" }), "no report"), (json!(7), "the answer is no summary")]
        {
            sampler.peers.values_mut().for_each(|peer| peer.on_outcome(now, Ok(answer.clone())));
            assert_eq!(sampler.rows()[0]["reason"], reason);
        }
        sampler.update_peers(&[]);
        assert!(sampler.rows().is_empty());
    }
}
