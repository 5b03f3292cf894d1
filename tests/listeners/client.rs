//! A client of a listener without any library: bytes out, bytes in.

use crate::support::command::{PATIENCE, now};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// The protocols, in the order of `show status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Nats,
    Redis,
}

pub use Protocol::{Nats, Redis};

impl Protocol {
    pub const ALL: [Protocol; 2] = [Nats, Redis];

    /// Returns the bytes that a client sends to publish.
    pub fn publish(self, subject: &str, payload: impl AsRef<[u8]>) -> Vec<u8> {
        let payload = payload.as_ref();
        match self {
            Nats => [format!("PUB {subject} {}\r\n", payload.len()).as_bytes(), payload, b"\r\n"].concat(),
            Redis => command(&[b"PUBLISH", subject.as_bytes(), payload]),
        }
    }
}

/// Returns a Redis command.
pub fn command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A connection.
pub struct ListenerClient {
    pub protocol: Protocol,
    stream: TcpStream,
    read: Vec<u8>,
    /// Offset in `read` up to which bytes have been taken.
    at: usize,
}

impl ListenerClient {
    pub fn connect(protocol: Protocol, port: u16) -> ListenerClient {
        ListenerClient::connect_to(protocol, SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// Connects to the listener of a peer on another host.
    pub fn connect_to(protocol: Protocol, address: SocketAddr) -> ListenerClient {
        let stream = TcpStream::connect(address).expect("the listener is open");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time above 0");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time above 0");
        ListenerClient { protocol, stream, read: Vec::new(), at: 0 }
    }

    /// Begins as a client library does.
    pub fn enter(&mut self) {
        match self.protocol {
            Nats => {
                assert!(self.line().starts_with("INFO {"));
                self.send(b"CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1}\r\n");
            }
            Redis => {}
        }
        self.settle();
    }

    /// Waits until the peer has processed all that was sent.
    pub fn settle(&mut self) {
        match self.protocol {
            Nats => {
                self.send(b"PING\r\n");
                self.expect("PONG");
            }
            Redis => {
                self.send(b"ECHO settled\r\n");
                self.expect("$7");
                self.expect("settled");
            }
        }
    }

    /// Skips the answer to `HELLO`, whose last field is an empty list.
    pub fn settle_after_hello(&mut self) {
        while self.line() != "*0" {}
        self.settle();
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the peer reads");
    }

    /// Sends bytes that the peer may not read to their end.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) {
        // It closes the connection when it has seen enough.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Closes the sending side, and still reads.
    pub fn stop_talking(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("the connection stands");
    }

    /// Shortens the time that [`ListenerClient::sends`] waits from now on.
    pub fn may_stall(&mut self) {
        self.stream.set_write_timeout(Some(Duration::from_secs(2))).expect("a time above 0");
    }

    /// Returns whether the peer takes all of this.
    pub fn sends(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Subscribes, and waits until that is confirmed. NATS clients call the subscription `sid`.
    pub fn subscribe(&mut self, subject: &str, sid: u32) {
        match self.protocol {
            Nats => {
                self.send(format!("SUB {subject} {sid}\r\n"));
                self.settle();
            }
            Redis => {
                self.send(command(&[b"SUBSCRIBE", subject.as_bytes()]));
                let [kind, name, _] = self.push();
                assert_eq!((&kind[..], &name[..]), (&b"subscribe"[..], subject.as_bytes()));
            }
        }
    }

    /// Returns the next line, without its end.
    #[track_caller]
    pub fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.read[self.at..].windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&self.read[self.at..self.at + end]).into_owned();
                self.at += end + 2;
                return line;
            }
            assert!(self.fill(), "the connection ended after {:?}", self.unread());
        }
    }

    /// Checks that the next line is this one. Pings of the peer are skipped.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        let mut line = self.line();
        while line == "PING" && text != "PING" {
            line = self.line();
        }
        assert_eq!(line, text);
    }

    /// Returns the next `count` bytes, and skips the end of the line behind them.
    #[track_caller]
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < self.at + count + 2 {
            assert!(self.fill(), "the connection ended after {:?}", self.unread());
        }
        let bytes = self.read[self.at..self.at + count].to_vec();
        self.at += count + 2;
        bytes
    }

    /// Returns the parts of a Redis message: byte strings, and a number as its text.
    #[track_caller]
    pub fn push(&mut self) -> [Vec<u8>; 3] {
        let line = self.line();
        assert!(line == "*3" || line == ">3", "no message: {line:?}");
        [(); 3].map(|()| {
            let line = self.line();
            match line.split_at(1) {
                ("$", length) => self.bytes(length.parse().expect("a length")),
                (":", number) => number.as_bytes().to_vec(),
                _ => panic!("no part of a message: {line:?}"),
            }
        })
    }

    /// Returns the next message: its subject and its payload, without headers. Pings of the peer are answered.
    #[track_caller]
    pub fn message(&mut self) -> (String, Vec<u8>) {
        if self.protocol == Redis {
            let [kind, subject, payload] = self.push();
            assert_eq!(kind, b"message", "{}", String::from_utf8_lossy(&payload));
            return (String::from_utf8(subject).expect("text"), payload);
        }
        loop {
            let line = self.line();
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["PING"] => self.send(b"PONG\r\n"),
                ["MSG", subject, .., length] => {
                    let payload = self.bytes(length.parse().expect("a length"));
                    return (subject.to_owned(), payload);
                }
                ["HMSG", subject, .., headers, length] => {
                    let mut payload = self.bytes(length.parse().expect("a length"));
                    payload.drain(..headers.parse::<usize>().expect("a length"));
                    return (subject.to_owned(), payload);
                }
                _ => panic!("no message: {line:?}"),
            }
        }
    }

    /// Returns the next message as [`ListenerClient::message`] does if it begins within `time`.
    #[track_caller]
    pub fn message_within(&mut self, time: Duration) -> Option<(String, Vec<u8>)> {
        let deadline = now() + time;
        loop {
            let has_line = self.read[self.at..].windows(2).any(|pair| pair == b"\r\n");
            if has_line && self.read[self.at..].starts_with(b"PING") {
                self.line();
                self.send(b"PONG\r\n");
            } else if has_line {
                return Some(self.message());
            } else {
                let (is_over, bytes) = (deadline <= now(), self.read.len());
                assert!(!self.has_ended(), "the connection ended after {:?}", self.unread());
                if is_over && self.read.len() == bytes {
                    return None;
                }
            }
        }
    }

    /// Returns everything until the peer closes the connection, which it must.
    #[track_caller]
    pub fn rest(&mut self) -> String {
        while self.fill() {}
        self.unread()
    }

    /// Returns whether the connection has ended by now; bytes before the end are kept.
    pub fn has_ended(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a time above 0");
        let mut scratch = [0; 4096];
        let outcome = loop {
            match self.stream.read(&mut scratch) {
                Ok(0) => break true,
                Ok(count) => self.read.extend_from_slice(&scratch[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            }
        };
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a time above 0");
        outcome
    }

    fn unread(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.read[self.at..]).into_owned();
        self.at = self.read.len();
        text
    }

    /// Reads more bytes. Returns false at the end of the connection.
    #[track_caller]
    fn fill(&mut self) -> bool {
        if 1 << 16 < self.at {
            self.read.drain(..std::mem::take(&mut self.at));
        }
        let mut scratch = [0; 1 << 16];
        match self.stream.read(&mut scratch) {
            Ok(0) => false,
            Ok(count) => {
                self.read.extend_from_slice(&scratch[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            Err(error) => panic!("nothing comes ({error}) after {:?}", self.unread()),
        }
    }
}
