//! Scenarios as text. Files in `tests/corpus/scenarios` have those that once failed, as they were drawn, since a later
//! generator draws others from their seeds.
//!
//! The text is JSON. A field that is unknown or misspelt is an error. A field that a later version adds needs a
//! `#[serde(default)]` with the value that the older scenarios ran with, so that their files stay readable.

use super::Scenario;
use crate::message::{DeliveryMode, PeerName};
use crate::proto::history::{HistoryRule, HistorySettings};
use crate::proto::mutant::Mutants;
use crate::proto::pace::{Pace, PaceSettings};
use crate::proto::resend::RingSettings;
use crate::proto::{Recovery, Settings, WindowSettings};
use crate::wire::CheckValue;
use serde::{Deserialize, Serialize};
use std::time::Duration;

impl Scenario {
    /// Parses a text that [`Scenario::to_text`] wrote.
    ///
    /// # Errors
    ///
    /// The line and column of the first syntax or field error.
    pub fn from_text(text: &str) -> Result<Scenario, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns this scenario as text, without its mutant: one line for each event, host and group of fields.
    pub fn to_text(&self) -> String {
        let json = serde_json::to_string(self).expect("a scenario has no maps and no failing parts");
        let json = json.replace("},{\"at\":", "},\n{\"at\":").replace("},{\"skew_ppm\":", "},\n{\"skew_ppm\":");
        let json = json.replace(",\"events\":[", ",\n\"events\":[\n").replace("],\"heal_at\":", "],\n\"heal_at\":");
        json + "\n"
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "DeliveryMode")]
pub(super) enum StoredMode {
    Repair,
    Live,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Pace")]
enum StoredPace {
    Off,
    Auto,
    Rate(u64),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "PaceSettings", deny_unknown_fields)]
struct StoredPaceSettings {
    #[serde(with = "StoredPace")]
    pace: Pace,
    floor: u64,
    room_bytes: u64,
    first_bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "WindowSettings", deny_unknown_fields)]
struct StoredWindow {
    bytes: usize,
    time: Duration,
    bytes_max: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "RingSettings", deny_unknown_fields)]
struct StoredRing {
    bytes_max: usize,
    time: Duration,
    manifest_bytes_max: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "HistorySettings", deny_unknown_fields)]
struct StoredHistory {
    count_max: u32,
    bytes_max: usize,
    time: Duration,
    total_bytes_max: usize,
    // No scenario has overrides.
    #[serde(skip)]
    overrides: Vec<HistoryRule>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Recovery", deny_unknown_fields)]
struct StoredRecovery {
    grace: Duration,
    #[serde(with = "StoredRing")]
    ring: RingSettings,
    resend_rate_min: u64,
    #[serde(with = "StoredHistory")]
    history: HistorySettings,
    linger: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Settings", deny_unknown_fields)]
pub(super) struct StoredSettings {
    #[serde(with = "peer_name")]
    name: PeerName,
    group: u16,
    datagram_bytes_max: usize,
    // That of keyed peers follows from the faults.
    #[serde(skip)]
    check_value: CheckValue,
    message_bytes_max: usize,
    heartbeat: Duration,
    reliability: Duration,
    #[serde(with = "StoredRecovery")]
    recovery: Recovery,
    forget: Duration,
    #[serde(with = "StoredWindow")]
    pub_window: WindowSettings,
    #[serde(with = "StoredWindow")]
    sub_window: WindowSettings,
    frame_messages_max: u64,
    hold_bytes_max: usize,
    reassembly_bytes_max: usize,
    reassembly_sets_max: usize,
    gaps_max: usize,
    peers_max: usize,
    client_subscriptions_max: usize,
    subscriptions_max: usize,
    interest_max: usize,
    suppresses: bool,
    match_cache_max: usize,
    advisory_interval: Duration,
    advisory_subjects_max: usize,
    #[serde(with = "StoredPaceSettings")]
    pace: PaceSettings,
    // Kept scenarios run with the unmodified protocol.
    #[serde(skip)]
    mutants: Mutants,
}

/// Text form of a peer's name.
mod peer_name {
    use crate::message::PeerName;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(name: &PeerName, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(name)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PeerName, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(|reason| D::Error::custom(format!("{name:?} is not a name of a peer: {reason}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scenario::{FaultKind, Faults};

    #[test]
    fn scenario_round_trips_through_text() {
        for seed in 0..300 {
            let scenario = Scenario::draw(seed);
            let text = scenario.to_text();
            assert_eq!(Scenario::from_text(&text).unwrap(), scenario, "seed {seed}");
        }
    }

    #[test]
    fn misspelt_field_or_fault_is_refused_by_name() {
        let text = Scenario::draw(1).to_text().replacen("heal_at", "heals_at", 1);
        let error = Scenario::from_text(&text).unwrap_err().to_string();
        assert!(error.contains("unknown field `heals_at`") && error.contains("line"), "{error}");
        let faulty = Scenario { faults: Faults::of(&[FaultKind::Loss]), ..Scenario::draw(1) };
        let text = faulty.to_text().replacen("\"Loss\"", "\"Los\"", 1);
        let error = Scenario::from_text(&text).unwrap_err().to_string();
        assert!(error.contains("\"Los\" is no kind of fault"), "{error}");
    }
}
