//! The opening handshake (RFC 6455, section 4.2): a request by HTTP, and its answer.

use crate::listener::http_access::{is_own_host, is_own_origin};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::fmt;

/// Maximum bytes of the request.
pub const HANDSHAKE_BYTES_MAX: usize = 8 << 10;
/// Answer to a client beyond the connection limit.
pub const OVERLOAD_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
/// End of the request's head.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Text that the accepted key is made with (RFC 6455, section 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of a key, before its encoding.
const KEY_BYTES: usize = 16;

/// Pages that may open a WebSocket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginPolicy {
    /// Origins of pages that may connect besides those of the listener's own address, in lower case.
    pub origins: Vec<String>,
    /// Name of this host, if the Host header must be a name of this host: no client authenticates, and a foreign site
    /// could resolve its own name to this host (DNS rebinding).
    pub host_name: Option<String>,
}

/// Reason why a request opens no WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeRefusal {
    /// The request is not that of a WebSocket of version 13.
    NoWebSocket,
    /// The head of the request is longer than [`HANDSHAKE_BYTES_MAX`].
    TooLong,
    /// The Host header names no host, or no name of this host.
    ForeignHost,
    /// A page of another site sends the request.
    ForeignOrigin,
}

impl UpgradeRefusal {
    /// Returns the kind of the refusal, for counters.
    pub fn kind(self) -> &'static str {
        match self {
            UpgradeRefusal::NoWebSocket => "no WebSocket",
            UpgradeRefusal::TooLong => "long WebSocket request",
            UpgradeRefusal::ForeignHost => "foreign host",
            UpgradeRefusal::ForeignOrigin => "foreign origin",
        }
    }

    /// Returns the answer, which ends the connection.
    pub fn response(self) -> Vec<u8> {
        let status = match self {
            UpgradeRefusal::NoWebSocket => "400 Bad Request",
            UpgradeRefusal::TooLong => "431 Request Header Fields Too Large",
            UpgradeRefusal::ForeignHost => "421 Misdirected Request",
            UpgradeRefusal::ForeignOrigin => "403 Forbidden",
        };
        let text = format!("{self}\n");
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}", text.len());
        format!("{head}\r\nSec-WebSocket-Version: 13\r\nConnection: close\r\n\r\n{text}").into_bytes()
    }
}

impl fmt::Display for UpgradeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UpgradeRefusal::NoWebSocket => "this listener serves WebSockets alone",
            UpgradeRefusal::TooLong => "the request has more than 8192 bytes",
            UpgradeRefusal::ForeignHost => {
                "the Host header is no name of this host: use its address, or configure accounts"
            }
            UpgradeRefusal::ForeignOrigin => "pages of other sites may not connect: see nats-ws-origins",
        })
    }
}

/// A request that opens a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeRequest {
    /// Bytes of the request. Frames follow.
    pub bytes: usize,
    /// The answer.
    pub response: Vec<u8>,
}

/// Reads the request at the beginning of the received bytes; `None` if it is not complete.
///
/// # Errors
/// The request is refused.
pub fn parse_upgrade(received: &[u8], policy: &OriginPolicy) -> Result<Option<UpgradeRequest>, UpgradeRefusal> {
    let within = &received[..received.len().min(HANDSHAKE_BYTES_MAX)];
    let Some(at) = within.windows(HEAD_END.len()).position(|bytes| bytes == HEAD_END) else {
        // Other protocols are refused at their first bytes.
        let is_get = received.iter().zip(b"GET /").all(|(byte, expected)| byte == expected);
        return match (is_get, received.len() < HANDSHAKE_BYTES_MAX) {
            (false, _) => Err(UpgradeRefusal::NoWebSocket),
            (true, true) => Ok(None),
            (true, false) => Err(UpgradeRefusal::TooLong),
        };
    };
    let head = std::str::from_utf8(&received[..at]).map_err(|_| UpgradeRefusal::NoWebSocket)?;
    let key = check_head(head, policy)?;
    let accepted = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    let response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n",
        BASE64_STANDARD.encode(accepted)
    );
    Ok(Some(UpgradeRequest { bytes: at + HEAD_END.len(), response: response.into_bytes() }))
}

/// Checks the head of a request, and returns its key.
fn check_head<'a>(head: &'a str, policy: &OriginPolicy) -> Result<&'a str, UpgradeRefusal> {
    let mut lines = head.split("\r\n");
    let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    if !matches!(first[..], ["GET", path, "HTTP/1.1"] if path.starts_with('/')) {
        return Err(UpgradeRefusal::NoWebSocket);
    }
    let fields: Option<Vec<(&str, &str)>> = lines.map(|line| line.split_once(':')).collect();
    let fields = fields.ok_or(UpgradeRefusal::NoWebSocket)?;
    let values = |name: &str| {
        let of_name = fields.iter().filter(move |(field, _)| field.eq_ignore_ascii_case(name));
        of_name.map(|(_, value)| value.trim()).collect::<Vec<&'a str>>()
    };
    let has_word = |name: &str, word: &str| {
        let words = values(name).into_iter().flat_map(|value| value.split(','));
        words.map(str::trim).any(|value| value.eq_ignore_ascii_case(word))
    };
    let &[host] = &values("host")[..] else { return Err(UpgradeRefusal::ForeignHost) };
    if policy.host_name.as_ref().is_some_and(|name| !is_own_host(host, name)) {
        return Err(UpgradeRefusal::ForeignHost);
    }
    let is_admitted = |origin: &&str| {
        is_own_origin(origin, host) || policy.origins.iter().any(|listed| listed.eq_ignore_ascii_case(origin))
    };
    if !values("origin").iter().all(is_admitted) {
        return Err(UpgradeRefusal::ForeignOrigin);
    }
    let is_upgrade = has_word("upgrade", "websocket") && has_word("connection", "upgrade");
    match values("sec-websocket-key")[..] {
        [key] if is_upgrade && values("sec-websocket-version") == ["13"] && is_key(key) => Ok(key),
        _ => Err(UpgradeRefusal::NoWebSocket),
    }
}

fn is_key(key: &str) -> bool {
    BASE64_STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == KEY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPGRADE: &str = "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                           Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

    fn request(lines: &str) -> String {
        format!("GET / HTTP/1.1\r\n{lines}{UPGRADE}\r\n")
    }

    fn parse(text: &str) -> Result<Option<UpgradeRequest>, UpgradeRefusal> {
        let policy =
            OriginPolicy { origins: vec!["https://panel.example".to_owned()], host_name: Some("plant-7".to_owned()) };
        parse_upgrade(text.as_bytes(), &policy)
    }

    #[test]
    fn key_is_accepted_as_in_the_standard() {
        let text = request("Host: 127.0.0.1:9222\r\n");
        let accepted = parse(&format!("{text}rest")).unwrap().unwrap();
        assert_eq!(accepted.bytes, text.len());
        let response = String::from_utf8(accepted.response).unwrap();
        assert!(response.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"), "{response}");
        for cut in 0..text.len() {
            assert_eq!(parse(&text[..cut]), Ok(None), "{cut}");
        }
    }

    #[test]
    fn hosts_and_origins_are_checked() {
        for (lines, expected) in [
            ("Host: localhost:9222\r\n", None),
            ("Host: plant-7\r\n", None),
            ("Host: 10.0.0.7:9222\r\nOrigin: https://panel.example\r\n", None),
            ("Host: 10.0.0.7:9222\r\nOrigin: http://10.0.0.7:9222\r\n", None),
            ("", Some(UpgradeRefusal::ForeignHost)),
            ("Host: a\r\nHost: 127.0.0.1\r\n", Some(UpgradeRefusal::ForeignHost)),
            ("Host: evil.example\r\nOrigin: http://evil.example\r\n", Some(UpgradeRefusal::ForeignHost)),
            ("Host: 10.0.0.7:9222\r\nOrigin: http://10.0.0.7:7580\r\n", Some(UpgradeRefusal::ForeignOrigin)),
            ("Host: localhost\r\nOrigin: null\r\n", Some(UpgradeRefusal::ForeignOrigin)),
            (
                "Host: localhost\r\nOrigin: https://panel.example\r\nOrigin: http://evil.example\r\n",
                Some(UpgradeRefusal::ForeignOrigin),
            ),
        ] {
            assert_eq!(parse(&request(lines)).err(), expected, "{lines}");
        }
        let anywhere = request("Host: seqcast.plant.example\r\n");
        assert!(parse_upgrade(anywhere.as_bytes(), &OriginPolicy::default()).unwrap().is_some());
    }

    #[test]
    fn other_requests_are_refused() {
        let host = "Host: localhost\r\n";
        let refused = |text: &str| parse(text).unwrap_err();
        for text in [
            "CONNECT {}\r\n".to_owned(),
            "\u{16}\u{3}\u{1}".to_owned(),
            request(host).replace("GET", "POST"),
            request(host).replace("HTTP/1.1", "HTTP/1.0"),
            request(host).replace("websocket\r\n", "h2c\r\n"),
            request(host).replace("keep-alive, Upgrade", "close"),
            request(host).replace("Version: 13", "Version: 8"),
            request(host).replace("dGhl", "dG"),
            request("Host: localhost\r\nno colon\r\n"),
        ] {
            assert_eq!(refused(&text), UpgradeRefusal::NoWebSocket, "{text:?}");
        }
        assert_eq!(refused(&format!("GET /{}", "a".repeat(HANDSHAKE_BYTES_MAX))), UpgradeRefusal::TooLong);
        let answer = String::from_utf8(UpgradeRefusal::ForeignOrigin.response()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n") && answer.ends_with("see nats-ws-origins\n"));
    }
}
