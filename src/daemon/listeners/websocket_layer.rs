//! The WebSocket that carries the protocol of a listener client: its handshake, and its frames on the stream below.

use crate::listener::websocket::{OriginPolicy, WebSocketFault, WebSocketReader, WebSocketWriter, parse_upgrade};
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

/// Status codes of Close frames (RFC 6455, section 7.4.1).
const NORMAL: u16 = 1000;
const GOING_AWAY: u16 = 1001;
const PROTOCOL_ERROR: u16 = 1002;

/// The WebSocket of a client.
#[derive(Debug)]
pub(super) struct WebSocketLayer {
    policy: Arc<OriginPolicy>,
    /// Bytes of an incomplete handshake.
    received: Vec<u8>,
    is_open: bool,
    /// True once the client has closed the WebSocket, or has committed a fault.
    is_ended: bool,
    fault: Option<WebSocketFault>,
    reader: WebSocketReader,
    writer: WebSocketWriter,
    /// Number of bytes read from the stream below since they were last taken.
    read_bytes: usize,
}

impl WebSocketLayer {
    /// Creates the WebSocket of a client that has sent nothing.
    pub(super) fn new(policy: Arc<OriginPolicy>) -> WebSocketLayer {
        WebSocketLayer {
            policy,
            received: Vec::new(),
            is_open: false,
            is_ended: false,
            fault: None,
            reader: WebSocketReader::default(),
            writer: WebSocketWriter::default(),
            read_bytes: 0,
        }
    }

    /// Returns whether the handshake is complete.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns whether the handshake may still be completed.
    pub(super) fn awaits_upgrade(&self) -> bool {
        !self.is_open && !self.is_ended
    }

    /// Returns the fault of the client, once.
    pub(super) fn take_fault(&mut self) -> Option<WebSocketFault> {
        self.fault.take()
    }

    /// Returns whether the stream has taken all frames.
    pub(super) fn is_flushed(&self) -> bool {
        self.writer.is_flushed()
    }

    /// Returns the number of bytes of frames that were read since the last call, with and without payload.
    pub(super) fn take_read_bytes(&mut self) -> usize {
        std::mem::take(&mut self.read_bytes)
    }

    /// Reads once from the stream below, and returns the payload; 0 at the end.
    ///
    /// # Errors
    /// The same as of the stream; [`io::ErrorKind::WouldBlock`] also if the bytes have no payload.
    pub(super) fn read(&mut self, stream: &mut (impl Read + Write), bytes: &mut [u8]) -> io::Result<usize> {
        if self.is_ended {
            return Ok(0);
        }
        let mut count = stream.read(bytes)?;
        if count == 0 {
            return Ok(0);
        }
        self.read_bytes += count;
        if !self.is_open {
            count = self.upgrade(bytes, count);
        }
        match self.reader.read(&mut bytes[..count]) {
            Ok(payload) => count = payload,
            Err(fault) => {
                self.end(fault);
                self.writer.put_close(PROTOCOL_ERROR);
                count = 0;
            }
        }
        if self.reader.is_closed() {
            self.writer.put_close(NORMAL);
            self.is_ended = true;
        }
        // A broken connection shows at the next read.
        drop(self.flush_frames(stream));
        match count {
            0 if !self.is_ended => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    /// Writes queued frames, and the answer to the last ping once there is room: a client that reads nothing makes at
    /// most one answer wait.
    fn flush_frames(&mut self, stream: &mut impl Write) -> io::Result<()> {
        if self.writer.flush(stream)?
            && let Some(payload) = self.reader.take_pong()
        {
            self.writer.put_pong(&payload);
            self.writer.flush(stream)?;
        }
        Ok(())
    }

    /// Continues the handshake with the first `count` of these bytes. Returns the number of bytes behind it, which stand
    /// at the beginning of `bytes` afterwards.
    fn upgrade(&mut self, bytes: &mut [u8], count: usize) -> usize {
        self.received.extend_from_slice(&bytes[..count]);
        match parse_upgrade(&self.received, &self.policy) {
            Ok(None) => 0,
            Ok(Some(request)) => {
                self.is_open = true;
                self.writer.put_raw(&request.response);
                let received = std::mem::take(&mut self.received);
                let rest = &received[request.bytes..];
                bytes[..rest.len()].copy_from_slice(rest);
                rest.len()
            }
            Err(refusal) => {
                self.end(WebSocketFault::Refused(refusal));
                self.writer.put_raw(&refusal.response());
                0
            }
        }
    }

    fn end(&mut self, fault: WebSocketFault) {
        self.fault = Some(fault);
        self.is_ended = true;
    }

    /// Writes payload to the stream below. Before the handshake is complete it takes none.
    pub(super) fn write(&mut self, stream: &mut impl Write, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match () {
            () if self.is_ended => Err(io::ErrorKind::BrokenPipe.into()),
            () if !self.is_open => Err(io::ErrorKind::WouldBlock.into()),
            () => self.writer.write(stream, slices),
        }
    }

    /// Writes queued frames to the stream below.
    pub(super) fn flush(&mut self, stream: &mut impl Write) -> io::Result<()> {
        self.flush_frames(stream)?;
        stream.flush()
    }

    /// Sends a Close frame, unless the client has got one or a frame is written in part.
    pub(super) fn close(&mut self, stream: &mut impl Write) {
        if self.is_open && !self.is_ended {
            self.is_ended = true;
            self.writer.put_close(GOING_AWAY);
        }
        // A client that does not receive it sees the connection end.
        drop(self.flush(stream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that sends pings without end, and reads only if `reads` is set.
    #[derive(Default)]
    struct PingingClient {
        reads: bool,
        received: Vec<u8>,
    }

    impl Read for PingingClient {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            // A masked ping whose payload is "ping".
            let ping = [0x89, 0x84, 0, 0, 0, 0, b'p', b'i', b'n', b'g'];
            let whole = bytes.len() / ping.len() * ping.len();
            bytes[..whole].copy_from_slice(&ping.repeat(whole / ping.len()));
            Ok(whole)
        }
    }

    impl Write for PingingClient {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.reads {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.received.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn frames_without_payload_end_a_read() {
        let policy = Arc::new(OriginPolicy::default());
        let mut layer = WebSocketLayer { is_open: true, ..WebSocketLayer::new(policy) };
        let (mut client, mut bytes) = (PingingClient::default(), [0; 1000]);
        for _ in 0..100 {
            let read = layer.read(&mut client, &mut bytes);
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock);
            assert_eq!(layer.take_read_bytes(), 1000);
        }
        assert!(!layer.is_flushed());
        client.reads = true;
        layer.flush(&mut client).unwrap();
        // The first ping found an empty queue. The last one is answered once that answer has left.
        assert_eq!(client.received, [&b"\x8a\x04ping"[..]; 2].concat());
        assert!(layer.is_flushed());
    }
}
