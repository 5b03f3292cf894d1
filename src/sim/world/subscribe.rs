//! Subscriptions of the clients of a host, and the losses reported to them.

use super::{JOIN_CLIENT, World, target};
use crate::message::{DeliveryMode, Loss, Queue, SubscriptionFilter, Target};
use crate::proto::effect::{ClientRequest, Input};
use crate::proto::history::Selection;
use crate::sim::joiner::Joiner;
use crate::sim::oracle::{QUEUE_CLIENT, is_member};
use crate::subject::Pattern;

impl World<'_> {
    pub(super) fn subscribe(&mut self, host: usize, target: Target, pattern: Pattern, mode: DeliveryMode) {
        if self.machines[host].peer.is_none() {
            return;
        }
        self.oracle.on_subscribe(self.now, self.machines[host].run, target, &pattern, mode);
        let request =
            ClientRequest::Subscribe { sub: target.sub, wanted: pattern.into(), mode, wants_discovery: false };
        self.input(host, Input::ClientRequest { client: target.client, request });
    }

    /// Lets a client join late.
    pub(super) fn join(&mut self, host: usize, pattern: usize, newest: Option<u32>, mode: DeliveryMode) {
        let machine = &mut self.machines[host];
        if machine.peer.is_none() || machine.is_stopping {
            return;
        }
        let mutants = machine.spec.settings.mutants;
        let pattern = self.patterns[pattern].clone();
        let target = target(JOIN_CLIENT, 0);
        self.oracle.on_subscribe(self.now, machine.run, target, &pattern, mode);
        let (joiner, request) = Joiner::new(target, (pattern, mode), Selection { newest, age: None }, mutants);
        machine.joiner = Some(joiner);
        self.input(host, Input::ClientRequest { client: target.client, request });
    }

    /// Lets a client join a queue group, unless it is a member of one already.
    pub(super) fn join_queue(&mut self, host: usize, member: u32, pattern: usize, queue: u32) {
        if self.machines[host].members.contains_key(&member) {
            return;
        }
        self.machines[host].members.insert(member, (pattern, queue));
        self.begin_member(host, member, pattern, queue);
    }

    pub(super) fn begin_member(&mut self, host: usize, member: u32, pattern: usize, queue: u32) {
        if self.machines[host].peer.is_none() {
            return;
        }
        let (target, pattern) = (target(QUEUE_CLIENT + member, 0), self.patterns[pattern].clone());
        let queue: Queue = format!("q{queue}").parse().expect("a valid name");
        self.oracle.on_queue_join(self.now, self.machines[host].run, target, &pattern, &queue);
        let wanted = SubscriptionFilter { queue: Some(queue), ..pattern.into() };
        let request =
            ClientRequest::Subscribe { sub: target.sub, wanted, mode: DeliveryMode::Repair, wants_discovery: false };
        self.input(host, Input::ClientRequest { client: target.client, request });
    }

    pub(super) fn leave_queue(&mut self, host: usize, member: u32) {
        let is_member = self.machines[host].members.remove(&member).is_some();
        if is_member && self.machines[host].peer.is_some() {
            let target = target(QUEUE_CLIENT + member, 0);
            self.oracle.on_queue_leave(self.now, self.machines[host].run, target);
            self.input(
                host,
                Input::ClientRequest { client: target.client, request: ClientRequest::Unsubscribe { sub: target.sub } },
            );
        }
    }

    /// Passes a report of a loss to the oracle. Reports to members of queue groups are checked separately.
    pub(super) fn report_loss(&mut self, run: usize, to: &[Target], loss: &Loss) {
        let (members, plain): (Vec<Target>, Vec<Target>) = to.iter().partition(|target| is_member(target));
        if !members.is_empty() {
            self.oracle.on_queue_loss(run, loss);
        }
        self.oracle.on_report(self.now, run, &plain, loss);
    }

    /// Checks at the end that the running peers know each other's subscriptions.
    pub(super) fn check_views(&mut self) {
        let at = self.now;
        let peers = self.machines.iter_mut().map(|machine| (machine.run, machine.now(at), machine.peer.as_mut()));
        let mut peers: Vec<_> = peers.filter_map(|(run, now, peer)| Some((run, now, peer?))).collect();
        self.oracle.check_views(at, &mut peers);
    }
}
