//! Flush requests, and the output at the end of a turn.

use super::Engine;
use crate::listener::frame::PeerFrame;
use crate::message::ClientId;
use crate::proto::effect::PublishedPosition;
use crate::time::ClockReading;
use crossbeam_channel::Sender;

/// Maximum number of pending flush requests.
pub(super) const FLUSHES_MAX: usize = 4096;

/// Requester of a flush.
#[derive(Debug)]
pub(super) enum FlushWaiter {
    Attached(ClientId, u64),
    Embedded(Sender<()>),
}

/// Position that must be sent before a flush is reported.
#[derive(Clone, Copy, Debug)]
pub(super) enum FlushPoint {
    /// Position in the published messages that the core must transmit.
    Core(PublishedPosition),
    /// Total number of datagrams ever enqueued that must have left the transmit queue.
    Socket(u64),
}

impl Engine {
    /// Registers a flush request for everything published before this call.
    pub(super) fn await_flush(&mut self, waiting: FlushWaiter) {
        self.flushes.push((waiting, FlushPoint::Core(self.peer.published())));
    }

    /// Sends queued datagrams, reports completed flushes and writes to the clients. Without a preceding tick the core
    /// may still hold an open datagram, so no flush is reported.
    pub(super) fn flush_output(&mut self, now: ClockReading, has_ticked: bool) {
        // A multicast takes longer than a few writes, and those clients can work meanwhile. Writes to many clients
        // would delay the network, and answers are less urgent.
        if self.clients.has_few_messages() {
            let ended = self.clients.write_messages();
            self.detach_all(now, ended);
        }
        self.transmit_queue.flush(&mut self.sockets);
        if has_ticked && !self.flushes.is_empty() {
            self.report_flushed();
        }
        self.report_slow_clients(now);
        self.serve_deferred_requests(now);
        let ended = self.clients.write();
        self.detach_all(now, ended);
        self.evict(now);
        self.resume_at_listeners(now);
    }

    pub(super) fn detach_all(&mut self, now: ClockReading, ended: Vec<ClientId>) {
        for id in ended {
            self.detach(now, id);
        }
    }

    /// Reports the flushes that are complete, whatever was published after them.
    fn report_flushed(&mut self) {
        for (waiting, mut leaving) in std::mem::take(&mut self.flushes) {
            if let FlushPoint::Core(published) = leaving
                && self.peer.has_transmitted(published)
            {
                leaving = FlushPoint::Socket(self.transmit_queue.enqueued());
            }
            match (leaving, waiting) {
                (FlushPoint::Socket(count), FlushWaiter::Attached(client, token))
                    if self.transmit_queue.has_sent(count) =>
                {
                    self.clients.answer(client, &PeerFrame::Flushed { token });
                }
                (FlushPoint::Socket(count), FlushWaiter::Embedded(answer)) if self.transmit_queue.has_sent(count) => {
                    // The requester may have stopped waiting.
                    let _ = answer.send(());
                }
                (_, waiting) => self.flushes.push((waiting, leaving)),
            }
        }
    }
}
