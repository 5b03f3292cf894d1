//! The side of the receiver: which messages of the cluster are signed, by whom, and what the signer may say.

use super::check_budget::CheckBudget;
use super::code_keys::VerifierCodeKeys;
use super::known_certificate::KnownCertificate;
use super::known_certificates::KnownCertificates;
use super::realm_trust::RealmTrust;
use super::replay_positions::{BatchPosition, ReplayPositions, RunSubject};
use super::signer::REQUESTS_CERTIFICATES;
use super::{
    CERTIFICATE_HEADER, CLOCK_DIFFERENCE_MAX, SIGNATURE_HEADER, hub_claim::HubClaim, message_hash,
    signature_refusal::SignatureRefusal, signed_headers,
};
use crate::link::envelope::LinkEnvelope;
use crate::link::hub_sender::HubSender;
use crate::link::system_messages::REPLY_PREFIX;
use crate::message::Message;
use crate::security::ProvenCertificate;
use crate::security::batch_signature::{BatchDescription, BatchSignature, SignedRoot};
use crate::security::realm::check_validity;
use crate::subject::Subject;
use crate::subject::pattern_set::PatternSet;
use crate::time::{ClockReading, Instant, WallTime};
use lru::LruCache;
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Maximum number of batches whose signatures are remembered.
const ROOTS_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("not 0");
/// Maximum number of wrong signatures of members that are checked in [`FAILURE_INTERVAL`]. Each one costs 40 us. Beyond it
/// the certificate that they name is blocked for as long.
const FAILURES_MAX: u32 = 1000;
const FAILURE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of notices that wait.
const NOTICES_MAX: usize = 16;

/// Counts of the messages of the cluster at a gateway of a realm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignatureCounts {
    /// Messages whose signatures are right, and whose signers may send them.
    pub verified: u64,
    /// Messages without a signature that were not accepted.
    pub unsigned: u64,
    /// Messages whose signers' certificates were not known yet.
    pub unknown_certificates: u64,
    /// Announcements of certificates that cannot be read.
    pub invalid_certificates: u64,
    /// Certificates that were not checked, because too many unknown ones came.
    pub excess_certificates: u64,
    /// Certificates that this host does not trust, and messages of certificates that were not valid at their time.
    pub untrusted: u64,
    /// Messages with a wrong signature.
    pub bad_signatures: u64,
    /// Messages whose time differs too much from the clock of this host, or of the stream.
    pub stale: u64,
    /// Messages of gateways to each other that came before.
    pub repeated: u64,
    /// Messages that the certificate of their signer does not permit.
    pub denied: u64,
}

/// A message of the cluster, and who vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedMessage {
    /// The message. Live messages come without [`UNSIGNED_HEADERS`](super::UNSIGNED_HEADERS).
    pub message: Message,
    /// The sender.
    pub sender: HubSender,
}

/// Verifies the messages of the cluster.
#[derive(Debug)]
pub struct LinkVerifier {
    imports: PatternSet,
    /// Subjects on which messages without a signature are imported.
    clients: PatternSet,
    certificates: KnownCertificates,
    code_keys: VerifierCodeKeys,
    /// Checks of live messages whose signatures were wrong.
    failures: CheckBudget,
    roots: LruCache<SignedRoot, ()>,
    positions: ReplayPositions,
    counts: SignatureCounts,
    notices: VecDeque<String>,
    /// The last refusal that is a problem of this host or of another one.
    problem: Option<(Instant, SignatureRefusal)>,
}

impl LinkVerifier {
    /// Creates the verifier of a gateway that imports these subjects, and takes those of `clients` without a signature.
    pub fn new(trust: RealmTrust, imports: PatternSet, clients: PatternSet) -> LinkVerifier {
        LinkVerifier {
            imports,
            clients,
            code_keys: VerifierCodeKeys::new(trust.code_key().clone()),
            certificates: KnownCertificates::new(trust),
            failures: CheckBudget::new(FAILURES_MAX, FAILURE_INTERVAL),
            roots: LruCache::new(ROOTS_MAX),
            positions: ReplayPositions::new(),
            counts: SignatureCounts::default(),
            notices: VecDeque::new(),
            problem: None,
        }
    }

    /// Returns the counts.
    pub fn counts(&self) -> SignatureCounts {
        self.counts
    }

    /// Returns the number of certificates that this host trusts.
    pub fn certificates(&self) -> usize {
        self.certificates.len()
    }

    /// Removes and returns the next notice.
    pub fn poll_notice(&mut self) -> Option<String> {
        self.notices.pop_front()
    }

    /// Returns the last refusal that is no earlier than a time.
    pub fn problem(&self, since: Instant) -> Option<String> {
        self.problem.as_ref().filter(|(at, _)| since <= *at).map(|(_, refusal)| refusal.to_string())
    }

    /// Checks the certificates of others by these rules from now on.
    pub fn set_trust(&mut self, now: ClockReading, trust: RealmTrust) {
        self.code_keys.set(now.instant, trust.code_key().clone());
        let refusals = self.certificates.set_trust(now.wall, trust);
        refusals.into_iter().for_each(|refusal| self.refuse(now.instant, refusal));
    }

    /// Handles the announcement of a certificate. Returns whether a member of the realm requests that of this gateway.
    pub fn on_certificate(&mut self, now: ClockReading, message: &Message) -> bool {
        let first = message.payload.first().copied();
        let member = first.and_then(|_| ProvenCertificate::decode(message.payload.slice(1..)));
        let added = match member {
            Some(member) => self.certificates.add_announced(now, member),
            None => Err(SignatureRefusal::InvalidCertificate),
        };
        let is_request = first == Some(REQUESTS_CERTIFICATES);
        let signature = || message.headers.field(SIGNATURE_HEADER).ok_or(SignatureRefusal::Unsigned);
        // The announcement of another gateway may be sent again by anybody. Its signature shows that it is a new one.
        let checked = added.and_then(|()| match is_request {
            true => self.verify(now, None, signature()?, message).map(drop),
            false => Ok(()),
        });
        let is_accepted = checked.map_err(|refusal| self.refuse(now.instant, refusal)).is_ok();
        is_request && is_accepted
    }

    /// Opens a message that has just come from the cluster. `None` if it is not accepted.
    pub fn open(&mut self, now: ClockReading, message: Message) -> Option<VerifiedMessage> {
        self.open_with(now, None, message)
    }

    /// Opens a message of the stream, where it arrived at this time. `None` if it is not accepted. The signature and the
    /// certificate stay in its header fields.
    pub fn open_stored(&mut self, now: ClockReading, stored: WallTime, message: Message) -> Option<VerifiedMessage> {
        self.open_with(now, Some(stored), message)
    }

    /// Opens a message, which was stored at a time if the stream has it. Then its signature and its certificate stay in
    /// its header fields.
    fn open_with(&mut self, now: ClockReading, stored: Option<WallTime>, message: Message) -> Option<VerifiedMessage> {
        let signature = message.headers.field(SIGNATURE_HEADER);
        let is_signed = signature.is_some();
        let sender = match signature.map(|text| self.verify(now, stored, text, &message)) {
            Some(Ok(sender)) => sender,
            Some(Err(refusal)) => {
                self.refuse(now.instant, refusal);
                return None;
            }
            None => self.client(now, &message)?,
        };
        let kept: &[&str] = if is_signed && stored.is_some() { &[SIGNATURE_HEADER, CERTIFICATE_HEADER] } else { &[] };
        let is_kept = |key: &str| kept.iter().any(|kept| key.eq_ignore_ascii_case(kept));
        let headers = signed_headers(&message.headers, is_kept).ok()?;
        Some(VerifiedMessage { sender, message: Message { headers, ..message } })
    }

    /// Returns the sender of a message without a signature; `None` if it is not accepted.
    fn client(&mut self, now: ClockReading, message: &Message) -> Option<HubSender> {
        let subject = &message.subject;
        let claims = is_of_system(message) || LinkEnvelope::is_in(&message.headers);
        if !claims && !self.imports.matches(subject) {
            return None;
        }
        // Clients of the cluster reply to requests of `link-services`. The relay knows which these are.
        let is_reply = subject.as_str().starts_with(REPLY_PREFIX);
        if is_reply || !claims && self.clients.matches(subject) {
            return Some(HubSender::Client);
        }
        self.refuse(now.instant, SignatureRefusal::Unsigned);
        None
    }

    /// Returns the signer of a message with this text as its signature.
    fn verify(
        &mut self,
        now: ClockReading,
        stored: Option<WallTime>,
        text: &str,
        message: &Message,
    ) -> Result<HubSender, SignatureRefusal> {
        let signature = BatchSignature::from_text(text).ok_or(SignatureRefusal::Signature)?;
        let id = signature.batch.certificate;
        if stored.is_some() && self.certificates.get(&id).is_none() {
            let member = message.headers.field(CERTIFICATE_HEADER).and_then(ProvenCertificate::from_text);
            let member = member.filter(|member| member.id() == id).ok_or(SignatureRefusal::UnknownCertificate)?;
            self.certificates.add_stored(now, member)?;
        }
        let known = self.certificates.get(&id).ok_or(SignatureRefusal::UnknownCertificate)?;
        let BatchDescription { run, time_micros, .. } = signature.batch;
        let position = BatchPosition { time_micros, index: signature.index };
        // A stored message is read as often as necessary.
        let is_sequenced = stored.is_none() && is_of_system(message);
        let key = is_sequenced.then(|| RunSubject { run, subject: position_subject(&message.subject) });
        if key.as_ref().is_some_and(|key| !self.positions.is_new(&id, key, position)) {
            return Err(SignatureRefusal::Repeated);
        }
        let root = signature.root(message_hash(message));
        let is_new = self.roots.get(&root).is_none();
        // The cheap checks come first. Reading from the stream has a rate of its own, and what it has may be older than the
        // secret of the realm.
        if stored.is_none() {
            let is_blocked = now.instant < known.blocked_to;
            if is_new && (!self.code_keys.accepts(now.instant, &signature, &root) || is_blocked) {
                return Err(SignatureRefusal::Signature);
            }
            check_time(known, time_micros, now.wall)?;
        }
        if is_new {
            if !root.is_signed_by(&known.host.keys.signing) {
                if stored.is_none() && !self.failures.take(now.instant) {
                    known.blocked_to = now.instant + FAILURE_INTERVAL;
                }
                return Err(SignatureRefusal::Signature);
            }
            self.roots.put(root, ());
        }
        stored.map_or(Ok(()), |stored| check_time(known, time_micros, stored))?;
        let claim = HubClaim::of(message);
        let Some(sender) = claim.as_ref().and_then(|claim| known.sender(claim)) else {
            let (name, subject) = (known.host.name.clone(), message.subject.clone());
            return Err(SignatureRefusal::Denied { name, subject, claim });
        };
        key.into_iter().for_each(|key| self.positions.put(id, key, position));
        self.counts.verified += 1;
        // The clock is right, so a message with another time was an old one: of an outage, or sent again.
        if let Some((_, SignatureRefusal::Clock { name, .. })) = &self.problem
            && stored.is_none()
            && *name == known.host.name
        {
            self.problem = None;
        }
        Ok(sender)
    }

    fn refuse(&mut self, now: Instant, refusal: SignatureRefusal) {
        let counts = &mut self.counts;
        let count = match &refusal {
            SignatureRefusal::Unsigned => &mut counts.unsigned,
            SignatureRefusal::UnknownCertificate => &mut counts.unknown_certificates,
            SignatureRefusal::InvalidCertificate => &mut counts.invalid_certificates,
            SignatureRefusal::ExcessCertificate => &mut counts.excess_certificates,
            SignatureRefusal::Untrusted { .. } => &mut counts.untrusted,
            SignatureRefusal::Signature => &mut counts.bad_signatures,
            SignatureRefusal::Clock { .. } => &mut counts.stale,
            SignatureRefusal::Repeated => &mut counts.repeated,
            SignatureRefusal::Denied { .. } => &mut counts.denied,
        };
        *count += 1;
        if count.is_power_of_two() && self.notices.len() < NOTICES_MAX {
            self.notices.push_back(refusal.to_string());
        }
        if refusal.is_problem() {
            self.problem = Some((now, refusal));
        }
    }
}

/// Checks the time of a signature, and the validity of its certificate, for a message that arrived at a time.
fn check_time(known: &KnownCertificate, time_micros: u64, arrived: WallTime) -> Result<(), SignatureRefusal> {
    let signed = WallTime::from_nanos(time_micros.saturating_mul(1_000));
    let difference = Duration::from_nanos(signed.as_nanos().abs_diff(arrived.as_nanos()));
    if CLOCK_DIFFERENCE_MAX < difference {
        return Err(SignatureRefusal::Clock { name: known.host.name.clone(), seconds: difference.as_secs() });
    }
    let untrusted = |reason: String| SignatureRefusal::Untrusted { reason, is_member: true };
    check_validity(&known.certificate, arrived).map_err(|refusal| untrusted(refusal.to_string()))
}

fn is_of_system(message: &Message) -> bool {
    message.subject.as_bytes().first() == Some(&b'_')
}

/// Returns the subject under which the last message of a gateway is remembered. Replies to one gateway come in the order
/// of sending, so the number of the request is left out.
fn position_subject(subject: &Subject) -> Subject {
    let text = subject.as_str();
    let without_number = text.starts_with(REPLY_PREFIX).then(|| text.rsplit_once('.')).flatten();
    without_number.and_then(|(text, _)| text.parse().ok()).unwrap_or_else(|| subject.clone())
}
