//! The oracle's ground truth: every message that an application published and every datagram that a peer sealed, read
//! from the bytes that leave the peers, and checked as it is written down.

mod answer_budget;
mod datagram_id;
mod messages;
mod rules;

use crate::message::{Delivery, Epoch, Message, Queue};
use crate::proto::Settings;
use crate::seqno::Seq;
use crate::sim::report::Findings;
use crate::sim::scenario::MILLIS;
use crate::subject::Subject;
use crate::time::{ClockReading, nanos};
use crate::wire::{self, Datagram, Header, Kind, Record, ResendRequest};
use answer_budget::AnswerBudget;
use bytes::{BufMut, Bytes, BytesMut};
pub use datagram_id::{ControlContent, DatagramId};
use hashbrown::HashMap;
use std::collections::VecDeque;

/// "Not yet" and "never".
pub const NEVER: u64 = u64::MAX;

/// A message as an application gave it. Its index is its identity; the payload begins with it.
#[derive(Debug)]
pub struct PublishedMessage {
    /// The run of the peer that took it.
    pub run: usize,
    /// Index of its subject.
    pub subject: usize,
    /// The message itself, without payload.
    pub envelope: Message,
    /// Bytes of the payload.
    pub bytes: usize,
    /// When.
    pub at: u64,
    /// Whether it must be sent: somebody elsewhere wants it, and the publisher has said to know that, or it sends everything.
    pub must_be_sent: bool,
    /// Where it was sent: stream, receiver's epoch of a directed one, index in the flow.
    pub sent: Option<(usize, Option<u64>, usize)>,
    /// Queue groups of which a member at another peer is to get it.
    pub assigned: Vec<Queue>,
}

/// A datagram that was sealed.
#[derive(Clone, Copy, Debug)]
pub struct DatagramTrace {
    /// When it left.
    pub at: u64,
    /// When it was sealed at the earliest: it may have been kept back.
    pub sealed: u64,
    /// Index of the first message begun in it, and how many begin.
    pub first: usize,
    /// How many messages begin in it.
    pub begun: usize,
    /// The message that goes on from the datagram before.
    pub goes_on: Option<usize>,
}

/// A message that was sealed.
#[derive(Clone, Copy, Debug)]
pub struct MessageTrace {
    /// Index of its subject.
    pub subject: usize,
    /// Its number.
    pub seq: Option<Seq>,
    /// Whether it names the last number of the frame before.
    pub is_chained: bool,
    /// When its first datagram left.
    pub at: u64,
    /// When that was sealed at the earliest.
    pub sealed: u64,
    /// Its first datagram.
    pub first: u64,
    /// Its last datagram so far.
    pub last: u64,
    /// Whether that is the last of all.
    pub is_whole: bool,
    /// Bytes of the payload, once it is whole.
    pub bytes: usize,
}

/// One numbered stream of datagrams.
#[derive(Debug, Default)]
pub struct StreamTrace {
    /// Datagram `dseq` is at `dseq - 1`.
    pub datagrams: Vec<DatagramTrace>,
    /// Messages in the order in which they begin.
    pub messages: Vec<MessageTrace>,
    /// A large message in the making: its body so far.
    open: Option<BytesMut>,
    /// For each subject, the indexes of its numbered messages in order.
    numbered: Vec<Vec<usize>>,
    published_last: Option<usize>,
    /// The bytes of each datagram, which a resend must repeat.
    bytes: Vec<Bytes>,
    /// The sum of the bytes of all datagrams up to each.
    bytes_to: Vec<u64>,
    /// Messages that are questions to a history or answers of one.
    pub services: u64,
    /// For each datagram, how it was asked for.
    pub asked: Vec<ResendCounts>,
}

/// How a datagram was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResendCounts {
    /// How often.
    pub requests: u32,
    /// How often it was sent again.
    pub resends: u32,
    /// Whether somebody wanted to know what is in it, and no more (A4).
    pub by_content: bool,
}

impl StreamTrace {
    /// The length of a datagram.
    pub fn bytes_of(&self, dseq: u64) -> usize {
        self.bytes[dseq as usize - 1].len()
    }

    /// The numbered messages of a subject, in order.
    pub fn numbered(&self, subject: usize) -> &[usize] {
        self.numbered.get(subject).map_or(&[], Vec::as_slice)
    }

    /// The numbered messages of a subject from one number to another.
    pub fn numbered_between(&self, subject: usize, first: Seq, last: Seq) -> &[usize] {
        let all = self.numbered(subject);
        let from = all.partition_point(|at| self.messages[*at].seq < Some(first));
        let to = all.partition_point(|at| self.messages[*at].seq <= Some(last));
        &all[from..to.max(from)]
    }

    /// The last datagram.
    pub fn high(&self) -> u64 {
        self.datagrams.len() as u64
    }

    /// Messages that begin in a range of datagrams.
    pub fn begun_in(&self, first: u64, last: u64) -> std::ops::Range<usize> {
        let low = self.datagrams[first as usize - 1].first;
        let top = self.datagrams[last as usize - 1];
        low..top.first + top.begun
    }
}

/// One epoch.
#[derive(Debug)]
pub struct EpochTrace {
    /// The run of the peer.
    pub run: usize,
    /// Its epoch.
    pub epoch: Epoch,
    /// When it began.
    pub born: u64,
    /// The same on the host's clock.
    started: ClockReading,
    /// When it ended, by BYE, crash or a new epoch.
    pub ended: u64,
    /// The multicast stream.
    pub bcast: StreamTrace,
    /// Directed streams by the epoch of their receiver.
    pub directed: Vec<(u64, StreamTrace)>,
    /// The settings of the peer.
    pub settings: Settings,
    control: u64,
    /// What it may spend on answers.
    answer_budget: AnswerBudget,
    /// The last token sent to each receiver, and the one before.
    tokens: HashMap<u64, (u64, Option<u64>)>,
    /// When each control datagram was sealed, by its number less one.
    pub controls: Vec<u64>,
    /// When the next multicast datagram is due at the latest, and the interval after that.
    beat: (u64, u64),
    /// Whether BYE was sent.
    pub said_bye: bool,
    /// Up to which version it has said to know the subscriptions of which epoch.
    pub known: HashMap<u64, u64>,
    /// What it said last of versions: of its own subscriptions, and of those of whom, until somebody looks at it.
    pub interest_said: Option<(u64, Option<(u64, u64)>)>,
}

impl EpochTrace {
    /// T_silent as others see it, in nanoseconds.
    pub fn silent_after(&self) -> u64 {
        nanos(self.settings.heartbeat) * 7 / 2
    }

    /// The directed stream to a receiver.
    pub fn directed_to(&self, receiver: u64) -> Option<&StreamTrace> {
        self.directed.iter().find(|(epoch, _)| *epoch == receiver).map(|(_, flow)| flow)
    }
}

/// All that was published and sent.
#[derive(Debug, Default)]
pub struct GroundTruth {
    /// Every subject that was published on.
    pub subjects: Vec<Subject>,
    subject_index: HashMap<Subject, usize>,
    /// Every message.
    pub published: Vec<PublishedMessage>,
    /// For each run, the messages for all that it has yet to send, or never will, in order.
    unsent: Vec<VecDeque<usize>>,
    /// Every epoch.
    pub streams: Vec<EpochTrace>,
    stream_index: HashMap<u64, usize>,
    /// Data datagrams sealed.
    pub sealed: u64,
    /// Datagrams sent again.
    pub resends: u64,
    /// Requests for datagrams.
    pub requests: u64,
    /// Datagrams told by their manifests.
    pub manifests: u64,
    /// Datagrams told to be gone.
    pub expired: u64,
    /// Messages that were not sent.
    pub spared: u64,
    /// Whether the datagram sent last answers a request or a question, so that its receiver's address must be proven.
    pub is_answer: bool,
    /// The request sent last, until somebody looks at it.
    pub request: Option<ResendRequest>,
    /// Whether what leaves a peer is checked; off only to see whether receivers alone would show a mistake.
    pub is_strict: bool,
}

impl GroundTruth {
    /// Nothing yet.
    pub fn new() -> GroundTruth {
        GroundTruth { is_strict: true, ..GroundTruth::default() }
    }

    /// The index of a subject, new or not.
    pub fn subject(&mut self, subject: &Subject) -> usize {
        if let Some(at) = self.subject_index.get(subject) {
            return *at;
        }
        self.subjects.push(subject.detached());
        self.subject_index.insert(subject.detached(), self.subjects.len() - 1);
        self.subjects.len() - 1
    }

    /// The index of a subject, if anything was published on it.
    pub fn known_subject(&self, subject: &Subject) -> Option<usize> {
        self.subject_index.get(subject).copied()
    }

    /// The stream of an epoch.
    pub fn stream(&self, epoch: Epoch) -> Option<usize> {
        self.stream_index.get(&epoch.bits()).copied()
    }

    /// An epoch begins.
    pub fn begin(
        &mut self,
        at: u64,
        now: ClockReading,
        run: usize,
        epoch: Epoch,
        settings: &Settings,
        out: &mut Findings,
    ) {
        if self.stream_index.insert(epoch.bits(), self.streams.len()).is_some() {
            out.add("R1", format!("epoch {epoch} begins a second time"));
        }
        let heartbeat = nanos(settings.heartbeat);
        self.streams.push(EpochTrace {
            run,
            epoch,
            born: at,
            started: now,
            ended: NEVER,
            bcast: StreamTrace::default(),
            directed: Vec::new(),
            settings: settings.clone(),
            control: 0,
            answer_budget: AnswerBudget::new(at, settings.recovery.resend_rate_min),
            tokens: HashMap::new(),
            controls: Vec::new(),
            beat: (at + heartbeat, 20 * MILLIS),
            said_bye: false,
            known: HashMap::new(),
            interest_said: None,
        });
    }

    /// An epoch ends.
    pub fn end(&mut self, at: u64, stream: usize, out: &mut Findings) {
        let stream = &mut self.streams[stream];
        if stream.ended == NEVER {
            stream.ended = at;
            if self.is_strict {
                stream.check_beat(at, out);
            }
        }
    }

    /// How often any one datagram was asked for, and how often any one was sent again, at the most.
    pub fn most_asked(&self) -> (u32, u32) {
        let asked = self.streams.iter().flat_map(|stream| &stream.bcast.asked);
        asked.fold((0, 0), |most, asked| (most.0.max(asked.requests), most.1.max(asked.resends)))
    }

    /// The run is over: nobody may owe a heartbeat.
    pub fn check_beats(&self, at: u64, out: &mut Findings) {
        for stream in self.streams.iter().filter(|stream| self.is_strict && stream.ended == NEVER) {
            stream.check_beat(at, out);
        }
    }

    /// The host of a peer stands still until then, which excuses its heartbeats.
    pub fn postpone_heartbeat(&mut self, stream: usize, until: u64) {
        let beat = &mut self.streams[stream].beat;
        beat.0 = beat.0.max(until);
    }

    /// Makes the message that an application publishes.
    pub fn publish(
        &mut self,
        at: u64,
        run: usize,
        (mut envelope, bytes): (Message, usize),
        must_be_sent: bool,
    ) -> Message {
        let id = self.published.len();
        let subject = self.subject(&envelope.subject);
        envelope.payload = payload(id, bytes);
        let message = envelope.clone();
        envelope.payload = Bytes::new();
        self.unsent.resize_with(self.unsent.len().max(run + 1), VecDeque::new);
        if !envelope.subject.as_str().starts_with("_INBOX.") {
            self.unsent[run].push_back(id);
        }
        self.published.push(PublishedMessage {
            run,
            subject,
            envelope,
            bytes,
            at,
            must_be_sent,
            sent: None,
            assigned: Vec::new(),
        });
        message
    }

    /// Finds the published message that a delivered or sent one claims to be.
    pub fn identify(&self, message: &Message) -> Result<usize, &'static str> {
        let Some((id, _)) = message.payload.split_first_chunk::<8>() else { return Err("no identity") };
        let id = u64::from_be_bytes(*id) as usize;
        let Some(known) = self.published.get(id) else { return Err("never published") };
        let same = message.subject == known.envelope.subject
            && message.reply == known.envelope.reply
            && message.headers == known.envelope.headers
            && message.event == known.envelope.event;
        let filled = message.payload.len() == known.bytes && message.payload[8..].iter().all(|b| *b == id as u8);
        if same && filled { Ok(id) } else { Err("not as published") }
    }

    /// A large message of which some datagrams have yet to leave, and which the history may give before they do.
    pub fn find_incomplete(&self, stream: usize, delivery: &Delivery) -> Option<(usize, Option<u64>, usize)> {
        let flow = &self.streams[stream].bcast;
        let (index, last) = (flow.messages.len().checked_sub(1)?, flow.messages.last()?);
        let is_it = last.seq.is_some()
            && last.seq == delivery.seq
            && self.known_subject(&delivery.message.subject) == Some(last.subject);
        (flow.open.is_some() && is_it).then_some((stream, None, index))
    }

    /// Messages of a run that may yet leave, and their bytes.
    pub fn kept_back(&self, run: usize) -> (usize, usize) {
        let unsent = self.unsent.get(run).into_iter().flatten().map(|id| &self.published[*id]);
        unsent.filter(|one| one.sent.is_none()).fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.bytes))
    }

    /// A peer sends a datagram.
    pub fn on_sent(
        &mut self,
        at: u64,
        now: ClockReading,
        run: usize,
        bytes: &Bytes,
        multicast: bool,
        out: &mut Findings,
    ) -> DatagramId {
        let datagram = match wire::decode(bytes.clone()) {
            Ok(datagram) => datagram,
            Err(why) => {
                out.add("wire", format!("run {run} sent what cannot be decoded: {why:?}"));
                return DatagramId::Unidentified;
            }
        };
        let header = datagram.header;
        let Some(index) = self.stream(header.epoch).filter(|index| self.streams[*index].run == run) else {
            out.add("R1", format!("run {run} sent in the name of epoch {}", header.epoch));
            return DatagramId::Unidentified;
        };
        let (receiver, note) = match header.kind {
            Kind::Control => (None, None),
            Kind::Data => (None, Some(DatagramId::Data { stream: index, dseq: header.number })),
            Kind::Directed => {
                let receiver = header.receiver.map_or(0, Epoch::bits);
                (Some(receiver), Some(DatagramId::Directed { stream: index, receiver, number: header.number }))
            }
        };
        self.is_answer = false;
        let sealed = note.and_then(|_| self.streams[index].flow(receiver).bytes.get(header.number as usize - 1));
        if let (Some(sealed), Some(note)) = (sealed, note) {
            self.resends += 1;
            if sealed != bytes || self.streams[index].ended != NEVER {
                out.add("R6", format!("{note:?} was sent again with other bytes, or after its epoch"));
            }
            let asked = &mut self.streams[index].flow(receiver).asked[header.number as usize - 1];
            asked.resends += 1;
            self.on_answer(at, index, bytes, out);
            return note;
        }
        if self.is_strict {
            self.streams[index].check_header(at, now, &header, bytes.len(), multicast, out);
        }
        let Some(note) = note else { return self.on_control(at, index, (&datagram, bytes), multicast, out) };
        self.on_data(at, now, index, receiver, (datagram, bytes), out);
        note
    }

    fn on_control(
        &mut self,
        at: u64,
        index: usize,
        (datagram, bytes): (&Datagram, &Bytes),
        multicast: bool,
        out: &mut Findings,
    ) -> DatagramId {
        let stream = &mut self.streams[index];
        let number = datagram.header.number;
        if number <= stream.control {
            out.add("R2", format!("control number {number} after {}", stream.control));
        }
        stream.control = number;
        stream.controls.resize(number as usize, at);
        let (mut says, mut is_answer) = (ControlContent::Other, false);
        for record in &datagram.records {
            let (announce, bye) = match record {
                Record::Heartbeat(announce) => (announce, false),
                Record::Hello(hello) => (&hello.announce, false),
                Record::Bye(announce) => (announce, true),
                Record::ResendRequest(request) => {
                    self.requests += 1;
                    self.request = Some(request.clone());
                    continue;
                }
                Record::Manifest(manifest) => {
                    is_answer = true;
                    let datagrams = manifest.datagrams.len() as u64;
                    self.manifests += datagrams;
                    says = ControlContent::Manifest { first: manifest.first.0, last: manifest.first.0 + datagrams - 1 };
                    stream.check_manifest(at, manifest, (&self.subject_index, self.is_strict), out);
                    continue;
                }
                Record::Expired(expired) => {
                    is_answer = true;
                    if expired.receiver.is_none() {
                        says = ControlContent::Expired { last: expired.ranges.last().map_or(0, |range| range.last.0) };
                    }
                    self.expired += expired.ranges.iter().map(wire::Range::datagrams).sum::<u64>();
                    if self.is_strict {
                        stream.check_expired(at, expired, out);
                    }
                    continue;
                }
                _ => continue,
            };
            let receiver = announce.directed_receiver.map(Epoch::bits);
            if let (Some(receiver), Some(token)) = (receiver, announce.token) {
                let sent = stream.tokens.entry(receiver).or_insert((token, None));
                if sent.0 != token {
                    *sent = (token, Some(sent.0));
                }
            }
            stream.on_interest(announce, out);
            says = ControlContent::Word { high: announce.high.0, bye, receiver, echo: receiver.zip(announce.echo) };
            stream.note_word(bye, self.is_strict, out);
            if self.is_strict {
                stream.check_announce(at, announce, datagram.header.count, out);
            }
            if multicast && !bye {
                let (due, interval) = stream.beat;
                let next = (interval * 2).min(nanos(stream.settings.heartbeat));
                stream.beat = (at.max(due) + next, next);
            }
        }
        if is_answer {
            self.on_answer(at, index, bytes, out);
        }
        DatagramId::Control { stream: index, number, says }
    }

    /// A request is answered: within what may be spent on that (5.6).
    fn on_answer(&mut self, at: u64, index: usize, bytes: &Bytes, out: &mut Findings) {
        self.is_answer = true;
        if let Some(over) = self.streams[index].answer_budget.on_answer(at, bytes.len()) {
            out.add("budget", format!("stream {index}: answers are {over} bytes more than they may be"));
        }
    }

    fn on_data(
        &mut self,
        at: u64,
        now: ClockReading,
        index: usize,
        receiver: Option<u64>,
        (datagram, bytes): (Datagram, &Bytes),
        out: &mut Findings,
    ) {
        self.sealed += 1;
        let stream = &mut self.streams[index];
        stream.answer_budget.on_first(at, bytes.len());
        if receiver.is_none() {
            let first = 20 * MILLIS.min(nanos(stream.settings.heartbeat));
            stream.beat = (at + first, first);
        }
        let mut flow = std::mem::take(stream.flow(receiver));
        let Header { number, count, .. } = datagram.header;
        if number != flow.high() + 1 || count != flow.messages.len() as u64 {
            let high = flow.high();
            let begun = flow.messages.len();
            if self.is_strict || number != high + 1 {
                out.add("R2", format!("datagram {number} with {count} before it after {high} with {begun}"));
            }
        }
        let goes_on = flow.open.is_some().then(|| flow.messages.len() - 1);
        let sealed = self.streams[index].sealed_at(at, now, &datagram.header);
        flow.datagrams.push(DatagramTrace { at, sealed, first: flow.messages.len(), begun: 0, goes_on });
        flow.asked.push(ResendCounts::default());
        let bytes_to = flow.bytes_to.last().copied().unwrap_or(0) + bytes.len() as u64;
        flow.bytes_to.push(bytes_to);
        flow.bytes.push(bytes.clone());
        for record in datagram.records {
            self.on_record(at, now, (index, receiver), &mut flow, record, out);
        }
        let first = flow.datagrams.last().map_or(0, |sealed| sealed.first);
        let begun = flow.messages.len() - first;
        if let Some(sealed) = flow.datagrams.last_mut() {
            sealed.begun = begun;
        }
        *self.streams[index].flow(receiver) = flow;
    }

    fn on_record(
        &mut self,
        at: u64,
        now: ClockReading,
        whose: (usize, Option<u64>),
        flow: &mut StreamTrace,
        record: Record,
        out: &mut Findings,
    ) {
        match record {
            Record::Run(run) => {
                for (nth, message) in run.messages().enumerate() {
                    let seq = run.first.and_then(|first| first.forward(nth as u64));
                    let subject = self.subject(&message.subject);
                    self.check_number(
                        at,
                        now,
                        whose,
                        flow,
                        (subject, seq),
                        (run.stamp.filter(|_| nth == 0), run.chain),
                        out,
                    );
                    flow.begin(at, subject, (seq, run.chain.is_some()), true);
                    self.on_message(whose, flow, &message, out);
                }
            }
            Record::Fragment(part) => {
                let subject = self.subject(&part.subject);
                if part.index == 0 {
                    self.check_number(at, now, whose, flow, (subject, part.seq), (part.stamp, part.chain), out);
                    flow.begin(at, subject, (part.seq, part.chain.is_some()), false);
                    flow.open = Some(BytesMut::new());
                }
                let high = flow.high();
                let fits = flow.open.as_ref().is_some_and(|body| body.len() == part.offset as usize);
                let (Some(body), Some(message), true) = (flow.open.as_mut(), flow.messages.last_mut(), fits) else {
                    out.add("wire", format!("part {} at {} goes on with nothing", part.index, part.offset));
                    return;
                };
                body.put_slice(&part.chunk);
                message.last = high;
                if high != message.first + u64::from(part.index) || message.seq != part.seq {
                    out.add(
                        "wire",
                        format!("part {} of a message begun in {} is in {high}", part.index, message.first),
                    );
                }
                if part.is_last() {
                    message.is_whole = true;
                    let body = flow.open.take().unwrap_or_default().freeze();
                    match wire::assemble(part.subject, part.event, part.meta, body) {
                        Ok(message) => self.on_message(whose, flow, &message, out),
                        Err(why) => out.add("wire", format!("a large message cannot be read: {why:?}")),
                    }
                }
            }
            other => out.add("wire", format!("{other:?} among data")),
        }
    }
}

impl StreamTrace {
    fn begin(&mut self, at: u64, subject: usize, (seq, is_chained): (Option<Seq>, bool), is_whole: bool) {
        if seq.is_some() {
            if self.numbered.len() <= subject {
                self.numbered.resize_with(subject + 1, Vec::new);
            }
            self.numbered[subject].push(self.messages.len());
        }
        let dseq = self.high();
        let sealed = self.datagrams.last().map_or(at, |datagram| datagram.sealed);
        self.messages.push(MessageTrace {
            subject,
            sealed,
            seq,
            is_chained,
            at,
            first: dseq,
            last: dseq,
            is_whole,
            bytes: 0,
        });
    }
}

impl EpochTrace {
    fn flow(&mut self, receiver: Option<u64>) -> &mut StreamTrace {
        let Some(receiver) = receiver else { return &mut self.bcast };
        let at = self.directed.iter().position(|(epoch, _)| *epoch == receiver).unwrap_or_else(|| {
            self.directed.push((receiver, StreamTrace::default()));
            self.directed.len() - 1
        });
        &mut self.directed[at].1
    }
}

/// The payload of message `id`: its number, then its lowest byte repeated.
fn payload(id: usize, bytes: usize) -> Bytes {
    let mut payload = BytesMut::with_capacity(bytes);
    payload.put_u64(id as u64);
    payload.put_bytes(id as u8, bytes.saturating_sub(8));
    payload.freeze()
}
