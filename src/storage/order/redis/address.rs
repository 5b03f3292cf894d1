//! The address of a Redis server, with the client that connects to it.

use crate::storage::order::error::OrderFault;
use crate::storage::server_tls::{AddressParameters, read_authorities};
use crate::storage::tls_fault::AUTHORITIES_PARAMETER;
use redis::{Client, ConnectionAddr, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};
use std::path::Path;

/// Scheme of an encrypted connection.
const ENCRYPTED: &str = "rediss://";

/// Address of a server.
pub(super) struct RedisAddress {
    pub(super) client: Client,
    /// Address for messages, without user and password.
    pub(super) location: String,
    /// True if connections are encrypted.
    pub(super) is_encrypted: bool,
}

impl RedisAddress {
    /// Parses `redis://[user:password@]host[:port][/database]`, or `rediss://…` for an encrypted connection, and reads
    /// the file of trusted authorities that it names.
    ///
    /// # Errors
    /// The address is invalid, or the file cannot be used.
    pub(super) fn parse(url: &str) -> Result<RedisAddress, OrderFault> {
        let is_encrypted = url.starts_with(ENCRYPTED);
        if !is_encrypted && !url.starts_with("redis://") {
            return Err(OrderFault::Address("the address of a Redis server begins with redis:// or rediss://"));
        }
        let invalid = |_| OrderFault::Address("this is no address of a Redis server");
        let client = if is_encrypted { encrypted_client(url)? } else { Client::open(url).map_err(invalid)? };
        let info = client.get_connection_info();
        let (scheme, host, port) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => ("redis", host, port),
            ConnectionAddr::TcpTls { host, port, .. } => ("rediss", host, port),
            _ => return Err(OrderFault::Address("the address of a Redis server names host and port")),
        };
        let location = format!("{scheme}://{host}:{port}/{}", info.redis_settings().db());
        Ok(RedisAddress { client, location, is_encrypted })
    }
}

/// Makes the client of an encrypted connection. It checks that the certificate of the server is for the host, and comes
/// from an authority in the named file, or else from one of the system.
fn encrypted_client(url: &str) -> Result<Client, OrderFault> {
    // The library would read `#insecure` as the wish to check nothing.
    if url.contains('#') {
        return Err(OrderFault::Address("the address of a Redis server has no part that begins with #"));
    }
    let mut parameters = AddressParameters::split(url);
    let file = parameters.take(AUTHORITIES_PARAMETER);
    let root_cert = file.map(|file| read_authorities(Path::new(&file))).transpose().map_err(OrderFault::Tls)?;
    // The library uses the provider of the process. If several providers are compiled in, none is the default.
    if CryptoProvider::get_default().is_none() {
        // Another thread may install one first, which serves as well.
        drop(ring::default_provider().install_default());
    }
    Client::build_with_tls(parameters.url(), TlsCertificates { client_tls: None, root_cert })
        .map_err(|_| OrderFault::Address("this is no address of a Redis server"))
}
