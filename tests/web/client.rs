//! An HTTP client without any library: bytes out, an answer in.

use crate::support::command::PATIENCE;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// An answer by HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl HttpReply {
    /// Reads an answer.
    #[track_caller]
    pub fn parse(bytes: &[u8]) -> HttpReply {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no whole answer: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        HttpReply {
            status: status.unwrap_or_else(|| panic!("no status: {head}")),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    /// Asserts the status.
    #[track_caller]
    pub fn has_status(self, status: u16) -> HttpReply {
        assert_eq!(self.status, status, "{self:#?}");
        self
    }

    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(prefix.as_str()))
    }
}

/// Opens a connection.
#[track_caller]
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time above 0");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time above 0");
    stream
}

/// Sends bytes on a connection of their own, and returns everything that comes back until the server closes it.
#[track_caller]
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    // A server that refuses a request may close the connection before it has read all of it.
    drop(stream.write_all(bytes));
    read_to_end(&mut stream)
}

/// Returns everything that comes until the server closes the connection.
#[track_caller]
pub fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}; received {:?}", String::from_utf8_lossy(&received)),
    }
    received
}

/// Sends a request on a connection of its own, and returns the answer.
#[track_caller]
pub fn send(address: SocketAddr, request: &[u8]) -> HttpReply {
    HttpReply::parse(&exchange(address, request))
}
