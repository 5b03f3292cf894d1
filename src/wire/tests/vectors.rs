//! Vectors of `docs/wire.md` that need more than one record: stamped messages, a whole fragmented message, and
//! discarded datagrams with the reason.

use super::*;
use crate::message::Queue;

/// Returns a message for a queue group of another peer: in the multicast stream, and returned or assigned again.
pub(super) fn stamped(kind: Kind) -> Example {
    let queue: Queue = "q".parse().unwrap();
    let publisher = (kind == Kind::Directed).then_some(header(kind).epoch);
    let receiver = header(Kind::Directed).receiver.unwrap();
    let block = super::super::queue::stamped(&[(receiver, &queue)], publisher, b"k: v\r\n");
    let message = Message { headers: Headers::from_block(block.into()), ..message("jobs", b"hi") };
    let seq = Seq::new(0x5c19_adc0_0000_0003).filter(|_| kind == Kind::Data);
    let name = if kind == Kind::Data { "run-stamped" } else { "run-redirected" };
    of_messages(name, kind, vec![Sent { message, seq, stamp: None, chain: None }])
}

/// Returns a message with a reply subject that begins a frame: the part that fits one datagram of 576 bytes, and the
/// rest.
pub(super) fn whole_message() -> [Example; 2] {
    let sent = whole();
    let (meta, body) = body_of((&sent.message).into());
    let mut offset = 0;
    [("message-first", 0), ("message-last", 1)].map(|(name, index)| {
        let mut builder = Builder::new(576);
        let taken = builder.push_fragment(&sent.entry(), &body, index, offset);
        let header = Header { number: 7 + u64::from(index), count: 42 + u64::from(index), ..header(Kind::Data) };
        let fragment = Fragment {
            subject: sent.message.subject.clone(),
            seq: sent.seq,
            stamp: sent.stamp,
            chain: None,
            event: false,
            meta,
            index,
            total: body.len() as u32,
            offset: offset as u32,
            chunk: Bytes::copy_from_slice(&body[offset..offset + taken]),
        };
        offset += taken;
        let meaning = Meaning::Records(vec![Record::Fragment(fragment)]);
        Example { name, sealed: builder.seal(&header), header, meaning }
    })
}

fn whole() -> Sent {
    let reply = Some("r.1".parse().unwrap());
    Sent {
        message: Message { reply, ..message("a.b", &[[b'x'; 500].as_slice(), b"the end"].concat()) },
        seq: Seq::new(0x5c19_adc0_0000_0001),
        stamp: Some(Stamp { time: WallTime::from_nanos(0x1706_6b71_0b70_6c00), offset: 7 }),
        chain: None,
    }
}

/// Returns a unicast heartbeat of a peer whose clients were members of a queue group, and whose receive buffer
/// overflowed.
pub(super) fn heartbeat_with_queue() -> Record {
    let report = Report {
        missing: 12,
        repaired: 9,
        pending: 0,
        unverified: 1,
        lost_min: 2,
        lost_max: 2,
        overrun: 2,
        directed_lost: 3,
    };
    let queue = QueueReport {
        multicast: ShareCount { settled: Dseq(300), served: 40, returned: 1 },
        directed: ShareCount { settled: Dseq(4), served: 2, returned: 0 },
    };
    let directed_receiver = header(Kind::Directed).receiver;
    Record::Heartbeat(Box::new(PeerAnnouncement {
        directed_receiver,
        report: Some(Box::new(report)),
        queue: Some(Box::new(queue)),
        ..announce()
    }))
}

#[test]
fn fragment_vectors_assemble_to_the_message() {
    let mut body = Vec::new();
    for Example { sealed, .. } in whole_message() {
        let datagram = decode(sealed).unwrap();
        let [Record::Fragment(fragment)] = &datagram.records[..] else { panic!("one fragment") };
        assert_eq!(fragment.offset as usize, body.len());
        body.extend_from_slice(&fragment.chunk);
    }
    let sent = whole();
    let (meta, _) = body_of((&sent.message).into());
    assert_eq!(assemble(sent.message.subject.clone(), false, meta, body.into()), Ok(sent.message));
}

/// Proves: W13
#[test]
fn discarded_vectors_break_the_rule_they_state() {
    let vectors = blocks(include_str!("../../../docs/wire.md"), "discard");
    for (reason, digits) in &vectors {
        assert_eq!(decode(unhex(digits).into()).unwrap_err().to_string(), *reason, "{digits}");
    }
    let reasons: std::collections::BTreeSet<&String> = vectors.iter().map(|(reason, _)| reason).collect();
    assert!(30 <= reasons.len(), "only {} reasons", reasons.len());
}
