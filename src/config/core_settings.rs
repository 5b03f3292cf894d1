//! The settings of the protocol core that a configuration gives.

use super::keys::Config;
use super::network::DatagramSize;
use super::rules::HistoryOverride;
use crate::proto::history::{HistoryRule, HistorySettings};
use crate::proto::mutant::Mutants;
use crate::proto::pace::{Pace, PaceSettings};
use crate::proto::resend::RingSettings;
use crate::proto::{CheckValue, Recovery, Settings, WindowSettings};
use crate::seqno::COUNT_MAX;
use std::time::Duration;

/// Maximum datagram size that `datagram-size: auto` chooses for a network: a jumbo frame's MTU of 9000 minus IPv4 and
/// UDP headers.
const DATAGRAM_BYTES_AUTO_MAX: usize = 8972;

/// Datagram size that `datagram-size: auto` chooses for an interface that carries at least [`WHOLE_PAYLOAD_BYTES`],
/// such as loopback or InfiniBand in connected mode. Two datagrams fill a buffer of the kernel, also with the bytes that
/// keyed peers add. Loopback loses datagrams only when a receive buffer is full, and then usually loses together what
/// left as one buffer, whatever the size of the datagrams.
const DATAGRAM_BYTES_WHOLE: usize = 32_600;

/// Minimum bytes of payload that an interface carries without IP fragments, if it carries nearly every UDP datagram.
const WHOLE_PAYLOAD_BYTES: usize = 65_000;

/// Minimum datagram size that any setting allows: every IPv4 host must accept it.
const DATAGRAM_BYTES_MIN: usize = 576;

/// Maximum number of incomplete large messages of a publisher; `reassembly-size` bounds their bytes.
const REASSEMBLY_SETS_MAX: usize = 1024;

/// R5: time that a missing datagram may merely be late. With a `reliability` up to this value the receiver requests
/// nothing.
pub(crate) const GRACE: Duration = Duration::from_millis(5);

/// Seed 002: "only one is published per second after the first one is published".
const ADVISORY_INTERVAL: Duration = Duration::from_secs(1);

impl Config {
    /// Returns the settings of the core, for an interface that carries `payload_bytes` of UDP payload without IP
    /// fragments.
    pub fn settings(&self, payload_bytes: usize) -> Settings {
        Settings {
            name: self.name.clone(),
            group: self.port,
            datagram_bytes_max: self.datagram_bytes(payload_bytes),
            check_value: CheckValue::Crc32c,
            message_bytes_max: self.message_size,
            heartbeat: self.heartbeat,
            reliability: self.reliability,
            recovery: Recovery {
                grace: GRACE,
                ring: RingSettings {
                    bytes_max: self.resend_size,
                    time: self.resend_time,
                    manifest_bytes_max: self.resend_size,
                },
                resend_rate_min: self.rate_of_one_copy(self.resend_rate as u64),
                history: self.history(),
                linger: self.linger,
            },
            forget: self.forget,
            pub_window: WindowSettings {
                bytes: self.pub_window_size,
                time: self.pub_window_time,
                bytes_max: self.pub_window_max,
            },
            sub_window: WindowSettings {
                bytes: self.sub_window_size,
                time: self.sub_window_time,
                bytes_max: self.sub_window_max,
            },
            frame_messages_max: COUNT_MAX,
            hold_bytes_max: self.hold_size,
            reassembly_bytes_max: self.reassembly_size,
            reassembly_sets_max: REASSEMBLY_SETS_MAX,
            gaps_max: self.gaps_max,
            peers_max: self.peers_max,
            client_subscriptions_max: self.client_subscriptions_max,
            subscriptions_max: self.subscriptions_max,
            interest_max: self.interest_max,
            suppresses: self.interest,
            match_cache_max: self.match_cache,
            advisory_interval: ADVISORY_INTERVAL,
            advisory_subjects_max: self.advisory_subjects,
            pace: PaceSettings {
                pace: match self.pace {
                    Pace::Rate(rate) => Pace::Rate(self.rate_of_one_copy(rate)),
                    pace => pace,
                },
                floor: self.pace_floor as u64,
                ..PaceSettings::auto(self.receive_buffer as u64)
            },
            mutants: Mutants::default(),
        }
    }

    /// Returns the share of a rate that one copy of each multicast may take. The core counts a multicast once, however
    /// many copies leave.
    fn rate_of_one_copy(&self, rate: u64) -> u64 {
        (rate / (self.peers.len() as u64).max(1)).max(1)
    }

    /// Returns the TTL of multicasts. With `peers`, copies go to other hosts, and multicasts reach this host alone.
    pub(crate) fn sent_ttl(&self) -> u8 {
        if self.peers.is_empty() { self.ttl } else { 0 }
    }

    fn history(&self) -> HistorySettings {
        let count_max = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let rule = |rule: &HistoryOverride| HistoryRule {
            pattern: rule.pattern.clone(),
            count_max: count_max(rule.count.unwrap_or(self.history_count)),
            bytes_max: rule.size.unwrap_or(self.history_subject_size),
            time: rule.time.unwrap_or(self.history_time),
        };
        HistorySettings {
            count_max: count_max(self.history_count),
            bytes_max: self.history_subject_size,
            time: self.history_time,
            total_bytes_max: self.history_size,
            overrides: self.history_rules.iter().map(rule).collect(),
        }
    }

    /// Returns the bytes of UDP payload of the largest datagram, if the interface carries `payload_bytes` without IP
    /// fragments.
    pub fn datagram_bytes(&self, payload_bytes: usize) -> usize {
        match self.datagram_size {
            DatagramSize::Bytes(bytes) => bytes,
            DatagramSize::Auto if WHOLE_PAYLOAD_BYTES <= payload_bytes => DATAGRAM_BYTES_WHOLE,
            DatagramSize::Auto => payload_bytes.clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_AUTO_MAX),
        }
    }
}
