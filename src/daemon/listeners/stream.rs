//! The stream of a listener client: plain, or encrypted from the byte on with which the client begins a handshake.

use super::client_certificate::{HandshakeFault, certificate_names};
use super::websocket_layer::WebSocketLayer;
use crate::config::TlsClients;
use crate::listener::websocket::{OriginPolicy, WebSocketFault};
use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

/// The first byte of a TLS handshake record (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;

/// Encryption of a listener.
#[derive(Clone, Debug)]
pub(crate) struct ListenerTls {
    pub(crate) config: Arc<ServerConfig>,
    /// Policy for clients without encryption or without a certificate.
    pub(crate) clients: TlsClients,
}

impl ListenerTls {
    /// Returns whether clients may connect without encryption.
    pub(crate) fn is_optional(&self) -> bool {
        self.clients == TlsClients::Any
    }
}

/// A stream of bytes to and from a client.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    /// TLS configuration, present until the client's first byte shows whether the stream is encrypted.
    pending_tls: Option<ListenerTls>,
    secure: Option<Box<ServerConnection>>,
    /// True until the end of the handshake has been noticed.
    is_handshake_pending: bool,
    /// Fault of a failed handshake.
    handshake_fault: Option<HandshakeFault>,
    /// True if the client began without encryption although it is required.
    pub(crate) is_refused: bool,
    /// The WebSocket in which the client's protocol is carried, if there is one.
    web_socket: Option<Box<WebSocketLayer>>,
}

impl Stream {
    /// Makes a stream, inside a WebSocket if there is a policy of its origins. Output before the client's first byte is
    /// not encrypted.
    pub(crate) fn new(socket: TcpStream, tls: Option<&ListenerTls>, policy: Option<&Arc<OriginPolicy>>) -> Stream {
        Stream {
            socket,
            pending_tls: tls.cloned(),
            secure: None,
            is_handshake_pending: false,
            handshake_fault: None,
            is_refused: false,
            web_socket: policy.map(|policy| Box::new(WebSocketLayer::new(Arc::clone(policy)))),
        }
    }

    /// Inspects the client's first byte, unless that has been done.
    ///
    /// # Errors
    /// There is none yet, or the stream is plain although encryption is required: [`io::ErrorKind::PermissionDenied`].
    pub(crate) fn detect_encryption(&mut self) -> io::Result<()> {
        let Some(tls) = &self.pending_tls else { return Ok(()) };
        let mut first = [0];
        if self.socket.peek(&mut first)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first == [HANDSHAKE] {
            let connection = ServerConnection::new(Arc::clone(&tls.config)).map_err(io::Error::other)?;
            self.secure = Some(Box::new(connection));
            self.is_handshake_pending = true;
        } else if !tls.is_optional() {
            self.is_refused = true;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.pending_tls = None;
        Ok(())
    }

    /// Returns whether it is known if the stream is encrypted, and its WebSocket, if it has one, is open.
    pub(crate) fn is_begun(&self) -> bool {
        self.pending_tls.is_none() && self.web_socket.as_ref().is_none_or(|layer| layer.is_open())
    }

    /// Returns whether the client has not opened its WebSocket yet.
    pub(crate) fn awaits_upgrade(&self) -> bool {
        self.web_socket.as_ref().is_some_and(|layer| layer.awaits_upgrade())
    }

    /// Returns the fault by which the client ended its WebSocket, once.
    pub(crate) fn take_web_socket_fault(&mut self) -> Option<WebSocketFault> {
        self.web_socket.as_mut()?.take_fault()
    }

    /// Returns the number of bytes of WebSocket frames that were read since the last call, with and without payload.
    pub(crate) fn take_frame_bytes(&mut self) -> usize {
        self.web_socket.as_mut().map_or(0, |layer| layer.take_read_bytes())
    }

    /// Returns whether reads return the bytes of the socket unchanged.
    pub(crate) fn is_plain(&self) -> bool {
        self.pending_tls.is_none() && self.secure.is_none() && self.web_socket.is_none()
    }

    /// Returns whether the client must encrypt and has not begun to.
    pub(crate) fn awaits_encryption(&self) -> bool {
        self.pending_tls.as_ref().is_some_and(|tls| !tls.is_optional())
    }

    /// Returns whether the client has begun a TLS handshake that is not complete.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.secure.as_ref().is_some_and(|connection| connection.is_handshaking())
    }

    /// Returns the names in the client's certificate once, when the handshake is complete. There are none without a
    /// certificate.
    pub(crate) fn take_client_names(&mut self) -> Option<Vec<String>> {
        let connection = self.secure.as_ref().filter(|connection| !connection.is_handshaking())?;
        if !std::mem::take(&mut self.is_handshake_pending) {
            return None;
        }
        Some(certificate_names(connection.peer_certificates()?.first()?))
    }

    /// Returns the fault of a failed handshake, once.
    pub(crate) fn take_handshake_fault(&mut self) -> Option<HandshakeFault> {
        self.handshake_fault.take()
    }

    /// Returns whether the socket has taken all frames and TLS records.
    pub(crate) fn is_flushed(&self) -> bool {
        self.secure.as_ref().is_none_or(|connection| !connection.wants_write())
            && self.web_socket.as_ref().is_none_or(|layer| layer.is_flushed())
    }

    /// Calls `each` with the WebSocket and the stream that carries it. Without a WebSocket it returns `None`.
    fn with_web_socket<T>(&mut self, each: impl FnOnce(&mut WebSocketLayer, &mut Stream) -> T) -> Option<T> {
        let mut layer = self.web_socket.take()?;
        let result = each(&mut layer, self);
        self.web_socket = Some(layer);
        Some(result)
    }

    /// Announces that nothing more will be written.
    pub(crate) fn close(&mut self) {
        self.with_web_socket(|layer, stream| layer.close(stream));
        if let Some(connection) = &mut self.secure {
            connection.send_close_notify();
            // A client that does not receive it sees the connection end.
            let _ = connection.write_tls(&mut self.socket);
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(read) = self.with_web_socket(|layer, stream| layer.read(stream, bytes)) {
            return read;
        }
        self.detect_encryption()?;
        let Some(connection) = &mut self.secure else { return self.socket.read(bytes) };
        let read = rustls::Stream::new(&mut **connection, &mut self.socket).read(bytes);
        if let Err(error) = &read
            && self.is_handshake_pending
        {
            self.handshake_fault = HandshakeFault::of(error);
        }
        read
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(written) = self.with_web_socket(|layer, stream| layer.write(stream, &[IoSlice::new(bytes)])) {
            return written;
        }
        match &mut self.secure {
            Some(connection) => rustls::Stream::new(&mut **connection, &mut self.socket).write(bytes),
            None => self.socket.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(written) = self.with_web_socket(|layer, stream| layer.write(stream, slices)) {
            return written;
        }
        match &mut self.secure {
            Some(connection) => rustls::Stream::new(&mut **connection, &mut self.socket).write_vectored(slices),
            None => self.socket.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(flushed) = self.with_web_socket(|layer, stream| layer.flush(stream)) {
            return flushed;
        }
        match &mut self.secure {
            Some(connection) => rustls::Stream::new(&mut **connection, &mut self.socket).flush(),
            None => Ok(()),
        }
    }
}
