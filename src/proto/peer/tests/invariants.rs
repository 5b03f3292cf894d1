//! Invariants: a stream with a wrong state ends the peer at the next change, before one of its numbers is reported.

use super::*;
use crate::proto::members::Side;
use crate::proto::recv::RecvStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Changes the state of a stream from a publisher, gives the stream a datagram, and returns the text of the panic, if
/// there is one.
fn panic_after(side: Side, change: impl FnOnce(&mut RecvStream)) -> Option<String> {
    let (mut s, mut p) = pair("_INBOX.>", 1000);
    s.subscribe_as(1000, 2, "a", DeliveryMode::Live);
    for hello in s.tick(1000) {
        p.receive(1000, s.address, &hello);
    }
    p.drain();
    let datagram = match side {
        Side::Ptp => p.direct(1100, &format!("_INBOX.{}.1", s.peer.epoch())),
        Side::Bcast | Side::Live => p.publish(1100, "a"),
    };
    let member = s.peer.members.get_mut(&p.peer.epoch()).expect("the publisher was heard");
    change(member.side(side).expect("there is a subscription in mode live").0);
    let panic = catch_unwind(AssertUnwindSafe(|| s.receive(1100, p.address, &datagram))).err()?;
    Some(*panic.downcast::<String>().expect("a formatted message"))
}

#[test]
fn invariant_violation_panics_with_publisher_and_state() {
    let streams = [
        (Side::Bcast, "multicast stream of P.test"),
        (Side::Live, "multicast stream, as subscriptions in mode live see it, of P.test"),
        (Side::Ptp, "directed stream of P.test"),
    ];
    for (side, stream) in streams {
        assert_eq!(panic_after(side, |_| {}), None);
        let text = panic_after(side, RecvStream::break_ledger).expect("a datagram is counted twice");
        let parts = [stream, "(epoch 0000000000000002)", "ledger broken", "delivered: 2", "high: "];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        let text = panic_after(side, RecvStream::break_reorder_buffer).expect("bytes without an item");
        assert!(text.contains(stream) && text.contains("reorder buffer broken"), "{text}");
        assert!(text.contains("0 items with 7 bytes"), "{text}");
    }
}
