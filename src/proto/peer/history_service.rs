//! The history service: questions of other peers to this peer's history, and this peer's own questions to theirs, for
//! its clients and for repair (seed 000; docs/wire.md, "History service"). Questions about reports take the same way.
//!
//! Both travel as directed messages on subjects of the inbox, so they are numbered, repaired and split like any other.

use super::questions::{AnswerRecipient, PendingQuestion, RepairFetch};
use super::{INBOX_PREFIX, Peer, inbox_of};
use crate::message::{Dseq, Epoch, Message, MessageRef, QuestionFailure};
use crate::proto::effect::Effect;
use crate::proto::members::{Member, Side};
use crate::proto::question::{self, Answer, AnswerContent, Question, Refused};
use crate::proto::recv::{ANSWERS, HISTORY};
use crate::subject::Subject;
use crate::time::{ClockReading, Instant};
use bytes::Bytes;
use std::time::Duration;

/// Maximum number of questions of one peer that wait until its address is proven, or until the answer rate allows an
/// answer.
const PARKED_MAX: usize = 16;
/// Timeout of a question of repair; repair repeats it long before.
const FETCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes per second that answers to one peer may take.
const ANSWER_RATE: u64 = 64 << 20;
/// Maximum lead of answers over that rate, beyond which questions wait. An honest client waits for its answers, and so
/// has few questions.
const ANSWERS_AHEAD: Duration = Duration::from_millis(250);

impl Peer {
    /// Sends a question to a peer's history, which may be this peer's own.
    pub(super) fn request_history(
        &mut self,
        now: ClockReading,
        requester: AnswerRecipient,
        peer: Epoch,
        question: &Question,
        timeout: Duration,
    ) {
        if !self.may_ask(question) {
            return self.on_answer(now, requester, Err(QuestionFailure::Denied));
        }
        if peer == self.origin.epoch
            && let Question::Report(query) = question
        {
            let id = self.questions.add(PendingQuestion { peer, requester, deadline: now.instant + timeout });
            let (reply, query) = (subject_of_answer(peer, id), query.clone());
            self.effects.push_back(Effect::QueryReport { from: peer, reply, query });
            return;
        }
        let payload = question.encode();
        if peer == self.origin.epoch {
            for part in self.answer_question(now, &payload) {
                let answer = Answer::decode(&part).expect("this peer's own answers can be read");
                self.on_answer(now, requester.clone(), Ok(answer));
            }
            return;
        }
        let refusal = match self.members.get(&peer) {
            _ if self.stop.is_some() => Some(QuestionFailure::Gone),
            None => Some(QuestionFailure::UnknownPeer),
            Some(member) if !member.is_alive() => Some(QuestionFailure::Gone),
            Some(_) if !self.questions.has_room_for_client() => Some(QuestionFailure::TooMany),
            Some(_) => None,
        };
        match refusal {
            Some(reason) => self.on_answer(now, requester, Err(reason)),
            None => self.send_question(now, peer, requester, payload, now.instant + timeout),
        }
    }

    /// Handles an answer, a part of one, or the failure of the question.
    fn on_answer(
        &mut self,
        now: ClockReading,
        requester: AnswerRecipient,
        mut answer: Result<Answer, QuestionFailure>,
    ) {
        if let Ok(answer) = &mut answer {
            answer.content.unstamp();
        }
        match requester {
            AnswerRecipient::Client(client, id) => self.effects.push_back(Effect::Answer { client, id, answer }),
            AnswerRecipient::Text(requester) => self.on_text_answer(now, &requester, answer),
            // Repair repeats a failed fetch.
            AnswerRecipient::Repair(..) => {}
        }
    }

    fn send_question(
        &mut self,
        now: ClockReading,
        peer: Epoch,
        requester: AnswerRecipient,
        payload: Bytes,
        deadline: Instant,
    ) {
        let id = self.questions.add(PendingQuestion { peer, requester, deadline });
        let subject = subject(format!("{}{HISTORY}", inbox_of(peer)));
        let reply = Some(subject_of_answer(self.origin.epoch, id));
        self.outbound.record_opened(now.instant);
        self.send_to(now, peer, (&Message { reply, ..Message::new(subject, payload) }).into());
    }

    /// Fetches the messages that repair needs from the histories of publishers.
    pub(super) fn fetch(&mut self, now: ClockReading) {
        let mut fetches = std::mem::take(&mut self.questions.fetches).into_iter().peekable();
        while let Some(RepairFetch { epoch, dseq, subject, first, last }) = fetches.next() {
            let mut items = vec![question::Fetch { subject, first, last }];
            while items.len() < question::ITEMS_MAX
                && let Some(next) = fetches.next_if(|next| next.epoch == epoch && next.dseq == dseq)
            {
                items.push(question::Fetch { subject: next.subject, first: next.first, last: next.last });
            }
            if self.questions.has_room() && self.members.contains(&epoch) {
                let payload = Question::Fetch(items.clone()).encode();
                self.send_question(
                    now,
                    epoch,
                    AnswerRecipient::Repair(dseq, items),
                    payload,
                    now.instant + FETCH_TIMEOUT,
                );
            }
        }
    }

    /// Handles a message for this peer itself, on a subject of its inbox.
    pub(super) fn on_service(&mut self, now: ClockReading, from: Epoch, message: Message) {
        // The message may have come to the inbox of this peer's last epoch, whose prefix has the same length.
        let rest = message.subject.as_str().get(self.inbox.len()..).unwrap_or_default();
        if rest == HISTORY {
            return self.on_question(now, from, message);
        }
        let id = rest.strip_prefix(ANSWERS).and_then(|id| u64::from_str_radix(id, 16).ok());
        let pending = id.and_then(|id| Some((id, self.questions.find(id, from)?.clone())));
        let (Some((id, pending)), Ok(mut answer)) = (pending, Answer::decode(&message.payload)) else {
            self.counters.discard_unknown_peer += 1;
            return;
        };
        if answer.epoch != from {
            self.counters.discard_contradiction += 1;
            return;
        }
        if answer.last {
            self.questions.remove(id);
        }
        match pending.requester {
            AnswerRecipient::Repair(dseq, items) => self.on_fetched(now, from, dseq, &items, answer),
            requester => {
                self.remove_denied(now, from, &mut answer.content);
                self.on_answer(now, requester, Ok(answer));
            }
        }
    }

    fn on_fetched(&mut self, now: ClockReading, from: Epoch, dseq: Dseq, items: &[question::Fetch], answer: Answer) {
        let answers = match answer.content {
            AnswerContent::Fetch { first, answers } => items
                .iter()
                .skip(usize::from(first))
                .zip(answers)
                .map(|(item, answer)| (item.clone(), Some(answer)))
                .collect(),
            // A publisher without a history retains none of the messages.
            AnswerContent::Refused(_) => items.iter().map(|item| (item.clone(), None)).collect(),
            _ => Vec::new(),
        };
        for (item, answer) in answers {
            // Repair fetches the rest of a range again with the rest of the datagram.
            if answer.as_ref().is_some_and(|answer| answer.more) {
                continue;
            }
            let events = answer.map_or(Vec::new(), |answer| answer.events);
            let messages = events.into_iter().map(|event| (event.seq, event.message)).collect();
            let range = (&item.subject, item.first, item.last);
            self.with_stream(now, from, Side::Bcast, |recv, ctx, out| recv.on_fetched(ctx, dseq, range, messages, out));
            self.limit_buffered(now, from, Side::Bcast);
        }
    }

    /// Handles another peer's question to this peer's history.
    fn on_question(&mut self, now: ClockReading, from: Epoch, message: Message) {
        // An answer goes only to the peer that sent the question.
        let reply = message.reply.clone().filter(|reply| {
            reply.as_str().strip_prefix(inbox_of(from).as_str()).is_some_and(|rest| rest.starts_with(ANSWERS))
        });
        let Some(member) = self.members.get_mut(&from) else { return };
        let Some(reply) = reply else {
            self.counters.history_refused += 1;
            return;
        };
        // Rule: proof
        if !member.proof.is_proven {
            self.counters.requests_unproven += 1;
            if member.parked_questions.len() < PARKED_MAX {
                member.parked_questions.push(message);
            }
            self.send_early_heartbeat(now, from);
            return;
        }
        let allowance = Duration::from_nanos(1_000_000_000 / ANSWER_RATE * (message.payload.len() as u64).max(1));
        if now.instant + ANSWERS_AHEAD < member.answers_due {
            match member.parked_questions.len() < PARKED_MAX {
                true => member.parked_questions.push(message),
                false => self.counters.history_refused += 1,
            }
            return;
        }
        if let Some(query) = question::report_query(&message.payload) {
            member.answers_due = member.answers_due.max(now.instant) + allowance;
            self.effects.push_back(Effect::QueryReport { from, reply, query });
            return;
        }
        let parts = self.answer_question(now, &message.payload);
        self.send_answer(now, from, &reply, &parts, allowance);
    }

    /// Answers a question about a report ([`Effect::QueryReport`]) with the report, or refuses it. The report has at most
    /// [`ANSWER_BYTES_MAX`](question::ANSWER_BYTES_MAX) bytes.
    pub fn answer_report(&mut self, now: ClockReading, to: Epoch, reply: &Subject, report: Result<&[u8], Refused>) {
        let parts = question::report_parts(self.origin.epoch, self.outbound.multicast.high(), report);
        if to != self.origin.epoch {
            return self.send_answer(now, to, reply, &parts, Duration::ZERO);
        }
        for part in parts {
            self.on_service(now, to, Message::new(reply.clone(), part));
        }
    }

    /// Sends an answer to another peer. It counts against the rate of answers, with at least `allowance`.
    fn send_answer(&mut self, now: ClockReading, to: Epoch, reply: &Subject, parts: &[Bytes], allowance: Duration) {
        let Some(member) = self.members.get_mut(&to) else { return };
        self.counters.history_answered += 1;
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let cost = Duration::from_nanos(bytes.saturating_mul(1_000_000_000 / ANSWER_RATE)).max(allowance);
        member.answers_due = member.answers_due.max(now.instant) + cost;
        self.outbound.record_opened(now.instant);
        for part in parts {
            self.send_to(now, to, MessageRef::new(reply, part));
        }
    }

    fn answer_question(&mut self, now: ClockReading, payload: &Bytes) -> Vec<Bytes> {
        // Messages that are in the history now must not travel in a later datagram than the answer states.
        self.flush(now);
        question::answer(&self.publication.history, self.origin.epoch, self.outbound.multicast.high(), payload)
    }

    /// Answers questions that waited for the rate, and fails those that were not answered in time.
    pub(super) fn on_question_tick(&mut self, now: ClockReading) {
        let is_due = |member: &&mut Member| member.has_questions_waiting() && member.answers_due <= now.instant;
        let mut parked_questions: Vec<(Epoch, Vec<Message>)> = Vec::new();
        for epoch in self.due_members(now.instant) {
            if let Some(member) = self.members.get_mut(&epoch).filter(is_due) {
                parked_questions.push((epoch, std::mem::take(&mut member.parked_questions)));
            }
        }
        for (from, questions) in parked_questions {
            questions.into_iter().for_each(|question| self.on_question(now, from, question));
        }
        for overdue in self.questions.take_overdue(now.instant) {
            self.on_answer(now, overdue.requester, Err(QuestionFailure::Timeout));
        }
    }

    /// Fails the questions to a peer that ended.
    pub(super) fn fail_questions(&mut self, now: ClockReading, peer: Epoch) {
        for failed in self.questions.take_of_peer(peer) {
            self.on_answer(now, failed.requester, Err(QuestionFailure::Gone));
        }
    }
}

fn subject_of_answer(epoch: Epoch, id: u64) -> Subject {
    subject(format!("{INBOX_PREFIX}{epoch}.{ANSWERS}{id:016x}"))
}

fn subject(text: String) -> Subject {
    text.parse().expect("made of valid tokens")
}
