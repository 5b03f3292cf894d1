//! Server-sent events (WHATWG HTML, section 9.2).

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;

/// Appends a server-sent event with this text. The text has no CR: clients take one for a line feed.
pub fn put_event(out: &mut Vec<u8>, name: &str, text: &str) {
    debug_assert!(!text.contains('\r'), "the end of a line");
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.push(b'\n');
    for line in text.split('\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    out.push(b'\n');
}

/// Appends a payload as a server-sent event: `message` with the text, or `base64` if it is no UTF-8 or has a CR.
pub fn put_payload_event(out: &mut Vec<u8>, payload: &[u8]) {
    match std::str::from_utf8(payload) {
        Ok(text) if !text.contains('\r') => put_event(out, "message", text),
        _ => put_event(out, "base64", &BASE64_STANDARD.encode(payload)),
    }
}

/// Maximum bytes of a message that one part of its event encodes. A multiple of 3, so that Base64 continues.
const PART_BYTES: usize = 12 * 1024;

/// How an event contains a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PayloadEncoding {
    /// Each line of the text is a line of the event.
    Lines,
    /// As in a JSON text.
    Json,
    Base64,
}

/// A server-sent event with a large message, encoded part by part: a client that reads slowly holds one part in memory.
#[derive(Debug)]
pub struct MessageEvent {
    /// The event before the payload.
    head: Bytes,
    payload: Bytes,
    encoding: PayloadEncoding,
    /// The event behind the payload.
    tail: Bytes,
}

impl MessageEvent {
    /// Makes the same event as [`put_payload_event`].
    pub fn of_payload(payload: &Bytes) -> MessageEvent {
        let is_text = std::str::from_utf8(payload).is_ok_and(|text| !text.contains('\r'));
        let (head, encoding) = match is_text {
            true => (&b"event: message\ndata: "[..], PayloadEncoding::Lines),
            false => (&b"event: base64\ndata: "[..], PayloadEncoding::Base64),
        };
        let (head, tail) = (Bytes::from_static(head), Bytes::from_static(b"\n\n"));
        MessageEvent { head, payload: payload.clone(), encoding, tail }
    }

    /// Makes the event `message` of a JSON text that is cut where the content of this payload belongs.
    pub fn of_json(head: &str, tail: &str, payload: &Bytes) -> MessageEvent {
        let is_text = std::str::from_utf8(payload).is_ok();
        MessageEvent {
            head: format!("event: message\ndata: {head}").into(),
            payload: payload.clone(),
            encoding: if is_text { PayloadEncoding::Json } else { PayloadEncoding::Base64 },
            tail: format!("{tail}\n\n").into(),
        }
    }

    /// Appends the next part. Returns whether further ones follow.
    pub fn put_part(&mut self, out: &mut Vec<u8>) -> bool {
        if !self.head.is_empty() {
            out.extend_from_slice(&take(&mut self.head, PART_BYTES));
        } else if !self.payload.is_empty() {
            self.put_payload(out);
        } else {
            out.extend_from_slice(&take(&mut self.tail, PART_BYTES));
        }
        !(self.head.is_empty() && self.payload.is_empty() && self.tail.is_empty())
    }

    fn put_payload(&mut self, out: &mut Vec<u8>) {
        if self.encoding == PayloadEncoding::Base64 {
            let part = take(&mut self.payload, PART_BYTES);
            return out.extend_from_slice(BASE64_STANDARD.encode(part).as_bytes());
        }
        // A character is not cut.
        let is_begin = |at: &usize| self.payload.get(*at).is_none_or(|byte| *byte & 0xc0 != 0x80);
        let end = (0..=PART_BYTES.min(self.payload.len())).rev().find(is_begin).unwrap_or_default();
        let part = self.payload.split_to(end);
        let text = std::str::from_utf8(&part).expect("a text that is cut between characters");
        match self.encoding {
            PayloadEncoding::Lines => out.extend_from_slice(text.replace('\n', "\ndata: ").as_bytes()),
            _ => {
                let quoted = serde_json::to_string(text).expect("a text is valid JSON");
                out.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
            }
        }
    }
}

/// Removes at most `bytes_max` bytes from the front.
fn take(bytes: &mut Bytes, bytes_max: usize) -> Bytes {
    bytes.split_to(bytes.len().min(bytes_max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::notice::{message_json, message_json_around_payload};
    use crate::message::{Delivery, Epoch, Message, Publisher, Verdict};
    use crate::time::WallTime;

    #[test]
    fn parts_of_an_event_are_the_whole_event() {
        let publisher = Publisher { name: None, epoch: Epoch::new(7).unwrap(), uid: 1 };
        let texts = ["\u{1}", "a\nb", "ü€𝄞", "\"\\", "a\r", "\n"].map(|text| text.repeat(20_000).into_bytes());
        let shifted = ["x", "xx", "xxx"].map(|begin| [begin.as_bytes(), "𝄞".repeat(10_000).as_bytes()].concat());
        let others = [Vec::new(), vec![0xff; 50_000], vec![0xff; PART_BYTES + 1], b"short".to_vec()];
        for payload in texts.into_iter().chain(shifted).chain(others).map(Bytes::from) {
            let message = Message::new("a.b".parse().unwrap(), payload.clone());
            let delivery = Delivery::new(message, publisher.clone(), None, Verdict::Direct);
            let (mut as_payload, mut as_json) = (Vec::new(), Vec::new());
            put_payload_event(&mut as_payload, &payload);
            put_event(&mut as_json, "message", &message_json(&delivery, WallTime::from_nanos(5)));
            let (head, tail) = message_json_around_payload(&delivery, WallTime::from_nanos(5));
            for (mut event, expected) in [
                (MessageEvent::of_payload(&payload), as_payload),
                (MessageEvent::of_json(&head, &tail, &payload), as_json),
            ] {
                let (mut whole, mut is_more) = (Vec::new(), true);
                while is_more {
                    let before = whole.len();
                    is_more = event.put_part(&mut whole);
                    assert!(whole.len() - before <= 7 * PART_BYTES, "a part is small");
                }
                assert!(whole == expected, "{:?}", &payload[..payload.len().min(9)]);
            }
        }
    }

    #[test]
    fn payload_events_are_text_or_base64() {
        for (payload, expected) in [
            (&b"17.5"[..], "event: message\ndata: 17.5\n\n"),
            (b"", "event: message\ndata: \n\n"),
            (b"a\n\nb\n", "event: message\ndata: a\ndata: \ndata: b\ndata: \n\n"),
            (b"event: loss\n\n", "event: message\ndata: event: loss\ndata: \ndata: \n\n"),
            (b"a\r", "event: base64\ndata: YQ0=\n\n"),
            (b"\xff", "event: base64\ndata: /w==\n\n"),
        ] {
            let mut out = Vec::new();
            put_payload_event(&mut out, payload);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{payload:?}");
        }
    }
}
