//! PUBLISH RUN: one frame with many messages that have only a subject and a payload, so that each message costs little.
//!
//! ```text
//! item  = subject bytes u8 (0: same as the previous item) · subject · payload bytes (varint) · payload
//! frame = length u32 · kind = 0x08 · one or more items
//! ```

use crate::listener::codec::{FrameError, LENGTH_BYTES, put_bytes8};
use crate::subject::{SUBJECT_BYTES_MAX, Subject};
use crate::wire::{Reader, Run, put_varint, varint_bytes};
use bytes::{BufMut, Bytes, BytesMut};
use std::ops::Range;

pub(crate) const PUBLISH_RUN: u8 = 0x08;

/// Maximum size of a PUBLISH RUN frame, in bytes after the length field. It bounds the work that one frame causes
/// before the peer serves other clients: 32,767 messages.
pub const RUN_BYTES_MAX: usize = 64 * 1024;

/// Maximum payload of a message that is packed with others, in bytes. The overhead of a separate frame is small for a
/// larger payload.
const PACKED_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(2 + SUBJECT_BYTES_MAX + 4 + PACKED_BYTES_MAX < RUN_BYTES_MAX, "an empty frame takes any item");

/// Decoded messages with only a subject and a payload, some of which are not published yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishRun {
    /// The items, all validated by `decode`.
    items: Bytes,
    /// Offset of the next item, in bytes.
    next: usize,
    /// Subject of the previous item, or of the first item before any is published.
    subject: Subject,
}

impl PublishRun {
    /// Decodes and validates all items of a frame without its kind byte.
    pub(crate) fn decode(items: Bytes) -> Result<PublishRun, FrameError> {
        if RUN_BYTES_MAX <= items.len() {
            return Err(FrameError::TooLong { bytes: 1 + items.len() as u64, bytes_max: RUN_BYTES_MAX });
        }
        let mut reader = Reader::new(&items);
        let mut first: Option<Subject> = None;
        while first.is_none() || !reader.is_done() {
            let subject_bytes = usize::from(reader.u8()?);
            let subject = reader.span(subject_bytes)?;
            match &first {
                None => first = Some(Subject::from_bytes(reader.slice(subject))?),
                Some(_) if subject.is_empty() => {}
                Some(_) => drop(Subject::from_bytes(reader.slice(subject))?),
            }
            let payload_bytes = reader.varint()?;
            reader.span(payload_bytes)?;
        }
        let subject = first.ok_or(FrameError::Short)?;
        Ok(PublishRun { items, next: 0, subject })
    }

    /// Returns the number of bytes of the messages that are left: none has a larger payload.
    pub fn remaining_bytes(&self) -> usize {
        self.items.len() - self.next
    }

    /// Takes the following messages with the present subject, as one run without numbers: `None` if there are none.
    pub fn take_run(&mut self) -> Option<Run> {
        let (start, mut count, mut bytes) = (self.next, 0, 0);
        while let Some((subject, entry, _)) = self.next_item() {
            if !subject.is_empty() && self.items.get(subject) != Some(self.subject.as_bytes()) {
                break;
            }
            self.next = entry.end;
            bytes += entry.len();
            count += 1;
        }
        if count == 0 {
            return None;
        }
        // A queue may keep the run for long, so it has no more memory than it needs.
        let mut entries = BytesMut::with_capacity(bytes);
        self.next = start;
        for _ in 0..count {
            let (_, entry, _) = self.next_item().expect("the items were counted");
            self.next = entry.end;
            entries.put_slice(self.items.get(entry).expect("decode has checked the range"));
        }
        Some(Run::of_packed(self.subject.clone(), None, count, entries.freeze()))
    }

    /// Returns the locations of the next item: of its subject, of the entry of a run that it contains, and of its
    /// payload.
    #[inline]
    fn next_item(&self) -> Option<(Range<usize>, Range<usize>, Range<usize>)> {
        let &subject_bytes = self.items.get(self.next)?;
        let mut reader = Reader::at(&self.items, self.next + 1);
        let mut read_item = || {
            let subject = reader.span(usize::from(subject_bytes))?;
            let payload_bytes = reader.varint()?;
            Ok::<_, crate::wire::DecodeError>((subject, reader.span(payload_bytes)?))
        };
        let (subject, payload) = read_item().expect("decode has checked every item");
        Some((subject.clone(), subject.end..payload.end, payload))
    }

    /// Passes the next message to `publish`, and returns what `publish` does: after false the message remains the next
    /// one. `None`: no message is left.
    #[inline]
    pub fn publish_next(&mut self, publish: impl FnOnce(&Subject, &[u8]) -> bool) -> Option<bool> {
        let (subject, _, payload) = self.next_item()?;
        if !subject.is_empty() && self.items.get(subject.clone()) != Some(self.subject.as_bytes()) {
            self.subject = Subject::from_bytes(self.items.slice(subject)).expect("decode has checked every subject");
        }
        let end = payload.end;
        let is_published = publish(&self.subject, self.items.get(payload).expect("decode has checked the range"));
        if is_published {
            self.next = end;
        }
        Some(is_published)
    }

    /// Replaces the subject with `subject` if the two are equal, so that both share one allocation.
    /// `Subject::is_same` recognizes such subjects without a comparison of their bytes.
    pub(crate) fn share_subject(&mut self, subject: &Subject) {
        if *subject == self.subject {
            self.subject = subject.clone();
        }
    }

    /// Returns the subject of the message before the next one, or of the first message.
    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Appends the kind and the body of a frame with the remaining items. At least one item must remain.
    pub(crate) fn put(&self, out: &mut BytesMut) {
        out.put_u8(PUBLISH_RUN);
        match self.items.get(self.next..) {
            Some([0, rest @ ..]) => {
                put_bytes8(out, self.subject.as_bytes());
                out.put_slice(rest);
            }
            rest => out.put_slice(rest.unwrap_or_default()),
        }
    }
}

/// Builder for the PUBLISH RUN frame at the end of a buffer. It packs messages that are written together.
#[derive(Debug, Default)]
pub struct PublishRunBuilder {
    /// Start offset of the open frame and the subject of its last item.
    open: Option<(usize, Subject)>,
}

impl PublishRunBuilder {
    /// Returns whether a payload of `payload_bytes` bytes is packed with others.
    pub fn packs(payload_bytes: usize) -> bool {
        payload_bytes <= PACKED_BYTES_MAX
    }

    /// Appends a message to the open frame at the end of `out`, or begins a new frame there.
    pub fn push(&mut self, out: &mut BytesMut, subject: &Subject, payload: &[u8]) {
        let item_bytes = 1 + subject.as_bytes().len() + varint_bytes(payload.len()) + payload.len();
        if let Some((start, _)) = self.open
            && LENGTH_BYTES + RUN_BYTES_MAX < out.len() - start + item_bytes
        {
            self.open = None;
        }
        out.reserve(LENGTH_BYTES + 1 + item_bytes);
        let (start, is_repeated) = match &self.open {
            Some((start, recent)) => (*start, recent.is_same(subject) || recent == subject),
            None => {
                let start = out.len();
                out.put_u32(0);
                out.put_u8(PUBLISH_RUN);
                (start, false)
            }
        };
        if is_repeated {
            out.put_u8(0);
        } else {
            put_bytes8(out, subject.as_bytes());
            self.open = Some((start, subject.clone()));
        }
        put_varint(out, payload.len());
        out.put_slice(payload);
        let bytes = u32::try_from(out.len() - start - LENGTH_BYTES).expect("at most RUN_BYTES_MAX");
        out[start..start + LENGTH_BYTES].copy_from_slice(&bytes.to_be_bytes());
    }

    /// Closes the open frame. The caller must close it before it appends other data to the buffer or passes the
    /// buffer on.
    pub fn close(&mut self) {
        self.open = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::frame::ClientFrame;
    use crate::rng::Rng;
    use crate::subject::SubjectError;
    use crate::wire;

    fn frames(mut bytes: Bytes) -> Vec<Bytes> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let length = u32::from_be_bytes(bytes.split_to(LENGTH_BYTES)[..].try_into().unwrap());
            frames.push(bytes.split_to(usize::try_from(length).unwrap()));
        }
        frames
    }

    fn published(mut run: PublishRun, mut patience: impl FnMut() -> bool) -> Vec<(String, Vec<u8>)> {
        let mut published = Vec::new();
        // A message that is not taken is the next one again.
        while run
            .publish_next(|subject, payload| {
                let takes = patience();
                if takes {
                    published.push((subject.to_string(), payload.to_vec()));
                }
                takes
            })
            .is_some()
        {}
        published
    }

    #[test]
    fn backpressured_run_is_published_in_order() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let subjects: Vec<Subject> = (0..rng.between(1, 4)).map(|n| format!("s.{n}").parse().unwrap()).collect();
            let (mut out, mut open, mut expected) = (BytesMut::new(), PublishRunBuilder::default(), Vec::new());
            for _ in 0..3000 {
                let subject = &subjects[usize::try_from(rng.below(subjects.len() as u64)).unwrap()];
                let size = if rng.chance(0.05) { rng.below(PACKED_BYTES_MAX as u64 + 1) } else { rng.below(200) };
                let payload = vec![rng.next_u32() as u8; usize::try_from(size).unwrap()];
                open.push(&mut out, subject, &payload);
                expected.push((subject.to_string(), payload));
                if rng.chance(0.01) {
                    open.close();
                }
            }
            let mut found = Vec::new();
            for frame in frames(out.freeze()) {
                assert!(frame.len() <= RUN_BYTES_MAX, "{}", frame.len());
                let Ok(ClientFrame::PublishRun(mut run)) = ClientFrame::decode(frame) else { panic!("a run") };
                let mut left = rng.below(50);
                let mut take = |subject: &Subject, payload: &[u8]| {
                    let takes = 0 < left;
                    if takes {
                        left -= 1;
                        found.push((subject.to_string(), payload.to_vec()));
                    }
                    takes
                };
                while run.publish_next(&mut take) == Some(true) {}
                if left == 0 && run.next < run.items.len() {
                    let mut rest = BytesMut::new();
                    run.put(&mut rest);
                    let Ok(ClientFrame::PublishRun(rest)) = ClientFrame::decode(rest.freeze()) else { panic!("a run") };
                    assert_eq!(published(rest, || true), published(run.clone(), || true));
                }
                found.extend(published(run, || rng.chance(0.9)));
            }
            assert_eq!(found, expected, "seed {seed}");
        }
    }

    #[test]
    fn messages_of_one_subject_are_taken_together() {
        let subjects: [Subject; 2] = ["a", "b"].map(|text| text.parse().unwrap());
        let (mut out, mut open, mut expected) = (BytesMut::new(), PublishRunBuilder::default(), Vec::new());
        for index in [0, 0, 0, 1, 0, 1, 1usize] {
            let payload = vec![expected.len() as u8; 100 * expected.len()];
            open.push(&mut out, &subjects[index], &payload);
            expected.push((subjects[index].to_string(), payload));
        }
        let Ok(ClientFrame::PublishRun(mut run)) = ClientFrame::decode(out.freeze().split_off(LENGTH_BYTES)) else {
            panic!("a run")
        };
        let (mut found, mut counts) = (Vec::new(), Vec::new());
        loop {
            if let Some(taken) = run.take_run() {
                assert_eq!((taken.first, taken.stamp, taken.has_meta()), (None, None, false));
                counts.push(taken.count);
                found.extend(taken.messages().map(|message| (message.subject.to_string(), message.payload.to_vec())));
            }
            assert_eq!(run.take_run(), None, "the next message has another subject");
            let next = run.publish_next(|subject, payload| {
                found.push((subject.to_string(), payload.to_vec()));
                true
            });
            if next.is_none() {
                break;
            }
        }
        assert_eq!((found, counts), (expected, vec![3, 1]));
        assert_eq!(run.remaining_bytes(), 0);
    }

    #[test]
    fn short_run_has_memory_for_itself_alone() {
        let subjects: [Subject; 2] = ["a", "b"].map(|text| text.parse().unwrap());
        let (mut out, mut open) = (BytesMut::new(), PublishRunBuilder::default());
        open.push(&mut out, &subjects[0], &[1; 100]);
        open.push(&mut out, &subjects[1], &[2; PACKED_BYTES_MAX]);
        let Ok(ClientFrame::PublishRun(mut run)) = ClientFrame::decode(out.freeze().split_off(LENGTH_BYTES)) else {
            panic!("a run")
        };
        let message = run.take_run().unwrap().into_messages().next().unwrap();
        assert_eq!(message.payload.try_into_mut().unwrap().capacity(), 100);
    }

    #[test]
    fn malformed_run_is_refused_as_a_whole() {
        let truncated = FrameError::Run(wire::DecodeError::Truncated);
        for (items, expected) in [
            (&b""[..], truncated.clone()),
            (b"\0\0", FrameError::Subject(SubjectError::Empty)),
            (b"\x01*\0", FrameError::Subject(SubjectError::Wildcard)),
            (b"\x01a\x01", truncated.clone()),
            (b"\x01a\0\x02b.\0", FrameError::Subject(SubjectError::EmptyToken(2))),
            (b"\x01a\0\0\xff\xff\xff\x7f", truncated.clone()),
            (b"\x01a\x80\0", FrameError::Run(wire::DecodeError::Varint)),
            (b"\x01a\0\0", truncated),
        ] {
            assert_eq!(PublishRun::decode(Bytes::from_static(items)), Err(expected), "{items:?}");
        }
        let mut long = b"\x01a".to_vec();
        long.resize(RUN_BYTES_MAX, 0);
        assert!(matches!(PublishRun::decode(long.clone().into()), Err(FrameError::TooLong { .. })));
        long.truncate(RUN_BYTES_MAX - 1);
        let most = PublishRun::decode(long.into()).map(|run| published(run, || true).len());
        assert_eq!(most, Ok(32_767), "a first message of three bytes, then as many of two as fit");
    }
}
