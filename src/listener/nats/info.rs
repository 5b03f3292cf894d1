//! The INFO line of the server.

use super::connect;
use super::settings::{Settings, Tls};
use crate::listener::session_request::ConnectionInfo;
use crate::message::Epoch;
use crate::rng::Rng;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

/// Protocol version that INFO announces. This listener implements the core of that server version completely. Clients
/// derive features from it.
pub const VERSION: &str = "2.10.0";

/// Alphabet of a server id, as in nats-server.
const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// Length of a server id, in characters.
const ID_BYTES: usize = 56;

/// Value of the field `go`, in which nats-server names its toolchain. Client libraries require the field and only
/// display it.
const TOOLCHAIN: &str = "rust";

/// The object after INFO, in the field order of nats-server 2.10. It omits `git_commit` and `xkey`, which released
/// builds of nats-server send. The build records no commit, and this server has no curve key for an auth callout.
#[derive(Serialize)]
struct ServerInfoJson<'a> {
    server_id: String,
    server_name: &'a str,
    version: &'a str,
    proto: u8,
    go: &'static str,
    host: String,
    port: u16,
    headers: bool,
    #[serde(skip_serializing_if = "is_false")]
    auth_required: bool,
    #[serde(skip_serializing_if = "is_false")]
    tls_required: bool,
    #[serde(skip_serializing_if = "is_false")]
    tls_verify: bool,
    #[serde(skip_serializing_if = "is_false")]
    tls_available: bool,
    max_payload: usize,
    client_id: u32,
    client_ip: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    ldm: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Returns the INFO line for this client. With `is_stopping`, the line requests the client to reconnect elsewhere.
pub(super) fn line(settings: &Settings, connection: &ConnectionInfo, is_stopping: bool) -> Vec<u8> {
    let info = ServerInfoJson {
        server_id: server_id(settings.epoch),
        server_name: settings.peer.as_str(),
        version: VERSION,
        proto: 1,
        go: TOOLCHAIN,
        host: connection.listen.ip().to_string(),
        port: connection.listen.port(),
        headers: true,
        auth_required: settings.access.requires_authentication(),
        tls_required: matches!(settings.tls, Tls::Required | Tls::Certified),
        tls_verify: settings.tls == Tls::Certified,
        tls_available: settings.tls == Tls::Available,
        max_payload: settings.payload_bytes_max,
        client_id: connection.client,
        client_ip: connection.from.ip().to_string(),
        nonce: connect::has_nkeys(&settings.access).then(|| nonce(connection)),
        ldm: is_stopping,
    };
    let mut line = b"INFO ".to_vec();
    serde_json::to_writer(&mut line, &info).expect("text, numbers and switches");
    line.extend_from_slice(b" \r\n");
    line
}

/// Returns the nonce that a client signs.
pub(super) fn nonce(connection: &ConnectionInfo) -> String {
    URL_SAFE_NO_PAD.encode(connection.nonce)
}

/// Returns an id in the form of nats-server; each epoch has a different one.
fn server_id(epoch: Epoch) -> String {
    let mut id = String::with_capacity(ID_BYTES);
    id.push('N');
    // The first 13 letters encode the epoch; the others are derived from it.
    let mark = |bits: u64| 1 << 64 | u128::from(bits);
    let (mut bits, mut rest) = (mark(epoch.bits()), Rng::new(epoch.bits()));
    while id.len() < ID_BYTES {
        if bits == 0 {
            bits = mark(rest.next_u64());
        }
        id.push(LETTERS[(bits & 31) as usize].into());
        bits >>= 5;
    }
    id
}
