//! A client of the Rendezvous listener. It shakes hands, listens and sends as published programs do.

use crate::support::wait::PATIENCE;
use seqcast::listener::rv::message::{RvField, RvMessage, RvValue};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A frame from the daemon, with its fields as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RvFrame {
    pub letter: String,
    pub subject: String,
    pub reply: String,
    /// The data, in encoded form.
    pub data: Vec<u8>,
    /// Each field of a message in `data` as `name=value`.
    pub fields: Vec<String>,
}

impl RvFrame {
    /// Returns the value of a field of the data as text.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
    }
}

/// A connection.
pub struct RvClient {
    stream: TcpStream,
    read: Vec<u8>,
    /// Name of the session.
    pub session: String,
    /// Number of the daemon, as clients write it.
    pub host: String,
}

/// Encodes a message of these fields.
pub fn encode(fields: &[(&str, RvValue<'_>)]) -> Vec<u8> {
    let field = |(name, value): &(&'_ str, RvValue<'_>)| -> Vec<u8> {
        let mut bytes = Vec::new();
        RvField { name: name.as_bytes(), id: None, value: value.clone() }.encode(&mut bytes).expect("a valid field");
        bytes
    };
    let body: Vec<u8> = fields.iter().flat_map(field).collect();
    let length = u32::try_from(body.len() + 8).expect("a small message");
    [&length.to_be_bytes(), &[0x99, 0x55, 0xee, 0xaa][..], &body].concat()
}

/// Returns a text as a value.
pub fn text(text: &str) -> RvValue<'_> {
    RvValue::String(text.as_bytes())
}

/// Returns the fields of a message whose data has this text.
pub fn message<'a>(subject: &'a str, reply: Option<&'a str>, data: RvValue<'a>) -> Vec<(&'static str, RvValue<'a>)> {
    let mut fields = vec![("sub", elements(subject)), ("mtype", text("D"))];
    fields.extend(reply.map(|reply| ("return", text(reply))));
    fields.push(("data", data));
    fields
}

/// Returns a message with one text field.
pub fn body(value: &str) -> RvValue<'_> {
    RvValue::Message(RvMessage { fields: vec![RvField { name: b"text", id: None, value: text(value) }] })
}

fn elements(subject: &str) -> RvValue<'_> {
    RvValue::Subject(subject.split('.').map(str::as_bytes).collect())
}

impl RvClient {
    /// Connects and sends the records before the first frame.
    pub fn connect(address: SocketAddr) -> RvClient {
        let stream = TcpStream::connect(address).expect("the listener is open");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time above 0");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time above 0");
        let mut client = RvClient { stream, read: Vec::new(), session: String::new(), host: String::new() };
        assert_eq!(client.take(12), [0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
        client.send(&[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
        assert_eq!(client.take(64)[..4], [0, 0, 0, 2]);
        let mut record = [0; 64];
        record[3] = 3;
        client.send(&record);
        assert_eq!(client.take(64)[..4], [0, 0, 0, 1]);
        client
    }

    /// Connects and begins a session of its own, in this service.
    pub fn enter(address: SocketAddr, service: u16) -> RvClient {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let mut client = RvClient::connect(address);
        client.init(&service.to_string(), "", None);
        let answer = client.frame();
        assert_eq!((&answer.subject[..], &answer.letter[..]), ("RVD.INITRESP", "R"), "{answer:?}");
        let octets = answer.field("ipaddr").expect("an address").split('.').map(|octet| octet.parse::<u8>());
        client.host = octets.map(|octet| format!("{:02X}", octet.expect("an octet"))).collect();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        client.session = format!("{}.{:X}{number:04X}", client.host, std::process::id());
        client.init(&service.to_string(), "", Some(&client.session.clone()));
        let connected = client.frame();
        assert_eq!((&connected.subject[..], &connected.letter[..]), ("_RV.INFO.SYSTEM.RVD.CONNECTED", "D"));
        client.listen(&format!("_INBOX.{}.>", client.session), None);
        client
    }

    /// Sends an init.
    pub fn init(&mut self, service: &str, network: &str, session: Option<&str>) {
        let mut fields = vec![("mtype", text("I")), ("userid", text("demo")), ("service", text(service))];
        fields.extend([("network", text(network)), ("vmaj", RvValue::I32(5))]);
        fields.extend(session.map(|session| ("session", text(session))));
        self.send(&encode(&fields));
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the peer reads");
    }

    /// Sends bytes that the peer may not read to their end.
    pub fn try_send(&mut self, bytes: &[u8]) {
        // It closes the connection when it has seen enough.
        let _ = self.stream.write_all(bytes);
    }

    pub fn listen(&mut self, subject: &str, reply: Option<&str>) {
        let mut fields = vec![("mtype", text("L")), ("sub", elements(subject))];
        fields.extend(reply.map(|reply| ("return", text(reply))));
        self.send(&encode(&fields));
    }

    pub fn cancel(&mut self, subject: &str) {
        self.send(&encode(&[("mtype", text("C")), ("sub", elements(subject))]));
    }

    /// Sends a message with a text.
    pub fn publish(&mut self, subject: &str, value: &str) {
        self.send(&encode(&message(subject, None, body(value))));
    }

    /// Returns a name of an inbox.
    pub fn inbox(&self, number: u32) -> String {
        format!("_INBOX.{}.{number}", self.session)
    }

    /// Waits until the peer has processed all that was sent. Frames that come before are dropped.
    pub fn settle(&mut self) {
        let inbox = self.inbox(999_999);
        self.publish(&inbox, "settled");
        while self.frame().subject != inbox {}
    }

    /// Returns the next frame. Keep-alives do not count.
    #[track_caller]
    pub fn frame(&mut self) -> RvFrame {
        self.poll_frame().expect("the connection stands")
    }

    /// Returns the next frame for which this holds.
    #[track_caller]
    pub fn await_frame(&mut self, is_awaited: impl Fn(&RvFrame) -> bool) -> RvFrame {
        loop {
            let frame = self.frame();
            if is_awaited(&frame) {
                return frame;
            }
        }
    }

    /// Returns the next frame; `None` at the end of the connection.
    pub fn poll_frame(&mut self) -> Option<RvFrame> {
        loop {
            let length = u32::from_be_bytes(self.poll_take(4)?.try_into().expect("four bytes")) as usize;
            let rest = self.poll_take(length - 4)?;
            let bytes = [&u32::try_from(length).expect("a frame").to_be_bytes()[..], &rest].concat();
            if 8 < length {
                return Some(decode(&bytes));
            }
        }
    }

    /// Returns whether nothing comes within this time.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).expect("a time above 0");
        let mut byte = [0];
        let outcome = if self.read.is_empty() { self.stream.peek(&mut byte) } else { Ok(1) };
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a time above 0");
        matches!(outcome, Err(error) if error.kind() == ErrorKind::WouldBlock || error.kind() == ErrorKind::TimedOut)
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        self.poll_take(count).expect("the connection stands")
    }

    /// Reads this number of bytes; `None` at the end of the connection.
    fn poll_take(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 64 << 10];
        while self.read.len() < count {
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.read.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing comes: {error}"),
            }
        }
        Some(self.read.drain(..count).collect())
    }
}

fn decode(bytes: &[u8]) -> RvFrame {
    let message = RvMessage::decode(bytes).expect("a valid frame");
    let mut frame = RvFrame::default();
    for field in &message.fields {
        match (field.name, &field.value) {
            (b"mtype", value) => frame.letter = show(value),
            (b"sub", value) => frame.subject = show(value),
            (b"return", value) => frame.reply = show(value),
            (b"data", RvValue::Message(data)) => {
                data.encode(&mut frame.data).expect("it was decoded");
                let show_field =
                    |field: &RvField<'_>| format!("{}={}", String::from_utf8_lossy(field.name), show(&field.value));
                frame.fields = data.fields.iter().map(show_field).collect();
            }
            (b"data", RvValue::Opaque(bytes)) => frame.data = bytes.to_vec(),
            (name, value) => frame.fields.push(format!("{}={}", String::from_utf8_lossy(name), show(value))),
        }
    }
    frame
}

/// Shows a value as text.
fn show(value: &RvValue<'_>) -> String {
    match value {
        RvValue::String(text) => String::from_utf8_lossy(text).into_owned(),
        RvValue::Subject(elements) => String::from_utf8_lossy(&elements.join(&b'.')).into_owned(),
        RvValue::IpAddress(address) => address.to_string(),
        RvValue::IpPort(port) => port.to_string(),
        RvValue::U8(number) => number.to_string(),
        RvValue::U32(number) => number.to_string(),
        RvValue::U64(number) => number.to_string(),
        RvValue::I32(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}
