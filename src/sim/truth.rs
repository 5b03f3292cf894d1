//! The oracle's ground truth: every message that an application published and every datagram that a peer sealed. The
//! oracle reads them from the bytes that leave the peers, and checks them as it records them.

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
use crate::wire::{self, CheckValue, Datagram, Header, Kind, Record, ResendRequest};
use answer_budget::AnswerBudget;
use bytes::{BufMut, Bytes, BytesMut};
pub use datagram_id::{ControlContent, DatagramId};
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Time that means "not yet" or "never".
pub const NEVER: u64 = u64::MAX;

/// A message as an application published it. Its index is its identity; the payload begins with it.
#[derive(Debug)]
pub struct PublishedMessage {
    /// The run of the peer that accepted it.
    pub run: usize,
    /// Index of its subject.
    pub subject: usize,
    /// The message itself, without payload.
    pub envelope: Message,
    /// Bytes of the payload.
    pub bytes: usize,
    /// Time of publication.
    pub at: u64,
    /// True if it must be sent: the publisher has confirmed a matching subscription elsewhere, or it sends
    /// everything.
    pub must_be_sent: bool,
    /// Location in a stream, once it is sent: stream, receiver's epoch of a directed one, index in the flow.
    pub sent: Option<(usize, Option<u64>, usize)>,
    /// Queue groups of which a member at another peer must get it.
    pub assigned: Vec<Queue>,
}

/// A datagram that was sealed.
#[derive(Clone, Copy, Debug)]
pub struct DatagramTrace {
    /// Time at which it left.
    pub at: u64,
    /// Earliest time at which it was sealed; the pacer may have delayed its departure.
    pub sealed: u64,
    /// Index of the first message begun in it.
    pub first: usize,
    /// Number of messages that begin in it.
    pub begun: usize,
    /// The message that continues from the datagram before.
    pub continued: Option<usize>,
}

/// A message that was sealed.
#[derive(Clone, Copy, Debug)]
pub struct MessageTrace {
    /// Index of its subject.
    pub subject: usize,
    /// Its number.
    pub seq: Option<Seq>,
    /// True if it names the last number of the frame before.
    pub is_chained: bool,
    /// Time at which its first datagram left.
    pub at: u64,
    /// Earliest time at which its first datagram was sealed.
    pub sealed: u64,
    /// Its first datagram.
    pub first: u64,
    /// Its last datagram so far.
    pub last: u64,
    /// True if `last` is its final datagram.
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
    /// Assembled part of a large message whose last datagram has yet to leave.
    open_body: Option<BytesMut>,
    /// For each subject, the indexes of its numbered messages in order.
    numbered: Vec<Vec<usize>>,
    /// The message sent last, as an index into `GroundTruth::published`.
    last_published: Option<usize>,
    /// The bytes of each datagram, which a retransmission must repeat.
    bytes: Vec<Bytes>,
    /// Cumulative number of bytes of all datagrams up to each.
    cumulative_bytes: Vec<u64>,
    /// Number of directed messages that no client here gets: questions to a history, its answers, and messages that
    /// another run returned for a member of a queue group.
    pub service_messages: u64,
    /// For each datagram, the counts of its requests.
    pub resend_counts: Vec<ResendCounts>,
}

/// Requests for a datagram and their answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResendCounts {
    /// Number of requests.
    pub requests: u32,
    /// Number of retransmissions.
    pub resends: u32,
    /// True if a receiver requested its manifest alone (A4).
    pub manifest_only: bool,
}

impl StreamTrace {
    /// Returns the length of a datagram.
    pub fn bytes_of(&self, dseq: u64) -> usize {
        self.bytes[dseq as usize - 1].len()
    }

    /// Returns the numbered messages of a subject, in order.
    pub fn numbered(&self, subject: usize) -> &[usize] {
        self.numbered.get(subject).map_or(&[], Vec::as_slice)
    }

    /// Returns the numbered messages of a subject from one number to another.
    pub fn numbered_between(&self, subject: usize, first: Seq, last: Seq) -> &[usize] {
        let all = self.numbered(subject);
        let from = all.partition_point(|at| self.messages[*at].seq < Some(first));
        let to = all.partition_point(|at| self.messages[*at].seq <= Some(last));
        &all[from..to.max(from)]
    }

    /// Returns the number of the last datagram.
    pub fn high(&self) -> u64 {
        self.datagrams.len() as u64
    }

    /// Returns the messages that begin in a range of datagrams.
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
    /// Time at which it began.
    pub born: u64,
    /// The same on the host's clock.
    started: ClockReading,
    /// Time at which it ended, by BYE, crash or a new epoch.
    pub ended: u64,
    /// The multicast stream.
    pub bcast: StreamTrace,
    /// Directed streams by the epoch of their receiver.
    pub directed: Vec<(u64, StreamTrace)>,
    /// The settings of the peer.
    pub settings: Settings,
    /// Number of its last control datagram.
    control: u64,
    /// Its budget for answers.
    answer_budget: AnswerBudget,
    /// The last token sent to each receiver, and the one before.
    tokens: HashMap<u64, (u64, Option<u64>)>,
    /// For each control datagram, the time at which it was sealed, by its number less one.
    pub control_times: Vec<u64>,
    /// Latest time of its next multicast datagram, and the last interval, which doubles up to the heartbeat.
    heartbeat_due: (u64, u64),
    /// True if BYE was sent.
    pub has_sent_bye: bool,
    /// Highest subscription version that it has confirmed, for each epoch.
    pub confirmed: HashMap<u64, u64>,
    /// Versions of its last announcement, until they are checked: its own, and an epoch with the version that it
    /// confirmed for that epoch.
    pub announced_interest: Option<(u64, Option<(u64, u64)>)>,
}

impl EpochTrace {
    /// Returns T_silent as others see it, in nanoseconds.
    pub fn silent_after(&self) -> u64 {
        nanos(self.settings.heartbeat) * 7 / 2
    }

    /// Returns the directed stream to a receiver.
    pub fn directed_to(&self, receiver: u64) -> Option<&StreamTrace> {
        self.directed.iter().find(|(epoch, _)| *epoch == receiver).map(|(_, flow)| flow)
    }
}

/// All messages published and datagrams sent.
#[derive(Debug, Default)]
pub struct GroundTruth {
    /// Every subject that was published on.
    pub subjects: Vec<Subject>,
    subject_index: HashMap<Subject, usize>,
    /// Every message.
    pub published: Vec<PublishedMessage>,
    /// For each run, its unsent messages for the group in order. Suppressed ones leave when a later one is sent.
    unsent: Vec<VecDeque<usize>>,
    /// Every epoch.
    pub streams: Vec<EpochTrace>,
    stream_index: HashMap<u64, usize>,
    /// Data datagrams sealed.
    pub sealed: u64,
    /// Datagrams retransmitted.
    pub resends: u64,
    /// Requests for datagrams.
    pub requests: u64,
    /// Datagrams reported by their manifests.
    pub manifests: u64,
    /// Datagrams reported as expired.
    pub expired: u64,
    /// Messages that were suppressed.
    pub suppressed: u64,
    /// True if the datagram sent last answers a request or a question, so that its receiver's address must be proven.
    pub is_answer: bool,
    /// The request sent last, until it is checked.
    pub request: Option<ResendRequest>,
    /// The kind of check value in the datagrams of all peers.
    check_value: CheckValue,
    /// True if datagrams that leave a peer are checked. Tests clear it to see whether receivers alone show a mistake.
    pub is_strict: bool,
}

impl GroundTruth {
    /// Creates an empty record.
    pub fn new() -> GroundTruth {
        GroundTruth { is_strict: true, ..GroundTruth::default() }
    }

    /// Returns the index of a subject, and adds the subject if it is new.
    pub fn subject(&mut self, subject: &Subject) -> usize {
        if let Some(at) = self.subject_index.get(subject) {
            return *at;
        }
        self.subjects.push(subject.detached());
        self.subject_index.insert(subject.detached(), self.subjects.len() - 1);
        self.subjects.len() - 1
    }

    /// Returns the index of a subject, if anything was published on it.
    pub fn known_subject(&self, subject: &Subject) -> Option<usize> {
        self.subject_index.get(subject).copied()
    }

    /// Returns the stream of an epoch.
    pub fn stream(&self, epoch: Epoch) -> Option<usize> {
        self.stream_index.get(&epoch.bits()).copied()
    }

    /// Records the start of an epoch.
    pub fn begin(
        &mut self,
        at: u64,
        now: ClockReading,
        run: usize,
        epoch: Epoch,
        settings: &Settings,
        out: &mut Findings,
    ) {
        self.check_value = settings.check_value;
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
            control_times: Vec::new(),
            heartbeat_due: (at + heartbeat, 20 * MILLIS),
            has_sent_bye: false,
            confirmed: HashMap::new(),
            announced_interest: None,
        });
    }

    /// Records the end of an epoch.
    pub fn end(&mut self, at: u64, stream: usize, out: &mut Findings) {
        let stream = &mut self.streams[stream];
        if stream.ended == NEVER {
            stream.ended = at;
            if self.is_strict {
                stream.check_heartbeat(at, out);
            }
        }
    }

    /// Returns the maximum number of requests for any one datagram, and the maximum number of its retransmissions.
    pub fn most_requested(&self) -> (u32, u32) {
        let counts = self.streams.iter().flat_map(|stream| &stream.bcast.resend_counts);
        counts.fold((0, 0), |most, counts| (most.0.max(counts.requests), most.1.max(counts.resends)))
    }

    /// Checks at the end of the run that no heartbeat is overdue.
    pub fn check_heartbeats(&self, at: u64, out: &mut Findings) {
        for stream in self.streams.iter().filter(|stream| self.is_strict && stream.ended == NEVER) {
            stream.check_heartbeat(at, out);
        }
    }

    /// Postpones the heartbeat of a peer whose host pauses until `until`.
    pub fn postpone_heartbeat(&mut self, stream: usize, until: u64) {
        let due = &mut self.streams[stream].heartbeat_due;
        due.0 = due.0.max(until);
    }

    /// Creates the message that an application publishes.
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

    /// Finds a large message of which some datagrams have yet to leave. The history may return it earlier.
    pub fn find_incomplete(&self, stream: usize, delivery: &Delivery) -> Option<(usize, Option<u64>, usize)> {
        let flow = &self.streams[stream].bcast;
        let (index, last) = (flow.messages.len().checked_sub(1)?, flow.messages.last()?);
        let is_same = last.seq.is_some()
            && last.seq == delivery.seq
            && self.known_subject(&delivery.message.subject) == Some(last.subject);
        (flow.open_body.is_some() && is_same).then_some((stream, None, index))
    }

    /// Returns the number and the bytes of a run's messages that may still leave.
    pub fn unsent(&self, run: usize) -> (usize, usize) {
        let unsent = self.unsent.get(run).into_iter().flatten().map(|id| &self.published[*id]);
        unsent
            .filter(|message| message.sent.is_none())
            .fold((0, 0), |(count, bytes), message| (count + 1, bytes + message.bytes))
    }

    /// Records and checks a datagram that a peer sends.
    pub fn on_sent(
        &mut self,
        at: u64,
        now: ClockReading,
        run: usize,
        bytes: &Bytes,
        multicast: bool,
        out: &mut Findings,
    ) -> DatagramId {
        let datagram = match wire::decode_with(bytes.clone(), self.check_value, Vec::with_capacity) {
            Ok(datagram) => datagram,
            Err(reason) => {
                out.add("wire", format!("run {run} sent a datagram that cannot be decoded: {reason:?}"));
                return DatagramId::Unidentified;
            }
        };
        let header = datagram.header;
        let Some(index) = self.stream(header.epoch).filter(|index| self.streams[*index].run == run) else {
            out.add("R1", format!("run {run} sent in the name of epoch {}", header.epoch));
            return DatagramId::Unidentified;
        };
        let (receiver, id) = match header.kind {
            Kind::Control => (None, None),
            Kind::Data => (None, Some(DatagramId::Data { stream: index, dseq: header.number })),
            Kind::Directed => {
                let receiver = header.receiver.map_or(0, Epoch::bits);
                (Some(receiver), Some(DatagramId::Directed { stream: index, receiver, number: header.number }))
            }
        };
        self.is_answer = false;
        let sealed = id.and_then(|_| self.streams[index].flow(receiver).bytes.get(header.number as usize - 1));
        if let (Some(sealed), Some(id)) = (sealed, id) {
            self.resends += 1;
            if sealed != bytes || self.streams[index].ended != NEVER {
                out.add("R6", format!("{id:?} was sent again with other bytes, or after its epoch"));
            }
            let counts = &mut self.streams[index].flow(receiver).resend_counts[header.number as usize - 1];
            counts.resends += 1;
            self.on_answer(at, index, bytes, out);
            return id;
        }
        if self.is_strict {
            self.streams[index].check_header(at, now, &header, bytes.len(), multicast, out);
        }
        let Some(id) = id else { return self.on_control(at, index, (&datagram, bytes), multicast, out) };
        self.on_data(at, now, index, receiver, (datagram, bytes), out);
        id
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
        stream.control_times.resize(number as usize, at);
        let (mut content, mut is_answer) = (ControlContent::Other, false);
        for record in &datagram.records {
            let (announce, bye) = match record {
                Record::Heartbeat(announce) => (&**announce, false),
                Record::Hello(hello) => (&hello.announce, false),
                Record::Bye(announce) => (&**announce, true),
                Record::ResendRequest(request) => {
                    self.requests += 1;
                    self.request = Some(request.clone());
                    continue;
                }
                Record::Manifest(manifest) => {
                    is_answer = true;
                    let datagrams = manifest.datagrams.len() as u64;
                    self.manifests += datagrams;
                    content =
                        ControlContent::Manifest { first: manifest.first.0, last: manifest.first.0 + datagrams - 1 };
                    stream.check_manifest(at, manifest, (&self.subject_index, self.is_strict), out);
                    continue;
                }
                Record::Expired(expired) => {
                    is_answer = true;
                    if expired.receiver.is_none() {
                        content =
                            ControlContent::Expired { last: expired.ranges.last().map_or(0, |range| range.last.0) };
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
            content = ControlContent::Announcement {
                high: announce.high.0,
                bye,
                receiver,
                echo: receiver.zip(announce.echo),
            };
            stream.check_bye(bye, self.is_strict, out);
            if self.is_strict {
                stream.check_announce(at, announce, datagram.header.count, out);
            }
            if multicast && !bye {
                let (due, interval) = stream.heartbeat_due;
                let next = (interval * 2).min(nanos(stream.settings.heartbeat));
                stream.heartbeat_due = (at.max(due) + next, next);
            }
        }
        if is_answer {
            self.on_answer(at, index, bytes, out);
        }
        DatagramId::Control { stream: index, number, content }
    }

    /// Checks that an answer to a request is within the budget for answers (wire.md W114).
    fn on_answer(&mut self, at: u64, index: usize, bytes: &Bytes, out: &mut Findings) {
        self.is_answer = true;
        if let Some(over) = self.streams[index].answer_budget.on_answer(at, bytes.len()) {
            out.add("budget", format!("stream {index}: answers exceed their budget by {over} bytes"));
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
        stream.answer_budget.on_first_transmission(at, bytes.len());
        if receiver.is_none() {
            let first = 20 * MILLIS.min(nanos(stream.settings.heartbeat));
            stream.heartbeat_due = (at + first, first);
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
        let continued = flow.open_body.is_some().then(|| flow.messages.len() - 1);
        let sealed = self.streams[index].sealed_at(at, now, &datagram.header);
        flow.datagrams.push(DatagramTrace { at, sealed, first: flow.messages.len(), begun: 0, continued });
        flow.resend_counts.push(ResendCounts::default());
        let cumulative_bytes = flow.cumulative_bytes.last().copied().unwrap_or(0) + bytes.len() as u64;
        flow.cumulative_bytes.push(cumulative_bytes);
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
        flow_id: (usize, Option<u64>),
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
                        flow_id,
                        flow,
                        (subject, seq),
                        (run.stamp.filter(|_| nth == 0), run.chain),
                        out,
                    );
                    flow.begin(at, subject, (seq, run.chain.is_some()), true);
                    self.on_message(flow_id, flow, &message, out);
                }
            }
            Record::Fragment(part) => {
                let subject = self.subject(&part.subject);
                if part.index == 0 {
                    self.check_number(at, now, flow_id, flow, (subject, part.seq), (part.stamp, part.chain), out);
                    flow.begin(at, subject, (part.seq, part.chain.is_some()), false);
                    flow.open_body = Some(BytesMut::new());
                }
                let high = flow.high();
                let fits = flow.open_body.as_ref().is_some_and(|body| body.len() == part.offset as usize);
                let (Some(body), Some(message), true) = (flow.open_body.as_mut(), flow.messages.last_mut(), fits)
                else {
                    out.add("wire", format!("part {} at {} continues no message", part.index, part.offset));
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
                    let body = flow.open_body.take().unwrap_or_default().freeze();
                    match wire::assemble(part.subject, part.event, part.meta, body) {
                        Ok(message) => self.on_message(flow_id, flow, &message, out),
                        Err(reason) => out.add("wire", format!("a large message cannot be read: {reason:?}")),
                    }
                }
            }
            other => out.add("wire", format!("{other:?} in a data datagram")),
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

/// Returns the payload of message `id`: its number, then the lowest byte of that repeated.
fn payload(id: usize, bytes: usize) -> Bytes {
    let mut payload = BytesMut::with_capacity(bytes);
    payload.put_u64(id as u64);
    payload.put_bytes(id as u8, bytes.saturating_sub(8));
    payload.freeze()
}
