//! A client of server-sent events without any library.

use super::super::client::connect;
use crate::support::command::parse_json;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A subscription by server-sent events.
pub struct EventReader {
    stream: BufReader<TcpStream>,
    pub status: u16,
    /// Head of the answer, in lower case.
    pub head: String,
}

impl EventReader {
    /// Subscribes with further header lines, and reads the head of the answer.
    pub fn begin_with(address: SocketAddr, path: &str, headers: &str) -> EventReader {
        let mut stream = connect(address);
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("the connection is open");
        let mut reader = EventReader { stream: BufReader::new(stream), status: 0, head: String::new() };
        let first = reader.line();
        reader.status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        loop {
            let line = reader.line();
            if line.is_empty() {
                return reader;
            }
            reader.head += &format!("{}\n", line.to_ascii_lowercase());
        }
    }

    /// Subscribes, and waits until the subscription has begun.
    #[track_caller]
    pub fn begin(address: SocketAddr, path: &str) -> EventReader {
        let mut reader = EventReader::begin_with(address, path, "");
        assert_eq!(reader.status, 200, "{}", reader.head);
        while reader.line() != ": subscribed" {}
        reader
    }

    /// Returns the next line, among them those with the sizes of chunks.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line in time");
        line.trim_end_matches(['\r', '\n']).to_owned()
    }

    /// Returns the name and the data of the next event, which is JSON.
    pub fn event(&mut self) -> (String, Value) {
        let mut name = String::new();
        loop {
            let line = self.line();
            if let Some(event) = line.strip_prefix("event: ") {
                event.clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (name, parse_json(data));
            }
        }
    }

    /// Returns everything until the server closes the connection.
    pub fn rest(mut self) -> String {
        let mut rest = String::new();
        self.stream.read_to_string(&mut rest).expect("the end in time");
        rest
    }
}
