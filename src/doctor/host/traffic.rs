//! Multicasts as they arrive on this host: probes that come back, peers, and datagrams of other programs.

use crate::clock::{Clock, random_u64};
use crate::daemon::batch::{ReceivedDatagram, RecvBatch};
use crate::daemon::interface::{ChoiceReason, ChosenInterface, Family, Interface};
use crate::daemon::multicast::{BufferGrant, SocketOpenError, SocketOptions, Sockets};
use crate::daemon::self_test::{self, SelfTestError};
use crate::doctor::setup::PeerSetup;
use crate::proto::effect::Path;
use crate::wire::{self, DiscardReason};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Time for which a probe may travel.
const SELF_TEST_TIME: Duration = Duration::from_secs(1);
/// Time for which a test listens to the group: a little more than the usual interval between heartbeats.
pub(crate) const LISTEN_TIME: Duration = Duration::from_millis(1200);
/// Maximum number of datagrams that a test judges.
const DATAGRAMS_MAX: usize = 20_000;
/// Maximum number of sources of each kind.
const SOURCES_MAX: usize = 64;
/// Number of datagrams read at once; each takes 64 KiB of address space.
const BATCH_DATAGRAMS: usize = 16;

/// Sockets of a peer on one interface, as the system granted them.
#[derive(Debug)]
pub(crate) struct InterfaceTest {
    /// Name of the interface.
    pub(crate) interface: String,
    /// Test with open sockets, or the reason why they could not be opened.
    pub(crate) sockets: Result<SocketTest, SocketOpenError>,
}

impl InterfaceTest {
    /// Returns what was heard, if a probe came back.
    pub(crate) fn heard(&self) -> Option<&HeardTraffic> {
        self.sockets.as_ref().ok().and_then(|test| test.probe.as_ref().ok())
    }
}

/// Test of the sockets of a peer.
#[derive(Debug)]
pub(crate) struct SocketTest {
    /// Receive buffer of the group socket and send buffer of the inbox.
    pub(crate) granted: [BufferGrant; 2],
    /// Traffic heard after a probe came back, or the reason why none did.
    pub(crate) probe: Result<HeardTraffic, SelfTestError>,
}

/// Sources of the datagrams that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeardTraffic {
    /// Peers of this version.
    pub(crate) peers: BTreeSet<SocketAddr>,
    /// Peers of another version, or with a security mode that this version lacks.
    pub(crate) incompatible: BTreeSet<SocketAddr>,
    /// Other programs.
    pub(crate) foreign: BTreeSet<SocketAddr>,
}

impl HeardTraffic {
    fn add(&mut self, received: &ReceivedDatagram) {
        if self_test::is_probe(&received.bytes) {
            return;
        }
        let sources = match wire::decode(received.bytes.clone()) {
            Ok(_) => &mut self.peers,
            Err(DiscardReason::Version(_) | DiscardReason::Mode(_)) => &mut self.incompatible,
            Err(DiscardReason::Foreign | DiscardReason::Check | DiscardReason::Malformed(_)) => &mut self.foreign,
        };
        if sources.len() < SOURCES_MAX {
            sources.insert(received.from);
        }
    }
}

/// Opens the sockets of a peer on an interface, sends a probe, and listens to the group if `listens`.
pub(super) fn test(setup: &PeerSetup, interface: &ChosenInterface, listens: bool) -> InterfaceTest {
    let sockets = Sockets::open(&SocketOptions {
        group: setup.group,
        port: setup.port,
        interface,
        inbox_port: 0,
        ttl: setup.ttl,
        receive_buffer: setup.receive_buffer,
        send_buffer: setup.send_buffer,
    });
    let sockets = sockets.map(|mut sockets| SocketTest {
        granted: sockets.granted(),
        probe: hear(&mut sockets, if listens { LISTEN_TIME } else { Duration::ZERO }),
    });
    InterfaceTest { interface: interface.name.clone(), sockets }
}

/// Sends a probe, then listens to the group until `time` is over.
fn hear(sockets: &mut Sockets, time: Duration) -> Result<HeardTraffic, SelfTestError> {
    let deadline = Clock::now().instant + time;
    let mut heard = HeardTraffic::default();
    let others = self_test::run(sockets, random_u64(), SELF_TEST_TIME)?;
    others.iter().take(DATAGRAMS_MAX).for_each(|(_, received)| heard.add(received));
    let mut batch = RecvBatch::new(BATCH_DATAGRAMS);
    let mut count = 0;
    while count < DATAGRAMS_MAX {
        let now = Clock::now().instant;
        if deadline <= now {
            break;
        }
        let received_count = sockets.recv_batch(Path::Multicast, &mut batch).map_err(SelfTestError::Receive)?;
        batch.drain().for_each(|received| heard.add(&received));
        count += received_count;
        if received_count == 0 {
            sockets.wait(deadline.since(now)).map_err(SelfTestError::Receive)?;
        }
    }
    Ok(heard)
}

/// Returns the choice of a peer that uses this interface; `None` if the interface cannot multicast now.
pub(super) fn choice_of(interface: &Interface, family: Family) -> Option<ChosenInterface> {
    let is_usable = interface.up && interface.running && (interface.multicast || interface.loopback);
    let address: IpAddr = interface.address(family).filter(|_| is_usable)?;
    Some(ChosenInterface {
        name: interface.name.clone(),
        index: interface.index,
        address,
        mtu: interface.mtu,
        loopback: interface.loopback,
        reason: ChoiceReason::Named,
        others: Vec::new(),
    })
}
