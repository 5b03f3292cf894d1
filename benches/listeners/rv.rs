//! Frames of a Rendezvous client.

use crate::PAYLOAD;
use seqcast::listener::rv::message::{RvField, RvMessage, RvValue};

/// Subject on which a client sends itself a message, to learn that the earlier ones are processed.
const SYNC: &str = "bench.sync";
/// Payload of all messages.
static CONTENT: [u8; PAYLOAD] = [b'x'; PAYLOAD];

/// Returns the bytes with which a client begins a session. It sends all of them without waiting.
pub fn hello() -> Vec<u8> {
    let mut bytes = [0u32, 4, 0].map(u32::to_be_bytes).concat();
    let info = [3u32, 2, 0, 1, 0, 0x0400_0000, 0x0400_0000].map(u32::to_be_bytes).concat();
    bytes.extend(&info);
    bytes.resize(bytes.len() + 64 - info.len(), 0);
    // The second init names the session.
    for _ in 0..2 {
        bytes.extend(frame(vec![("mtype", letter("I")), ("userid", RvValue::String(b"bench"))]));
    }
    bytes
}

/// End of the frame that ends the handshake.
pub const CONNECTED: &[u8] = b"RVD.CONNECTED\0";

/// Returns the frame that publishes `PAYLOAD` bytes on a subject. The daemon sends it to subscribers with the same size.
pub fn message(subject: &str) -> Vec<u8> {
    frame(vec![("sub", elements(subject)), ("mtype", letter("D")), ("data", RvValue::Opaque(&CONTENT))])
}

/// Returns the frame that listens to a subject.
pub fn listen(subject: &str) -> Vec<u8> {
    frame(vec![("mtype", letter("L")), ("sub", elements(subject))])
}

/// Returns the frames with which a client sends itself a message; that message ends with [`sync_end`].
pub fn sync() -> Vec<u8> {
    let cancel = frame(vec![("mtype", letter("C")), ("sub", elements(SYNC))]);
    [listen(SYNC), message(SYNC), cancel].concat()
}

/// Returns the end of each message.
pub fn sync_end() -> Vec<u8> {
    CONTENT.to_vec()
}

fn letter(letter: &'static str) -> RvValue<'static> {
    RvValue::String(letter.as_bytes())
}

fn elements(subject: &str) -> RvValue<'_> {
    RvValue::Subject(subject.split('.').map(str::as_bytes).collect())
}

fn frame(fields: Vec<(&'static str, RvValue<'_>)>) -> Vec<u8> {
    let field = |(name, value): (&'static str, _)| RvField { name: name.as_bytes(), id: None, value };
    let mut bytes = Vec::new();
    RvMessage { fields: fields.into_iter().map(field).collect() }.encode(&mut bytes).expect("a valid message");
    bytes
}
