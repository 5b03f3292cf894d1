//! A client that joins late, and the checks of what it gets. It gets no number of a subject twice, and misses none
//! silently at the splice from history to the live stream. The oracle checks everything after that.

use crate::message::{Count, Delivery, DeliveryMode, Epoch, Loss, LossScope, Publisher, QuestionFailure, Target};
use crate::proto::Recovery;
use crate::proto::effect::ClientRequest;
use crate::proto::history::Selection;
use crate::proto::join::{ATTEMPTS, Join, JoinEvent, Joined};
use crate::proto::mutant::Mutants;
use crate::proto::question::Answer;
use crate::seqno::Seq;
use crate::sim::oracle::PeerRun;
use crate::sim::report::Findings;
use crate::sim::scenario::SECOND;
use crate::sim::truth::GroundTruth;
use crate::subject::{Pattern, Subject};
use crate::time::WallTime;
use std::collections::BTreeMap;
use std::time::Duration;

/// Timeout of a question, as in the library.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// Nanoseconds during which the library queries a publisher that never answers.
const ATTEMPTS_TIME: u64 = ANSWER_TIME.as_secs() * ATTEMPTS as u64 * SECOND;

/// A subject of a publisher.
type PublisherSubject = (Epoch, Subject);

/// A subscription that begins with history.
#[derive(Debug)]
pub(crate) struct Joiner {
    /// The subscription.
    pub target: Target,
    join: Join,
    /// The publisher of each question that has no answer yet.
    pending: BTreeMap<u64, Epoch>,
    /// Time of the first question to each publisher.
    first_requests: BTreeMap<Epoch, u64>,
    /// Number of questions so far, which is the id of the last one.
    questions: u64,
    /// The last number that the client got or that was reported as lost, and whether that was beyond the splice.
    seen: BTreeMap<PublisherSubject, (Seq, bool)>,
    /// The last number that the peer delivered.
    delivered: BTreeMap<PublisherSubject, Seq>,
    joined: Option<Joined>,
    /// Number of messages that came from histories.
    replayed: u64,
}

impl Joiner {
    /// Creates a client that subscribes now, and its request.
    pub fn new(
        target: Target,
        (pattern, mode): (Pattern, DeliveryMode),
        selection: Selection,
        mutants: Mutants,
    ) -> (Joiner, ClientRequest) {
        let joiner = Joiner {
            target,
            join: Join::new(vec![pattern.clone()], Some(selection)).mutated(mutants),
            pending: BTreeMap::new(),
            first_requests: BTreeMap::new(),
            questions: 0,
            seen: BTreeMap::new(),
            delivered: BTreeMap::new(),
            joined: None,
            replayed: 0,
        };
        (joiner, ClientRequest::Subscribe { sub: target.sub, wanted: pattern.into(), mode, wants_discovery: true })
    }

    /// Returns the number of messages that came from histories.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Records a publisher that the peer names.
    pub fn on_publisher(&mut self, publisher: Option<Publisher>) {
        self.join.on_publisher(publisher);
    }

    /// Handles a message that the peer delivers.
    pub fn on_message(&mut self, delivery: &Delivery) {
        if let Some(seq) = delivery.seq {
            self.delivered.insert((delivery.publisher.epoch, delivery.message.subject.clone()), seq);
        }
        self.join.on_message(WallTime::EPOCH, delivery.clone());
    }

    /// Handles a loss that the peer reports.
    pub fn on_loss(&mut self, loss: &Loss) {
        self.join.on_loss(loss.clone());
    }

    /// Handles an answer or a part of one, or its final failure.
    pub fn on_answer(&mut self, id: u64, answer: Result<Answer, QuestionFailure>) {
        if let Some(epoch) = self.pending.get(&id).copied()
            && !self.join.on_answer(WallTime::EPOCH, epoch, answer)
        {
            self.pending.remove(&id);
        }
    }

    /// Checks the messages and losses that the client gets now, and returns the next question.
    pub fn poll(&mut self, now: u64, truth: &GroundTruth, out: &mut Findings) -> Option<ClientRequest> {
        self.join.on_idle(WallTime::EPOCH);
        while let Some(event) = self.join.poll_event() {
            self.check(truth, event, out);
        }
        let (peer, question) = self.join.poll_question()?;
        self.questions += 1;
        self.pending.insert(self.questions, peer);
        self.first_requests.entry(peer).or_insert(now);
        Some(ClientRequest::QueryHistory { id: self.questions, peer, question, timeout: ANSWER_TIME })
    }

    fn check(&mut self, truth: &GroundTruth, event: JoinEvent, out: &mut Findings) {
        match event {
            JoinEvent::Message(delivery) => {
                if let Err(reason) = truth.identify(&delivery.message) {
                    out.add("splice", format!("{:?}: {}: {reason}", self.target, delivery.message.subject));
                }
                self.replayed += u64::from(delivery.replayed);
                let key = (delivery.publisher.epoch, delivery.message.subject);
                if let Some(seq) = delivery.seq {
                    self.check_numbers(key, (seq, seq), !delivery.replayed, out);
                }
            }
            JoinEvent::Loss(Loss { publisher, what: LossScope::Messages { subject, first, last, count }, .. }) => {
                let numbers = (first.frame() == last.frame()).then(|| Count::Exact(last.count() + 1 - first.count()));
                let key = (publisher.epoch, subject);
                let is_beyond = self.seen.get(&key).is_none_or(|(_, is_beyond)| *is_beyond);
                if !is_beyond && count.is_exact() && numbers.is_some_and(|numbers| numbers != count) {
                    out.add("splice", format!("{:?}: {count} lost as {first:?}..{last:?}", self.target));
                }
                self.check_numbers(key, (first, last), is_beyond, out);
            }
            JoinEvent::Loss(_) => {}
            JoinEvent::Joined(joined) => {
                if self.joined.replace(joined).is_some() {
                    out.add("splice", format!("{:?} has begun twice", self.target));
                }
            }
        }
    }

    fn check_numbers(&mut self, key: PublisherSubject, (first, last): (Seq, Seq), is_live: bool, out: &mut Findings) {
        let before = self.seen.insert(key.clone(), (last, is_live));
        let Some((before, was_live)) = before else { return };
        let follows = before.forward(1) == Some(first);
        let is_missed = first.frame() == before.frame() && !follows && !was_live;
        if first <= before || is_missed {
            let text = format!("{:?}: {first:?}..{last:?} after {before:?} on {} of {}", self.target, key.1, key.0);
            out.add("splice", text);
        }
    }

    /// Checks the join at the end of the run, when everything has settled.
    pub fn finish(&self, now: u64, truth: &GroundTruth, run: &PeerRun, out: &mut Findings) {
        if self.join.is_joining() || self.joined.is_none() {
            // If limits discard parts of an answer, the client repeats each question until it gives up. If the budget
            // for retransmission is small, lost parts arrive late.
            let may_be_reading =
                run.is_limited() || run.settings.recovery.resend_rate_min < Recovery::modest().resend_rate_min;
            // A replay may bring back a dead publisher just before the end, and no answer comes from it.
            let is_dead = |epoch| truth.stream(epoch).is_some_and(|stream| truth.streams[stream].ended < now);
            let is_still_queried = |epoch: &Epoch| is_dead(*epoch) && now < self.first_requests[epoch] + ATTEMPTS_TIME;
            if !may_be_reading && (self.pending.is_empty() || !self.pending.values().all(is_still_queried)) {
                out.add("splice", format!("{:?} has not begun; without answer: {:?}", self.target, self.pending));
            }
            return;
        }
        for (key, delivered) in &self.delivered {
            if self.seen.get(key).is_none_or(|(seen, _)| seen < delivered) {
                out.add("splice", format!("{:?} did not get {delivered:?} on {} of {}", self.target, key.1, key.0));
            }
        }
    }
}
