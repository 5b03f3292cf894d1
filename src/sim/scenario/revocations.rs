//! Changes of keys, and revocations of hosts.

use super::{Action, FaultKind, SECOND, Scenario};
use crate::rng::Rng;

impl Scenario {
    /// Schedules changes of keys at keyed hosts, for no host or for one that has crashed before and comes back for a
    /// while.
    pub(super) fn plan_revocations(&mut self) {
        let mut rng = Rng::new(self.seed ^ 0x4e_ce1);
        if !self.faults.has(FaultKind::Keyed) {
            return;
        }
        for host in 0..self.hosts.len() {
            let mut at = rng.below(30 * SECOND);
            while rng.chance(0.7) && at < self.heal_at {
                self.plan(at, host, Action::Revoke { hosts: 0 });
                at += rng.between(1, 30) * SECOND;
            }
        }
        if self.hosts.len() < 3 || rng.chance(0.5) {
            return;
        }
        let revoked = self.hosts.len() - 1;
        let end = rng.between(8, 22) * SECOND;
        self.events.retain(|event| event.host != revoked || event.at < end);
        self.plan(end, revoked, Action::Crash);
        for host in 0..revoked {
            self.plan(end + rng.below(SECOND), host, Action::Revoke { hosts: 1 << revoked });
        }
        let back = end + rng.between(2, 10) * SECOND;
        self.plan(back, revoked, Action::Restart { other_port: rng.chance(0.5) });
        for burst in 1..10 {
            self.plan(back + burst * SECOND, revoked, Action::Burst(1 + rng.below(8) as u32));
        }
        // At the end of a run, peers that run know each other.
        self.plan(back + 11 * SECOND, revoked, Action::Crash);
    }
}
