//! The stream of a client of a listener: plain, or encrypted from the byte on with which the client begins to be.

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
    /// Whether clients may come in without.
    pub(crate) is_optional: bool,
}

/// A stream of bytes to and from a client.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    /// There until the client's first byte has told whether it is encrypted.
    pending_tls: Option<ListenerTls>,
    secure: Option<Box<ServerConnection>>,
    /// The client began without encryption and must not.
    pub(crate) is_refused: bool,
}

impl Stream {
    /// What is written before the client has sent anything is not encrypted.
    pub(crate) fn new(socket: TcpStream, tls: Option<&ListenerTls>) -> Stream {
        Stream { socket, pending_tls: tls.cloned(), secure: None, is_refused: false }
    }

    /// Looks at the client's first byte, if that has not been done.
    ///
    /// # Errors
    /// There is none yet; or the stream is plain and must not be: [`io::ErrorKind::PermissionDenied`].
    fn detect_encryption(&mut self) -> io::Result<()> {
        let Some(tls) = &self.pending_tls else { return Ok(()) };
        let mut first = [0];
        if self.socket.peek(&mut first)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first == [HANDSHAKE] {
            let connection = ServerConnection::new(Arc::clone(&tls.config)).map_err(io::Error::other)?;
            self.secure = Some(Box::new(connection));
        } else if !tls.is_optional {
            self.is_refused = true;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.pending_tls = None;
        Ok(())
    }

    /// Whether what is read is what the socket has, byte by byte.
    pub(crate) fn is_plain(&self) -> bool {
        self.pending_tls.is_none() && self.secure.is_none()
    }

    /// Whether the client must encrypt and has not begun to.
    pub(crate) fn awaits_encryption(&self) -> bool {
        self.pending_tls.as_ref().is_some_and(|tls| !tls.is_optional)
    }

    /// Whether the client has begun to encrypt and not come to the end of that.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.secure.as_ref().is_some_and(|connection| connection.is_handshaking())
    }

    /// Whether records wait that the socket did not take.
    pub(crate) fn is_flushed(&self) -> bool {
        self.secure.as_ref().is_none_or(|connection| !connection.wants_write())
    }

    /// Says that nothing more will be written.
    pub(crate) fn close(&mut self) {
        if let Some(connection) = &mut self.secure {
            connection.send_close_notify();
            // Who does not take it now will see the connection end.
            let _ = connection.write_tls(&mut self.socket);
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.detect_encryption()?;
        match &mut self.secure {
            Some(connection) => rustls::Stream::new(&mut **connection, &mut self.socket).read(bytes),
            None => self.socket.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.secure {
            Some(connection) => rustls::Stream::new(&mut **connection, &mut self.socket).write(bytes),
            None => self.socket.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.secure {
            Some(connection) => rustls::Stream::new(&mut **connection, &mut self.socket).write_vectored(slices),
            None => self.socket.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.secure {
            Some(connection) => rustls::Stream::new(&mut **connection, &mut self.socket).flush(),
            None => Ok(()),
        }
    }
}
