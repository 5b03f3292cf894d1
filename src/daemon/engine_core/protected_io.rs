//! Datagrams between the protocol core and the sockets, through the protection of this peer.

use super::EngineCore;
use crate::daemon::batch::{OutgoingDatagram, ReceivedDatagram};
use crate::daemon::protection::Protection;
use crate::daemon::transmit_queue::TransmitQueue;
use crate::proto::effect::{ArrivedDatagram, Input, Path};
use crate::proto::peer::Peer;
use crate::time::{ClockReading, Instant};
use bytes::Bytes;
use std::net::SocketAddr;

/// The way of datagrams between the sockets and the protocol core.
pub(super) struct ProtectedIo<'a> {
    pub(super) protection: &'a mut Protection,
    pub(super) peer: &'a mut Peer,
    pub(super) transmit_queue: &'a mut TransmitQueue,
}

impl ProtectedIo<'_> {
    /// Passes a datagram to the protocol core, unless its protection discards or defers it. Datagrams that waited for
    /// this one come before the next one.
    pub(super) fn receive(&mut self, now: ClockReading, received: ReceivedDatagram, path: Path) {
        let arrived = received.arrival(now).unwrap_or(now.instant);
        let from = received.from;
        let datagram = ArrivedDatagram { from, path, bytes: received.bytes, arrived };
        if let Some(bytes) = self.protection.receive(now, datagram) {
            self.peer.handle(now, Input::Datagram { from, path, bytes });
        }
        self.drain(now);
    }

    /// Enqueues the datagrams of handshakes, and passes on certificates and received datagrams that waited.
    fn drain(&mut self, now: ClockReading) {
        let ProtectedIo { protection, peer, transmit_queue } = self;
        protection
            .drain(|to, bytes| transmit_queue.push(OutgoingDatagram { to, bytes }), |input| peer.handle(now, input));
    }
}

impl EngineCore {
    /// Passes a datagram to the protocol core, through the protection.
    pub(in crate::daemon) fn receive_datagram(&mut self, now: ClockReading, received: ReceivedDatagram, path: Path) {
        self.protected_io().receive(now, received, path);
    }

    /// Returns the next time at which the protection of the datagrams has work to do.
    pub(in crate::daemon) fn protection_deadline(&self) -> Option<Instant> {
        self.protection.deadline()
    }

    /// Enqueues a datagram of the protocol core.
    pub(super) fn send(&mut self, to: Option<SocketAddr>, datagram: Bytes) {
        if let Some(bytes) = self.protection.seal(to, datagram) {
            self.transmit_queue.push(OutgoingDatagram { to, bytes });
        }
    }

    /// Applies the effects of the protection.
    pub(super) fn drain_protection(&mut self, now: ClockReading) {
        self.protected_io().drain(now);
    }

    fn protected_io(&mut self) -> ProtectedIo<'_> {
        let EngineCore { protection, peer, transmit_queue, .. } = self;
        ProtectedIo { protection, peer, transmit_queue }
    }

    /// Does the work of the protection that is due.
    pub(super) fn tick_protection(&mut self, now: ClockReading) {
        if self.protection.deadline().is_some_and(|deadline| deadline <= now.instant) {
            self.protection.tick(now);
        }
    }
}
