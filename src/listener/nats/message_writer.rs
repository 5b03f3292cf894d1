//! Messages on their way to a client: MSG and HMSG.
//!
//! What all messages of a call have in common is written once, and the line of a message again only where it differs from that of
//! the one before.

use super::subscriptions::NatsSubscriptions;
use crate::listener::output_buffer::{OutputBuffer, SHARE_BYTES};
use crate::message::{Count, DeliveryRef, Message, Publisher, SubId};
use crate::proto::delivery::Deliveries;
use std::io::Write;
use std::ops::Range;

/// The first line of headers.
pub(super) const HEADERS_LINE: &[u8] = b"NATS/1.0\r\n";
/// How a first line begins that says more than the version: a status, which stands in the headers of a message as it came.
pub(super) const STATUS: &[u8] = b"NATS/1.0 ";
/// How the names of headers begin that only the bus writes.
pub(super) const RESERVED_PREFIX: &[u8] = b"Seqcast-";

/// What a client gets of a message beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderMode {
    /// Nothing.
    Plain,
    /// Its headers.
    Headers,
    /// Its headers, and what the bus knows about it.
    Annotated,
}

/// A subscription that gets the messages.
#[derive(Debug)]
struct DeliveryTarget {
    sub: SubId,
    /// Where in the prefixes its `HMSG subject sid ` stands.
    prefix: Range<usize>,
    /// How many it may still get.
    left: u64,
    written: u64,
    /// What was lost before its first one.
    lost: Option<Count>,
}

/// Writes messages; keeps its memory from call to call.
#[derive(Debug, Default)]
pub(super) struct MessageWriter {
    /// Whether what follows is that of this call.
    is_prepared: bool,
    targets: Vec<DeliveryTarget>,
    prefixes: Vec<u8>,
    /// The last line that was written, if it had neither reply subject nor headers: its target and the size of its payload.
    last: Option<(usize, usize)>,
    line: Vec<u8>,
    /// The headers of this message, up to those of the publisher.
    headers: Vec<u8>,
    /// What the bus says about every message of the call.
    known: Vec<u8>,
}

impl MessageWriter {
    /// Writes the messages for those of the subscriptions that the client has. Gives how many were written, all
    /// subscriptions together; `ended` is called with each subscription that got the last one it wanted.
    pub(super) fn write(
        &mut self,
        subs: &mut NatsSubscriptions,
        to: &[SubId],
        deliveries: &Deliveries,
        form: HeaderMode,
        out: &mut OutputBuffer,
        mut ended: impl FnMut(SubId),
    ) -> usize {
        self.begin();
        if SHARE_BYTES <= deliveries.bytes() / deliveries.len().max(1) {
            for delivery in deliveries.clone() {
                self.message(subs, to, &(&delivery).into(), Some(&delivery.message), form, out);
            }
        } else {
            deliveries.clone().visit(|delivery| self.message(subs, to, delivery, None, form, out));
        }
        let mut written = 0;
        for target in &self.targets {
            written += target.written;
            if let Some(sub) = subs.on_delivered(target.sub, target.written) {
                ended(sub);
            }
        }
        usize::try_from(written).unwrap_or(usize::MAX)
    }

    fn begin(&mut self) {
        self.targets.clear();
        self.prefixes.clear();
        self.known.clear();
        self.is_prepared = false;
        self.last = None;
    }

    /// What does not change from message to message; all are of one subject and one publisher.
    fn prepare(&mut self, subs: &mut NatsSubscriptions, to: &[SubId], delivery: &DeliveryRef<'_>, form: HeaderMode) {
        self.is_prepared = true;
        for id in to {
            let Some(sub) = subs.get(*id) else { continue };
            let start = self.prefixes.len();
            for part in [b"HMSG ".as_slice(), delivery.subject.as_bytes(), b" ", &sub.sid, b" "] {
                self.prefixes.extend_from_slice(part);
            }
            let left = sub.left();
            let lost = if form == HeaderMode::Annotated { subs.take_lost(*id) } else { None };
            self.targets.push(DeliveryTarget { sub: *id, prefix: start..self.prefixes.len(), left, written: 0, lost });
        }
        if form == HeaderMode::Annotated {
            put_publisher(&mut self.known, delivery.publisher);
        }
    }

    #[inline]
    fn message(
        &mut self,
        subs: &mut NatsSubscriptions,
        to: &[SubId],
        delivery: &DeliveryRef<'_>,
        shared: Option<&Message>,
        form: HeaderMode,
        out: &mut OutputBuffer,
    ) {
        if !self.is_prepared {
            self.prepare(subs, to, delivery, form);
        }
        for index in 0..self.targets.len() {
            let target = &mut self.targets[index];
            if target.left == target.written {
                continue;
            }
            target.written += 1;
            let has_headers = match form {
                HeaderMode::Plain => false,
                HeaderMode::Headers => !delivery.headers.is_empty(),
                HeaderMode::Annotated => true,
            };
            if has_headers {
                let (rest, end) = self.line_with_headers(index, delivery, form);
                out.put(&self.line);
                out.put(&self.headers);
                match shared {
                    Some(message) => out.put_shared(&message.headers.block().slice_ref(rest)),
                    None => out.put(rest),
                }
                out.put(end);
            } else {
                self.line(index, delivery);
                out.put(&self.line);
            }
            match shared {
                Some(message) => out.put_payload(&message.payload),
                None => out.put(delivery.payload),
            }
            out.put(b"\r\n");
        }
    }

    /// Makes `MSG subject sid [reply] size`.
    #[inline]
    fn line(&mut self, index: usize, delivery: &DeliveryRef<'_>) {
        let payload_bytes = delivery.payload.len();
        if self.last == Some((index, payload_bytes)) && delivery.reply.is_empty() {
            return;
        }
        self.last = Some((index, payload_bytes)).filter(|_| delivery.reply.is_empty());
        let prefix = self.targets[index].prefix.clone();
        self.line.clear();
        // Without the H.
        self.line.extend_from_slice(&self.prefixes[prefix.start + 1..prefix.end]);
        put_reply(&mut self.line, delivery.reply);
        put_number(&mut self.line, payload_bytes as u64);
        self.line.extend_from_slice(b"\r\n");
    }

    /// Makes `HMSG subject sid [reply] headers all`, and the first of the headers; gives the others and what ends them.
    fn line_with_headers<'a>(
        &mut self,
        index: usize,
        delivery: &DeliveryRef<'a>,
        form: HeaderMode,
    ) -> (&'a [u8], &'static [u8]) {
        let MessageWriter { targets, prefixes, line, headers, known, .. } = self;
        let target = &mut targets[index];
        let (first, rest) = first_line(delivery.headers);
        headers.clear();
        headers.extend_from_slice(first);
        if form == HeaderMode::Annotated {
            headers.extend_from_slice(known);
            put_delivery_headers(headers, delivery, target.lost.take());
        }
        let is_whole = rest.ends_with(b"\r\n") || rest.is_empty() && headers.ends_with(b"\r\n");
        let end: &[u8] = if is_whole { b"\r\n" } else { b"\r\n\r\n" };
        let headers_bytes = headers.len() + rest.len() + end.len();
        line.clear();
        line.extend_from_slice(&prefixes[target.prefix.clone()]);
        put_reply(line, delivery.reply);
        put_number(line, headers_bytes as u64);
        line.push(b' ');
        put_number(line, (headers_bytes + delivery.payload.len()) as u64);
        line.extend_from_slice(b"\r\n");
        self.last = None;
        (rest, end)
    }
}

/// The first line of a message's headers as NATS has them, and the others.
fn first_line(block: &[u8]) -> (&[u8], &[u8]) {
    let status_bytes = match block.strip_prefix(STATUS) {
        Some(_) => block.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1),
        None => 0,
    };
    if status_bytes == 0 { (HEADERS_LINE, block) } else { block.split_at(status_bytes) }
}

fn put_publisher(text: &mut Vec<u8>, publisher: &Publisher) {
    if let Some(name) = &publisher.name {
        put_header(text, "Publisher", format_args!("{name}"));
    }
    put_header(text, "Epoch", format_args!("{}", publisher.epoch));
}

/// What the bus says about one message.
fn put_delivery_headers(text: &mut Vec<u8>, delivery: &DeliveryRef<'_>, lost: Option<Count>) {
    if let Some(seq) = delivery.seq {
        text.extend_from_slice(b"Seqcast-Seq: ");
        put_number(text, seq.raw());
        text.extend_from_slice(b"\r\n");
    }
    if let Some(offset) = delivery.offset {
        text.extend_from_slice(b"Seqcast-Offset: ");
        put_number(text, u64::from(offset));
        text.extend_from_slice(b"\r\n");
    }
    if delivery.repaired {
        put_header(text, "Repaired", format_args!("true"));
    }
    if let Some(lost) = lost {
        put_header(text, "Lost", format_args!("{lost}"));
    }
}

fn put_header(text: &mut Vec<u8>, name: &str, value: std::fmt::Arguments<'_>) {
    text.extend_from_slice(RESERVED_PREFIX);
    write!(text, "{name}: {value}\r\n").expect("memory takes everything");
}

#[inline]
fn put_reply(line: &mut Vec<u8>, reply: &[u8]) {
    if !reply.is_empty() {
        line.extend_from_slice(reply);
        line.push(b' ');
    }
}

/// The number in decimal.
#[inline]
pub(super) fn put_number(line: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    line.extend_from_slice(&digits[at..]);
}
