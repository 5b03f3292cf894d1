//! The self-test at start: it proves that multicasts to the group come back. It sends a probe and waits a bounded time
//! for it.
//!
//! The probe is no datagram of the protocol, as its first two bytes show. Its TTL is 0, so it stays on this host and
//! does not disturb other peers. It passes the routing table, the firewall's output and input, the membership and the
//! binding.

use crate::clock::Clock;
use crate::daemon::batch::{OutgoingDatagram, ReceivedDatagram, RecvBatch};
use crate::daemon::multicast::Sockets;
use crate::proto::effect::Path;
use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Reason why the self-test failed. The text names the likely fix.
#[derive(Debug)]
pub enum SelfTestError {
    /// The kernel refused to send the probe.
    Send {
        /// The group.
        group: SocketAddr,
        /// The interface.
        interface: String,
        /// Error that the kernel returned.
        error: io::Error,
    },
    /// The probe did not come back in time.
    Silence {
        /// The group.
        group: SocketAddr,
        /// The interface.
        interface: String,
        /// Time for which the test waited.
        timeout: Duration,
        /// Number of datagrams of other peers received during the test.
        received_count: usize,
    },
    /// Waiting or receiving failed.
    Receive(io::Error),
}

impl fmt::Display for SelfTestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SelfTestError::Send { group, interface, error } => {
                let remedy = send_remedy(error.raw_os_error(), *group, interface);
                write!(f, "cannot send to the group {group} on {interface}: {error}; {remedy}")
            }
            SelfTestError::Silence { group, interface, timeout, received_count } => write!(
                f,
                "a probe to the group {group} on {interface} does not come back (waited {timeout:?}, received {received_count} \
                 datagrams of others); probably a firewall drops it: allow UDP port {} (nft list ruleset), or use another interface (ip -brief addr)",
                group.port()
            ),
            SelfTestError::Receive(error) => write!(f, "cannot receive: {error}"),
        }
    }
}

impl std::error::Error for SelfTestError {}

/// Returns the remedy for a datagram to the group or to a peer that the system refuses to send on an interface, by the
/// error number of the system.
pub(crate) fn send_remedy(errno: Option<i32>, to: SocketAddr, interface: &str) -> String {
    match (errno, to) {
        (Some(libc::EPERM | libc::EACCES), _) => "a firewall forbids it; look at: nft list ruleset".to_owned(),
        (Some(libc::ENETUNREACH | libc::EHOSTUNREACH), to) if !to.ip().is_multicast() => {
            format!("there is no route; look at: ip route get {}", to.ip())
        }
        (Some(libc::ENETUNREACH), SocketAddr::V4(_)) => {
            format!("there is no route; add one: ip route add 224.0.0.0/4 dev {interface}")
        }
        // The kernel makes IPv6 multicast routes for all interfaces but the loopback one.
        (Some(libc::ENETUNREACH), SocketAddr::V6(_)) if interface == "lo" => {
            "there is no route; add one: ip -6 route add local ff00::/8 dev lo table local".to_owned()
        }
        (Some(libc::ENETUNREACH), SocketAddr::V6(_)) => {
            format!("there is no route; add one: ip -6 route add multicast ff00::/8 dev {interface} table local")
        }
        (Some(libc::EMSGSIZE), _) => "lower datagram-size below the MTU; look at: ip link".to_owned(),
        _ => format!("look at: ip addr show {interface}"),
    }
}

/// Sends a probe to the group and waits for it for at most `timeout`. `nonce` distinguishes it from the probes of
/// others. Returns the datagrams that arrived during the test on either socket, in order of arrival, which the caller
/// must not lose.
pub fn run(
    sockets: &mut Sockets,
    nonce: u64,
    timeout: Duration,
) -> Result<Vec<(Path, ReceivedDatagram)>, SelfTestError> {
    let group = sockets.group_address();
    let interface = sockets.interface().to_owned();
    let probe = probe(nonce);
    let mut batch = RecvBatch::new(BATCH_DATAGRAMS);
    let mut other_datagrams = Vec::new();
    let mut now = Clock::now().instant;
    let deadline = now + timeout;
    let mut send_at = now;
    while other_datagrams.len() < OTHER_DATAGRAMS_MAX {
        // A probe received after the deadline still counts: this thread may have been late.
        let is_last = deadline <= now;
        if send_at <= now && !is_last {
            send(sockets, &probe).map_err(|error| SelfTestError::Send {
                group,
                interface: interface.clone(),
                error,
            })?;
            send_at = now + PROBE_INTERVAL;
        }
        let mut received_count = 0;
        let mut is_received = false;
        for path in [Path::Multicast, Path::Unicast] {
            received_count += sockets.recv_batch(path, &mut batch).map_err(SelfTestError::Receive)?;
            for received in batch.drain() {
                if received.bytes == probe && received.from == sockets.inbox_address() {
                    is_received = true;
                } else {
                    other_datagrams.push((path, received));
                }
            }
        }
        if is_received {
            return Ok(other_datagrams);
        }
        if received_count == 0 && is_last {
            break;
        }
        if received_count == 0 {
            sockets.wait(deadline.min(send_at).since(now)).map_err(SelfTestError::Receive)?;
        }
        now = Clock::now().instant;
    }
    Err(SelfTestError::Silence { group, interface, timeout, received_count: other_datagrams.len() })
}

/// Sends the probe with a TTL that keeps it on this host.
fn send(sockets: &mut Sockets, probe: &Bytes) -> io::Result<()> {
    sockets.limit_ttl(0)?;
    let sent = sockets.send_batch(&[OutgoingDatagram { to: None, bytes: probe.clone() }]);
    sockets.limit_ttl(sockets.ttl())?;
    // A full send buffer is no failure yet: the next probe may find room.
    sent.map(|_| ())
}

/// Returns whether a datagram is the probe of a self-test, of this program or of another one on this host.
#[cfg(feature = "cli")]
pub(crate) fn is_probe(bytes: &[u8]) -> bool {
    bytes.starts_with(PROBE)
}

fn probe(nonce: u64) -> Bytes {
    let mut bytes = BytesMut::from(PROBE);
    bytes.put_u64(nonce);
    bytes.freeze()
}

/// First bytes of every probe; the first two are not the protocol's magic (0x5343).
const PROBE: &[u8] = b"seqcast self-test ";

/// Number of datagrams read at once; each takes 64 KiB of address space for the duration of the test.
const BATCH_DATAGRAMS: usize = 16;

/// Interval between probes: on a busy group a probe may find the receive buffer full.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of datagrams kept during the test: a busy group sends several thousand in the time that the probe
/// needs.
const OTHER_DATAGRAMS_MAX: usize = 65_536;
