//! The side of the sender: messages for the cluster leave in signed batches.

use super::{CERTIFICATE_HEADER, CERTIFICATE_PREFIX, SIGNATURE_HEADER, message_hash, signed_headers};
use crate::link::durable::DURABLE_HEADER;
use crate::link::site_name::SiteName;
use crate::link::system_messages::system_subject;
use crate::message::{Epoch, HeaderError, Headers, Message};
use crate::security::ProvenCertificate;
use crate::security::batch_signature::{BATCH_MESSAGES_MAX, BatchDescription, BatchHash, BatchSignature, sign_batch};
use crate::security::realm::SigningKey;
use crate::time::{Instant, WallTime};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which a gateway announces its certificate.
pub const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(2);
/// Minimum time between two announcements.
const CERTIFICATE_PAUSE: Duration = Duration::from_millis(100);
/// Maximum bytes of the messages of a batch that wait, so that they stay few beside those of the gateway.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// First byte of an announcement: others are asked to announce theirs, or not.
pub(super) const ANSWERED: u8 = 0;
pub(super) const ASKS: u8 = 1;

/// Signs what a gateway sends to the cluster.
#[derive(Debug)]
pub struct LinkSigner {
    site: SiteName,
    run: Epoch,
    key: Arc<SigningKey>,
    certificate: ProvenCertificate,
    /// Time of the last batch in microseconds since 1970.
    last_micros: u64,
    /// Signed live messages and announcements that were not sent yet.
    signed: VecDeque<Message>,
    /// Time of the next announcement of the certificate, while there is a connection.
    announce_at: Option<Instant>,
    announced_at: Option<Instant>,
    asks: bool,
    /// Messages that were signed.
    pub signed_count: u64,
}

impl LinkSigner {
    /// Creates the signer of a gateway, by whose epoch its run is known.
    pub fn new(site: SiteName, gateway: Epoch, key: Arc<SigningKey>, certificate: ProvenCertificate) -> LinkSigner {
        LinkSigner {
            site,
            run: gateway,
            key,
            certificate,
            last_micros: 0,
            signed: VecDeque::new(),
            announce_at: None,
            announced_at: None,
            asks: true,
            signed_count: 0,
        }
    }

    /// Signs with another certificate of this host from now on, and announces it first.
    pub fn set_certificate(&mut self, now: Instant, certificate: ProvenCertificate) {
        if certificate != self.certificate {
            self.certificate = certificate;
            self.announced_at = None;
            self.announce_at = self.announce_at.map(|_| now);
        }
    }

    /// Handles the begin or the end of the connection to the cluster. At the end it drops what has not been sent, and
    /// returns it.
    pub fn on_link(&mut self, now: Instant, is_linked: bool) -> VecDeque<Message> {
        (self.asks, self.announced_at) = (true, None);
        self.announce_at = is_linked.then_some(now);
        if is_linked { VecDeque::new() } else { std::mem::take(&mut self.signed) }
    }

    /// Announces the certificate again soon, since another gateway asks for it.
    pub fn on_asked(&mut self, now: Instant) {
        let earliest = self.announced_at.map_or(now, |at| now.max(at + CERTIFICATE_PAUSE));
        self.announce_at = self.announce_at.map(|at| at.min(earliest));
    }

    /// Returns the next message for the cluster. If none is left of the last batch, `poll` gives those of the next one.
    pub fn poll(&mut self, now: Instant, wall: WallTime, mut poll: impl FnMut() -> Option<Message>) -> Option<Message> {
        if let Some(message) = self.signed.pop_front() {
            return Some(message);
        }
        if self.announce_at.is_some_and(|at| at <= now) {
            (self.announced_at, self.announce_at) = (Some(now), Some(now + CERTIFICATE_INTERVAL));
            return Some(self.announcement());
        }
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH_MESSAGES_MAX
            && bytes < BATCH_BYTES_MAX
            && let Some(message) = poll()
        {
            bytes += message.body_bytes();
            batch.push(message);
        }
        self.signed = self.sign(wall, batch).into();
        self.signed.pop_front()
    }

    /// Signs a batch of messages, at most [`BATCH_MESSAGES_MAX`]. A message whose header fields cannot be written stays
    /// as it is.
    pub fn sign(&mut self, wall: WallTime, messages: Vec<Message>) -> Vec<Message> {
        if messages.is_empty() {
            return messages;
        }
        self.last_micros = (wall.as_nanos() / 1_000).max(self.last_micros + 1);
        self.signed_count += messages.len() as u64;
        let (time_micros, run, certificate) = (self.last_micros, self.run.bits(), self.certificate.id());
        let batch = BatchDescription { messages: 0, time_micros, run, certificate };
        let hashes: Vec<BatchHash> = messages.iter().map(message_hash).collect();
        let signatures = sign_batch(&self.key, batch, &hashes);
        let signed = messages.into_iter().zip(signatures).map(|(message, signature)| {
            let headers = self.signed_fields(&message.headers, &signature);
            Message { headers: headers.unwrap_or_else(|_| message.headers.clone()), ..message }
        });
        signed.collect()
    }

    /// Returns the header fields of a message with its signature in front, and with the certificate if it is durable.
    fn signed_fields(&self, headers: &Headers, signature: &BatchSignature) -> Result<Headers, HeaderError> {
        let signature = signature.to_text();
        let is_durable = headers.field(DURABLE_HEADER).is_some();
        let certificate = is_durable.then(|| self.certificate.to_text());
        let certificate = certificate.as_deref().map(|text| (CERTIFICATE_HEADER, text));
        let others = signed_headers(headers, |_| false)?;
        let own = std::iter::once((SIGNATURE_HEADER, signature.as_str())).chain(certificate);
        Headers::from_pairs(own.chain(others.iter()))
    }

    fn announcement(&mut self) -> Message {
        let first = if std::mem::take(&mut self.asks) { ASKS } else { ANSWERED };
        let payload = [&[first], &self.certificate.bytes()[..]].concat();
        Message::new(system_subject(CERTIFICATE_PREFIX, &self.site), payload)
    }
}
