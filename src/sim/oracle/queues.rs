//! Queue groups: no message goes to two members of a group, at whatever peers. Once runs, epochs and members stop
//! changing, each message goes to one member.

use super::interest::QueueMember;
use super::{NEVER, Oracle, PeerRun};
use crate::message::{Delivery, Loss, LossScope, Queue, Target, Verdict};
use crate::proto::peer::Peer;
use crate::sim::scenario::SECOND;
use crate::subject::Pattern;
use crate::time::nanos;
use std::collections::BTreeSet;

/// Number of concurrent reassemblies that no scenario exceeds without losses.
const REASSEMBLY_SETS_ENOUGH: usize = 64;

/// Lowest client number in a queue group; all clients above it are in queue groups too.
pub(crate) const QUEUE_CLIENT: u32 = 70;

/// Returns whether a subscription is a member of a queue group.
pub(crate) fn is_member(target: &Target) -> bool {
    QUEUE_CLIENT <= target.client.0
}

impl Oracle {
    /// Records that a client joins a queue group.
    pub fn on_queue_join(&mut self, at: u64, run: usize, target: Target, pattern: &Pattern, queue: &Queue) {
        if self.runs[run].members.iter().any(|member| member.end == NEVER && member.target == target) {
            return;
        }
        let version = self.runs[run].next_version();
        let (pattern, queue) = (pattern.clone(), queue.clone());
        self.runs[run].members.push(QueueMember { target, pattern, queue, end: NEVER, version });
        self.queues_changed_at = at;
    }

    /// Records that a client leaves its queue group.
    pub fn on_queue_leave(&mut self, at: u64, run: usize, target: Target) {
        let member = self.runs[run].members.iter_mut().find(|member| member.end == NEVER && member.target == target);
        if let Some(member) = member {
            member.end = at;
            self.runs[run].next_version();
            self.queues_changed_at = at;
        }
    }

    /// Checks a delivery to a member of a queue group.
    pub(crate) fn on_queue_delivery(&mut self, run: usize, target: Target, delivery: &Delivery) {
        self.figures.shares += 1;
        let id = match self.truth.identify(&delivery.message) {
            Ok(id) => id,
            Err(reason) => {
                let text =
                    format!("run {run} delivered to a member a message on {}: {reason}", delivery.message.subject);
                return self.findings.add("O4", text);
            }
        };
        let mut members = self.runs[run].members.iter();
        let Some(member) = members.find(|member| member.end == NEVER && member.target == target) else {
            return self
                .findings
                .add("queue", format!("run {run} delivered message {id} to {target:?}, which is not a member"));
        };
        if !member.pattern.matches(&delivery.message.subject) {
            self.findings
                .add("queue", format!("run {run} delivered message {id} to {target:?}, which does not want it"));
        }
        let queue = member.queue.clone();
        let publisher = self.truth.stream(delivery.publisher.epoch).map(|stream| self.truth.streams[stream].run);
        if publisher != Some(self.truth.published[id].run) {
            let text = format!("run {run} delivered message {id} to {target:?} as a message of {}", delivery.publisher);
            self.findings.add("queue", text);
        }
        if delivery.repaired {
            self.on_queue_repair(run, id, delivery);
        }
        if !self.shares.insert((id, queue)) {
            self.findings.add("queue", format!("message {id} went to two members of a queue group, now in run {run}"));
        }
    }

    /// Counts a repaired message once, unless another subscription got it before. The stream of a message that another
    /// peer returned is unknown here.
    fn on_queue_repair(&mut self, run: usize, id: usize, delivery: &Delivery) {
        self.runs[run].has_returned_message |= delivery.verdict == Verdict::Direct;
        let stream = self.truth.stream(delivery.publisher.epoch);
        if let Some(stream) = stream.filter(|_| !self.repaired_in.contains(&(run, id))) {
            self.repaired_in.insert((run, id));
            self.runs[run].track(stream).repaired += 1;
        }
    }

    /// Checks a loss reported to a member of a queue group. Other members may have been due the missing messages, so no
    /// loss is certain.
    pub(crate) fn on_queue_loss(&mut self, run: usize, loss: &Loss) {
        if let LossScope::Messages { count, .. } = &loss.what
            && 0 < count.min()
        {
            self.findings.add("queue", format!("run {run} reports {count} messages as lost to a member"));
        }
    }

    /// Checks that every assignment to a member at another peer is delivered, or counted by its publisher.
    pub(crate) fn check_assignments(&mut self, peers: &[(usize, &Peer)]) {
        if self.healed_at == NEVER || self.cells != 0 {
            return;
        }
        for (run, peer) in peers {
            let published = self.truth.published.iter().enumerate().filter(|(_, published)| published.run == *run);
            let assigned =
                published.flat_map(|(id, published)| published.assigned.iter().map(move |queue| (id, queue)));
            let missing: Vec<usize> = assigned
                .filter(|(id, queue)| !self.shares.contains(&(*id, (*queue).clone())))
                .map(|(id, _)| id)
                .collect();
            let counters = peer.counters();
            // `show loss` has no rows of a forgotten peer, so the reports are summed.
            let returns_lost: u64 = self.runs[*run].tracks.iter().flatten().map(|track| track.directed_lost).sum();
            let most = counters.queue_lost + counters.queue_uncertain + counters.queue_unserved + returns_lost;
            self.figures.cross_checks += 1;
            if !(counters.queue_lost..=most).contains(&(missing.len() as u64)) {
                let text = format!(
                    "of the messages that run {run} assigned {} were not served; it counts {} lost, {} uncertain, {} unserved: {missing:?}",
                    missing.len(),
                    counters.queue_lost,
                    counters.queue_uncertain,
                    counters.queue_unserved
                );
                self.findings.add("assigned", text);
            }
        }
    }

    /// Checks that each message published after 3.5 heartbeats and 2 s without changes went to one member.
    pub(crate) fn check_queue_deliveries(&mut self, alive: &[usize]) {
        // A message whose reassembly a limit ends is lost, though its datagrams arrive. Its publisher counts that
        // message (`check_assignments`).
        let may_lose = |run: &PeerRun| run.is_limited() || run.settings.reassembly_sets_max < REASSEMBLY_SETS_ENOUGH;
        if self.healed_at == NEVER || self.cells != 0 || self.runs.iter().any(may_lose) {
            return;
        }
        let heartbeat = self.truth.streams.iter().map(|stream| nanos(stream.settings.heartbeat)).max().unwrap_or(0);
        let lives = self.runs.iter().flat_map(|run| [Some(run.born), Some(run.ended).filter(|end| *end != NEVER)]);
        // No peer knows the subscriptions of an epoch that has just begun, even if its run is older.
        let epochs = self.truth.streams.iter().map(|stream| stream.born);
        let last = lives.flatten().chain(epochs).chain([self.queues_changed_at, self.healed_at]).max().unwrap_or(0);
        let stable = last + heartbeat * 7 / 2 + 2 * SECOND;
        let members: Vec<(Pattern, Queue)> = alive
            .iter()
            .flat_map(|run| self.runs[*run].members.iter().filter(|member| member.end == NEVER))
            .map(|member| (member.pattern.clone(), member.queue.clone()))
            .collect();
        for (id, published) in self.truth.published.iter().enumerate() {
            let subject = &published.envelope.subject;
            if published.at < stable || !alive.contains(&published.run) || subject.as_str().starts_with("_INBOX.") {
                continue;
            }
            let groups: BTreeSet<&Queue> =
                members.iter().filter(|(pattern, _)| pattern.matches(subject)).map(|(_, queue)| queue).collect();
            for queue in groups {
                self.figures.shares_owed += 1;
                if !self.shares.contains(&(id, queue.clone())) {
                    let text = format!(
                        "message {id} of run {} at {} on {subject} went to no member of {queue}; sent as {:?}",
                        published.run, published.at, published.sent
                    );
                    self.findings.add("queue", text);
                }
            }
        }
    }
}
