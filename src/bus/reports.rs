//! Reports of a peer as values: losses, other peers, subscriptions, counters and the state of the peer itself.
//!
//! They are the answers to the queries of [`Bus::show`], read into structures. `docs/local-protocol.md`, section
//! "Reports", describes the JSON behind them.

use super::{Bus, EmbeddedPeer, WaitError};
use crate::message::{Count, DeliveryMode, Dseq, Epoch, PeerName, Publisher, Queue, Reason};
use crate::proto::stats::{DatagramStates, LossTally, MemberState};
use crate::subject::Pattern;
use crate::time::WallTime;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Reason why there is no report.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReportError {
    /// The peer did not answer.
    Wait(WaitError),
    /// The peer does not have this report; holds its reason.
    Refused(String),
    /// The answer cannot be read, because the peer's version differs too much from that of this library.
    Unreadable(serde_json::Error),
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReportError::Wait(error) => error.fmt(f),
            ReportError::Refused(reason) => write!(f, "the peer refuses the report: {reason}"),
            ReportError::Unreadable(error) => {
                write!(
                    f,
                    "the report of the peer cannot be read ({error}); use the same version of seqcast on both sides"
                )
            }
        }
    }
}

impl std::error::Error for ReportError {}

/// The rows of a report.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReportRows<T> {
    /// The rows, at most 10,000.
    pub rows: Vec<T>,
    /// Number of further rows that the report leaves out.
    #[serde(default)]
    pub omitted: u64,
}

impl<T> IntoIterator for ReportRows<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a ReportRows<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter()
    }
}

impl ReportRows<Counter> {
    /// Returns the value of the counter with this name, if the peer has one.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.rows.iter().find(|counter| counter.name == name).map(|counter| counter.value)
    }
}

/// Messages and datagrams that the peer received and missed from one publisher: a row of [`Bus::losses`].
///
/// Messages count from the first contact with the publisher. Each message is delivered, lost or unverified in the end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct LossReport {
    /// The publisher.
    #[serde(flatten, deserialize_with = "publisher")]
    pub publisher: Publisher,
    /// Messages that are lost. A subscription in mode `repair` and one in mode `live` that both lost a message count it
    /// twice.
    #[serde(deserialize_with = "count")]
    pub lost: Count,
    /// Lower bound of [`LossReport::lost`], with the time of the last loss.
    #[serde(rename = "msg_loss", deserialize_with = "tally")]
    pub lost_min: LossTally,
    /// Messages lost that were directed to this peer alone, such as replies.
    #[serde(rename = "ibx_loss", deserialize_with = "tally")]
    pub inbox_lost: LossTally,
    /// Messages in missing datagrams whose subjects are not known yet.
    #[serde(deserialize_with = "tally")]
    pub unverified: LossTally,
    /// Messages received after they were missing and requested.
    #[serde(deserialize_with = "tally")]
    pub repaired: LossTally,
    /// Messages received more than once; each was delivered once.
    #[serde(rename = "repeat", deserialize_with = "tally")]
    pub repeated: LossTally,
    /// Messages received to which no client of the peer subscribes.
    #[serde(rename = "not_sub", deserialize_with = "tally")]
    pub unsubscribed: LossTally,
    /// Reason of the last reported loss.
    #[serde(deserialize_with = "reason")]
    pub reason: Option<Reason>,
    /// Number of reports for each reason that was reported.
    #[serde(deserialize_with = "reasons")]
    pub reasons: Vec<(Reason, u64)>,
    /// Datagrams since the first contact, by their state.
    #[serde(deserialize_with = "datagrams")]
    pub datagrams: DatagramStates,
    /// Missing datagrams that the kernel of this host dropped.
    pub overrun: u64,
    /// Failed cross-checks of the accounts. More than 0 is a fault of seqcast.
    pub inconsistencies: u64,
    /// One sentence on what was missing, what came back, and where it was lost; `None` if nothing was missing.
    pub verdict: Option<String>,
}

/// Another peer of the group: a row of [`Bus::peers`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct PeerReport {
    /// Identity of the peer.
    #[serde(flatten, deserialize_with = "publisher")]
    pub publisher: Publisher,
    /// Source address of its datagrams.
    pub address: SocketAddr,
    /// Liveness of the peer.
    #[serde(deserialize_with = "member_state")]
    pub state: MemberState,
    /// Way of this peer's multicasts to it: `multicast`, `unicast`, or `none` if the key `peers` does not name its host.
    pub reached_by: String,
    /// Time since the peer started.
    #[serde(rename = "uptime_ms", deserialize_with = "millis")]
    pub uptime: Duration,
    /// Time since its last new datagram.
    #[serde(rename = "last_heard_ms", deserialize_with = "millis")]
    pub last_heard: Duration,
    /// Messages received from it, whether or not a client subscribes to them.
    pub messages_in: u64,
    /// Datagrams received from it and accepted.
    pub datagrams_in: u64,
    /// Lower bound of the messages lost.
    pub lost: u64,
    /// Messages in missing datagrams whose subjects are not known yet.
    pub unverified: u64,
    /// Messages received after they were missing and requested; 0 from peers of older versions.
    #[serde(default)]
    pub repaired: u64,
    /// True if another live peer has the same name.
    #[serde(rename = "duplicate_name")]
    pub has_duplicate_name: bool,
    /// Name in the certificate of its host; `None` in open mode.
    #[serde(default, deserialize_with = "optional_text")]
    pub member: Option<PeerName>,
    /// True if it announces the name in the certificate of another host.
    #[serde(rename = "foreign_name", default)]
    pub has_foreign_name: bool,
    /// True if its unicast datagrams arrive and its multicast datagrams do not.
    #[serde(rename = "multicast_dead")]
    pub is_multicast_dead: bool,
    /// True if none of its unicast datagrams has arrived for 3.5 of its heartbeats: perhaps it does not hear this peer.
    #[serde(rename = "unicast_absent", default)]
    pub is_unicast_absent: bool,
    /// True if it has proven its address. Only then this peer answers it and waits for it.
    #[serde(rename = "proven")]
    pub is_proven: bool,
    /// Present while this peer does not wait for it because it accepts too little.
    pub flow_exclusion: Option<FlowExclusion>,
    /// Number of times that this peer stopped waiting for it.
    pub flow_exclusion_count: u64,
    /// Datagrams that its kernel dropped for lack of buffer space, by its last report.
    pub kernel_drops: Option<u64>,
    /// Proof that this peer has published a message: `publisher` if it signs its messages, `group` if any member of
    /// the realm could have sent them; `None` in open mode.
    #[serde(default)]
    pub origin: Option<String>,
    /// Difference between its wall clock and that of this peer, once a stamp of it has arrived.
    pub clock_skew: Option<ClockSkew>,
}

/// Difference between the wall clock of another peer and that of this one, as a stamp of the other peer showed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct ClockSkew {
    /// Milliseconds by which the other clock is ahead; negative if it is behind. The time that the message was on its
    /// way makes the other clock look behind by as much.
    pub ahead_ms: i64,
    /// Time since the stamp arrived.
    #[serde(rename = "age_ms", deserialize_with = "millis")]
    pub age: Duration,
}

/// Exclusion of a receiver from the flow control of this peer: the peer publishes without waiting for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct FlowExclusion {
    /// Time since the exclusion.
    #[serde(rename = "for_ms", deserialize_with = "millis")]
    pub age: Duration,
    /// True if the receiver has reported a receive window, which is too small; false if it has reported none.
    #[serde(rename = "reason", deserialize_with = "has_reported")]
    pub has_reported: bool,
}

/// A subscription of a client of the peer: a row of [`Bus::subscriptions`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct SubscriptionReport {
    /// Number that the peer assigned to the client, as in [`Info::client`](super::Info::client).
    pub client: u32,
    /// Name of the client, which may be empty.
    #[serde(rename = "name")]
    pub client_name: Option<String>,
    /// Number that the client assigned to the subscription.
    pub sub: u32,
    /// The pattern.
    #[serde(deserialize_with = "text")]
    pub pattern: Pattern,
    /// Glob pattern of a Redis client, which messages must match in addition.
    pub glob: Option<String>,
    /// Queue group of the subscription.
    #[serde(deserialize_with = "optional_text")]
    pub queue: Option<Queue>,
    /// Delivery of messages after a gap.
    #[serde(deserialize_with = "delivery_mode")]
    pub mode: DeliveryMode,
    /// Number of messages and loss reports delivered to it.
    pub deliveries: u64,
}

/// A counter of the peer: a row of [`Bus::counters`]. Counters only rise.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Counter {
    /// Name of the counter, which does not change between versions.
    #[serde(rename = "counter")]
    pub name: String,
    /// Its value.
    pub value: u64,
    /// Explanation for people.
    pub meaning: String,
}

/// The peer itself, as [`Bus::status`] reports it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct StatusReport {
    /// Name of the peer.
    #[serde(deserialize_with = "text")]
    pub name: PeerName,
    /// Epoch of the peer.
    #[serde(deserialize_with = "epoch")]
    pub epoch: Epoch,
    /// Version of the peer's program.
    pub version: String,
    /// Process id of the peer.
    pub pid: u32,
    /// Time since the peer started.
    #[serde(rename = "uptime_ms", deserialize_with = "millis")]
    pub uptime: Duration,
    /// True once the peer is stopping.
    #[serde(rename = "phase", deserialize_with = "is_stopping")]
    pub is_stopping: bool,
    /// Multicast address of the group.
    pub group: IpAddr,
    /// UDP port of the group.
    pub port: u16,
    /// Maximum hops of a multicast; 0 keeps it on this host.
    pub ttl: u8,
    /// Way of multicasts to other hosts: `multicast`, or `unicast` with the key `peers`.
    pub transport: String,
    /// Addresses to which each multicast is sent by unicast instead; none without the key `peers`.
    pub copies_to: Vec<SocketAddr>,
    /// Address at which other peers reach this one.
    pub inbox: SocketAddr,
    /// Name of the interface on which the group is joined.
    pub interface: String,
    /// Address of that interface.
    pub address: IpAddr,
    /// Reason why this interface was chosen, for people.
    pub interface_reason: String,
    /// True if other hosts can read every message and publish any: the peer is open, and not on loopback.
    #[serde(rename = "open_to_network")]
    pub is_open_to_network: bool,
    /// True if the interface leads only to this host.
    #[serde(rename = "loopback")]
    pub is_loopback: bool,
    /// Size limit of an IP packet on the interface, in bytes.
    pub mtu: usize,
    /// Size limit of a sent datagram, in bytes of UDP payload.
    pub datagram_bytes: usize,
    /// Size limit of a message, in bytes of payload, headers and reply subject.
    pub message_bytes_max: usize,
    /// Size of the receive buffer that the kernel granted, in bytes.
    pub receive_buffer: usize,
    /// Requested size of the receive buffer, in bytes.
    pub receive_buffer_wanted: usize,
    /// Size of the send buffer that the kernel granted, in bytes.
    pub send_buffer: usize,
    /// Requested size of the send buffer, in bytes.
    pub send_buffer_wanted: usize,
    /// Path of the Unix socket, if the peer listens on one.
    pub socket: Option<PathBuf>,
    /// Number of clients.
    pub clients: usize,
    /// Number of datagrams that wait for the network.
    pub send_queue: usize,
    /// Other peers for which this peer does not wait, as [`Publisher`] formats them.
    pub flow_excluded: Vec<String>,
}

impl Bus {
    /// Reports for each publisher what the peer received from it and what it missed.
    ///
    /// ```
    /// # use seqcast::{bus::Bus, config::Config};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = Config::from_text("example", "parameters:\n  port: 31871\n")?;
    /// let bus = Bus::embed(&config)?;
    /// for row in bus.losses()? {
    ///     println!("{}: {} lost, {} unverified", row.publisher, row.lost, row.unverified.count);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The peer does not answer in time, the bus is closed, or the answer cannot be read.
    pub fn losses(&self) -> Result<ReportRows<LossReport>, ReportError> {
        read(self.show("loss").map_err(ReportError::Wait)?)
    }

    /// Reports the other peers of the group: those that are up, and those that have left or crashed not long ago.
    ///
    /// # Errors
    /// The same as of [`Bus::losses`].
    pub fn peers(&self) -> Result<ReportRows<PeerReport>, ReportError> {
        read(self.show("peers").map_err(ReportError::Wait)?)
    }

    /// Reports the subscriptions of all clients of the peer.
    ///
    /// # Errors
    /// The same as of [`Bus::losses`].
    pub fn subscriptions(&self) -> Result<ReportRows<SubscriptionReport>, ReportError> {
        read(self.show("subs").map_err(ReportError::Wait)?)
    }

    /// Reports the counters of the peer; [`ReportRows::value`] finds one by its name.
    ///
    /// # Errors
    /// The same as of [`Bus::losses`].
    pub fn counters(&self) -> Result<ReportRows<Counter>, ReportError> {
        read(self.show("counters").map_err(ReportError::Wait)?)
    }

    /// Reports the state of the peer itself. [`Bus::show`] also has the state of its listeners, journal and streams.
    ///
    /// # Errors
    /// The same as of [`Bus::losses`].
    pub fn status(&self) -> Result<StatusReport, ReportError> {
        read_status(self.show("status").map_err(ReportError::Wait)?)
    }
}

impl EmbeddedPeer {
    /// Reports for each publisher what this peer received from it and what it missed.
    ///
    /// # Errors
    /// The report cannot be read, which is a fault of seqcast.
    pub fn losses(&mut self) -> Result<ReportRows<LossReport>, ReportError> {
        read(self.show(&json!({ "show": "loss" })))
    }

    /// Reports the other peers of the group like [`Bus::peers`].
    ///
    /// # Errors
    /// The same as of [`EmbeddedPeer::losses`].
    pub fn peers(&mut self) -> Result<ReportRows<PeerReport>, ReportError> {
        read(self.show(&json!({ "show": "peers" })))
    }

    /// Reports the subscriptions of all clients of this peer.
    ///
    /// # Errors
    /// The same as of [`EmbeddedPeer::losses`].
    pub fn subscriptions(&mut self) -> Result<ReportRows<SubscriptionReport>, ReportError> {
        read(self.show(&json!({ "show": "subs" })))
    }

    /// Reports the counters of this peer.
    ///
    /// # Errors
    /// The same as of [`EmbeddedPeer::losses`].
    pub fn counters(&mut self) -> Result<ReportRows<Counter>, ReportError> {
        read(self.show(&json!({ "show": "counters" })))
    }

    /// Reports the state of this peer.
    ///
    /// # Errors
    /// The same as of [`EmbeddedPeer::losses`].
    pub fn status(&mut self) -> Result<StatusReport, ReportError> {
        read_status(self.show(&json!({ "show": "status" })))
    }
}

/// Reads an answer of the peer, unless it is an error.
fn read<T: DeserializeOwned>(answer: Value) -> Result<T, ReportError> {
    match answer.get("error").and_then(Value::as_str) {
        Some(reason) => Err(ReportError::Refused(reason.to_owned())),
        None => serde_json::from_value(answer).map_err(ReportError::Unreadable),
    }
}

fn read_status(answer: Value) -> Result<StatusReport, ReportError> {
    #[derive(Deserialize)]
    struct Answer {
        status: StatusReport,
    }
    read::<Answer>(answer).map(|answer| answer.status)
}

/// Reads a value from its text.
fn text<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

fn optional_text<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

/// Returns the value of `all` with this name.
fn named<T: Copy, E: serde::de::Error>(all: &[T], name: fn(T) -> &'static str, text: &str) -> Result<T, E> {
    let found = all.iter().copied().find(|value| name(*value) == text);
    found.ok_or_else(|| E::custom(format_args!("unknown name {text:?}")))
}

fn epoch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Epoch, D::Error> {
    let text = String::deserialize(deserializer)?;
    let bits = u64::from_str_radix(&text, 16).ok();
    bits.and_then(Epoch::new).ok_or_else(|| D::Error::custom(format_args!("{text:?} is no epoch")))
}

fn publisher<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Publisher, D::Error> {
    #[derive(Deserialize)]
    struct Fields {
        #[serde(deserialize_with = "optional_text")]
        publisher: Option<PeerName>,
        #[serde(deserialize_with = "epoch")]
        epoch: Epoch,
        uid: u32,
    }
    let Fields { publisher: name, epoch, uid } = Fields::deserialize(deserializer)?;
    Ok(Publisher { name, epoch, uid })
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Count, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Fields {
        Exact(u64),
        Between { min: u64, max: u64 },
    }
    Ok(match Fields::deserialize(deserializer)? {
        Fields::Exact(count) => Count::Exact(count),
        Fields::Between { min, max } => Count::from_bounds(min, max),
    })
}

fn tally<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LossTally, D::Error> {
    #[derive(Deserialize)]
    struct Fields {
        count: u64,
        time_ns: Option<u64>,
    }
    let Fields { count, time_ns } = Fields::deserialize(deserializer)?;
    Ok(LossTally { count, last: time_ns.map(WallTime::from_nanos) })
}

fn reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Reason>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| named(&Reason::ALL, Reason::as_str, &text)).transpose()
}

fn reasons<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(Reason, u64)>, D::Error> {
    let counts = BTreeMap::<String, u64>::deserialize(deserializer)?;
    let counts = counts.into_iter().map(|(text, count)| Ok((named(&Reason::ALL, Reason::as_str, &text)?, count)));
    counts.collect()
}

fn datagrams<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DatagramStates, D::Error> {
    #[derive(Deserialize)]
    struct Fields {
        baseline: u64,
        high: u64,
        delivered: u64,
        buffered: u64,
        repaired: u64,
        pending: u64,
        lost: u64,
        unverified: u64,
    }
    let Fields { baseline, high, delivered, buffered, repaired, pending, lost, unverified } =
        Fields::deserialize(deserializer)?;
    let (baseline, high) = (Dseq(baseline), Dseq(high));
    Ok(DatagramStates { baseline, high, delivered, buffered, repaired, pending, lost, unverified })
}

fn member_state<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MemberState, D::Error> {
    let all = [MemberState::Up, MemberState::Silent, MemberState::Left, MemberState::Crashed];
    named(&all, MemberState::as_str, &String::deserialize(deserializer)?)
}

fn delivery_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DeliveryMode, D::Error> {
    let all = [DeliveryMode::Repair, DeliveryMode::Live];
    named(&all, DeliveryMode::as_str, &String::deserialize(deserializer)?)
}

fn millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}

fn has_reported<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    String::deserialize(deserializer).map(|reason| reason != "no report")
}

fn is_stopping<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    String::deserialize(deserializer).map(|phase| phase != "running")
}
