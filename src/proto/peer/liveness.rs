//! Handling of members whose multicasts do not arrive: a notification, and a rejoin of the group (wire.md W111). The
//! unicast announcements of such a member reveal its datagrams, which this peer requests by unicast.

use super::Peer;
use super::receive::DatagramSource;
use crate::message::{Dseq, Epoch, Reason};
use crate::proto::effect::{Effect, MemberEvent, Path};
use crate::proto::mutant::Mutant;
use crate::proto::quarantine::is_plausible;
use crate::proto::stats::MemberState;
use crate::time::ClockReading;
use crate::wire::{Header, Kind};

impl Peer {
    /// Records the path of a datagram for this peer.
    pub(super) fn on_path(&mut self, now: ClockReading, source: DatagramSource, header: &Header) {
        let DatagramSource { from, path, bytes } = source;
        if path != Path::Multicast {
            return;
        }
        let epoch = header.epoch;
        let Some(member) = self.members.get_mut(&epoch).filter(|member| member.address == from) else { return };
        self.inbound.receive_window.on_received(bytes);
        let dseq = Dseq(header.number);
        let is_accepted = header.kind == Kind::Data && is_plausible(member.bcast.ledger().high(), dseq);
        let is_report_due = is_accepted && member.receive_progress.on_data(now.instant, dseq, bytes);
        if member.liveness.on_multicast(now.instant) {
            let publisher = member.publisher.clone();
            self.effects.push_back(Effect::Member { publisher, event: MemberEvent::MulticastRestored });
        }
        if is_report_due {
            self.schedule_report_now(now.instant, epoch);
        }
    }

    /// Checks whether the multicasts of a member arrive, when the check is due.
    pub(super) fn on_liveness_tick(&mut self, now: ClockReading, epoch: Epoch) {
        let Some(member) = self.members.get_mut(&epoch) else { return };
        let was_dead = member.liveness.is_dead();
        if member.state != MemberState::Up || !member.liveness.take_due(now.instant, member.heartbeat) {
            return;
        }
        if self.settings.mutants.is(Mutant::BlackholeUnreported) {
            return;
        }
        // Rule: blackhole
        if !was_dead {
            self.counters.multicast_dead += 1;
            if !self.interest.one_of_each_client().is_empty() {
                member.throttles[0].on_tail(Reason::Blackhole);
            }
            self.notify_member_event(epoch, MemberEvent::MulticastDead);
        }
        if self.inbound.take_rejoin(now.instant) {
            self.counters.rejoins += 1;
            self.effects.push_back(Effect::Rejoin);
        }
    }
}
