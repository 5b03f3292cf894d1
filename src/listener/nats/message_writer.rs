//! Encoding of messages to a client: MSG and HMSG.
//!
//! The common part of all messages of a call is encoded once. The line of a message is encoded only if it differs from
//! that of the message before.

use super::subscriptions::NatsSubscriptions;
use crate::delivery::Deliveries;
use crate::listener::output_buffer::{OutputBuffer, SHARE_BYTES};
use crate::message::{Count, DeliveryRef, Message, Publisher, SubId};
use std::io::Write;
use std::ops::Range;

/// The first line of headers.
pub(super) const HEADERS_LINE: &[u8] = b"NATS/1.0\r\n";
/// Beginning of a first line with a status. Such a line is published as a part of the message's headers.
pub(super) const STATUS: &[u8] = b"NATS/1.0 ";
/// Prefix of the names of headers that only the bus writes.
pub(super) const RESERVED_PREFIX: &[u8] = b"Seqcast-";

/// Parts of a message that a client receives in addition to its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderMode {
    /// No headers.
    Plain,
    /// The headers of the message.
    Headers,
    /// The headers of the message and the metadata of the bus.
    Annotated,
}

/// A subscription that receives the messages.
#[derive(Debug)]
struct DeliveryTarget {
    sub: SubId,
    /// Range of its `HMSG subject sid ` in the prefixes.
    prefix: Range<usize>,
    /// Number of messages that the subscription may still receive.
    remaining: u64,
    written: u64,
    /// Number of messages lost before its first message in this call.
    lost: Option<Count>,
}

/// Encoder of messages. It reuses its memory between calls.
#[derive(Debug, Default)]
pub(super) struct MessageWriter {
    /// True if the fields below are valid for this call.
    is_prepared: bool,
    targets: Vec<DeliveryTarget>,
    prefixes: Vec<u8>,
    /// Target and payload size of the last line written, if that line has neither a reply subject nor headers.
    last: Option<(usize, usize)>,
    line: Vec<u8>,
    /// Headers of the present message that precede those of the publisher.
    headers: Vec<u8>,
    /// Headers of the bus that all messages of the call share.
    publisher_headers: Vec<u8>,
}

impl MessageWriter {
    /// Writes the messages for those of the subscriptions that the client has. Returns the total number of messages
    /// written for all of them. Calls `on_end` with each subscription that has received its last message.
    pub(super) fn write(
        &mut self,
        subs: &mut NatsSubscriptions,
        ids: &[SubId],
        deliveries: &Deliveries,
        mode: HeaderMode,
        out: &mut OutputBuffer,
        mut on_end: impl FnMut(SubId),
    ) -> usize {
        self.begin();
        if SHARE_BYTES <= deliveries.bytes() / deliveries.len().max(1) {
            for delivery in deliveries.clone() {
                self.message(subs, ids, &(&delivery).into(), Some(&delivery.message), mode, out);
            }
        } else {
            deliveries.clone().visit(|delivery| self.message(subs, ids, delivery, None, mode, out));
        }
        let mut written = 0;
        for target in &self.targets {
            written += target.written;
            if let Some(sub) = subs.on_delivered(target.sub, target.written) {
                on_end(sub);
            }
        }
        usize::try_from(written).unwrap_or(usize::MAX)
    }

    fn begin(&mut self) {
        self.targets.clear();
        self.prefixes.clear();
        self.publisher_headers.clear();
        self.is_prepared = false;
        self.last = None;
    }

    /// Encodes the parts that all messages of the call share. All messages have the same subject and publisher.
    fn prepare(&mut self, subs: &mut NatsSubscriptions, ids: &[SubId], delivery: &DeliveryRef<'_>, mode: HeaderMode) {
        self.is_prepared = true;
        for id in ids {
            let Some(sub) = subs.get(*id) else { continue };
            let start = self.prefixes.len();
            for part in [b"HMSG ".as_slice(), delivery.subject.as_bytes(), b" ", &sub.sid, b" "] {
                self.prefixes.extend_from_slice(part);
            }
            let remaining = sub.remaining();
            let lost = if mode == HeaderMode::Annotated { subs.take_lost(*id) } else { None };
            self.targets.push(DeliveryTarget {
                sub: *id,
                prefix: start..self.prefixes.len(),
                remaining,
                written: 0,
                lost,
            });
        }
        if mode == HeaderMode::Annotated {
            put_publisher(&mut self.publisher_headers, delivery.publisher);
        }
    }

    #[inline]
    fn message(
        &mut self,
        subs: &mut NatsSubscriptions,
        ids: &[SubId],
        delivery: &DeliveryRef<'_>,
        shared: Option<&Message>,
        mode: HeaderMode,
        out: &mut OutputBuffer,
    ) {
        if !self.is_prepared {
            self.prepare(subs, ids, delivery, mode);
        }
        for index in 0..self.targets.len() {
            let target = &mut self.targets[index];
            if target.remaining == target.written {
                continue;
            }
            target.written += 1;
            let has_headers = match mode {
                HeaderMode::Plain => false,
                HeaderMode::Headers => !delivery.headers.is_empty(),
                HeaderMode::Annotated => true,
            };
            if has_headers {
                let (rest, end) = self.line_with_headers(index, delivery, mode);
                out.put(&self.line);
                out.put(&self.headers);
                match shared {
                    Some(message) => out.put_shared(&message.headers.block().slice_ref(rest)),
                    None => out.put(rest),
                }
                out.put(end);
            } else {
                self.line(index, delivery);
                if shared.is_none() {
                    out.put_all(&[&self.line, delivery.payload, b"\r\n"]);
                    continue;
                }
                out.put(&self.line);
            }
            match shared {
                Some(message) => out.put_payload(&message.payload),
                None => out.put(delivery.payload),
            }
            out.put(b"\r\n");
        }
    }

    /// Builds `MSG subject sid [reply] size`.
    #[inline]
    fn line(&mut self, index: usize, delivery: &DeliveryRef<'_>) {
        let payload_bytes = delivery.payload.len();
        if self.last == Some((index, payload_bytes)) && delivery.reply.is_empty() {
            return;
        }
        self.last = Some((index, payload_bytes)).filter(|_| delivery.reply.is_empty());
        let prefix = self.targets[index].prefix.clone();
        self.line.clear();
        // Skips the H of the prefix.
        self.line.extend_from_slice(&self.prefixes[prefix.start + 1..prefix.end]);
        put_reply(&mut self.line, delivery.reply);
        put_number(&mut self.line, payload_bytes as u64);
        self.line.extend_from_slice(b"\r\n");
    }

    /// Builds `HMSG subject sid [reply] headers all` and the first part of the headers. Returns the rest of the
    /// headers and their terminator.
    fn line_with_headers<'a>(
        &mut self,
        index: usize,
        delivery: &DeliveryRef<'a>,
        mode: HeaderMode,
    ) -> (&'a [u8], &'static [u8]) {
        let MessageWriter { targets, prefixes, line, headers, publisher_headers, .. } = self;
        let target = &mut targets[index];
        let (first, rest) = first_line(delivery.headers);
        headers.clear();
        headers.extend_from_slice(first);
        if mode == HeaderMode::Annotated {
            headers.extend_from_slice(publisher_headers);
            put_delivery_headers(headers, delivery, target.lost.take());
        }
        let is_terminated = rest.ends_with(b"\r\n") || rest.is_empty() && headers.ends_with(b"\r\n");
        let end: &[u8] = if is_terminated { b"\r\n" } else { b"\r\n\r\n" };
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

/// Returns the first line of a message's headers in NATS form, and the remaining headers.
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

/// Writes the metadata of the bus for one message.
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
    write!(text, "{name}: {value}\r\n").expect("a Vec takes any bytes");
}

#[inline]
fn put_reply(line: &mut Vec<u8>, reply: &[u8]) {
    if !reply.is_empty() {
        line.extend_from_slice(reply);
        line.push(b' ');
    }
}

/// Appends the number in decimal.
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
