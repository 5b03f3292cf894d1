//! Quarantine of datagrams whose numbers jump implausibly far (A10).

use crate::message::Dseq;
use crate::wire::{Header, Record};

/// Largest plausible jump of a datagram number with nothing in between (A10).
pub const JUMP_MAX: u64 = 1 << 20;

/// Verdict on the highest number of a datagram.
#[derive(Clone, Debug)]
pub enum JumpVerdict {
    /// The number is plausible, or it confirms an earlier jump, whose data is accepted first.
    Plausible(Option<(Header, Vec<Record>)>),
    /// The number is an implausible jump: the datagram waits for a second one.
    Quarantined,
}

/// A jump that waits until a second datagram confirms it.
#[derive(Clone, Debug)]
pub struct Quarantine {
    /// Datagram number after the jump.
    pub number: u64,
    /// The datagram, if it carries data.
    pub data: Option<(Header, Vec<Record>)>,
}

impl Quarantine {
    /// Checks the highest number `high` of a datagram against the highest `known` of its stream. An implausible
    /// datagram waits in `quarantine`, with its `records` if it carries data, until a second datagram confirms it.
    pub fn check(
        quarantine: &mut Option<Quarantine>,
        known: Dseq,
        header: &Header,
        high: Dseq,
        records: Option<&Vec<Record>>,
    ) -> JumpVerdict {
        if is_plausible(known, high) {
            if known <= high {
                *quarantine = None;
            }
            return JumpVerdict::Plausible(None);
        }
        // Rule: quarantine
        match quarantine.take() {
            Some(Quarantine { number, data })
                if number <= high.0 && high.0 - number <= JUMP_MAX && (records.is_none() || number < high.0) =>
            {
                JumpVerdict::Plausible(data)
            }
            _ => {
                let data = records.map(|records| (*header, records.clone()));
                *quarantine = Some(Quarantine { number: high.0, data });
                JumpVerdict::Quarantined
            }
        }
    }
}

/// Returns whether a datagram is at most [`JUMP_MAX`] above the highest `known` of its stream, so that it needs no
/// confirmation by a second one (A10).
pub fn is_plausible(known: Dseq, dseq: Dseq) -> bool {
    dseq.0.saturating_sub(known.0) <= JUMP_MAX
}
