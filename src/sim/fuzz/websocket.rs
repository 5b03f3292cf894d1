//! Target `websocket`: the opening handshake and the frames of a client of a WebSocket.

use super::script::Script;
use crate::listener::websocket::{OriginPolicy, WebSocketFault, WebSocketReader, parse_upgrade};

/// Lines that make a request complete.
const UPGRADE: &[u8] = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: c2VxY2FzdCBmb3IgdGVzdA==\r\n\r\n";

/// Outcome of reading a stream of frames.
#[derive(Debug, PartialEq, Eq)]
struct FrameOutcome {
    /// The payload; empty after a fault.
    payload: Vec<u8>,
    is_closed: bool,
    fault: Option<WebSocketFault>,
}

/// Runs the target. The first byte chooses between a handshake and frames, whether these are repaired, and how the
/// stream is cut.
pub fn websocket(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let choices = script.u8();
    let (is_handshake, is_repaired) = (choices & 1 != 0, choices & 2 != 0);
    let cut_bytes = 1 + usize::from(choices >> 2);
    let mut stream = Vec::new();
    if is_handshake {
        stream.extend_from_slice(script.take(bytes.len()));
        if is_repaired {
            stream = [b"GET / HTTP/1.1\r\n", &stream[..], b"\r\n", UPGRADE].concat();
        }
        return check_handshake(&stream);
    }
    while !script.is_done() {
        if is_repaired {
            put_frame(&mut script, &mut stream);
        } else {
            stream.extend_from_slice(script.take(bytes.len()));
        }
    }
    assert_eq!(read(&stream, stream.len().max(1)), read(&stream, cut_bytes), "the cuts change the meaning");
}

fn check_handshake(stream: &[u8]) {
    let policy =
        OriginPolicy { origins: vec!["https://panel.example".to_owned()], host_name: Some("plant-7".to_owned()) };
    let Ok(Some(request)) = parse_upgrade(stream, &policy) else { return };
    assert!(request.bytes <= stream.len());
    let again = parse_upgrade(&stream[..request.bytes], &policy);
    assert_eq!(again, Ok(Some(request.clone())), "bytes behind the request change its meaning");
    assert_eq!(parse_upgrade(&stream[..request.bytes - 1], &policy), Ok(None), "a part is a whole request");
}

/// Appends a frame with a length that is right.
fn put_frame(script: &mut Script<'_>, stream: &mut Vec<u8>) {
    let (first, length, mask) = (script.u8(), usize::from(script.u8() & 0x7f).min(125), script.u16().to_be_bytes());
    stream.extend_from_slice(&[first & 0x8f, 0x80 | length as u8, mask[0], mask[1], mask[0], mask[1]]);
    let payload = script.take(length);
    stream.extend_from_slice(payload);
    stream.resize(stream.len() + length - payload.len(), 0);
}

/// Reads a stream in pieces.
fn read(stream: &[u8], cut_bytes: usize) -> FrameOutcome {
    let mut reader = WebSocketReader::default();
    let mut outcome = FrameOutcome { payload: Vec::new(), is_closed: false, fault: None };
    for piece in stream.chunks(cut_bytes) {
        let mut bytes = piece.to_vec();
        match reader.read(&mut bytes) {
            Ok(count) => outcome.payload.extend_from_slice(&bytes[..count]),
            Err(fault) => return FrameOutcome { payload: Vec::new(), is_closed: false, fault: Some(fault) },
        }
        if let Some(pong) = reader.take_pong() {
            assert!(pong.len() <= 125, "a pong is no control frame");
        }
    }
    outcome.is_closed = reader.is_closed();
    outcome
}
