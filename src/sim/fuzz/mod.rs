//! The bodies of the fuzz targets. Each takes any bytes and panics if something is wrong.
//!
//! `tools/fuzz` runs them with libFuzzer, `tools/fuzz-run` without, and `tests/corpus.rs` replays the inputs that both
//! found.

mod certificate;
mod decode;
mod hat;
mod history;
mod keyed;
mod link;
mod local;
mod nats;
mod peer;
mod redis;
mod repair;
mod rv;
mod script;
mod websocket;

pub use certificate::certificate;
pub use decode::decode;
pub use hat::hat;
pub use history::history;
pub use keyed::keyed;
pub use link::link;
pub use local::local;
pub use nats::nats;
pub use peer::peer;
pub use redis::redis;
pub use rv::rv;
pub use websocket::websocket;

use bytes::Bytes;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// The name of the target and of its corpus.
    pub name: &'static str,
    /// The function that takes an input and panics if something is wrong.
    pub body: fn(&[u8]),
}

/// Every target.
pub const TARGETS: [FuzzTarget; 12] = [
    FuzzTarget { name: "certificate", body: certificate },
    FuzzTarget { name: "decode", body: decode },
    FuzzTarget { name: "peer", body: peer },
    FuzzTarget { name: "local", body: local },
    FuzzTarget { name: "history", body: history },
    FuzzTarget { name: "redis", body: redis },
    FuzzTarget { name: "nats", body: nats },
    FuzzTarget { name: "hat", body: hat },
    FuzzTarget { name: "rv", body: rv },
    FuzzTarget { name: "keyed", body: keyed },
    FuzzTarget { name: "link", body: link },
    FuzzTarget { name: "websocket", body: websocket },
];

/// Bytes of the check value at the end of a datagram.
const CHECK_BYTES: usize = 4;

/// Returns the datagram with a correct check value, as a sender makes it.
fn repaired(bytes: &[u8]) -> Bytes {
    let content = bytes.get(..bytes.len().saturating_sub(CHECK_BYTES)).unwrap_or_default();
    [content, &crc32c::crc32c(content).to_be_bytes()].concat().into()
}
