//! A client that joins late, and what it must see: no number of a subject twice, and none missed in silence where the
//! history ends and the live stream goes on. What comes after that is the oracle's matter.

use crate::message::{Count, Delivery, DeliveryMode, Epoch, Loss, LossScope, Publisher};
use crate::proto::Recovery;
use crate::proto::effect::{ClientRequest, QuestionFailure, Target};
use crate::proto::history::Selection;
use crate::proto::join::{Join, JoinEvent, Joined};
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

/// How long a question may take, as in the library.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// In nanoseconds, how long the library asks a publisher that never answers: three times.
const ASKING_TIME: u64 = 3 * 2 * SECOND;

/// A subject of a publisher.
type PublisherSubject = (Epoch, Subject);

/// A subscription that begins with history.
#[derive(Debug)]
pub(crate) struct Joiner {
    /// The subscription.
    pub target: Target,
    join: Join,
    /// Who was asked each question that has no answer yet.
    asked: BTreeMap<u64, Epoch>,
    /// When each publisher was asked first.
    asked_first: BTreeMap<Epoch, u64>,
    questions: u64,
    /// The last number handed on or told as lost, and whether that was beyond the seam.
    seen: BTreeMap<PublisherSubject, (Seq, bool)>,
    /// The last number that the peer delivered.
    delivered: BTreeMap<PublisherSubject, Seq>,
    joined: Option<Joined>,
    replayed: u64,
}

impl Joiner {
    /// A client that subscribes now, and its request.
    pub fn new(
        target: Target,
        (pattern, mode): (Pattern, DeliveryMode),
        selection: Selection,
        mutants: Mutants,
    ) -> (Joiner, ClientRequest) {
        let joiner = Joiner {
            target,
            join: Join::new(vec![pattern.clone()], Some(selection)).mutated(mutants),
            asked: BTreeMap::new(),
            asked_first: BTreeMap::new(),
            questions: 0,
            seen: BTreeMap::new(),
            delivered: BTreeMap::new(),
            joined: None,
            replayed: 0,
        };
        (joiner, ClientRequest::Subscribe { sub: target.sub, wanted: pattern.into(), mode, news: true })
    }

    /// Messages that came from histories.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// The peer names a publisher.
    pub fn on_publisher(&mut self, publisher: Option<Publisher>) {
        self.join.on_publisher(publisher);
    }

    /// The peer delivers a message.
    pub fn on_message(&mut self, delivery: &Delivery) {
        if let Some(seq) = delivery.seq {
            self.delivered.insert((delivery.publisher.epoch, delivery.message.subject.clone()), seq);
        }
        self.join.on_message(WallTime::EPOCH, delivery.clone());
    }

    /// The peer tells of a loss.
    pub fn on_loss(&mut self, loss: &Loss) {
        self.join.on_loss(loss.clone());
    }

    /// An answer came, or a part of one, or none will.
    pub fn on_answer(&mut self, id: u64, answer: Result<Answer, QuestionFailure>) {
        if let Some(epoch) = self.asked.get(&id).copied()
            && !self.join.on_answer(WallTime::EPOCH, epoch, answer)
        {
            self.asked.remove(&id);
        }
    }

    /// Takes what there is, and gives the next question.
    pub fn poll(&mut self, now: u64, truth: &GroundTruth, out: &mut Findings) -> Option<ClientRequest> {
        self.join.on_idle(WallTime::EPOCH);
        while let Some(event) = self.join.poll_event() {
            self.check(truth, event, out);
        }
        let (peer, question) = self.join.poll_question()?;
        self.questions += 1;
        self.asked.insert(self.questions, peer);
        self.asked_first.entry(peer).or_insert(now);
        Some(ClientRequest::Ask { id: self.questions, peer, question, timeout: ANSWER_TIME })
    }

    fn check(&mut self, truth: &GroundTruth, event: JoinEvent, out: &mut Findings) {
        match event {
            JoinEvent::Message(delivery) => {
                if let Err(why) = truth.identify(&delivery.message) {
                    out.add("seam", format!("{:?}: {}: {why}", self.target, delivery.message.subject));
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
                    out.add("seam", format!("{:?}: {count} lost as {first:?}..{last:?}", self.target));
                }
                self.check_numbers(key, (first, last), is_beyond, out);
            }
            JoinEvent::Loss(_) => {}
            JoinEvent::Joined(joined) => {
                if self.joined.replace(joined).is_some() {
                    out.add("seam", format!("{:?} has begun twice", self.target));
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
            out.add("seam", text);
        }
    }

    /// The end of the run, when all has settled.
    pub fn finish(&self, now: u64, truth: &GroundTruth, run: &PeerRun, out: &mut Findings) {
        if self.join.is_joining() || self.joined.is_none() {
            // Where limits take parts of an answer, each question is asked until it is given up; where little may be spent
            // on sending again, parts that are lost come late.
            let may_be_reading =
                run.is_limited() || run.settings.recovery.resend_rate_min < Recovery::modest().resend_rate_min;
            // A replay may bring back a publisher that is dead, just before the end; it is asked in vain.
            let is_dead = |epoch| truth.stream(epoch).is_some_and(|stream| truth.streams[stream].ended < now);
            let is_asked_in_vain = |epoch: &Epoch| is_dead(*epoch) && now < self.asked_first[epoch] + ASKING_TIME;
            if !may_be_reading && (self.asked.is_empty() || !self.asked.values().all(is_asked_in_vain)) {
                out.add("seam", format!("{:?} has not begun; without answer: {:?}", self.target, self.asked));
            }
            return;
        }
        for (key, delivered) in &self.delivered {
            if self.seen.get(key).is_none_or(|(seen, _)| seen < delivered) {
                out.add("seam", format!("{:?} did not get {delivered:?} on {} of {}", self.target, key.1, key.0));
            }
        }
    }
}
