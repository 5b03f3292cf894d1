//! The last message of each gateway on each subject, by which repeated messages are detected.
//!
//! Each certificate has room of its own, so that no host of the realm makes a gateway forget the messages of another one.

use super::CERTIFICATES_MAX;
use crate::security::batch_signature::CertificateId;
use crate::subject::Subject;
use lru::LruCache;

/// Maximum number of runs and subjects of a certificate: a gateway that relays events of 1,024 servers uses up to 3,600.
const POSITIONS_MAX: usize = 4096;
/// Maximum number of positions of all certificates, beyond which each certificate has [`FEW_POSITIONS`].
const ALL_POSITIONS_MAX: usize = 65_536;
const FEW_POSITIONS: usize = 64;

/// Position of a message: the time of its batch in microseconds, and its index in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BatchPosition {
    pub(super) time_micros: u64,
    pub(super) index: u8,
}

/// Run of a gateway and subject, within which positions ascend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RunSubject {
    pub(super) run: u64,
    pub(super) subject: Subject,
}

/// The positions of a certificate.
#[derive(Debug)]
struct CertificatePositions {
    last: LruCache<RunSubject, BatchPosition>,
    /// The highest position that was forgotten. Unknown runs and subjects begin behind it.
    floor: Option<BatchPosition>,
}

/// The positions of all certificates.
#[derive(Debug)]
pub(super) struct ReplayPositions {
    certificates: LruCache<CertificateId, CertificatePositions>,
    count: usize,
}

impl ReplayPositions {
    /// Creates a table without positions.
    pub(super) fn new() -> ReplayPositions {
        ReplayPositions { certificates: LruCache::unbounded(), count: 0 }
    }

    /// Returns whether a position is behind that of the last message.
    pub(super) fn is_new(&self, certificate: &CertificateId, key: &RunSubject, position: BatchPosition) -> bool {
        let Some(known) = self.certificates.peek(certificate) else { return true };
        known.last.peek(key).copied().or(known.floor).is_none_or(|last| last < position)
    }

    /// Notes the position of a message.
    pub(super) fn put(&mut self, certificate: CertificateId, key: RunSubject, position: BatchPosition) {
        if self.certificates.get(&certificate).is_none() {
            if CERTIFICATES_MAX.get() <= self.certificates.len()
                && let Some((_, forgotten)) = self.certificates.pop_lru()
            {
                self.count -= forgotten.last.len();
            }
            let positions = CertificatePositions { last: LruCache::unbounded(), floor: None };
            self.certificates.put(certificate, positions);
        }
        let Some(known) = self.certificates.get_mut(&certificate) else { return };
        let limit = if self.count < ALL_POSITIONS_MAX { POSITIONS_MAX } else { FEW_POSITIONS };
        let before = known.last.len();
        known.last.put(key, position);
        if limit < known.last.len()
            && let Some((_, forgotten)) = known.last.pop_lru()
        {
            known.floor = known.floor.max(Some(forgotten));
        }
        self.count = self.count + known.last.len() - before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(run: u64, number: usize) -> RunSubject {
        RunSubject { run, subject: format!("_SEQCAST.LINK.REQUEST.s{number}").parse().unwrap() }
    }

    fn position(time_micros: u64) -> BatchPosition {
        BatchPosition { time_micros, index: 0 }
    }

    fn certificate(number: usize) -> CertificateId {
        CertificateId::of(&(number as u64).to_be_bytes())
    }

    #[test]
    fn certificates_do_not_displace_each_other() {
        let mut positions = ReplayPositions::new();
        positions.put(certificate(0), key(1, 0), position(5));
        for number in 0..3 * POSITIONS_MAX {
            positions.put(certificate(1), key(1, number), position(number as u64));
        }
        assert!(!positions.is_new(&certificate(0), &key(1, 0), position(5)));
        assert!(positions.is_new(&certificate(0), &key(1, 0), position(6)));
        assert!(positions.is_new(&certificate(0), &key(1, 1), position(1)), "it is unknown");
        assert_eq!(positions.count, POSITIONS_MAX + 1);
    }

    #[test]
    fn forgotten_messages_cannot_be_repeated() {
        let mut positions = ReplayPositions::new();
        for number in 0..2 * POSITIONS_MAX {
            positions.put(certificate(1), key(1, number), position(1_000 + number as u64));
        }
        for number in 0..2 * POSITIONS_MAX {
            let repeated = position(1_000 + number as u64);
            assert!(!positions.is_new(&certificate(1), &key(1, number), repeated), "{number}");
        }
        let next = position(1_000 + 2 * POSITIONS_MAX as u64);
        assert!(positions.is_new(&certificate(1), &key(2, 0), next));
    }

    #[test]
    fn many_certificates_have_few_positions_each() {
        let mut positions = ReplayPositions::new();
        for number in 0..1_500 {
            for subject in 0..100 {
                positions.put(certificate(number), key(1, subject), position(subject as u64));
            }
        }
        assert!(positions.count <= ALL_POSITIONS_MAX + CERTIFICATES_MAX.get() * FEW_POSITIONS, "{}", positions.count);
        let counted: usize = positions.certificates.iter().map(|(_, known)| known.last.len()).sum();
        assert_eq!((counted, positions.certificates.len()), (positions.count, CERTIFICATES_MAX.get()));
    }
}
