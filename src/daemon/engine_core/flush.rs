//! Flush requests, and the output of the core at the end of a turn.

use super::EngineCore;
use crate::listener::frame::PeerFrame;
use crate::message::ClientId;
use crate::proto::effect::PublishedPosition;
use crate::time::ClockReading;
use crossbeam_channel::Sender;

/// Maximum number of pending flush requests.
pub(super) const FLUSHES_MAX: usize = 4096;

/// Requester of a flush.
#[derive(Debug)]
pub(in crate::daemon) enum FlushWaiter {
    Attached(ClientId, u64),
    Embedded(Sender<()>),
}

/// Position up to which everything must be sent before a flush is reported.
#[derive(Clone, Copy, Debug)]
pub(super) enum FlushPoint {
    /// Position in the published messages that the core must transmit.
    Core(PublishedPosition),
    /// Total number of datagrams ever enqueued that must have left the transmit queue.
    Socket(u64),
}

impl EngineCore {
    /// Registers a flush request for everything published before this call.
    pub(in crate::daemon) fn await_flush(&mut self, waiter: FlushWaiter) {
        self.flushes.push((waiter, FlushPoint::Core(self.peer.published())));
    }

    /// Sends queued datagrams and reports completed flushes. Without a preceding tick the protocol core may still hold
    /// an open datagram, so no flush is reported.
    pub(in crate::daemon) fn flush_network(&mut self, now: ClockReading, has_ticked: bool) {
        // A few writes take less time than a multicast, and during it their clients can work. Writes to many clients
        // would delay the network, and answers are less urgent.
        if self.clients.has_few_messages() {
            let ended = self.clients.write_messages();
            self.detach_all(now, ended);
        }
        self.transmit_queue.flush(&mut self.sockets);
        if has_ticked && !self.flushes.is_empty() {
            self.report_flushed();
        }
    }

    /// Writes to the clients with unwritten output.
    pub(in crate::daemon) fn write_clients(&mut self, now: ClockReading) {
        let ended = self.clients.write();
        self.detach_all(now, ended);
    }

    fn detach_all(&mut self, now: ClockReading, ended: Vec<ClientId>) {
        for id in ended {
            self.detach(now, id);
        }
    }

    /// Reports the complete flushes. Messages published after a flush request do not delay its report.
    fn report_flushed(&mut self) {
        for (waiter, mut point) in std::mem::take(&mut self.flushes) {
            if let FlushPoint::Core(published) = point
                && self.peer.has_transmitted(published)
            {
                point = FlushPoint::Socket(self.transmit_queue.enqueued());
            }
            match (point, waiter) {
                (FlushPoint::Socket(count), FlushWaiter::Attached(client, token))
                    if self.transmit_queue.has_sent(count) =>
                {
                    self.clients.answer(client, &PeerFrame::Flushed { token });
                }
                (FlushPoint::Socket(count), FlushWaiter::Embedded(answer)) if self.transmit_queue.has_sent(count) => {
                    // The requester may have stopped waiting.
                    let _ = answer.send(());
                }
                (_, waiter) => self.flushes.push((waiter, point)),
            }
        }
    }
}
