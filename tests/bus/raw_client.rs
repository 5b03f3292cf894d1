//! A handwritten client of the local socket, and the greeting of a peer.

use crate::support::bus::PATIENCE;
use bytes::BytesMut;
use seqcast::listener::frame::{ClientFrame, PeerFrame, VERSION, Welcome};
use seqcast::listener::local::ClientEndpoint;
use seqcast::message::{DeliveryMode, SubId};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A handwritten client: it sends and reads only as the test commands.
pub struct RawClient {
    pub stream: UnixStream,
    caller: ClientEndpoint,
}

impl RawClient {
    /// Connects without a greeting.
    pub fn connect(path: &Path) -> RawClient {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        RawClient { stream, caller: ClientEndpoint::new() }
    }

    /// Connects and exchanges greetings.
    pub fn greeted(path: &Path) -> RawClient {
        let mut raw = RawClient::connect(path);
        raw.send(&ClientFrame::Hello { version: VERSION, name: "raw".into() });
        assert!(matches!(raw.next(), Some(PeerFrame::Welcome(_))));
        raw
    }

    /// Sends a frame.
    pub fn send(&mut self, frame: &ClientFrame) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Subscribes, and waits until the peer confirms it.
    pub fn subscribe(&mut self, sub: u32, pattern: &str) {
        self.send_subscribe(sub, pattern, None, None, false);
        assert_eq!(self.next(), Some(PeerFrame::Subscribed { sub: SubId(sub) }));
    }

    /// Sends a subscription without waiting for an answer.
    pub fn send_subscribe(
        &mut self,
        sub: u32,
        pattern: &str,
        queue: Option<&str>,
        mode: Option<DeliveryMode>,
        wants_discovery: bool,
    ) {
        let (pattern, queue) = (pattern.parse().unwrap(), queue.map(|name| name.parse().unwrap()));
        self.send(&ClientFrame::Subscribe { sub: SubId(sub), pattern, queue, mode, wants_discovery });
    }

    /// Returns the next frame; `None` at the end of the connection.
    pub fn next(&mut self) -> Option<PeerFrame> {
        let mut bytes = [0u8; 65_536];
        loop {
            if let Some(frame) = self.caller.poll_frame().unwrap() {
                return Some(frame);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.caller.push(&bytes[..count]),
                // A connection that is closed with bytes unread ends like this.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Returns the greeting of a peer that speaks this version.
pub fn welcome(version: u16) -> PeerFrame {
    PeerFrame::Welcome(Welcome {
        version,
        peer: "fake".parse().unwrap(),
        epoch: seqcast::message::Epoch::new(1).unwrap(),
        group: 1,
        port: 1,
        client: 1,
        message_bytes_max: 1 << 20,
        software: "0".into(),
        offers_shared_memory: false,
    })
}
