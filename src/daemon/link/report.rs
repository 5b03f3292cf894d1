//! The report of the link, for `show`.

use crate::clock::Clock;
use crate::config::HubAddress;
use crate::link::event_relay::EventRelay;
use crate::link::gateway::Gateway;
use crate::link::gateway_counts::SiteCounts;
use crate::link::gateway_settings::GatewaySettings;
use crate::link::site_name::SiteName;
use crate::message::Epoch;
use crate::subject::Pattern;
use crate::subject::pattern_set::PatternSet;
use crate::time::Instant;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time without a connection, or with a fault of the stream, from which it counts as a problem of the peer's health.
const PROBLEM_DELAY: Duration = Duration::from_secs(10);

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

#[derive(Debug, Serialize)]
struct LinkReport {
    site: String,
    gateway: String,
    hubs: Vec<String>,
    exports: Vec<String>,
    imports: Vec<String>,
    state: &'static str,
    /// Last fault of the connection.
    fault: Option<String>,
    shares: usize,
    conflict: Option<String>,
    #[serde(flatten)]
    counts: BTreeMap<&'static str, u64>,
    events: Option<EventRelayReport>,
    security: Option<SecurityReport>,
    durable: StreamReport,
    sites: Vec<SiteRow>,
    /// Time since which the state is the present one.
    #[serde(skip)]
    state_since: Instant,
}

/// The part about durable messages.
#[derive(Debug, Default, Serialize)]
struct StreamReport {
    stream: String,
    /// Whether the stream can be used.
    open: bool,
    /// Fault that is shown.
    fault: Option<String>,
    position: Option<u64>,
    #[serde(flatten)]
    counts: BTreeMap<&'static str, u64>,
    /// Fault of each task of the stream, in the order of [`StreamTask`].
    #[serde(skip)]
    faults: [Option<String>; 3],
    /// Time since which the stream has had a fault.
    #[serde(skip)]
    fault_since: Option<Instant>,
}

/// The part about events.
#[derive(Debug, Serialize)]
struct EventRelayReport {
    servers: usize,
    exported: u64,
    imported: u64,
    refused: u64,
    too_large: u64,
    dropped: u64,
    invalid: u64,
    conflict: Option<String>,
}

/// The part about signatures, in a realm.
#[derive(Debug, Serialize)]
pub(super) struct SecurityReport {
    /// Name of the realm.
    pub(super) realm: String,
    /// Counts of the signer and of the verifier.
    #[serde(flatten)]
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// Fault that lasts, if there is one.
    pub(super) problem: Option<String>,
}

/// The part about another site.
#[derive(Debug, Serialize)]
struct SiteRow {
    site: String,
    imported: u64,
    repeated: u64,
    tails: u64,
    lost_min: u64,
    /// `None` if nothing bounds the number.
    lost_max: Option<u64>,
}

impl SharedReport {
    /// Creates the report of a gateway that is not connected.
    pub(super) fn new(settings: &GatewaySettings, epoch: Epoch, hubs: &[HubAddress]) -> SharedReport {
        SharedReport(Arc::new(Mutex::new(LinkReport {
            site: settings.site.to_string(),
            gateway: epoch.to_string(),
            hubs: hubs.iter().map(HubAddress::to_string).collect(),
            exports: texts(&settings.exports),
            imports: texts(&settings.imports),
            state: "connecting",
            fault: None,
            shares: 0,
            conflict: None,
            counts: BTreeMap::new(),
            events: None,
            security: None,
            durable: StreamReport { stream: settings.durable.stream.clone(), ..StreamReport::default() },
            sites: Vec::new(),
            state_since: Clock::now().instant,
        })))
    }

    /// Updates the counts.
    pub(super) fn set_counts(&self, gateway: &Gateway) {
        let (counts, requests) = (gateway.counts(), gateway.request_counts());
        let report = &mut *self.lock();
        report.shares = gateway.carried_shares();
        report.counts = BTreeMap::from([
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
        ]);
        let (durable, waiting) = (gateway.durable().counts(), gateway.durable().spool_size());
        report.durable.counts = BTreeMap::from([
            ("waiting", waiting.messages as u64),
            ("waiting_bytes", waiting.bytes as u64),
            ("stored", durable.stored),
            ("unstored", durable.unstored),
            ("restored", durable.restored),
            ("imported", durable.imported),
            ("repeated", durable.repeated),
            ("invalid", durable.invalid),
            ("discarded", durable.discarded),
        ]);
        report.durable.position = gateway.durable().position().map(|position| position.sequence);
        report.conflict = gateway.conflict().map(ToString::to_string);
        report.events = event_report(gateway.events());
        report.sites = gateway.sites().iter().map(|(site, counts)| site_row(site, counts)).collect();
    }

    /// Updates the part about signatures; `None` without a realm.
    pub(super) fn set_security(&self, security: Option<SecurityReport>) {
        self.lock().security = security;
    }

    /// Notes the state of the connection, and the last fault of it.
    pub(super) fn set_state(&self, state: &'static str, fault: Option<String>) {
        let report = &mut *self.lock();
        (report.state, report.fault) = (state, fault);
        report.state_since = Clock::now().instant;
    }

    /// Notes a fault that the cluster or the client reports. Returns whether it is another one than the last.
    pub(super) fn set_fault(&self, fault: String) -> bool {
        let shown = &mut self.lock().fault;
        let is_other = shown.as_ref() != Some(&fault);
        *shown = Some(fault);
        is_other
    }

    /// Notes whether the stream of the cluster can be used.
    pub(super) fn set_stream_open(&self, is_open: bool) {
        self.lock().durable.open = is_open;
    }

    /// Notes why a task of the stream fails, or that it does not. The fault of the first task that fails is shown.
    pub(super) fn set_stream_fault(&self, task: StreamTask, fault: Option<String>) {
        let report = &mut self.lock().durable;
        report.faults[task as usize] = fault;
        let fault = report.faults.iter().flatten().next().cloned();
        report.fault_since = fault.as_ref().map(|_| report.fault_since.unwrap_or(Clock::now().instant));
        if report.fault != fault {
            match &fault {
                Some(fault) => tracing::warn!(fault, "durable messages are held up"),
                None => tracing::info!("durable messages are stored and read again"),
            }
            report.fault = fault;
        }
    }

    /// Returns a sentence about what is wrong: the link has not been connected for [`PROBLEM_DELAY`], or has failed; the
    /// name of the site is not its own; or the stream has had a fault for [`PROBLEM_DELAY`].
    pub(super) fn problem(&self, now: Instant) -> Option<String> {
        let report = self.lock();
        let LinkReport { state, fault, conflict, events, security, durable, .. } = &*report;
        let lasts = *state == "failed" || PROBLEM_DELAY <= now.since(report.state_since);
        if *state == "connected" {
            let of_events = || events.as_ref()?.conflict.clone();
            let of_security = || security.as_ref()?.problem.clone();
            return conflict.clone().or_else(of_events).or_else(of_security).or_else(|| durable.problem(now));
        }
        let fault = fault.as_deref().unwrap_or("no server answers");
        lasts.then(|| format!("the link is {state}: {fault}"))
    }

    /// Returns the report.
    pub(super) fn to_json(&self) -> Value {
        serde_json::to_value(&*self.lock()).expect("texts and numbers can be written")
    }

    fn lock(&self) -> MutexGuard<'_, LinkReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamReport {
    /// Returns the fault of the stream as a sentence, if it lasts.
    fn problem(&self, now: Instant) -> Option<String> {
        let fault = self.fault.as_ref()?;
        let lasts = PROBLEM_DELAY <= now.since(self.fault_since?);
        lasts.then(|| format!("durable messages: {fault}"))
    }
}

/// Returns the patterns of a set as texts.
fn texts(set: &PatternSet) -> Vec<String> {
    set.patterns().iter().map(Pattern::to_string).collect()
}

fn site_row(site: &SiteName, counts: &SiteCounts) -> SiteRow {
    let SiteCounts { imported, repeated, lost_min, lost_max, tails } = *counts;
    let lost_max = Some(lost_max).filter(|max| *max != u64::MAX);
    SiteRow { site: site.to_string(), imported, repeated, tails, lost_min, lost_max }
}

/// Returns the part about events; `None` if none may cross.
fn event_report(events: &EventRelay) -> Option<EventRelayReport> {
    let counts = events.counts();
    events.is_used().then(|| EventRelayReport {
        servers: events.remote_servers(),
        exported: counts.exported,
        imported: counts.imported,
        refused: counts.refused,
        too_large: counts.too_large,
        dropped: counts.dropped,
        invalid: counts.invalid,
        conflict: events.conflict(Clock::now().instant),
    })
}
