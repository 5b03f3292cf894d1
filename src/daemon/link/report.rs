//! The report of the link, for `show`.

use crate::clock::Clock;
use crate::config::HubAddress;
use crate::link::event_relay::EventRelay;
use crate::link::gateway::Gateway;
use crate::link::gateway_settings::GatewaySettings;
use crate::message::Epoch;
use crate::subject::Pattern;
use crate::subject::pattern_set::PatternSet;
use crate::time::Instant;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time without a connection, or with a fault of the stream, from which it counts as a problem of the peer's health.
const PROBLEM_TIME: Duration = Duration::from_secs(10);

/// The report, which the thread of the link writes and the engine reads.
#[derive(Clone, Debug)]
pub(super) struct SharedReport(Arc<Mutex<LinkReport>>);

/// Task of a link that uses the stream of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamTask {
    /// It stores messages.
    Store,
    /// It reads messages, and stores its position.
    Read,
    /// It opens the stream, and compares its settings.
    Open,
}

#[derive(Debug)]
struct LinkReport {
    json: Value,
    /// Fault of each task of the stream, in the order of [`StreamTask`].
    stream_faults: [Option<String>; 3],
    /// Time since which the state is the present one.
    state_since: Instant,
    /// Time since which the stream has had a fault.
    stream_fault_since: Option<Instant>,
}

impl SharedReport {
    /// Creates the report of a gateway that is not connected.
    pub(super) fn new(settings: &GatewaySettings, epoch: Epoch, hubs: &[HubAddress]) -> SharedReport {
        let report = json!({
            "site": settings.site.to_string(),
            "gateway": epoch.to_string(),
            "hubs": hubs.iter().map(HubAddress::to_string).collect::<Vec<String>>(),
            "exports": texts(&settings.exports),
            "imports": texts(&settings.imports),
            "state": "connecting",
            "fault": null,
            "shares": 0,
            "events": null,
            "security": null,
            "durable": {"stream": settings.durable.stream, "open": false, "fault": null},
            "sites": [],
        });
        SharedReport(Arc::new(Mutex::new(LinkReport {
            json: report,
            stream_faults: Default::default(),
            state_since: Clock::now().instant,
            stream_fault_since: None,
        })))
    }

    /// Updates the counts.
    pub(super) fn set_counts(&self, gateway: &Gateway) {
        let (counts, requests) = (gateway.counts(), gateway.request_counts());
        let report = &mut self.lock().json;
        report["shares"] = json!(gateway.carried_shares());
        for (field, count) in [
            ("exported", counts.exported),
            ("taken_over", counts.taken_over),
            ("of_clients", counts.of_clients),
            ("invalid", counts.invalid),
            ("excess_sites", counts.excess_sites),
            ("unsent", counts.unsent),
            ("unread", counts.unread),
            ("unheard", counts.unheard),
            ("refused", counts.refused),
            ("requests_sent", requests.sent),
            ("requests_delivered", requests.delivered),
            ("replies", requests.replies),
            ("no_responders", requests.no_responders),
            ("requests_dropped", requests.dropped),
        ] {
            report[field] = json!(count);
        }
        let (durable, waiting) = (gateway.durable().counts(), gateway.durable().spool_size());
        for (field, count) in [
            ("waiting", waiting.messages as u64),
            ("waiting_bytes", waiting.bytes as u64),
            ("stored", durable.stored),
            ("unstored", durable.unstored),
            ("imported", durable.imported),
            ("repeated", durable.repeated),
            ("invalid", durable.invalid),
            ("discarded", durable.discarded),
        ] {
            report["durable"][field] = json!(count);
        }
        report["durable"]["position"] = json!(gateway.durable().position());
        report["conflict"] = json!(gateway.conflict().map(ToString::to_string));
        report["events"] = events_report(gateway.events());
        let sites = gateway.sites().iter().map(|(site, counts)| {
            json!({
                "site": site.to_string(),
                "imported": counts.imported,
                "repeated": counts.repeated,
                "tails": counts.tails,
                "lost_min": counts.lost_min,
                "lost_max": Some(counts.lost_max).filter(|max| *max != u64::MAX),
            })
        });
        report["sites"] = sites.collect();
    }

    /// Updates the part about signatures; `None` without a realm.
    pub(super) fn set_security(&self, security: Option<Value>) {
        self.lock().json["security"] = json!(security);
    }

    /// Notes the state of the connection, and the last fault of it.
    pub(super) fn set_state(&self, state: &str, fault: Option<String>) {
        let report = &mut *self.lock();
        report.json["state"] = json!(state);
        report.json["fault"] = json!(fault);
        report.state_since = Clock::now().instant;
    }

    /// Notes a fault that the cluster or the client reports. Returns whether it is another one than the last.
    pub(super) fn set_fault(&self, fault: String) -> bool {
        let fault = json!(fault);
        std::mem::replace(&mut self.lock().json["fault"], fault.clone()) != fault
    }

    /// Notes whether the stream of the cluster can be used.
    pub(super) fn set_stream_open(&self, is_open: bool) {
        self.lock().json["durable"]["open"] = json!(is_open);
    }

    /// Notes why a task of the stream fails, or that it does not. The fault of the first task that fails is shown.
    pub(super) fn set_stream_fault(&self, task: StreamTask, fault: Option<String>) {
        let report = &mut *self.lock();
        report.stream_faults[task as usize] = fault;
        let fault = report.stream_faults.iter().flatten().next();
        report.stream_fault_since = fault.map(|_| report.stream_fault_since.unwrap_or(Clock::now().instant));
        let fault = json!(fault);
        let shown = &mut report.json["durable"]["fault"];
        if *shown != fault {
            match fault.as_str() {
                Some(fault) => tracing::warn!(fault, "durable messages are held up"),
                None => tracing::info!("durable messages are stored and read again"),
            }
            *shown = fault;
        }
    }

    /// Returns a sentence about what is wrong: the link has not been connected for [`PROBLEM_TIME`], or has failed; the
    /// name of the site is not its own; or the stream has had a fault for [`PROBLEM_TIME`].
    pub(super) fn problem(&self, now: Instant) -> Option<String> {
        let report = self.lock();
        let text = |field: &str| report.json[field].as_str();
        let state = text("state").unwrap_or_default();
        let lasts = state == "failed" || PROBLEM_TIME <= now.since(report.state_since);
        match (state, text("fault")) {
            ("connected", _) => {
                let of_events = report.json["events"]["conflict"].as_str();
                let of_security = report.json["security"]["problem"].as_str();
                let first = text("conflict").or(of_events).or(of_security).map(str::to_owned);
                first.or_else(|| report.stream_problem(now))
            }
            (_, fault) if lasts => Some(format!("the link is {state}: {}", fault.unwrap_or("no server answers"))),
            _ => None,
        }
    }

    /// Returns the report.
    pub(super) fn to_json(&self) -> Value {
        self.lock().json.clone()
    }

    fn lock(&self) -> MutexGuard<'_, LinkReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkReport {
    /// Returns the fault of the stream as a sentence, if it lasts.
    fn stream_problem(&self, now: Instant) -> Option<String> {
        let fault = self.json["durable"]["fault"].as_str()?;
        let lasts = PROBLEM_TIME <= now.since(self.stream_fault_since?);
        lasts.then(|| format!("durable messages: {fault}"))
    }
}

/// Returns the patterns of a set as texts.
fn texts(set: &PatternSet) -> Vec<&str> {
    set.patterns().iter().map(Pattern::as_str).collect()
}

/// Returns the part about events; null if none may cross.
fn events_report(events: &EventRelay) -> Value {
    if !events.is_used() {
        return Value::Null;
    }
    let counts = events.counts();
    json!({
        "servers": events.remote_servers(),
        "exported": counts.exported,
        "imported": counts.imported,
        "refused": counts.refused,
        "too_large": counts.too_large,
        "dropped": counts.dropped,
        "invalid": counts.invalid,
        "conflict": events.conflict(Clock::now().instant),
    })
}
