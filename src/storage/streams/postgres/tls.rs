//! Encrypted connections to PostgreSQL: the parameters `sslmode` and `sslrootcert`, and TLS streams for the client.

use crate::storage::server_tls::{AddressParameters, CertificateCheck, client_config};
use crate::storage::streams::error::StreamFault;
use crate::storage::tls_fault::AUTHORITIES_PARAMETER;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;

/// Value of `sslrootcert` for the authorities of the system, as in libpq.
const SYSTEM: &str = "system";
/// Protocol that the handshake names. A server requires it with `sslnegotiation=direct`.
const PROTOCOL: &[u8] = b"postgresql";

/// Takes the parameters of TLS from an address. Returns the rest of the address, and the encryption that they demand.
pub(super) fn split_tls(url: &str) -> Result<(String, Option<PostgresTls>), StreamFault> {
    const MODES: &str = "sslmode is disable, require, verify-ca or verify-full";
    const FALLBACK: &str = "with sslmode allow and prefer a connection may be unencrypted without notice: \
        write sslmode=verify-full, or sslmode=disable";
    const WITHOUT_MODE: &str = "sslrootcert has no effect on an unencrypted connection: add sslmode=verify-full";
    let invalid = |reason: &str| Err(StreamFault::Other(reason.into()));
    let mut parameters = AddressParameters::split(url);
    let (mode, authorities) = (parameters.take("sslmode"), parameters.take(AUTHORITIES_PARAMETER));
    let check = match (mode.as_deref(), &authorities) {
        (None | Some("disable"), None) => return Ok((parameters.url(), None)),
        (None | Some("disable"), Some(_)) => return invalid(WITHOUT_MODE),
        (Some("allow" | "prefer"), _) => return invalid(FALLBACK),
        (Some("require"), None) => CertificateCheck::None,
        (Some("require" | "verify-ca"), _) => CertificateCheck::Authority,
        (Some("verify-full"), _) => CertificateCheck::AuthorityAndName,
        (Some(_), _) => return invalid(MODES),
    };
    let file = authorities.as_deref().filter(|file| *file != SYSTEM).map(Path::new);
    let mut config = client_config(check, file).map_err(StreamFault::Tls)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok((parameters.url(), Some(PostgresTls { config: Arc::new(config) })))
}

/// Encryption of the connections to a server.
#[derive(Clone)]
pub(in crate::storage::streams) struct PostgresTls {
    config: Arc<ClientConfig>,
}

impl fmt::Debug for PostgresTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTls").finish_non_exhaustive()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for PostgresTls {
    type Stream = PostgresTlsSocket<S>;
    type TlsConnect = PostgresHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<PostgresHandshake> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(PostgresHandshake { config: Arc::clone(&self.config), name })
    }
}

/// A handshake with the server of this name.
pub(in crate::storage::streams) struct PostgresHandshake {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for PostgresHandshake {
    type Stream = PostgresTlsSocket<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<PostgresTlsSocket<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connect = TlsConnector::from(self.config).connect(self.name, stream);
        Box::pin(async { Ok(PostgresTlsSocket(connect.await?)) })
    }
}

/// An encrypted stream.
pub(in crate::storage::streams) struct PostgresTlsSocket<S>(RustlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for PostgresTlsSocket<S> {
    /// Without channel binding a server with `channel_binding=require` in the address is refused.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for PostgresTlsSocket<S> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(task, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PostgresTlsSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(task, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(task)
    }
}
