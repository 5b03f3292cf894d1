//! The path between two hosts: a doctor on each side sends datagrams of several sizes, by unicast and by multicast, and
//! counts those of the other.

mod prober;
mod verdict;

pub(crate) use prober::PathReport;
pub(crate) use verdict::judge;

use self::prober::Prober;
use super::setup::PeerSetup;
use crate::clock::random_u64;
use crate::daemon::batch::{OutgoingDatagram, ReceivedDatagram, RecvBatch};
use crate::daemon::interface::ChosenInterface;
use crate::daemon::multicast::{SocketOpenError, SocketOptions, Sockets};
use crate::daemon::path_test::datagram::PROBE_BYTES_MAX;
use crate::daemon::path_test::respond;
use crate::daemon::path_test::responder::Responder;
use crate::proto::effect::Path;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Number of probes of each series.
const PROBES: u32 = 50;
/// Interval between checks whether the user has ended the listener.
const INTERRUPT_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Number of datagrams read at once.
const BATCH_DATAGRAMS: usize = 16;

/// Opens the sockets of a peer; `port` is that of the inbox, and 0 lets the kernel choose one.
///
/// # Errors
/// The group cannot be joined, or the port is in use.
pub(crate) fn open(setup: &PeerSetup, chosen: &ChosenInterface, port: u16) -> Result<Sockets, SocketOpenError> {
    Sockets::open(&SocketOptions {
        group: setup.group,
        port: setup.port,
        interface: chosen,
        inbox_port: port,
        ttl: setup.ttl,
        receive_buffer: setup.receive_buffer,
        send_buffer: setup.send_buffer,
    })
}

/// Returns whether a peer or a doctor answers at an address.
///
/// # Errors
/// The system refuses to send there.
pub(crate) fn is_answered(sockets: &mut Sockets, listener: SocketAddr) -> io::Result<bool> {
    Prober::new(sockets, listener, 0).begin()
}

/// Exchanges probes with the peer or the doctor at an address. Returns `None` if none answers.
///
/// # Errors
/// The system refuses to send there.
pub(crate) fn probe(
    sockets: &mut Sockets,
    chosen: &ChosenInterface,
    listener: SocketAddr,
) -> io::Result<Option<PathReport>> {
    let full_bytes = chosen.payload_bytes_max().min(PROBE_BYTES_MAX - 1);
    Prober::new(sockets, listener, full_bytes).run(PROBES)
}

/// Answers probers until `is_over`. `on_begun` gets the address of each prober that begins.
///
/// # Errors
/// Receiving fails, or `on_begun` does.
pub(crate) fn listen(
    sockets: &mut Sockets,
    is_over: impl Fn() -> bool,
    mut on_begun: impl FnMut(SocketAddr) -> io::Result<()>,
) -> io::Result<()> {
    let mut responder = Responder::new(random_u64());
    let mut batch = RecvBatch::new(BATCH_DATAGRAMS);
    while !is_over() {
        sockets.wait(INTERRUPT_CHECK_INTERVAL)?;
        for path in [Path::Unicast, Path::Multicast] {
            sockets.recv_batch(path, &mut batch)?;
            let received: Vec<ReceivedDatagram> = batch.drain().collect();
            for datagram in &received {
                respond(&mut responder, path, datagram, |response| {
                    let outgoing = OutgoingDatagram { to: response.to, bytes: response.bytes.clone() };
                    sockets.forbid_fragments(!response.allows_fragments)?;
                    sockets.send_batch(&[outgoing]).map(|sent| sent == 1)
                });
            }
        }
        for prober in responder.take_begun() {
            on_begun(prober)?;
        }
    }
    Ok(())
}
