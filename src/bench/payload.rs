//! Payloads that no two messages share, and the account of those that were received.
//!
//! A payload begins with the number of its message, then optionally its due time; the number determines every further
//! byte. So the receiver knows which message it has, and that it is intact.

use std::collections::BTreeMap;

/// Length of the number, in bytes.
pub const NUMBER_BYTES: usize = 8;
/// Length of the number and the time, in bytes.
pub const STAMPED_BYTES: usize = 16;
/// Odd numbers with bits all over, so that neighbours differ in all their bytes.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const STEP: u64 = 0xd1b5_4a32_d192_ed03;
/// Maximum number of faults that are reported; the others are counted.
const FAULTS_MAX: usize = 10;

/// Returns the first of the words that a number determines; each further one is [`STEP`] more. Nothing is checked for
/// overflow, so that the compiler can make several at once.
fn first_word(number: u64) -> u64 {
    number.wrapping_mul(SPREAD)
}

/// Writes the payload of message `number`; it contains `stamp`, its due time in nanoseconds, if there is one. The
/// payload has at least [`NUMBER_BYTES`], or [`STAMPED_BYTES`] with a stamp.
pub fn fill(payload: &mut [u8], number: u64, stamp: Option<u64>) {
    let (head, body) = payload.split_at_mut(if stamp.is_some() { STAMPED_BYTES } else { NUMBER_BYTES });
    head[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
    if let Some(stamp) = stamp {
        head[NUMBER_BYTES..].copy_from_slice(&stamp.to_le_bytes());
    }
    let (words, rest) = body.as_chunks_mut::<8>();
    let mut word = first_word(number);
    for chunk in words {
        *chunk = word.to_le_bytes();
        word = word.wrapping_add(STEP);
    }
    // Most lengths leave no rest, and even a copy of nothing is a call.
    if !rest.is_empty() {
        let bytes = rest.len();
        rest.copy_from_slice(&word.to_le_bytes()[..bytes]);
    }
}

/// Returns the number and, if it has one, the stamp of a payload; `None` if it is damaged.
pub fn read(payload: &[u8], is_stamped: bool) -> Option<(u64, u64)> {
    let (head, body) = payload.split_at_checked(if is_stamped { STAMPED_BYTES } else { NUMBER_BYTES })?;
    let (head, _) = head.as_chunks::<8>();
    let number = u64::from_le_bytes(head[0]);
    let stamp = if is_stamped { u64::from_le_bytes(head[1]) } else { 0 };
    let (words, rest) = body.as_chunks::<8>();
    let (mut word, mut differing) = (first_word(number), 0);
    for chunk in words {
        differing |= u64::from_le_bytes(*chunk) ^ word;
        word = word.wrapping_add(STEP);
    }
    let is_whole = differing == 0 && (rest.is_empty() || rest == &word.to_le_bytes()[..rest.len()]);
    is_whole.then_some((number, stamp))
}

/// A generator of payloads, which reuses one buffer.
#[derive(Debug)]
pub struct PayloadGenerator {
    payload: Vec<u8>,
    is_stamped: bool,
    /// Number of the next payload.
    next: u64,
}

impl PayloadGenerator {
    /// Creates a generator of payloads of `bytes` bytes, numbered from 0.
    pub fn new(bytes: usize, is_stamped: bool) -> PayloadGenerator {
        PayloadGenerator { payload: vec![0; bytes], is_stamped, next: 0 }
    }

    /// Makes the next payload, due at `due` (nanoseconds).
    pub fn make(&mut self, due: u64) {
        fill(&mut self.payload, self.next, self.is_stamped.then_some(due));
        self.next += 1;
    }

    /// Makes the next payload in this memory.
    pub fn make_in(&mut self, payload: &mut [u8], due: u64) {
        fill(payload, self.next, self.is_stamped.then_some(due));
        self.next += 1;
    }

    /// Returns the last payload made.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}

/// Checks that each message arrives once, intact, and in the order of its subject.
///
/// Message `n` is on subject `n` modulo the number of subjects. With one subject a message that arrives after a later
/// one is a fault. With several it may be one that was repaired while other subjects advanced.
#[derive(Debug)]
pub struct SequenceChecker {
    subjects: u64,
    /// One more than the highest received number.
    next: u64,
    /// Missing numbers below that: first and end of each gap.
    gaps: BTreeMap<u64, u64>,
    /// Number of messages received.
    pub received: u64,
    faults: Vec<String>,
    faults_more: u64,
}

/// Number of subjects above that of the messages: each may arrive before or after any other.
pub const ANY_ORDER: u64 = 1 << 62;

impl SequenceChecker {
    /// Creates a checker of messages on `subjects` subjects in turn.
    pub fn new(subjects: u64) -> SequenceChecker {
        SequenceChecker { subjects, next: 0, gaps: BTreeMap::new(), received: 0, faults: Vec::new(), faults_more: 0 }
    }

    /// Enters a message by the result of [`read`].
    pub fn record(&mut self, number: Option<u64>) {
        let Some(number) = number else { return self.fault(|| "a payload is damaged".to_owned()) };
        self.received += 1;
        if number == self.next {
            self.next += 1;
        } else if self.next < number {
            self.gaps.insert(self.next, number);
            self.next = number + 1;
        } else {
            self.record_overtaken(number);
        }
    }

    fn record_overtaken(&mut self, number: u64) {
        let Some(end) = self.gap_of(number) else {
            return self.fault(|| format!("message {number} arrived twice"));
        };
        let (first, _) =
            self.gaps.range(..=number).next_back().map(|(first, end)| (*first, *end)).expect("it is in a gap");
        self.gaps.remove(&first);
        if first < number {
            self.gaps.insert(first, number);
        }
        if number + 1 < end {
            self.gaps.insert(number + 1, end);
        }
        let mut later = number + self.subjects;
        while later < self.next && self.gap_of(later).is_some() {
            later += self.subjects;
        }
        if later < self.next {
            self.fault(|| format!("message {number} arrived after {later} of the same subject"));
        }
    }

    /// Returns the end of the gap that contains a number.
    fn gap_of(&self, number: u64) -> Option<u64> {
        self.gaps.range(..=number).next_back().map(|(_, end)| *end).filter(|end| number < *end)
    }

    fn fault(&mut self, text: impl FnOnce() -> String) {
        match self.faults.len() < FAULTS_MAX {
            true => self.faults.push(text()),
            false => self.faults_more += 1,
        }
    }

    /// Returns the faults, if any; the last line counts the others.
    pub fn faults(mut self) -> Vec<String> {
        if 0 < self.faults_more {
            self.faults.push(format!("{} more faults", self.faults_more));
        }
        self.faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_payload_is_noticed() {
        for bytes in [8, 9, 15, 16, 17, 64, 1024, 1031] {
            let mut payload = vec![0; bytes];
            for stamp in [None, Some(77)] {
                if bytes < STAMPED_BYTES && stamp.is_some() {
                    continue;
                }
                fill(&mut payload, 3, stamp);
                assert_eq!(read(&payload, stamp.is_some()), Some((3, stamp.unwrap_or(0))), "{bytes}");
                for at in (if stamp.is_some() { STAMPED_BYTES } else { NUMBER_BYTES })..bytes {
                    payload[at] ^= 1;
                    assert_eq!(read(&payload, stamp.is_some()), None, "{bytes}, {at}");
                    payload[at] ^= 1;
                }
            }
        }
        assert_eq!(read(&[0; 7], false), None);
        let mut payloads = PayloadGenerator::new(24, true);
        let numbers: Vec<_> = (0..5000)
            .map(|due| {
                payloads.make(due);
                read(payloads.payload(), true)
            })
            .collect();
        assert!((0..5000).zip(numbers).all(|(number, read)| read == Some((number, number))));
    }

    #[test]
    fn sequence_faults_are_noticed() {
        check(1, &[0, 1, 2], &[]);
        check(1, &[0, 5, 6], &[]);
        check(1, &[0, 1, 1], &["message 1 arrived twice"]);
        check(1, &[0, 2, 1], &["message 1 arrived after 2 of the same subject"]);
        // On two subjects 1 may arrive after 2, but not after 3.
        check(2, &[0, 2, 1, 3], &[]);
        check(2, &[0, 2, 3, 1], &["message 1 arrived after 3 of the same subject"]);
        check(2, &[0, 4, 1, 3, 2, 5], &["message 2 arrived after 4 of the same subject"]);
        check(ANY_ORDER, &[0, 2, 1, 1], &["message 1 arrived twice"]);
        check(10, &[0, 25, 3, 13, 23, 4, 5], &["message 5 arrived after 25 of the same subject"]);
    }

    fn check(subjects: u64, numbers: &[u64], expected: &[&str]) {
        let mut checker = SequenceChecker::new(subjects);
        numbers.iter().for_each(|number| checker.record(Some(*number)));
        assert_eq!(checker.received, numbers.len() as u64);
        assert_eq!(checker.faults(), expected, "{numbers:?}");
    }

    #[test]
    fn only_the_first_faults_are_listed() {
        let mut checker = SequenceChecker::new(1);
        (0..13).for_each(|_| checker.record(None));
        let faults = checker.faults();
        assert_eq!((faults.len(), faults[10].as_str()), (11, "3 more faults"));
    }
}
