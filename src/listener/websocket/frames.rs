//! Frames (RFC 6455, section 5). The messages of a client are a stream of bytes, whatever their borders are. The server
//! sends binary messages of one frame each.

use super::WebSocketFault;
use std::io::{self, IoSlice, Write};

/// Maximum bytes of the payload of a control frame.
const CONTROL_BYTES_MAX: usize = 125;
/// Maximum bytes of the payload of a frame that the server sends.
const FRAME_BYTES_MAX: usize = 64 << 10;
/// Maximum number of slices that are written together.
const SLICES_MAX: usize = 64;
/// Bit of the first byte: the last frame of a message.
const FINAL: u8 = 0x80;
/// Bits of the first byte for extensions, of which there are none.
const RESERVED: u8 = 0x70;
/// Bit of the second byte: a mask follows.
const MASKED: u8 = 0x80;
const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The frame whose payload is read.
#[derive(Clone, Copy, Debug)]
struct FrameHead {
    opcode: u8,
    /// Bytes of the payload that are not read.
    left: u64,
    mask: [u8; 4],
    /// Index of the next byte of the mask.
    turn: usize,
}

/// Decoder of the frames of a client. It holds no payload except that of a control frame.
#[derive(Debug, Default)]
pub struct WebSocketReader {
    /// Received bytes of an incomplete head.
    head: Vec<u8>,
    frame: Option<FrameHead>,
    /// Payload of the control frame that is read.
    control: Vec<u8>,
    /// True between the first and the last frame of a message.
    is_fragmented: bool,
    pong: Option<Vec<u8>>,
    is_closed: bool,
}

impl WebSocketReader {
    /// Decodes received bytes in place. Returns the number of bytes of payload, which stand at the beginning of `bytes`
    /// afterwards. Bytes behind a Close frame are ignored.
    ///
    /// # Errors
    /// A frame breaks the protocol.
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<usize, WebSocketFault> {
        let (mut at, mut written) = (0, 0);
        while at < bytes.len() && !self.is_closed {
            match &mut self.frame {
                None => {
                    self.head.push(bytes[at]);
                    at += 1;
                    if let Some(frame) = parse_head(&self.head)? {
                        self.begin_frame(frame)?;
                    }
                }
                Some(frame) => {
                    let count = usize::try_from(frame.left).unwrap_or(usize::MAX).min(bytes.len() - at);
                    for index in at..at + count {
                        let byte = bytes[index] ^ frame.mask[frame.turn];
                        frame.turn = (frame.turn + 1) % frame.mask.len();
                        if frame.is_control() {
                            self.control.push(byte);
                        } else {
                            bytes[written] = byte;
                            written += 1;
                        }
                    }
                    frame.left -= count as u64;
                    at += count;
                }
            }
            self.end_frame();
        }
        Ok(written)
    }

    /// Returns the payload of the last ping that is not answered, once.
    pub fn take_pong(&mut self) -> Option<Vec<u8>> {
        self.pong.take()
    }

    /// Returns whether the client has closed the WebSocket.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Begins the frame whose head is complete.
    fn begin_frame(&mut self, frame: FrameHead) -> Result<(), WebSocketFault> {
        let is_final = self.head[0] & FINAL != 0;
        self.head.clear();
        let is_valid = match frame.opcode {
            CONTINUATION => self.is_fragmented,
            TEXT | BINARY => !self.is_fragmented,
            _ => is_final,
        };
        if !frame.is_control() {
            self.is_fragmented = !is_final;
        }
        self.frame = Some(frame);
        if is_valid { Ok(()) } else { Err(WebSocketFault::Protocol) }
    }

    /// Ends the frame whose payload is complete.
    fn end_frame(&mut self) {
        let Some(frame) = self.frame.take_if(|frame| frame.left == 0) else { return };
        match frame.opcode {
            // A client that pings again before the answer gets the last one alone.
            PING => self.pong = Some(std::mem::take(&mut self.control)),
            CLOSE => self.is_closed = true,
            _ => self.control.clear(),
        }
    }
}

impl FrameHead {
    fn is_control(&self) -> bool {
        CLOSE <= self.opcode
    }
}

/// Reads the head of a frame; `None` if it is not complete.
fn parse_head(head: &[u8]) -> Result<Option<FrameHead>, WebSocketFault> {
    let &[first, second, ref rest @ ..] = head else { return Ok(None) };
    let (opcode, short) = (first & 0x0f, second & !MASKED);
    let is_known = matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG);
    let is_long_control = CLOSE <= opcode && CONTROL_BYTES_MAX < usize::from(short);
    if first & RESERVED != 0 || second & MASKED == 0 || !is_known || is_long_control {
        return Err(WebSocketFault::Protocol);
    }
    let length_bytes = match short {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let Some((length, mask)) = rest.split_at_checked(length_bytes) else { return Ok(None) };
    let Ok(mask) = <[u8; 4]>::try_from(mask) else { return Ok(None) };
    let left = match length {
        [] => u64::from(short),
        length => length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    // The first bit of a length is 0.
    if 63 < u64::BITS - left.leading_zeros() {
        return Err(WebSocketFault::Protocol);
    }
    Ok(Some(FrameHead { opcode, left, mask, turn: 0 }))
}

/// Encoder of the frames to a client.
#[derive(Debug, Default)]
pub struct WebSocketWriter {
    /// Bytes that precede the next byte of payload.
    pending: Vec<u8>,
    /// Control frames that wait for the end of the present frame.
    control: Vec<u8>,
    /// Bytes of payload that the present frame still needs.
    left: usize,
}

impl WebSocketWriter {
    /// Queues bytes that are no frame: the answer to the handshake.
    pub fn put_raw(&mut self, bytes: &[u8]) {
        self.control.extend_from_slice(bytes);
    }

    /// Queues the answer to a ping.
    pub fn put_pong(&mut self, payload: &[u8]) {
        put_control(&mut self.control, PONG, payload);
    }

    /// Queues the end of the WebSocket with a status code (RFC 6455, section 7.4.1).
    pub fn put_close(&mut self, code: u16) {
        put_control(&mut self.control, CLOSE, &code.to_be_bytes());
    }

    /// Writes slices of payload as frames. Returns the number of bytes of payload written, above 0. The next call must
    /// begin with the bytes that were not written.
    ///
    /// # Errors
    /// The same as of the writer; [`io::ErrorKind::WouldBlock`] also if it has only taken the head of a frame.
    pub fn write(&mut self, writer: &mut impl Write, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.left == 0 {
            let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
            self.left = bytes.min(FRAME_BYTES_MAX);
            self.pending.append(&mut self.control);
            put_head(&mut self.pending, BINARY, self.left);
        }
        let mut together = [IoSlice::new(&[]); SLICES_MAX];
        together[0] = IoSlice::new(&self.pending);
        let (mut count, mut room) = (1, self.left);
        for (place, slice) in together[1..].iter_mut().zip(slices) {
            *place = IoSlice::new(&slice[..slice.len().min(room)]);
            room -= place.len();
            count += 1;
        }
        let written = writer.write_vectored(&together[..count])?;
        let of_pending = written.min(self.pending.len());
        self.pending.drain(..of_pending);
        self.left -= written - of_pending;
        match written - of_pending {
            0 if written == 0 => Err(io::ErrorKind::WriteZero.into()),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            payload => Ok(payload),
        }
    }

    /// Writes queued control frames, unless a frame is written in part. Returns whether nothing is queued.
    ///
    /// # Errors
    /// The same as of the writer.
    pub fn flush(&mut self, writer: &mut impl Write) -> io::Result<bool> {
        if self.left == 0 {
            self.pending.append(&mut self.control);
            while !self.pending.is_empty() {
                match writer.write(&self.pending) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => drop(self.pending.drain(..written)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(self.is_flushed())
    }

    /// Returns whether nothing is queued.
    pub fn is_flushed(&self) -> bool {
        self.pending.is_empty() && self.control.is_empty()
    }
}

/// Appends the head of a frame that is a whole message.
fn put_head(out: &mut Vec<u8>, opcode: u8, bytes: usize) {
    out.push(FINAL | opcode);
    match (u8::try_from(bytes), u16::try_from(bytes)) {
        (Ok(short @ 0..=125), _) => out.push(short),
        (_, Ok(length)) => {
            out.push(126);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(bytes as u64).to_be_bytes());
        }
    }
}

fn put_control(out: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    debug_assert!(payload.len() <= CONTROL_BYTES_MAX, "at most the payload of a ping");
    put_head(out, opcode, payload.len());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Maximum bytes of the head of a frame: two bytes, a length, and a mask.
    const HEAD_BYTES_MAX: usize = 14;

    /// Returns a frame as a client sends it.
    fn frame(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_head(&mut bytes, 0, payload.len());
        bytes[0] = first;
        bytes[1] |= MASKED;
        bytes.extend_from_slice(&mask);
        bytes.extend(payload.iter().enumerate().map(|(index, byte)| byte ^ mask[index % 4]));
        bytes
    }

    /// Returns what a client sends: texts and binary messages in pieces, and control frames between them.
    fn transcript(rng: &mut Rng) -> (Vec<u8>, Vec<u8>) {
        let (mut sent, mut payload) = (Vec::new(), Vec::new());
        for _ in 0..rng.between(1, 20) {
            let mut opcode = if rng.chance(0.5) { TEXT } else { BINARY };
            let pieces = rng.between(1, 3);
            for piece in 0..pieces {
                let bytes: Vec<u8> = (0..rng.below(400)).map(|_| rng.below(256) as u8).collect();
                let last = if piece + 1 == pieces { FINAL } else { 0 };
                sent.extend(frame(last | opcode, &bytes, (rng.below(1 << 32) as u32).to_be_bytes()));
                payload.extend(bytes);
                opcode = CONTINUATION;
                if rng.chance(0.3) {
                    sent.extend(frame(FINAL | PING, b"ping", [1, 2, 3, 4]));
                    sent.extend(frame(FINAL | PONG, b"", [0; 4]));
                }
            }
        }
        sent.extend(frame(FINAL | CLOSE, &1000_u16.to_be_bytes(), [7; 4]));
        sent.extend_from_slice(b"ignored");
        (sent, payload)
    }

    #[test]
    fn frames_in_any_cuts_give_the_same_bytes() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let (sent, expected) = transcript(&mut rng);
            for cut in [1, sent.len() as u64, 1 + rng.below(300)] {
                let (mut reader, mut payload, mut rest) = (WebSocketReader::default(), Vec::new(), &sent[..]);
                while !rest.is_empty() {
                    let count = rest.len().min(1 + rng.below(cut) as usize);
                    let mut bytes = rest[..count].to_vec();
                    let read = reader.read(&mut bytes).unwrap();
                    payload.extend_from_slice(&bytes[..read]);
                    rest = &rest[count..];
                }
                assert_eq!(payload, expected, "seed {seed}");
                assert!(reader.is_closed(), "seed {seed}");
            }
        }
    }

    #[test]
    fn pings_are_answered_with_their_payload() {
        let mut reader = WebSocketReader::default();
        let mut bytes = [frame(FINAL | PING, b"a", [9; 4]), frame(FINAL | PING, b"last", [1, 0, 0, 0])].concat();
        assert_eq!(reader.read(&mut bytes), Ok(0));
        assert_eq!((reader.take_pong(), reader.take_pong()), (Some(b"last".to_vec()), None));
    }

    #[test]
    fn invalid_frames_are_faults() {
        let long = [FINAL | BINARY, MASKED | 127, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
        for bytes in [
            vec![FINAL | BINARY, 1, 0],
            frame(FINAL | 0x40 | BINARY, b"compressed", [0; 4]),
            frame(FINAL | 3, b"", [0; 4]),
            frame(FINAL | CONTINUATION, b"", [0; 4]),
            [frame(TEXT, b"a", [0; 4]), frame(FINAL | TEXT, b"b", [0; 4])].concat(),
            frame(PING, b"", [0; 4]),
            frame(FINAL | PING, &[0; 126], [0; 4]),
            long,
        ] {
            let read = WebSocketReader::default().read(&mut bytes.clone());
            assert_eq!(read, Err(WebSocketFault::Protocol), "{bytes:?}");
        }
    }

    #[test]
    fn random_bytes_never_grow_the_reader() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut reader = WebSocketReader::default();
            for _ in 0..50 {
                let mut bytes: Vec<u8> = (0..rng.below(200)).map(|_| rng.below(256) as u8).collect();
                let length = bytes.len();
                match reader.read(&mut bytes) {
                    Ok(read) => assert!(read <= length, "seed {seed}"),
                    Err(_) => break,
                }
                assert!(reader.head.len() < HEAD_BYTES_MAX && reader.control.len() <= CONTROL_BYTES_MAX, "seed {seed}");
            }
        }
    }

    /// A stream that takes this number of bytes and then blocks.
    struct Narrow {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            self.room -= count;
            self.taken.extend_from_slice(&bytes[..count]);
            if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn partial_writes_keep_frames_whole() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let payload: Vec<u8> = (0..rng.between(1, 200_000)).map(|_| rng.below(256) as u8).collect();
            let (mut writer, mut stream) = (WebSocketWriter::default(), Narrow { taken: Vec::new(), room: 0 });
            let (mut rest, mut pongs) = (&payload[..], 0);
            writer.put_raw(b"answer");
            while !rest.is_empty() || !writer.is_flushed() {
                stream.room = 1 + rng.below(9000) as usize;
                if rng.chance(0.1) {
                    writer.put_pong(b"p");
                    pongs += 1;
                }
                match rest.split_at(rest.len() / 2) {
                    ([], []) => drop(writer.flush(&mut stream).unwrap()),
                    (first, second) => match writer.write(&mut stream, &[IoSlice::new(first), IoSlice::new(second)]) {
                        Ok(written) => rest = &rest[written..],
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "seed {seed}"),
                    },
                }
            }
            // The client decodes what a server sends as the server decodes what a client sends, but for the mask.
            let mut bytes = stream.taken.strip_prefix(b"answer").expect("the answer comes first");
            let (mut received, mut answered) = (Vec::new(), 0);
            while let [first, second, rest @ ..] = bytes {
                let (length, rest) = match second {
                    126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
                    127 => (u64::from_be_bytes(rest[..8].try_into().unwrap()) as usize, &rest[8..]),
                    short => (usize::from(*short), rest),
                };
                match first & 0x0f {
                    BINARY => received.extend_from_slice(&rest[..length]),
                    PONG => answered += 1,
                    other => panic!("opcode {other}"),
                }
                bytes = &rest[length..];
            }
            assert!(received == payload && answered == pongs, "seed {seed}");
        }
    }
}
