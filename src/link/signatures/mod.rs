//! Signatures of what a gateway of a realm sends to the cluster.
//!
//! ```text
//!  signer::LinkSigner      messages of the gateway for the cluster -> the same with a signature, certificates
//!  verifier::LinkVerifier  messages of the cluster, certificates -> their content and who vouches for it
//!  realm_trust::RealmTrust the rules by which the verifier trusts certificates
//! ```
//!
//! Each message has the header field [`SIGNATURE_HEADER`], by which it can be verified alone, in any order, and long
//! after its gateway has ended. The signature covers the subject, the reply subject, the payload and the header fields,
//! except [`UNSIGNED_HEADERS`], which are added later or by the cluster. Gateways announce their certificates on
//! [`CERTIFICATE_PREFIX`]; durable messages have them in [`CERTIFICATE_HEADER`].

mod check_budget;
mod code_keys;
mod hub_claim;
mod known_certificate;
mod known_certificates;
pub mod realm_trust;
mod replay_positions;
mod signature_refusal;
pub mod signer;
#[cfg(test)]
mod tests;
pub mod verifier;

pub use super::durable::SIGNATURE_HEADER;
use super::durable::STORED_HEADER;
use crate::message::{HeaderError, Headers, Message};
use crate::security::batch_signature::BatchHash;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Maximum number of certificates that a gateway remembers, and of those that it does not trust. The one that was used
/// least recently is forgotten first.
const CERTIFICATES_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("not 0");
/// Header field of durable messages with the certificate of the signer.
pub const CERTIFICATE_HEADER: &str = "Seqcast-Certificate";
/// Subjects of the cluster for the certificates of gateways, followed by the site.
pub const CERTIFICATE_PREFIX: &str = "_SEQCAST.LINK.CERTIFICATE.";
/// Header fields that no signature covers: the signature itself, the certificate, and what is added for the stream and by
/// the importing gateway. Importing gateways take them out of live messages.
pub const UNSIGNED_HEADERS: [&str; 5] = [
    SIGNATURE_HEADER,
    CERTIFICATE_HEADER,
    STORED_HEADER,
    "Nats-Expected-Stream",
    "Nats-Expected-Last-Subject-Sequence",
];
/// Maximum difference between the time in a signature and that of the message's arrival, or for a durable message that
/// of its arrival in the stream.
pub const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(300);

/// Returns the hash of a message, which its signature covers. Clients of the cluster may reorder header fields of
/// different names, and trim values, so these do not count.
pub fn message_hash(message: &Message) -> BatchHash {
    let is_signed = |key: &str| !is_unsigned(key);
    let mut fields: Vec<(&str, &str)> = message.headers.iter().filter(|(key, _)| is_signed(key)).collect();
    fields.iter_mut().for_each(|(_, value)| *value = value.trim());
    fields.sort_by_key(|(key, _)| *key);
    let count = (fields.len() as u32).to_be_bytes();
    let reply = message.reply.as_ref().map_or(&b""[..], |reply| reply.as_bytes());
    let fields = fields.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()]);
    let parts = [message.subject.as_bytes(), reply, &count].into_iter().chain(fields);
    BatchHash::of_message(parts.chain([&message.payload[..]]))
}

fn is_unsigned(key: &str) -> bool {
    UNSIGNED_HEADERS.iter().any(|unsigned| key.eq_ignore_ascii_case(unsigned))
}

/// Returns the header fields without those that no signature covers, except those that `keeps` selects.
///
/// # Errors
/// One of the fields cannot be written.
fn signed_headers(headers: &Headers, keeps: impl Fn(&str) -> bool) -> Result<Headers, HeaderError> {
    let is_kept = |key: &str| !is_unsigned(key) || keeps(key);
    match headers.iter().all(|(key, _)| is_kept(key)) {
        true => Ok(headers.clone()),
        false => Headers::from_pairs(headers.iter().filter(|(key, _)| is_kept(key))),
    }
}
