//! Security: the keys of hosts and realms, the handshakes by which peers authenticate each other, and sealed datagrams.
//!
//! The layout and the key schedule are in `docs/wire.md`. Nothing here reads a clock, a file or the system's randomness:
//! times and random bytes are arguments, as in the core.

mod association;
pub mod batch_signature;
mod cipher;
mod cookie;
mod counters;
mod credentials;
mod deferral;
mod exchange;
mod handshake_datagram;
mod handshake_limits;
mod hello_schedule;
mod key_log;
mod key_schedule;
#[cfg(test)]
mod known_answers;
mod layer;
mod member_certificate;
mod noise;
mod origin;
mod own_keys;
pub mod realm;
mod replay_window;
mod sealed_datagram;
mod secret;
mod sent_numbers;

pub use cipher::{KEYED_BYTES, Suite, TAG_BYTES};
pub use counters::SecurityCounters;
pub use credentials::{CertificateVerifier, CertifiedHost, RealmCredentials};
pub use key_log::{KEY_LOG_TITLE, LoggedKeys, LoggedSecret};
pub use layer::{SecretSource, SecurityEffect, SecurityLayer, SecuritySettings};
pub use member_certificate::{MEMBER_CERTIFICATE_BYTES_MAX, MembershipKey, ProvenCertificate};
pub use noise::{STATIC_KEY_BYTES, static_public};
pub use secret::{SECRET_BYTES, Secret};
