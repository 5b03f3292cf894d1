//! Target `decode`: bytes to records, or to a beacon, and back.

use super::{CHECK_BYTES, repaired};
use crate::message::{Message, Stamp};
use crate::seqno::Seq;
use crate::wire::{self, Beacon, Builder, Content, ContentKind, Datagram, Entry, Fragment, Header, Manifest, Record};
use bytes::Bytes;

/// Decodes a datagram as it comes, and with its check value repaired. Any datagram that decodes encodes back, and so
/// does any beacon.
pub fn decode(bytes: &[u8]) {
    // The decoder refuses damaged bytes, or accepts them once in 2^32 times. It does not panic in either case.
    if let Ok(datagram) = wire::decode(Bytes::copy_from_slice(bytes)) {
        check_datagram(&datagram, bytes.len());
    }
    if let Ok(datagram) = wire::decode(repaired(bytes)) {
        check_datagram(&datagram, bytes.len().max(CHECK_BYTES));
    }
    if let Ok(beacon) = Beacon::decode(&repaired(bytes)) {
        assert_eq!(Beacon::decode(&beacon.encode()), Ok(beacon));
    }
}

/// A message with its numbers on the wire.
#[derive(Clone, Debug, PartialEq)]
struct EncodedMessage {
    message: Message,
    seq: Option<Seq>,
    stamp: Option<Stamp>,
    chain: Option<Seq>,
}

impl EncodedMessage {
    fn entry(&self) -> Entry<'_> {
        Entry { message: (&self.message).into(), seq: self.seq, stamp: self.stamp, chain: self.chain }
    }
}

fn check_datagram(datagram: &Datagram, bytes: usize) {
    let carried = carried(datagram);
    let body_bytes: usize = carried.iter().map(|carried| carried.message.body_bytes()).sum();
    assert!(body_bytes <= bytes, "messages do not grow by decoding");
    let fragments: Vec<&Fragment> = datagram.records.iter().filter_map(fragment).collect();
    let begun = carried.len() + fragments.iter().filter(|fragment| fragment.index == 0).count();
    assert_eq!(datagram.messages_begun(), begun as u64);
    check_messages(&datagram.header, &carried);
    for fragment in fragments {
        check_fragment(&datagram.header, fragment);
    }
    for record in datagram.records.iter().filter(|record| is_control(record)) {
        let encoded = wire::encode_control(&datagram.header, record, 0);
        let again = Datagram { header: datagram.header, records: vec![record.clone()] };
        assert_eq!(wire::decode(encoded), Ok(again));
        if let Record::Manifest(manifest) = record {
            check_manifest(manifest);
        }
    }
}

/// Checks a manifest by building it anew.
fn check_manifest(manifest: &Manifest) {
    let mut builder = wire::ManifestBuilder::new(wire::DATAGRAM_BYTES_MAX, manifest.first, manifest.before);
    for contents in &manifest.datagrams {
        assert!(builder.push(contents), "the content of a datagram fits a datagram");
    }
    assert_eq!(builder.finish(), *manifest);
}

/// Checks that a manifest describes exactly the records that decoding finds in a sealed datagram, before and after it
/// is stored.
fn check_contents(sealed: &Bytes, records: &[Record]) {
    let expected: Vec<Content> = records.iter().map(content).collect();
    assert_eq!(wire::contents_of(sealed), expected);
    let mut stored = Vec::new();
    wire::put_contents(sealed, &mut stored);
    assert_eq!(wire::decode_contents(&stored.into()), expected);
}

fn content(record: &Record) -> Content {
    let (subject, seq, chain, event, kind) = match record {
        Record::Run(r) => (&r.subject, r.first, r.chain, r.event, ContentKind::Run { count: r.count }),
        Record::Fragment(f) => {
            (&f.subject, f.seq, f.chain, f.event, ContentKind::Part { index: f.index, total: f.total })
        }
        other => panic!("no builder makes {other:?}"),
    };
    Content { subject: subject.clone(), seq, chain, event, kind }
}

fn carried(datagram: &Datagram) -> Vec<EncodedMessage> {
    let mut all = Vec::new();
    for record in &datagram.records {
        let Record::Run(run) = record else { continue };
        for (at, message) in run.messages().enumerate() {
            let seq = run.first.map(|seq| seq.forward(at as u64).expect("a run stays in its frame"));
            let is_first = at == 0;
            all.push(EncodedMessage {
                message,
                seq,
                stamp: run.stamp.filter(|_| is_first),
                chain: run.chain.filter(|_| is_first),
            });
        }
    }
    all
}

fn fragment(record: &Record) -> Option<&Fragment> {
    match record {
        Record::Fragment(fragment) => Some(fragment),
        _ => None,
    }
}

fn is_control(record: &Record) -> bool {
    match record {
        Record::Run(_) | Record::Fragment(_) | Record::UnknownData(_) => false,
        Record::Heartbeat(_) | Record::Hello(_) | Record::Bye(_) => true,
        Record::ResendRequest(_) | Record::Manifest(_) | Record::Expired(_) | Record::ReceiverReport(_) => true,
        Record::Interest(_) | Record::InterestRequest(_) => true,
    }
}

/// Encodes the messages anew, in as many datagrams as needed, and compares the result.
fn check_messages(header: &Header, sent: &[EncodedMessage]) {
    let mut builder = Builder::new(wire::DATAGRAM_BYTES_MAX);
    let mut received = Vec::new();
    let mut receive = |builder: &mut Builder| {
        let sealed = builder.seal(header);
        let datagram = wire::decode(sealed.clone()).expect("an encoded datagram decodes");
        check_contents(&sealed, &datagram.records);
        received.extend(self::carried(&datagram));
    };
    for message in sent {
        if !builder.push(&message.entry()) {
            receive(&mut builder);
            assert!(builder.push(&message.entry()), "the content of a datagram fits a datagram");
        }
    }
    if !builder.is_empty() {
        receive(&mut builder);
    }
    assert_eq!(received, sent);
}

/// Encodes the last part of a message anew. Other parts would get another size.
fn check_fragment(header: &Header, fragment: &Fragment) {
    if let Ok(message) = wire::assemble(fragment.subject.clone(), fragment.event, fragment.meta, fragment.chunk.clone())
    {
        assert!(message.body_bytes() <= fragment.chunk.len());
    }
    if !fragment.is_last() || wire::DATAGRAM_BYTES_MAX < fragment.total as usize {
        return;
    }
    let body: Bytes = [&vec![0; fragment.offset as usize], fragment.chunk.as_ref()].concat().into();
    let message = Message {
        reply: fragment.meta.then(|| fragment.subject.clone()),
        event: fragment.event,
        ..Message::new(fragment.subject.clone(), Bytes::new())
    };
    let carried = EncodedMessage { message, seq: fragment.seq, stamp: fragment.stamp, chain: fragment.chain };
    let mut builder = Builder::new(wire::DATAGRAM_BYTES_MAX);
    let written_bytes = builder.push_fragment(&carried.entry(), &body, fragment.index, fragment.offset as usize);
    let sealed = builder.seal(header);
    let datagram = wire::decode(sealed.clone()).expect("an encoded datagram decodes");
    check_contents(&sealed, &datagram.records);
    // The builder reserves room for the header of a directed datagram. A multicast datagram has room for eight bytes
    // more, so the builder cannot repeat a fragment that fills one.
    if written_bytes == fragment.chunk.len() {
        assert_eq!(datagram.records, [Record::Fragment(fragment.clone())]);
    }
}
