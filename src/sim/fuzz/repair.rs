//! Malformed and false repair records that no honest peer sends: requests, manifests, reports of expiry, and
//! advertisements and requests of subscriptions.

use super::script::Script;
use crate::message::{Dseq, Epoch, SubscriptionFilter};
use crate::seqno::{Frame, Seq};
use crate::subject::Subject;
use crate::subject::glob::Glob;
use crate::wire::{
    Content, ContentKind, ExpiryNotice, Interest, InterestEntry, InterestRequest, Manifest, NUMBER_LIMIT, Range,
    Record, ResendRequest,
};

/// Returns the record that a script encodes. `ours` is the epoch of the peer under test. `last` is the number of the
/// last datagram that the sender of the record sent, and of messages begun up to it. `subjects` are those that the
/// record may name.
pub(super) fn record(script: &mut Script<'_>, ours: Epoch, last: (u64, u64), subjects: &[&str]) -> Record {
    let is_ours = script.u8() < 0xe0;
    let other = Epoch::new(ours.bits() + 1).expect("not zero");
    let epoch = if is_ours { ours } else { other };
    let flags = script.u8();
    let directed = flags & 1 != 0;
    if flags & 0x40 != 0 {
        return interest(script, epoch, subjects);
    }
    match flags >> 1 & 3 {
        0 | 1 => {
            let manifests_only = !directed && flags & 8 != 0;
            Record::ResendRequest(ResendRequest {
                epoch,
                directed,
                manifests_only,
                unicast: flags & 16 != 0,
                ranges: ranges(script, 1),
            })
        }
        2 => {
            Record::Expired(ExpiryNotice { receiver: directed.then_some(epoch), ranges: ranges(script, last.0.max(1)) })
        }
        _ => Record::Manifest(manifest(script, last, subjects)),
    }
}

/// Returns a record that advertises or requests subscriptions.
fn interest(script: &mut Script<'_>, epoch: Epoch, subjects: &[&str]) -> Record {
    const VERSIONS: [u64; 6] = [0, 1, 2, 5, 1 << 40, NUMBER_LIMIT - 2];
    let after = script.choose(&VERSIONS);
    let shape = script.u8();
    if shape & 0x80 != 0 {
        return Record::InterestRequest(InterestRequest { epoch, from: after, base: script.choose(&VERSIONS) });
    }
    let upto = (after + 1 + u64::from(shape & 3)).min(NUMBER_LIMIT - 1);
    let high = upto.max(script.choose(&VERSIONS));
    let entry = |script: &mut Script<'_>| {
        let kind = script.u8();
        let pattern = if kind & 1 != 0 { ">" } else { script.choose(subjects) };
        let glob = (kind & 2 != 0).then(|| Glob::new(&[b'[', kind, b'*']).expect("a short glob"));
        let queue = (kind & 4 != 0).then(|| "q".parse().expect("a name"));
        let pattern = pattern.parse().expect("a pattern");
        InterestEntry {
            wanted: SubscriptionFilter { pattern, glob, queue },
            count: script.choose(&[0, 1, 1, 2, 1 << 20]),
        }
    };
    let base = if shape & 4 != 0 { script.choose(&VERSIONS).min(high) } else { 0 };
    let entries = (0..script.u8() % 5).map(|_| entry(script)).collect();
    Record::Interest(Interest { after, upto, high, base, entries })
}

/// Returns one to four ranges from about `from` on: short ones, and some up to the end of all numbers.
fn ranges(script: &mut Script<'_>, from: u64) -> Vec<Range> {
    let mut next = from.saturating_sub(u64::from(script.u8() % 16)).max(1);
    let mut ranges = Vec::new();
    for _ in 0..=script.u8() % 4 {
        let first = next + u64::from(script.u8() % 4);
        let span = script.choose(&[0, 0, 1, 3, 20, 5_000, 1 << 30]);
        let last = if 0xfc <= script.u8() { NUMBER_LIMIT - 1 } else { first + span };
        if last < first || NUMBER_LIMIT <= last {
            break;
        }
        ranges.push(Range { first: Dseq(first), last: Dseq(last) });
        next = last + 2;
    }
    if ranges.is_empty() {
        ranges.push(Range { first: Dseq(1), last: Dseq(1) });
    }
    ranges
}

/// Returns a manifest that claims some content for datagrams around the last one.
fn manifest(script: &mut Script<'_>, (high, count): (u64, u64), subjects: &[&str]) -> Manifest {
    let back = u64::from(script.u8() % 8);
    let first = (high + 1).saturating_sub(back).max(1);
    let before = count.saturating_sub(u64::from(script.u8() % 8)).min(NUMBER_LIMIT - 1);
    let datagrams = (0..=script.u8() % 4).map(|_| (0..script.u8() % 4).map(|_| content(script, subjects)).collect());
    Manifest { first: Dseq(first.min(NUMBER_LIMIT - 64)), before, datagrams: datagrams.collect() }
}

fn content(script: &mut Script<'_>, subjects: &[&str]) -> Content {
    let subject: Subject = script.choose(subjects).parse().expect("a subject");
    let shape = script.u8();
    let frame = Frame::new(1_000 + u32::from(shape % 4)).expect("a small frame");
    let number = script.choose(&[1, 1, 2, 3, 4, 60]);
    let seq = Seq::from_parts(frame, number).filter(|_| shape & 0x80 == 0);
    let chain = Frame::new(999).and_then(|frame| Seq::from_parts(frame, 3));
    let chain = chain.filter(|_| shape & 0x40 != 0 && seq.is_some() && number == 1);
    let kind = match shape & 0x20 != 0 {
        true => ContentKind::Part { index: u32::from(script.u8() % 5), total: 3_000 },
        false => ContentKind::Run { count: 1 + u16::from(script.u8() % 6) },
    };
    Content { subject, seq, chain, event: shape & 0x10 != 0, kind }
}
