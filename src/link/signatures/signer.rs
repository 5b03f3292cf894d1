//! The side of the sender: messages for the cluster leave in signed batches.

use super::code_keys::SignerCodeKeys;
use super::{CERTIFICATE_HEADER, CERTIFICATE_PREFIX, SIGNATURE_HEADER, message_hash, signed_headers};
use crate::link::durable::DURABLE_HEADER;
use crate::link::site_name::SiteName;
use crate::link::system_messages::{POSITION_PREFIX, system_subject};
use crate::message::{Epoch, HeaderError, Headers, Message};
use crate::security::ProvenCertificate;
use crate::security::batch_signature::{
    BATCH_MESSAGES_MAX, BatchCodeKey, BatchDescription, BatchHash, BatchSignature, sign_batch,
};
use crate::security::realm::SigningKey;
use crate::time::{ClockReading, Instant, WallTime};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which a gateway announces its certificate.
pub const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(2);
/// Minimum time between two announcements.
const CERTIFICATE_PAUSE: Duration = Duration::from_secs(1);
/// Maximum bytes of the messages of a batch that wait, so that they stay few beside those of the gateway.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// First byte of an announcement: others are requested to announce theirs, or not.
const NO_REQUEST: u8 = 0;
pub(super) const REQUESTS_CERTIFICATES: u8 = 1;
/// Time by which the clock of this host may be set back. The times of batches do not follow it, since they ascend. Beyond
/// it a new run begins.
const SET_BACK_MAX: Duration = Duration::from_secs(60);

/// Signs what a gateway sends to the cluster.
#[derive(Debug)]
pub struct LinkSigner {
    site: SiteName,
    /// Number of the run, in which the times of batches ascend.
    run: u64,
    key: Arc<SigningKey>,
    code_keys: SignerCodeKeys,
    certificate: ProvenCertificate,
    /// Time of the last batch in microseconds since 1970.
    last_micros: u64,
    /// Signed live messages and announcements that were not sent yet.
    signed: VecDeque<Message>,
    /// Time of the next announcement of the certificate, while there is a connection.
    announce_at: Option<Instant>,
    announced_at: Option<Instant>,
    asks: bool,
    notice: Option<String>,
    /// Messages that were signed.
    pub signed_count: u64,
    /// Messages that were not sent, because their header fields cannot be written.
    pub unsignable_count: u64,
}

impl LinkSigner {
    /// Creates the signer of a gateway, whose epoch is the number of its run.
    pub fn new(
        site: SiteName,
        gateway: Epoch,
        key: Arc<SigningKey>,
        code_key: BatchCodeKey,
        certificate: ProvenCertificate,
    ) -> LinkSigner {
        LinkSigner {
            site,
            run: gateway.bits(),
            key,
            code_keys: SignerCodeKeys::new(code_key),
            certificate,
            last_micros: 0,
            signed: VecDeque::new(),
            announce_at: None,
            announced_at: None,
            asks: true,
            notice: None,
            signed_count: 0,
            unsignable_count: 0,
        }
    }

    /// Signs with another certificate of this host from now on, and announces it first. If the key of the codes is
    /// another one, it is used some minutes later.
    pub fn set_realm(&mut self, now: Instant, code_key: BatchCodeKey, certificate: ProvenCertificate) {
        self.code_keys.set(now, code_key);
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

    /// Announces the certificate again soon, since another gateway requests it.
    pub fn on_certificate_request(&mut self, now: Instant) {
        let earliest = self.announced_at.map_or(now, |at| now.max(at + CERTIFICATE_PAUSE));
        self.announce_at = self.announce_at.map(|at| at.min(earliest));
    }

    /// Returns the next message for the cluster. If none is left of the last batch, `poll` gives those of the next one.
    pub fn poll(&mut self, now: ClockReading, mut poll: impl FnMut() -> Option<Message>) -> Option<Message> {
        if let Some(message) = self.signed.pop_front() {
            return Some(message);
        }
        if self.announce_at.is_some_and(|at| at <= now.instant) {
            (self.announced_at, self.announce_at) = (Some(now.instant), Some(now.instant + CERTIFICATE_INTERVAL));
            let announcement = self.announcement();
            return self.sign_batch(now, vec![announcement]).pop().flatten();
        }
        while self.signed.is_empty() {
            let batch = next_batch(&mut poll);
            if batch.is_empty() {
                return None;
            }
            self.signed = self.sign(now, batch).into_iter().flatten().collect();
        }
        self.signed.pop_front()
    }

    /// Removes and returns a sentence for the log.
    pub fn take_notice(&mut self) -> Option<String> {
        self.notice.take()
    }

    /// Signs a batch of messages, at most [`BATCH_MESSAGES_MAX`]. `None` in place of one whose header fields cannot be
    /// written.
    pub fn sign(&mut self, now: ClockReading, messages: Vec<Message>) -> Vec<Option<Message>> {
        let signed = self.sign_batch(now, messages);
        let count = signed.iter().flatten().count();
        self.signed_count += count as u64;
        self.unsignable_count += (signed.len() - count) as u64;
        signed
    }

    fn sign_batch(&mut self, now: ClockReading, messages: Vec<Message>) -> Vec<Option<Message>> {
        if messages.is_empty() {
            return Vec::new();
        }
        self.advance(now.wall);
        let (time_micros, run, certificate) = (self.last_micros, self.run, self.certificate.id());
        let batch = BatchDescription { messages: 0, time_micros, run, certificate };
        let hashes: Vec<BatchHash> = messages.iter().map(message_hash).collect();
        let signatures = sign_batch(&self.key, self.code_keys.get(now.instant), batch, &hashes);
        let signed = messages.into_iter().zip(signatures).map(|(message, signature)| {
            let headers = self.signed_fields(&message, &signature).ok()?;
            Some(Message { headers, ..message })
        });
        signed.collect()
    }

    /// Sets the time of the next batch. If the clock was far ahead, other gateways would refuse the times of this run, so
    /// another one begins.
    fn advance(&mut self, wall: WallTime) {
        let micros = wall.as_nanos() / 1_000;
        let back = Duration::from_micros(self.last_micros.saturating_sub(micros));
        if SET_BACK_MAX < back {
            self.run = self.run.wrapping_add(1);
            self.last_micros = micros;
            let seconds = back.as_secs();
            self.notice = Some(format!("the clock was set back by {seconds} s: the signatures of the link begin anew"));
            return;
        }
        self.last_micros = micros.max(self.last_micros + 1);
    }

    /// Returns the header fields of a message with its signature in front, and with the certificate if a stream stores it.
    fn signed_fields(&self, message: &Message, signature: &BatchSignature) -> Result<Headers, HeaderError> {
        let (headers, signature) = (&message.headers, signature.to_text());
        let is_position = message.subject.as_bytes().starts_with(POSITION_PREFIX.as_bytes());
        let is_stored = is_position || headers.field(DURABLE_HEADER).is_some();
        let certificate = is_stored.then(|| self.certificate.to_text());
        let certificate = certificate.as_deref().map(|text| (CERTIFICATE_HEADER, text));
        let others = signed_headers(headers, |_| false)?;
        let own = std::iter::once((SIGNATURE_HEADER, signature.as_str())).chain(certificate);
        Headers::from_pairs(own.chain(others.iter()))
    }

    fn announcement(&mut self) -> Message {
        let first = if std::mem::take(&mut self.asks) { REQUESTS_CERTIFICATES } else { NO_REQUEST };
        let payload = [&[first], &self.certificate.bytes()[..]].concat();
        Message::new(system_subject(CERTIFICATE_PREFIX, &self.site), payload)
    }
}

/// Takes the messages of a batch: those that wait, up to its limits.
fn next_batch(poll: &mut impl FnMut() -> Option<Message>) -> Vec<Message> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while batch.len() < BATCH_MESSAGES_MAX
        && bytes < BATCH_BYTES_MAX
        && let Some(message) = poll()
    {
        bytes += message.body_bytes();
        batch.push(message);
    }
    batch
}
