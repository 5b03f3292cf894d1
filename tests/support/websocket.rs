//! The client side of a WebSocket (RFC 6455), small and fast enough for measurements: one blocking connection, texts
//! out, texts in.
//!
//! Texts that are [pushed](WebSocket::push) leave together, as soon as the caller [waits](WebSocket::read) for a
//! message. A server that closes, or sends an invalid frame, is an error.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

/// End of the head of an HTTP answer.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Minimum room for reading, in bytes.
const READ_BYTES: usize = 64 << 10;
/// Opcodes, with the bit that marks the final frame of a message.
const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;
/// Bit in the second byte of a client's frame: a mask follows.
const MASKED: u8 = 0x80;

/// A connection.
#[derive(Debug)]
pub struct WebSocket {
    stream: TcpStream,
    /// Received bytes. Those from `taken`, behind the messages that were taken, to `filled` are unread.
    unread: Vec<u8>,
    taken: usize,
    filled: usize,
    unsent: Vec<u8>,
}

impl WebSocket {
    /// Connects. A read waits for at most `patience` at a time.
    pub fn connect(address: SocketAddr, path: &str, patience: Duration) -> io::Result<WebSocket> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut socket = WebSocket { stream, unread: Vec::new(), taken: 0, filled: 0, unsent: Vec::new() };
        let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c2VxY2FzdCBmb3IgdGVzdA==";
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{key}\r\n\r\n"
        );
        socket.stream.write_all(request.as_bytes())?;
        loop {
            if let Some(end) =
                socket.unread[..socket.filled].windows(HEAD_END.len()).position(|bytes| bytes == HEAD_END)
            {
                let head = &socket.unread[..end];
                if !head.starts_with(b"HTTP/1.1 101 ") {
                    return Err(io::Error::other(String::from_utf8_lossy(head)));
                }
                socket.taken = end + HEAD_END.len();
                return Ok(socket);
            }
            socket.fill()?;
        }
    }

    /// Queues this text, to be sent before the next wait.
    pub fn push(&mut self, text: &str) {
        self.push_frame(TEXT, text.as_bytes());
    }

    /// Queues a frame of this opcode, with its first bit, to be sent before the next wait.
    pub fn push_frame(&mut self, opcode: u8, payload: &[u8]) {
        let length = payload.len();
        // A mask of zeros leaves the bytes as they are.
        let mask = [0; 4];
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(short @ 0..=125), _) => self.unsent.extend([opcode, MASKED | short]),
            (_, Ok(length)) => {
                self.unsent.extend([opcode, MASKED | 126]);
                self.unsent.extend(length.to_be_bytes());
            }
            _ => {
                self.unsent.extend([opcode, MASKED | 127]);
                self.unsent.extend((length as u64).to_be_bytes());
            }
        }
        self.unsent.extend(mask);
        self.unsent.extend(payload);
    }

    /// Returns the next message. An error of the kind `WouldBlock` means that nothing came within the time to wait;
    /// the caller may try again.
    pub fn read(&mut self) -> io::Result<&str> {
        let payload = loop {
            let Some((opcode, payload)) = self.frame()? else {
                self.fill()?;
                continue;
            };
            self.taken = payload.end;
            match opcode {
                TEXT | BINARY => break payload,
                PING => {
                    let text = self.unread[payload].to_vec();
                    self.push_frame(PONG, &text);
                }
                PONG => {}
                CLOSE if 2 <= payload.len() => {
                    let bytes = &self.unread[payload];
                    let code = u16::from_be_bytes([bytes[0], bytes[1]]);
                    return Err(io::Error::new(ErrorKind::ConnectionAborted, format!("closed with code {code}")));
                }
                opcode => return Err(io::Error::new(ErrorKind::ConnectionAborted, format!("a frame {opcode:#04x}"))),
            }
        };
        std::str::from_utf8(&self.unread[payload]).map_err(io::Error::other)
    }

    /// Returns the first frame that was not taken, if it is whole: its opcode, and the range of its payload.
    fn frame(&self) -> io::Result<Option<(u8, Range<usize>)>> {
        let bytes = &self.unread[self.taken..self.filled];
        let &[opcode, short, ..] = bytes else { return Ok(None) };
        let (head, length) = match (short, bytes) {
            (126, &[_, _, a, b, ..]) => (4, u64::from(u16::from_be_bytes([a, b]))),
            (127, &[_, _, a, b, c, d, e, f, g, h, ..]) => (10, u64::from_be_bytes([a, b, c, d, e, f, g, h])),
            (126 | 127, _) => return Ok(None),
            (short, _) if MASKED <= short => return Err(io::Error::other("a server masks nothing")),
            (short, _) => (2, u64::from(short)),
        };
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let from = self.taken + head;
        Ok((length <= bytes.len().saturating_sub(head) && head <= bytes.len()).then_some((opcode, from..from + length)))
    }

    /// Waits until more bytes have come.
    fn fill(&mut self) -> io::Result<()> {
        // A frame that has left in part cannot be sent again.
        self.stream.write_all(&self.unsent).map_err(|error| io::Error::new(ErrorKind::BrokenPipe, error))?;
        self.unsent.clear();
        self.unread.copy_within(self.taken..self.filled, 0);
        self.filled -= std::mem::take(&mut self.taken);
        if self.unread.len() < self.filled + READ_BYTES {
            self.unread.resize(2 * self.unread.len() + READ_BYTES, 0);
        }
        let count = self.stream.read(&mut self.unread[self.filled..]);
        self.filled += count.as_ref().unwrap_or(&0);
        match count {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}
