//! The counts of a gateway: messages that its LAN or its queue loses, and those that it retains.

use super::super::export::{Export, Exporter, STANDBY_BYTES_MAX};
use super::super::position::StreamPoint;
use super::super::shares::{SHARES, share_of};
use super::{at, epoch};
use crate::message::{Count, Delivery, Message, Publisher, Verdict};
use crate::seqno::{Frame, Seq};
use crate::subject::Subject;
use crate::time::WallTime;

const START: Verdict = Verdict::Start(WallTime::EPOCH);

/// Returns the number `count` of a frame; the frames follow each other.
pub(super) fn seq(frame: u32, count: u64) -> Seq {
    let first = Frame::new(1_000 + frame).unwrap().first();
    first.forward(count - 1).unwrap()
}

/// Returns a message on `plant.1`.
pub(super) fn delivery(seq: Seq, offset: Option<u32>, verdict: Verdict) -> Delivery {
    let publisher = Publisher { name: None, epoch: epoch(77), uid: 1 };
    Delivery { offset, ..Delivery::new(Message::new(subject(), "x"), publisher, Some(seq), verdict) }
}

pub(super) fn subject() -> Subject {
    "plant.1".parse().unwrap()
}

/// Returns the exporting side of a gateway that carries all shares.
pub(super) fn carrier(gateway: u64) -> Exporter {
    let mut exporter = Exporter::new("plant1".parse().unwrap(), epoch(gateway));
    (0..SHARES).for_each(|share| assert_eq!(exporter.take_over(at(0), share), []));
    exporter
}

fn export(exporter: &mut Exporter, seq: Seq, offset: Option<u32>, verdict: Verdict) -> StreamPoint {
    let export = exporter.on_delivery(at(0), &delivery(seq, offset, verdict));
    export.expect("it carries the share").envelope.point
}

#[test]
fn dropped_deliveries_count_as_lost() {
    let mut exporter = carrier(1);
    let first = export(&mut exporter, seq(0, 1), Some(100), START);
    // The queue does not change the verdict of what follows.
    let later = export(&mut exporter, seq(0, 1_001), None, Verdict::Next);
    assert_eq!((first.ordinal, later.ordinal), (1, 1_001));
    assert_eq!(later.position.offset, Some(1_100));
    assert_eq!(later.missing_since(&first), Some(Count::Exact(999)));
    // A loss of the LAN was reported with a delivery that was dropped, too.
    let last = export(&mut exporter, seq(0, 1_011), None, Verdict::Skip(Count::Exact(2)));
    assert_eq!(last.ordinal, 1_011);
    let next_frame = export(&mut exporter, seq(1, 1), Some(1_115), Verdict::Next);
    assert_eq!((next_frame.ordinal, next_frame.position.numbered_from), (1_016, Some(seq(0, 1).frame())));
}

#[test]
fn loss_with_a_range_leaves_the_offset_unknown() {
    for (verdict, lost) in [(Verdict::Skip(Count::Between { min: 1, max: 9 }), 1), (Verdict::Next, 1)] {
        let mut exporter = carrier(1);
        let first = export(&mut exporter, seq(0, 1), Some(100), START);
        let later = export(&mut exporter, seq(1, 2), None, verdict);
        assert_eq!((later.ordinal, later.position.offset), (2 + lost, None), "{verdict:?}");
        // Another gateway has received more of the earlier frame.
        let mut other = carrier(2);
        export(&mut other, seq(0, 1), Some(100), START);
        let of_other = export(&mut other, seq(0, 5), None, Verdict::Next);
        assert_eq!(later.missing_since(&of_other), Some(Count::Between { min: 1, max: u64::MAX }), "{verdict:?}");
        // The next offset that the publisher sends counts again.
        let next = export(&mut exporter, seq(2, 1), Some(108), Verdict::Next);
        assert_eq!(next.position.offset, Some(108));
        assert_eq!(next.missing_since(&first), Some(Count::Exact(1 + lost)));
    }
}

#[test]
fn offset_of_a_new_numbering_is_no_loss() {
    let mut exporter = carrier(1);
    let first = export(&mut exporter, seq(0, 1), Some(100), START);
    // The message with which a new numbering began was dropped.
    let later = export(&mut exporter, seq(2, 1), Some(3_000_000_000), Verdict::Next);
    assert_eq!((later.ordinal, later.position.numbered_from), (2, None));
    assert_eq!(later.missing_since(&StreamPoint { gateway: epoch(2), ..first }).map(Count::min), Some(0));
}

#[test]
fn offset_that_goes_back_bounds_nothing() {
    let mut exporter = carrier(1);
    let first = export(&mut exporter, seq(0, 1), Some(112), START);
    let mut later = export(&mut exporter, seq(1, 1), Some(113), Verdict::Next);
    (later.gateway, later.position.offset) = (epoch(2), Some(110));
    assert_eq!(later.missing_since(&first), Some(Count::Between { min: 0, max: u64::MAX }));
}

#[test]
fn manifest_says_whether_its_share_is_carried() {
    let mut exporter = carrier(1);
    let share = share_of(&subject());
    exporter.release(share);
    while let Some(round) = exporter.poll_round(at(1_000)) {
        assert_eq!(round[0].carries, round[0].share != share);
    }
}

#[test]
fn commands_for_the_servers_stay_local() {
    for (text, crosses) in [("$JS.API.STREAM.DELETE.SEQCAST", false), ("_SEQCAST.x", false), ("a.$JS", true)] {
        let mut delivery = delivery(seq(0, 1), None, START);
        delivery.message = Message::new(text.parse().unwrap(), "");
        let mut exporter = Exporter::new("plant1".parse().unwrap(), epoch(1));
        exporter.take_over(at(0), share_of(&delivery.message.subject));
        assert_eq!(exporter.on_delivery(at(0), &delivery).is_some(), crosses, "{text}");
    }
}

#[test]
fn retained_messages_without_content_are_bounded() {
    let mut exporter = Exporter::new("plant1".parse().unwrap(), epoch(1));
    let count = STANDBY_BYTES_MAX as u64 / 256 + 1_000;
    for number in 1..=count {
        let mut delivery = delivery(seq(0, number), None, Verdict::Next);
        delivery.message = Message::new(subject(), "");
        assert_eq!(exporter.on_delivery(at(0), &delivery), None);
    }
    let exports: Vec<Export> = exporter.take_over(at(0), share_of(&subject()));
    assert_eq!(exports.len(), STANDBY_BYTES_MAX / 256);
}
