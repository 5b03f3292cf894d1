//! Encoding of messages for a client.

use super::envelope::{self, RvLetter};
use super::message::{HEAD_BYTES, MAGIC, kind, put_head};
use super::payload::RvHeaders;
use super::subject;
use crate::delivery::Deliveries;
use crate::listener::output_buffer::OutputBuffer;
use crate::message::{DeliveryRef, Headers};
use crate::subject::Subject;
use bytes::Bytes;

/// Minimum average payload size, in bytes, at which payloads are shared by their receivers instead of copied.
const SHARE_BYTES: usize = 8 * 1024;

/// Maximum capacity of the buffer that is kept between messages, in bytes. It bounds the memory of idle clients.
const IDLE_BYTES: usize = 1024;

/// Writer of messages. It remembers the encoded subject of the last one.
#[derive(Debug, Default)]
pub(super) struct RvWriter {
    /// Last subject, with its field; the field is empty if the protocol cannot express the subject.
    last: Option<(Subject, Vec<u8>)>,
    /// Envelope before the data.
    line: Vec<u8>,
}

impl RvWriter {
    /// Writes each message once. Returns the number of messages written; 0 if the protocol cannot express the subject.
    pub(super) fn write(&mut self, deliveries: &Deliveries, out: &mut OutputBuffer) -> usize {
        let mut written = 0;
        if IDLE_BYTES < self.line.capacity() {
            self.line = Vec::new();
        }
        if SHARE_BYTES * deliveries.len() <= deliveries.bytes() {
            for delivery in deliveries.clone() {
                if self.begin(&(&delivery).into()) {
                    out.put(&self.line);
                    out.put_payload(&delivery.message.payload);
                    written += 1;
                }
            }
            return written;
        }
        deliveries.clone().visit(|delivery| {
            if self.begin(delivery) {
                out.put(&self.line);
                out.put(delivery.payload);
                written += 1;
            }
        });
        written
    }

    /// Encodes the envelope of a message up to its payload. Returns false if the protocol cannot express it.
    #[inline]
    fn begin(&mut self, delivery: &DeliveryRef<'_>) -> bool {
        let is_same = self.last.as_ref().is_some_and(|(subject, _)| subject.is_same(delivery.subject));
        if !is_same {
            let (mut field, text) = (Vec::new(), subject::of_subject(delivery.subject));
            if envelope::put_subject(&mut field, &text).is_err() {
                field.clear();
            }
            self.last = Some((delivery.subject.clone(), field));
        }
        let field = self.last.as_ref().map_or(&[][..], |(_, field)| field);
        if field.is_empty() {
            return false;
        }
        let headers = match delivery.headers {
            b"" => RvHeaders::default(),
            block => RvHeaders::of(&Headers::from_block(Bytes::copy_from_slice(block))),
        };
        let letter = if headers.is_advisory { RvLetter::Advisory } else { RvLetter::Data };
        self.line.clear();
        self.line.extend_from_slice(&[0; 4]);
        self.line.extend_from_slice(&MAGIC.to_be_bytes());
        debug_assert_eq!(self.line.len(), HEAD_BYTES);
        self.line.extend_from_slice(field);
        envelope::put_letter(&mut self.line, letter, &reply_text(delivery.reply));
        self.line.extend_from_slice(&headers.others);
        if let Some(mut kind) = headers.kind_of(delivery.payload) {
            envelope::put_data_name(&mut self.line);
            let before = self.line.len();
            if put_head(&mut self.line, kind, delivery.payload.len()).is_err() {
                // No type but opaque has values of every size.
                kind = kind::OPAQUE;
                self.line.truncate(before);
                put_head(&mut self.line, kind, delivery.payload.len()).expect("messages have less than 4 GB");
            }
        }
        let length = u32::try_from(self.line.len() + delivery.payload.len()).expect("messages have less than 4 GB");
        self.line[..4].copy_from_slice(&length.to_be_bytes());
        true
    }
}

/// Returns the text of a reply subject of the bus.
fn reply_text(reply: &[u8]) -> Vec<u8> {
    if !reply.contains(&b'%') {
        return reply.to_vec();
    }
    let reply = Subject::from_bytes(Bytes::copy_from_slice(reply));
    reply.map(|reply| subject::of_subject(&reply)).unwrap_or_default()
}
