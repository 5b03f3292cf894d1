//! The simulated world: one queue of events in virtual time, hosts that run their loops, and the network between
//! them.
//!
//! A host does what the daemon's loop does. It reads the datagrams that have arrived, passes them to the peer, drains
//! the effects, and ticks once the peer's deadline has come. The oracle sees everything that enters or leaves a peer.

mod keyed;
mod publish;
mod subscribe;

use crate::message::{ClientId, Delivery, Epoch, SubId, Target};
use crate::proto::effect::{ClientRequest, Effect, Input, MemberEvent, Path};
use crate::proto::mutant::Mutant;
use crate::proto::pace::cost;
use crate::proto::peer::Peer;
use crate::proto::run_batch::RunBatch;
use crate::proto::stats::MemberState;
use crate::rng::Rng;
use crate::sim::machine::{BUSY_TURNS_MAX, Machine, Packet};
use crate::sim::network::{LinkOutcome, SimulatedNetwork};
use crate::sim::oracle::{Oracle, is_member};
use crate::sim::report::RunOutcome;
use crate::sim::scenario::{Action, FaultKind, HostSpec, MILLIS, SECOND, Scenario, ScenarioEvent};
use crate::sim::truth::{DatagramId, NEVER};
use crate::subject::{Pattern, Subject};
use crate::time::Instant;
use crate::wire::CheckValue;
use bytes::Bytes;
use hashbrown::HashMap;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

/// The client that reads the inbox of each host.
const INBOX_CLIENT: u32 = 60;
/// The client that publishes.
const WRITER_CLIENT: u32 = 61;
/// The client that joins late.
const JOIN_CLIENT: u32 = 62;
/// Maximum number of lines of the trace.
const TRACE_LINES: usize = 100_000;
/// Number of ticks at one instant after which the deadline counts as stuck.
const TICKS_MAX: u32 = 100;

enum WorldStep {
    /// A copy of a packet reaches a host. The flag is set for a replay.
    Arrive(usize, Box<Packet>, bool),
    Turn(usize),
    Wake(usize),
    Script(usize),
    Publish(usize),
    Flood(usize),
    /// An action that waited for a paused or stopping peer.
    Deferred(usize, Box<Action>),
    Heal,
}

struct ScheduledStep {
    at: u64,
    order: u64,
    step: WorldStep,
}

impl PartialEq for ScheduledStep {
    fn eq(&self, other: &ScheduledStep) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for ScheduledStep {}

impl PartialOrd for ScheduledStep {
    fn partial_cmp(&self, other: &ScheduledStep) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScheduledStep {
    fn cmp(&self, other: &ScheduledStep) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A world while its scenario runs.
pub struct World<'a> {
    scenario: &'a Scenario,
    now: u64,
    order: u64,
    /// Events of the scenario that are still to come, in the order of time.
    script: VecDeque<usize>,
    queue: BinaryHeap<Reverse<ScheduledStep>>,
    machines: Vec<Machine>,
    network: SimulatedNetwork,
    oracle: Oracle,
    rng: Rng,
    /// Source of the choices how effects are polled. It is apart, so that these change nothing else.
    poll_rng: Rng,
    patterns: Vec<Pattern>,
    /// For each host its own subjects, then those common to all.
    subjects: Vec<Vec<Subject>>,
    outcomes: Vec<LinkOutcome>,
    /// Identities of all datagrams of keyed peers, in open mode.
    sent_ids: HashMap<Bytes, DatagramId>,
    trace: Option<VecDeque<String>>,
}

impl<'a> World<'a> {
    /// Creates the world of a scenario; with a trace of the last events if wanted.
    pub fn new(scenario: &'a Scenario, with_trace: bool) -> World<'a> {
        let mut rng = Rng::new(scenario.seed ^ 0x77_0f_1d);
        let network = SimulatedNetwork::new(rng.fork(), scenario.weather.clone(), scenario.hosts.len());
        // A slow host reads a datagram later by at most the time that it needs for a full buffer.
        let reading = |host: &HostSpec| match host.speed {
            0 => 0,
            speed => (u128::from(host.buffer_bytes) * u128::from(SECOND) / u128::from(speed)) as u64,
        };
        let turn_max = scenario.hosts.iter().map(|host| host.turn + reading(host)).max().unwrap_or(0);
        let subject = |prefix: &str, n: u64| format!("{prefix}.{n}").parse().expect("a valid subject");
        let of_host = |host: usize| {
            let own = (0..scenario.traffic.subjects).map(|n| subject(&format!("p{host}"), n));
            own.chain((0..scenario.traffic.subjects / 2).map(|n| subject("all", n))).collect()
        };
        let mut world = World {
            oracle: Oracle::new(network.delay_max() + turn_max, scenario.cells),
            now: 0,
            order: 0,
            script: (0..scenario.events.len()).collect(),
            queue: BinaryHeap::new(),
            machines: scenario.hosts.iter().enumerate().map(|(n, spec)| Machine::new(n, spec.clone())).collect(),
            network,
            rng,
            poll_rng: Rng::new(scenario.seed ^ 0x9e_11),
            patterns: scenario.patterns.iter().map(|text| text.parse().expect("a valid pattern")).collect(),
            subjects: (0..scenario.hosts.len()).map(of_host).collect(),
            outcomes: Vec::new(),
            sent_ids: HashMap::default(),
            trace: with_trace.then(VecDeque::new),
            scenario,
        };
        world.oracle.reading_max = world.machines.iter().map(Machine::reading_max).collect();
        world.script.make_contiguous().sort_by_key(|index| scenario.events[*index].at);
        world.push(scenario.heal_at, WorldStep::Heal);
        world
    }

    /// Turns off the checks of sent datagrams. Mistakes must then show at the receivers.
    pub fn without_sender_checks(mut self) -> World<'a> {
        self.oracle.truth.is_strict = false;
        self
    }

    /// Runs to the end and returns the oracle's findings.
    pub fn run(mut self) -> RunOutcome {
        while let Some((at, step)) = self.next_step() {
            if self.scenario.end < at {
                break;
            }
            self.now = at;
            self.oracle.findings.now = at;
            self.step(step);
            // A trace shows the events before the first violation.
            if self.trace.is_some() && 0 < self.oracle.findings.count {
                break;
            }
        }
        if self.trace.is_none() || self.oracle.findings.count == 0 {
            self.now = self.scenario.end;
            self.oracle.findings.now = self.now;
            let peers = self.machines.iter().filter_map(|machine| Some((machine.run, machine.peer.as_ref()?)));
            self.oracle.finish(self.now, &peers.collect::<Vec<_>>());
            self.check_views();
            for machine in &self.machines {
                let Some(joiner) = &machine.joiner else { continue };
                let Oracle { truth, runs, findings, .. } = &mut self.oracle;
                joiner.finish(self.now, truth, &runs[machine.run], findings);
                self.oracle.figures.joins += 1;
                self.oracle.figures.replayed += joiner.replayed();
            }
        }
        self.oracle.figures.scenarios = 1;
        self.oracle.figures.nanos = self.scenario.end;
        self.oracle.figures.datagrams_sealed = self.oracle.truth.sealed;
        self.oracle.figures.requests = self.oracle.truth.requests;
        self.oracle.figures.resends = self.oracle.truth.resends;
        self.oracle.figures.manifests = self.oracle.truth.manifests;
        self.oracle.figures.expired = self.oracle.truth.expired;
        self.oracle.figures.suppressed = self.oracle.truth.suppressed;
        self.oracle.figures.epochs = self.oracle.truth.streams.len() as u64;
        RunOutcome {
            seed: self.scenario.seed,
            faults: self.scenario.faults,
            findings: self.oracle.findings,
            figures: self.oracle.figures,
            settling: self.oracle.settling,
            tails: self.oracle.tails,
            repairs: self.oracle.repairs,
            most_requested: self.oracle.truth.most_requested(),
            dropped: self.machines.iter().map(|machine| machine.dropped_total).collect(),
            flood_times: self.machines.iter().map(|machine| machine.flood_times.clone()).collect(),
            digest: self.oracle.digest,
            trace: self.trace.unwrap_or_default().into(),
        }
    }

    /// Takes the step that is next. Of those at one time, the events of the scenario come first.
    fn next_step(&mut self) -> Option<(u64, WorldStep)> {
        let queued_at = self.queue.peek().map(|Reverse(entry)| entry.at);
        if let Some(index) = self.script.front().copied() {
            let at = self.scenario.events[index].at;
            if queued_at.is_none_or(|queued_at| at <= queued_at) {
                self.script.pop_front();
                return Some((at, WorldStep::Script(index)));
            }
        }
        self.queue.pop().map(|Reverse(entry)| (entry.at, entry.step))
    }

    fn push(&mut self, at: u64, step: WorldStep) {
        self.order += 1;
        self.queue.push(Reverse(ScheduledStep { at, order: self.order, step }));
    }

    fn deliver(&mut self, host: usize, run: usize, to: &[Target], delivery: &Delivery) {
        self.log(|| {
            format!(
                "host {host} delivers {} {:?} {:?}{} to {}",
                delivery.message.subject,
                delivery.seq,
                delivery.verdict,
                if delivery.repaired { " repaired" } else { "" },
                to.len()
            )
        });
        let (members, plain): (Vec<Target>, Vec<Target>) = to.iter().partition(|target| is_member(target));
        members.into_iter().for_each(|member| self.oracle.on_queue_delivery(run, member, delivery));
        if plain.is_empty() && !to.is_empty() {
            return;
        }
        self.oracle.on_deliver(self.now, run, &plain, delivery);
        if let Some(joiner) = self.machines[host].joiner.as_mut().filter(|joiner| to.contains(&joiner.target)) {
            joiner.on_message(delivery);
        }
    }

    fn log(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            if trace.len() == TRACE_LINES {
                trace.pop_front();
            }
            trace.push_back(format!("{:.6} {}", self.now as f64 / 1e9, line()));
        }
    }

    fn step(&mut self, step: WorldStep) {
        match step {
            WorldStep::Arrive(host, packet, is_replay) => self.arrive(host, *packet, is_replay),
            WorldStep::Turn(host) if self.machines[host].turn_at == self.now => {
                self.machines[host].turn_at = NEVER;
                self.turn(host);
            }
            WorldStep::Wake(host) if self.machines[host].wake_at == self.now => {
                self.machines[host].wake_at = NEVER;
                self.turn(host);
            }
            WorldStep::Turn(_) | WorldStep::Wake(_) => {}
            WorldStep::Script(index) => {
                let ScenarioEvent { host, action, .. } = self.scenario.events[index].clone();
                self.apply_action(host, action);
            }
            WorldStep::Publish(host) => self.publish_datagram(host),
            WorldStep::Flood(host) => self.flood(host),
            WorldStep::Deferred(host, action) => self.apply_action(host, *action),
            WorldStep::Heal => {
                self.network.heal();
                self.oracle.healed_at = self.now;
                for machine in &mut self.machines {
                    machine.spec.buffer_datagrams = 100_000;
                }
            }
        }
    }

    /// Runs one turn of a host's loop.
    fn turn(&mut self, host: usize) {
        let machine = &mut self.machines[host];
        if machine.peer.is_none() {
            return;
        }
        let until = machine.paused_until.max(machine.busy_until);
        if self.now < until {
            self.plan_turn(host, until);
            return;
        }
        let now = machine.now(self.now);
        let (turn_bytes, mut read_bytes) = (machine.turn_bytes(), 0);
        while read_bytes < turn_bytes
            && let Some((dropped, arrived, packet)) = self.machines[host].read()
        {
            read_bytes += cost(packet.bytes.len());
            if 0 < dropped {
                self.oracle.runs[self.machines[host].run].kernel_drops += dropped;
                self.input(host, Input::Overrun { path: Path::Multicast, drops: dropped, datagrams_max: dropped });
            }
            let mut earliest = now.instant;
            if self.machines[host].spec.reports_arrival {
                self.oracle.runs[self.machines[host].run].last_arrival = Some(arrived);
                earliest = self.machines[host].now(arrived).instant;
                self.input(host, Input::Arrived { path: packet.path, at: earliest });
            }
            self.receive(host, packet, earliest);
        }
        self.drain(host);
        if !self.is_caught_up(host, read_bytes) {
            return;
        }
        self.tick_security(host, now);
        let extra = self.rng.chance(0.05);
        let (mut ticks, mut deadline) = (0, None);
        while let Some(peer) = &mut self.machines[host].peer {
            deadline = peer.poll_deadline();
            let due = deadline.is_some_and(|deadline| deadline <= now.instant);
            if !(due || extra && ticks == 0) {
                break;
            }
            peer.handle(now, Input::Tick);
            ticks += 1;
            self.drain(host);
            if ticks == TICKS_MAX {
                self.oracle.findings.add("deadline", format!("host {host}: a deadline that ticks do not move"));
                self.crash(host);
            }
        }
        if ticks % 8 == 1
            && self.now.is_multiple_of(16)
            && let Some(peer) = &self.machines[host].peer
        {
            peer.assert_invariants();
            let heard = peer.member_rows(now).into_iter().filter(|row| row.state == MemberState::Up);
            let heard: Vec<u64> = heard.map(|row| row.publisher.epoch.bits()).collect();
            self.oracle.check_confirmed(self.machines[host].run, peer.confirmed(), &heard);
        }
        if self.machines[host].peer.is_some() {
            self.plan_wake_at(host, self.machines[host].deadline_with(deadline));
        }
    }

    /// Returns whether a host has emptied its buffer, or deferred its ticks for the maximum number of turns. It also
    /// makes the host busy for the time that its speed needs for `read_bytes`.
    fn is_caught_up(&mut self, host: usize, read_bytes: u64) -> bool {
        let machine = &mut self.machines[host];
        if machine.spec.speed == 0 || machine.peer.is_none() {
            return true;
        }
        let is_empty = machine.buffer.is_empty();
        machine.busy_until = self.now + read_bytes.saturating_mul(SECOND) / machine.spec.speed;
        machine.busy_turns = if is_empty { 0 } else { machine.busy_turns + 1 };
        let (until, busy_turns) = (machine.busy_until, machine.busy_turns);
        if !is_empty {
            self.plan_turn(host, until);
            let stream = self.oracle.runs[self.machines[host].run].stream;
            self.oracle.truth.postpone_heartbeat(stream, until);
        }
        busy_turns % BUSY_TURNS_MAX == 0
    }

    fn plan_turn(&mut self, host: usize, at: u64) {
        let machine = &mut self.machines[host];
        if at < machine.turn_at {
            machine.turn_at = at;
            self.push(at, WorldStep::Turn(host));
        }
    }

    fn plan_wake(&mut self, host: usize) {
        let deadline = self.machines[host].deadline();
        self.plan_wake_at(host, deadline);
    }

    fn plan_wake_at(&mut self, host: usize, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        let machine = &self.machines[host];
        let at = machine.virtual_time_of(self.now, deadline);
        if at < machine.wake_at || machine.wake_at < self.now {
            self.machines[host].wake_at = at;
            self.push(at, WorldStep::Wake(host));
        }
    }

    /// Passes one input to the peer, and drains the effects at once if the host does so.
    fn input(&mut self, host: usize, input: Input) {
        let machine = &mut self.machines[host];
        let now = machine.now(self.now);
        let Some(peer) = &mut machine.peer else { return };
        peer.handle(now, input);
        if machine.spec.drains_each {
            self.apply_effects(host);
        }
    }

    /// Drains all effects of a host, and checks that they include the messages between its own clients.
    fn drain(&mut self, host: usize) {
        let machine = &mut self.machines[host];
        machine.peer.iter_mut().for_each(Peer::settle);
        let run = machine.run;
        self.apply_effects(host);
        if self.machines[host].peer.is_some() {
            self.oracle.check_local(run);
        }
    }

    fn apply_effects(&mut self, host: usize) {
        loop {
            // The runs of a datagram are taken together or one by one, which delivers the same messages.
            let is_together = self.poll_rng.chance(0.5);
            if is_together && let Some(batch) = self.machines[host].peer.as_mut().and_then(Peer::poll_runs) {
                self.deliver_runs(host, batch);
                continue;
            }
            if let Some(effect) = self.machines[host].peer.as_mut().and_then(Peer::poll_effect) {
                self.apply_effect(host, effect);
                continue;
            }
            let Oracle { truth, findings, .. } = &mut self.oracle;
            let at = self.now;
            let question = self.machines[host].joiner.as_mut().and_then(|joiner| joiner.poll(at, truth, findings));
            let now = self.machines[host].now(self.now);
            let (Some(request), Some(peer)) = (question, &mut self.machines[host].peer) else { break };
            peer.handle(now, Input::ClientRequest { client: ClientId(JOIN_CLIENT), request });
        }
    }

    /// Delivers the runs of a datagram, which must be the same whether they are visited or taken one by one.
    fn deliver_runs(&mut self, host: usize, mut batch: RunBatch) {
        let mut visited = Vec::new();
        batch.visit(|delivery| visited.push(delivery.to_delivery()));
        let mut visited = visited.into_iter();
        let common = batch.common_targets().cloned();
        for (to, deliveries) in batch.by_ref() {
            assert!(common.as_ref().is_none_or(|common| *common == to), "a batch has one set of subscriptions");
            let deliveries = deliveries.inspect(|delivery| {
                assert_eq!(visited.next().as_ref(), Some(delivery), "a batch yields what it shows");
            });
            self.deliver_all(host, &to, deliveries);
        }
        assert_eq!(visited.next(), None, "a batch yields all that it shows");
        if let Some(peer) = &mut self.machines[host].peer {
            batch.recycle(peer.list_pools());
        }
    }

    fn deliver_all(&mut self, host: usize, to: &[Target], deliveries: impl Iterator<Item = Delivery>) {
        let run = self.machines[host].run;
        deliveries.for_each(|delivery| self.deliver(host, run, to, &delivery));
    }

    fn apply_effect(&mut self, host: usize, effect: Effect) {
        let (run, now) = (self.machines[host].run, self.machines[host].now(self.now));
        match effect {
            Effect::Multicast(bytes) => {
                let resends = self.oracle.truth.resends;
                let id = self.oracle.on_sent(self.now, now, run, &bytes, None);
                self.log(|| format!("host {host} sends {id:?}"));
                let is_first = matches!(id, DatagramId::Data { .. }) && self.oracle.truth.resends == resends;
                if is_first && self.network.is_lost_at_source() {
                    self.oracle.figures.lost_at_source += 1;
                    return;
                }
                let Some(bytes) = self.seal(host, None, id, &bytes) else { return };
                for to in 0..self.machines.len() {
                    if to != host && self.scenario.reaches(host, to) {
                        self.carry(host, to, Path::Multicast, id, &bytes);
                    } else if self.machines[host].spec.loops_back {
                        let from = self.machines[host].address;
                        let packet = Box::new(Packet { id, from, path: Path::Multicast, bytes: bytes.clone() });
                        self.push(self.now, WorldStep::Arrive(host, packet, false));
                    }
                }
            }
            Effect::Unicast { to, bytes } => {
                let id = self.oracle.on_sent(self.now, now, run, &bytes, Some(to));
                self.log(|| format!("host {host} sends {id:?} to {to}"));
                let Some(bytes) = self.seal(host, Some(to), id, &bytes) else { return };
                if let Some(to) = self.machines.iter().position(|machine| machine.address == to) {
                    self.carry(host, to, Path::Unicast, id, &bytes);
                }
            }
            Effect::Deliver { to, deliveries, .. } => self.deliver_all(host, &to, deliveries),
            Effect::Report { to, loss } => {
                self.log(|| {
                    format!(
                        "host {host} reports to {} targets {:?} ({}) of {}",
                        to.len(),
                        loss.what,
                        loss.reason,
                        loss.publisher.epoch
                    )
                });
                self.report_loss(run, &to, &loss);
                if let Some(joiner) = self.machines[host].joiner.as_mut().filter(|joiner| to.contains(&joiner.target)) {
                    joiner.on_loss(&loss);
                }
            }
            Effect::Advise { advisory, .. } => self.oracle.on_advise(self.now, run, &advisory),
            Effect::Member { publisher, event } => {
                self.log(|| format!("host {host} reports {event:?} of {}", publisher.epoch));
                self.oracle.on_member(self.now, run, publisher.epoch, event);
                if let Some(layer) = &mut self.machines[host].security
                    && event == MemberEvent::Crashed
                {
                    layer.on_departed(publisher.epoch);
                }
            }
            Effect::Answer { client, id, answer } => match &mut self.machines[host].joiner {
                Some(joiner) if joiner.target.client == client => joiner.on_answer(id, answer),
                _ => self.oracle.findings.add("answer", "an answer without a question".to_owned()),
            },
            Effect::Refuse { refusal, .. } => {
                self.oracle.findings.add("refuse", format!("host {host} refused: {refusal:?}"));
            }
            Effect::QueryReport { from, .. } => {
                self.oracle.findings.add("report", format!("host {host} gets a question of {from} that nobody asked"));
            }
            Effect::PublisherKnown { to, publisher } => match &mut self.machines[host].joiner {
                Some(joiner) if joiner.target == to => joiner.on_publisher(publisher),
                _ => self.oracle.findings.add("known", format!("host {host} names publishers to {to:?}")),
            },
            Effect::AssignedElsewhere(_) => {}
            Effect::Denied(denied) => self.oracle.findings.add("denied", format!("host {host} denies {denied:?}")),
            Effect::Rejoin => {
                self.log(|| format!("host {host} joins the group anew"));
                self.network.rejoin(host);
                self.oracle.on_rejoin(run);
            }
            Effect::NewEpoch { epoch, .. } => {
                self.log(|| format!("host {host} begins epoch {epoch}"));
                self.oracle.on_new_epoch(self.now, now, run, epoch);
            }
            Effect::Stopped => {
                self.oracle.on_end(self.now, run, true);
                self.machines[host].halt();
            }
        }
    }

    /// Carries a datagram to one receiver: the network draws the outcome of each copy.
    fn carry(&mut self, from: usize, to: usize, path: Path, id: DatagramId, bytes: &Bytes) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        outcomes.clear();
        self.network.draw_outcomes(self.now, from, to, path == Path::Multicast, &mut outcomes);
        let packet = |id, bytes: Bytes, address| Box::new(Packet { id, from: address, path, bytes });
        let address = self.machines[from].address;
        let figures = &mut self.oracle.figures;
        figures.copies += outcomes.len() as u64;
        figures.copies_repeated += outcomes.len() as u64 - 1;
        let runs = self.machines[to].peer.is_some();
        for outcome in &outcomes {
            match *outcome {
                LinkOutcome::Deliver(after) => {
                    self.push(self.now + after, WorldStep::Arrive(to, packet(id, bytes.clone(), address), false));
                }
                LinkOutcome::Replay(after) => {
                    self.push(self.now + after, WorldStep::Arrive(to, packet(id, bytes.clone(), address), true));
                }
                LinkOutcome::Corrupt(after) => {
                    self.oracle.figures.copies_corrupt += 1;
                    let damaged = self.network.damage(bytes);
                    self.push(
                        self.now + after,
                        WorldStep::Arrive(to, packet(DatagramId::Unidentified, damaged, address), false),
                    );
                    if runs {
                        self.oracle.on_copy(self.now + after, self.machines[to].run, id, false);
                    }
                }
                LinkOutcome::Drop(after) => {
                    self.oracle.figures.copies_dropped += 1;
                    if runs {
                        self.oracle.on_copy(self.now + after, self.machines[to].run, id, false);
                    }
                }
            }
        }
        self.outcomes = outcomes;
        if let Some(bytes) = self.network.garbage() {
            let unknown = SocketAddr::from(([10, 9, 9, 9], 9));
            self.push(self.now, WorldStep::Arrive(to, packet(DatagramId::Unidentified, bytes, unknown), false));
        }
    }

    fn arrive(&mut self, host: usize, packet: Packet, is_replay: bool) {
        let machine = &mut self.machines[host];
        let (run, id) = (machine.run, packet.id);
        // A replay shifts the baseline at a receiver that has not heard its sender: no receiver in open mode can
        // recognize it (A10).
        if machine.peer.is_none() || is_replay && !self.oracle.knows(run, id) {
            return;
        }
        let fits = machine.receive(self.now, packet);
        self.oracle.figures.copies_dropped += u64::from(!fits);
        // A datagram of a keyed peer counts as arrived once the security layer has opened it.
        let is_open = self.machines[host].security.is_none();
        self.oracle.on_copy(self.now, run, id, fits && is_open);
        let at = self.now + self.machines[host].spec.turn;
        self.plan_turn(host, at);
    }

    fn apply_action(&mut self, host: usize, action: Action) {
        let machine = &self.machines[host];
        let is_by_program = matches!(
            action,
            Action::Subscribe { .. }
                | Action::Join { .. }
                | Action::Unsubscribe { .. }
                | Action::JoinQueue { .. }
                | Action::LeaveQueue(_)
                | Action::Detach(_)
                | Action::Stop
                | Action::Restart { .. }
                | Action::Burst(_)
                | Action::Flood(_)
        );
        if is_by_program && machine.peer.is_some() && self.now < machine.paused_until {
            let until = machine.paused_until;
            return self.push(until, WorldStep::Deferred(host, Box::new(action)));
        }
        self.log(|| format!("host {host}: {action:?}"));
        match action {
            Action::Start => self.start(host),
            Action::Restart { other_port } => {
                if self.machines[host].is_stopping {
                    // The peer takes 60 ms to send its BYEs, and uses its address until then.
                    return self.push(self.now + 100 * MILLIS, WorldStep::Deferred(host, Box::new(action)));
                }
                if other_port {
                    let address = self.machines[host].address;
                    self.machines[host].address = SocketAddr::new(address.ip(), address.port() + 1);
                }
                self.start(host);
            }
            Action::Crash => self.crash(host),
            Action::Stop => {
                self.machines[host].is_stopping = self.machines[host].peer.is_some();
                self.machines[host].burst = 0;
                self.input(host, Input::Stop);
                self.drain(host);
                self.turn(host);
            }
            Action::Pause(nanos) => {
                let until = self.now + nanos;
                if self.machines[host].peer.is_some() {
                    self.machines[host].paused_until = until.max(self.machines[host].paused_until);
                    self.oracle.on_pause(self.now, self.machines[host].run, until);
                }
            }
            Action::LinkDown(nanos) => self.network.cut_host(host, self.now + nanos),
            Action::MulticastDead(nanos) => self.network.block_multicast(host, self.now + nanos),
            Action::Snoop(from) => self.network.snoop(from, host),
            Action::Partition { others, one_way, nanos } => {
                for other in (0..self.machines.len()).filter(|other| others >> other & 1 == 1) {
                    self.network.cut(other, host, self.now + nanos);
                    if !one_way {
                        self.network.cut(host, other, self.now + nanos);
                    }
                }
            }
            Action::ClockBy(nanos) if self.scenario.clock_steps => self.machines[host].wall_step += nanos,
            Action::ClockTo(wall) if self.scenario.clock_steps => {
                let shown = self.machines[host].now(self.now).wall.as_nanos();
                self.machines[host].wall_step += wall as i64 - shown as i64;
            }
            Action::ClockBy(_) | Action::ClockTo(_) => {}
            Action::Subscribe { client, sub, pattern, mode } => {
                let target = target(client, sub);
                self.machines[host].subscriptions.push((target, pattern, mode));
                self.subscribe(host, target, self.patterns[pattern].clone(), mode);
            }
            Action::Join { pattern, newest, mode } => self.join(host, pattern, newest, mode),
            Action::Unsubscribe { client, sub } => {
                let target = target(client, sub);
                self.machines[host].subscriptions.retain(|(wanted, ..)| *wanted != target);
                if self.machines[host].peer.is_some() {
                    self.oracle.on_unsubscribe(self.now, self.machines[host].run, target);
                    let request = ClientRequest::Unsubscribe { sub: target.sub };
                    self.input(host, Input::ClientRequest { client: target.client, request });
                }
            }
            Action::JoinQueue { member, pattern, queue } => self.join_queue(host, member, pattern, queue),
            Action::LeaveQueue(member) => self.leave_queue(host, member),
            Action::Revoke { hosts } => self.revoke(host, hosts),
            Action::Detach(client) => {
                let client = ClientId(client);
                self.machines[host].subscriptions.retain(|(wanted, ..)| wanted.client != client);
                if self.machines[host].peer.is_some() {
                    self.oracle.on_detach(self.now, self.machines[host].run, client);
                    self.input(host, Input::Detach { client });
                }
            }
            Action::Burst(datagrams) => self.begin_burst(host, datagrams),
            Action::Flood(datagrams) => self.begin_flood(host, datagrams),
        }
        self.drain(host);
        self.plan_wake(host);
    }

    fn start(&mut self, host: usize) {
        if self.machines[host].peer.is_some() {
            return;
        }
        let machine = &mut self.machines[host];
        machine.paused_until = 0;
        let now = machine.now(self.now);
        let drawn = Epoch::new(self.rng.next_u64() | 1).expect("not zero");
        let first_stream = self.oracle.runs.iter().find(|run| run.host == host).map(|run| run.stream);
        let mut settings = machine.spec.settings.clone();
        if self.scenario.faults.has(FaultKind::Keyed) {
            settings.check_value = CheckValue::Unused;
        }
        let epoch = match first_stream {
            Some(stream) if settings.mutants.is(Mutant::SameEpoch) => self.oracle.truth.streams[stream].epoch,
            _ => drawn,
        };
        machine.run = self.oracle.on_start(self.now, now, host, epoch, &settings);
        self.oracle.runs[machine.run].drains_each = machine.spec.drains_each;
        if self.scenario.faults.has(FaultKind::Live) {
            self.oracle.add_live_side(machine.run);
        }
        machine.peer = Some(Peer::new(settings, epoch, self.rng.fork(), now));
        self.machines[host].security = self.security_layer(host, epoch, now);
        let machine = &mut self.machines[host];
        let inbox = machine.spec.inbox;
        self.subscribe(host, target(INBOX_CLIENT, 0), "_INBOX.>".parse().expect("a valid pattern"), inbox);
        for (target, pattern, mode) in self.machines[host].subscriptions.clone() {
            self.subscribe(host, target, self.patterns[pattern].clone(), mode);
        }
        for (member, (pattern, queue)) in self.machines[host].members.clone() {
            self.begin_member(host, member, pattern, queue);
        }
        self.plan_wake(host);
    }

    fn crash(&mut self, host: usize) {
        if self.machines[host].peer.is_some() {
            self.oracle.on_end(self.now, self.machines[host].run, false);
            self.machines[host].halt();
        }
    }
}

fn target(client: u32, sub: u32) -> Target {
    Target { client: ClientId(client), sub: SubId(sub) }
}
