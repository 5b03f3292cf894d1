//! Target `local`: the bytes of a connection by the local protocol, at either end.

use super::script::Script;
use crate::listener::frame::{ClientFrame, PeerFrame, VERSION, Welcome};
use crate::listener::local::{ClientEndpoint, LocalFault, PeerEndpoint};
use crate::message::Epoch;
use bytes::{Bytes, BytesMut};
use std::fmt::Debug;

/// Bytes of the length before every frame.
const LENGTH_BYTES: usize = 4;

/// Runs the target. The first byte chooses the end, whether lengths and greeting are repaired, and how the stream is
/// cut.
pub fn local(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let choices = script.u8();
    let (to_peer, is_repaired) = (choices & 1 != 0, choices & 2 != 0);
    let cut_bytes = 1 + usize::from(choices >> 2);
    let mut stream = BytesMut::new();
    if is_repaired {
        greet(to_peer, &mut stream);
        while !script.is_done() {
            let body_bytes = usize::from(script.u8());
            let body = script.take(body_bytes);
            stream.extend_from_slice(&(body.len() as u32).to_be_bytes());
            stream.extend_from_slice(body);
        }
    } else {
        stream.extend_from_slice(script.take(bytes.len()));
    }
    if to_peer {
        check(
            &stream,
            cut_bytes,
            PeerEndpoint::new,
            PeerEndpoint::push,
            PeerEndpoint::poll_frame,
            ClientFrame::encode,
            ClientFrame::decode,
        );
    } else {
        check(
            &stream,
            cut_bytes,
            ClientEndpoint::new,
            ClientEndpoint::push,
            ClientEndpoint::poll_frame,
            PeerFrame::encode,
            PeerFrame::decode,
        );
    }
}

/// Writes the first frames of the other end.
fn greet(to_peer: bool, stream: &mut BytesMut) {
    if to_peer {
        return ClientFrame::Hello { version: VERSION, name: "fuzz".into() }.encode(stream);
    }
    let welcome = Welcome {
        version: VERSION,
        peer: "A.fuzz".parse().expect("a name"),
        epoch: Epoch::new(1).expect("not zero"),
        group: 7500,
        port: 7500,
        client: 1,
        message_bytes_max: 1 << 20,
        software: "1".into(),
        offers_shared_memory: false,
    };
    PeerFrame::Welcome(welcome).encode(stream);
}

/// Checks that the same frames result however the stream is cut, and that each survives encoding and decoding.
fn check<End, Frame: Debug + PartialEq, Malformed: Debug>(
    stream: &[u8],
    cut_bytes: usize,
    new: impl Fn() -> End,
    push: impl Fn(&mut End, &[u8]),
    poll: impl Fn(&mut End) -> Result<Option<Frame>, LocalFault>,
    encode: impl Fn(&Frame, &mut BytesMut),
    decode: impl Fn(Bytes) -> Result<Frame, Malformed>,
) {
    let read = |cut_bytes: usize| {
        let (mut end, mut frames) = (new(), Vec::new());
        for part in stream.chunks(cut_bytes) {
            push(&mut end, part);
            loop {
                match poll(&mut end) {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(fault) => return (frames, Some(fault)),
                }
            }
        }
        (frames, None)
    };
    let (frames, fault) = read(stream.len().max(1));
    assert_eq!(read(cut_bytes), (frames, fault), "cut into parts of {cut_bytes} bytes");
    for frame in read(cut_bytes).0 {
        let mut encoded = BytesMut::new();
        encode(&frame, &mut encoded);
        let again = decode(encoded.freeze().slice(LENGTH_BYTES..)).expect("an encoded frame decodes");
        assert_eq!(again, frame);
    }
}
