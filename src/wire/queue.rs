//! The stamp of a queue group: a line before the header fields of a message. It names the group and the peer whose
//! member gets the message (docs/wire.md, "Queue groups").
//!
//! ```text
//! stamp      = "Seqcast-Queue: " · epoch (16 hexadecimal digits) · " " · name · CR LF
//! redirected = "Seqcast-Queue: " · epoch · " " · name · " " · epoch of the publisher · CR LF
//! ```

use crate::message::{Epoch, Headers, Queue};
use bytes::BufMut;
use std::borrow::Cow;

/// Maximum number of stamps of a message: further stamps are not read, and further groups do not get the message.
pub const STAMPS_MAX: usize = 64;

/// Start of a stamp.
const BEGIN: &[u8] = b"Seqcast-Queue: ";
/// Name of the field, which clients cannot use.
const KEY: &[u8] = b"seqcast-queue";

/// A borrowed view of a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStamp<'a> {
    /// Peer whose member gets the message.
    pub epoch: Epoch,
    /// Name of the group.
    pub name: &'a [u8],
    /// Publisher of the message, if another peer redirected it.
    pub publisher: Option<Epoch>,
}

/// Returns whether the headers begin with a stamp, or with a line that resembles one.
#[inline]
pub fn is_stamped(headers: &[u8]) -> bool {
    headers.starts_with(BEGIN)
}

/// Writes a stamp.
pub fn put_stamp(out: &mut impl BufMut, epoch: Epoch, queue: &Queue, publisher: Option<Epoch>) {
    out.put_slice(BEGIN);
    out.put_slice(format!("{epoch} {queue}").as_bytes());
    if let Some(publisher) = publisher {
        out.put_slice(format!(" {publisher}").as_bytes());
    }
    out.put_slice(b"\r\n");
}

/// Splits headers into the lines of stamps at their front, and the rest. Unreadable stamp lines belong to the stamps.
fn split(headers: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    while let Some(rest) = headers.get(at..).filter(|rest| is_stamped(rest)) {
        at += rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
    }
    headers.split_at_checked(at).unwrap_or((headers, &[]))
}

/// Returns the stamps at the front of headers, at most [`STAMPS_MAX`] of them; unreadable lines are skipped.
pub fn stamps(headers: &[u8]) -> impl Iterator<Item = QueueStamp<'_>> {
    let lines = split(headers).0.split_inclusive(|byte| *byte == b'\n');
    lines.take(STAMPS_MAX).filter_map(|line| read(line.strip_prefix(BEGIN)?.strip_suffix(b"\r\n")?))
}

fn read(line: &[u8]) -> Option<QueueStamp<'_>> {
    let mut words = line.split(|byte| *byte == b' ');
    let epoch = read_epoch(words.next()?)?;
    let name = words.next().filter(|name| !name.is_empty())?;
    let publisher = match words.next() {
        Some(word) => Some(read_epoch(word)?),
        None => None,
    };
    words.next().is_none().then_some(QueueStamp { epoch, name, publisher })
}

fn read_epoch(word: &[u8]) -> Option<Epoch> {
    let text = std::str::from_utf8(word).ok().filter(|text| text.len() == 16 && !text.starts_with('+'))?;
    Epoch::new(u64::from_str_radix(text, 16).ok()?)
}

/// Returns the bytes of the stamps at the front of headers.
pub fn stamp_bytes(headers: &[u8]) -> usize {
    split(headers).0.len()
}

/// Returns the headers as they were published: without the stamps at their front.
pub fn unstamped(headers: &Headers) -> Headers {
    let bytes = stamp_bytes(headers.block());
    Headers::from_block(headers.block().slice(bytes..))
}

/// Returns the headers that a client may publish: all but the lines that name the field of stamps.
pub fn without_field(headers: &[u8]) -> Cow<'_, [u8]> {
    let names = |line: &&[u8]| line.get(..KEY.len()).is_some_and(|key| key.eq_ignore_ascii_case(KEY));
    let lines = || headers.split_inclusive(|byte| *byte == b'\n');
    match lines().any(|line| names(&line)) {
        true => lines().filter(|line| !names(line)).flatten().copied().collect::<Vec<u8>>().into(),
        false => headers.into(),
    }
}

/// Returns a block of headers with these stamps before it.
pub fn stamped(stamps: &[(Epoch, &Queue)], publisher: Option<Epoch>, headers: &[u8]) -> Vec<u8> {
    let mut block = Vec::with_capacity(headers.len() + stamps.len() * 64);
    stamps.iter().for_each(|(epoch, queue)| put_stamp(&mut block, *epoch, queue, publisher));
    block.extend_from_slice(headers);
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn epoch(bits: u64) -> Epoch {
        Epoch::new(bits).unwrap()
    }

    /// Proves: W150
    #[test]
    fn stamps_round_trip_and_leave_headers_unchanged() {
        let (q, r): (Queue, Queue) = ("q".parse().unwrap(), "räte".parse().unwrap());
        let headers = b"a: b\r\nc: d\r\n";
        let block = stamped(&[(epoch(1), &q), (epoch(0xab), &r)], None, headers);
        let text = "Seqcast-Queue: 0000000000000001 q\r\nSeqcast-Queue: 00000000000000ab räte\r\na: b\r\nc: d\r\n";
        assert_eq!(block, text.as_bytes());
        let found: Vec<_> = stamps(&block).collect();
        let stamp = |bits, name, publisher| QueueStamp { epoch: epoch(bits), name, publisher };
        assert_eq!(found, [stamp(1, &b"q"[..], None), stamp(0xab, "räte".as_bytes(), None)]);
        assert_eq!(unstamped(&Headers::from_block(block.into())).block(), &headers[..]);
        let redirected = stamped(&[(epoch(1), &q)], Some(epoch(7)), b"");
        assert_eq!(stamps(&redirected).collect::<Vec<_>>(), [stamp(1, b"q", Some(epoch(7)))]);
        assert!(unstamped(&Headers::from_block(redirected.into())).is_empty());
    }

    /// Proves: W150
    #[test]
    fn malformed_stamp_is_ignored_and_removed() {
        let bad = [
            "Seqcast-Queue: 1 q\r\n",
            "Seqcast-Queue: 0000000000000000 q\r\n",
            "Seqcast-Queue: +000000000000001 q\r\n",
            "Seqcast-Queue: 0000000000000001\r\n",
            "Seqcast-Queue: 0000000000000001 \r\n",
            "Seqcast-Queue: 0000000000000001 q q\r\n",
            "Seqcast-Queue: 0000000000000001 q 0000000000000002 r\r\n",
            "Seqcast-Queue: 0000000000000001 q\n",
            "Seqcast-Queue: ",
        ];
        for text in bad {
            assert_eq!(stamps(text.as_bytes()).count(), 0, "{text:?}");
            assert_eq!(stamp_bytes(text.as_bytes()), text.len(), "{text:?}");
        }
        for text in
            ["", "a: b\r\n", "seqcast-queue: 0000000000000001 q\r\n", "a: b\r\nSeqcast-Queue: 0000000000000001 q\r\n"]
        {
            assert_eq!((stamps(text.as_bytes()).count(), stamp_bytes(text.as_bytes())), (0, 0), "{text:?}");
        }
        let q: Queue = "q".parse().unwrap();
        let many = stamped(&vec![(epoch(1), &q); 100], None, b"a: b\r\n");
        assert_eq!(stamps(&many).count(), STAMPS_MAX);
        assert_eq!(unstamped(&Headers::from_block(many.into())).block(), &b"a: b\r\n"[..]);
    }

    /// Proves: W149
    #[test]
    fn stamp_field_of_a_client_is_removed() {
        let cases = [
            ("", ""),
            ("a: b\r\n", "a: b\r\n"),
            ("Seqcast-Queue: 0000000000000001 q\r\na: b\r\n", "a: b\r\n"),
            ("a: b\r\nSEQCAST-queue : x\r\nc: d\r\n", "a: b\r\nc: d\r\n"),
            ("a: b\r\nseqcast-queue", "a: b\r\n"),
            ("a: seqcast-queue\r\n", "a: seqcast-queue\r\n"),
        ];
        for (given, left) in cases {
            assert_eq!(without_field(given.as_bytes()), left.as_bytes(), "{given:?}");
        }
    }

    #[test]
    fn arbitrary_header_bytes_are_parsed_safely() {
        let mut rng = Rng::new(1);
        let parts = [
            &b"Seqcast-Queue: "[..],
            b"0000000000000001",
            b" ",
            b"q",
            b"\r\n",
            b"\n",
            b"\r",
            b"\xff",
            b"seqcast-queue",
        ];
        for _ in 0..20_000 {
            let block: Vec<u8> =
                (0..rng.below(12)).flat_map(|_| parts[rng.below(parts.len() as u64) as usize]).copied().collect();
            let bytes = stamp_bytes(&block);
            assert!(!is_stamped(&block[bytes..]));
            assert!(stamps(&block).count() <= bytes);
            assert!(!is_stamped(&without_field(&block)));
        }
    }
}
