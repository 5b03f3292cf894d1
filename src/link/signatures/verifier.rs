//! The side of the receiver: which messages of the cluster are signed, by whom, and what the signer may say.

use super::signer::ASKS;
use super::{
    CERTIFICATE_HEADER, CLOCK_DIFFERENCE_MAX, SIGNATURE_HEADER, hub_claim::HubClaim, message_hash,
    signature_refusal::SignatureRefusal, signed_headers,
};
use crate::link::envelope::LinkEnvelope;
use crate::link::hub_sender::{HubSender, site_publications, speaks_for_any_site};
use crate::link::site_name::SiteName;
use crate::link::system_messages::REPLY_PREFIX;
use crate::message::Message;
use crate::security::batch_signature::{BatchSignature, CertificateId, SignedRoot};
use crate::security::realm::{Certificate, RealmMode, check_validity};
use crate::security::{CertificateVerifier, CertifiedHost, ProvenCertificate, Secret};
use crate::subject::Subject;
use crate::subject::pattern_set::PatternSet;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::time::{ClockReading, Instant, WallTime};
use lru::LruCache;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::time::Duration;

/// Maximum number of certificates that are remembered. The one that was used least recently is forgotten first.
const CERTIFICATES_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("not 0");
/// Maximum number of batches whose signatures are remembered.
const ROOTS_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("not 0");
/// Maximum number of subjects of gateways whose last messages are remembered.
const POSITIONS_MAX: NonZeroUsize = NonZeroUsize::new(16_384).expect("not 0");
/// Maximum number of sites of a certificate that are remembered.
const SITES_MAX: usize = 16;
/// Maximum number of unknown announced certificates that are checked in [`CHECK_INTERVAL`], since strangers can announce
/// as many as they like.
const CHECKS_MAX: u32 = 20;
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
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
    /// Certificates that this host does not trust.
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

/// The rules of a realm by which a verifier trusts hosts.
pub struct RealmTrust {
    /// Mode of the realm.
    pub mode: RealmMode,
    /// Secret of the realm.
    pub secret: Secret,
    /// Check of certificates.
    pub hosts: Box<dyn CertificateVerifier>,
}

impl std::fmt::Debug for RealmTrust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RealmTrust({})", self.mode)
    }
}

impl RealmTrust {
    /// Checks a certificate, apart from its validity in time.
    fn check(&mut self, member: ProvenCertificate, now: WallTime) -> Result<KnownCertificate, SignatureRefusal> {
        let untrusted = |reason: String| SignatureRefusal::Untrusted(reason);
        let certificate = Certificate::decode(member.certificate()).map_err(|error| untrusted(error.to_string()))?;
        let fields = certificate.fields();
        if self.mode == RealmMode::Realm && !member.is_of_member(&self.secret) {
            return Err(untrusted(format!("the host '{}' does not know the secret of the realm", fields.name)));
        }
        // Stored messages may be older than the end of the validity, which is checked for each message.
        let second = |seconds: u64| WallTime::from_nanos(seconds.saturating_mul(1_000_000_000));
        let end = Some(fields.validity.not_after).filter(|end| *end != 0).map(second);
        let at = end.map_or(now, |end| now.min(end)).max(second(fields.validity.not_before));
        let host = self.hosts.verify(member.certificate(), &fields.keys.static_key, at).map_err(untrusted)?;
        let publish = PermittedSubjects::of(host.permissions.publish.iter().cloned());
        Ok(KnownCertificate { member, certificate, host, publish, sites: BTreeMap::new() })
    }
}

/// A certificate that this host trusts while it is valid.
#[derive(Debug)]
struct KnownCertificate {
    member: ProvenCertificate,
    certificate: Certificate,
    host: CertifiedHost,
    publish: PermittedSubjects,
    /// Subjects on which the host may publish in the name of sites; `None` if it may not speak for the site.
    sites: BTreeMap<SiteName, Option<PermittedSubjects>>,
}

impl KnownCertificate {
    fn publications(&mut self, site: &SiteName) -> Option<PermittedSubjects> {
        if SITES_MAX <= self.sites.len() && !self.sites.contains_key(site) {
            self.sites.clear();
        }
        self.sites.entry(site.clone()).or_insert_with(|| site_publications(&self.publish, site)).clone()
    }

    /// Returns the sender of a message with this claim.
    fn sender(&mut self, claim: &HubClaim) -> Option<HubSender> {
        let (site, subject) = match claim {
            HubClaim::Gateway => {
                let permitted = PermittedSubjects::of([]);
                return speaks_for_any_site(&self.publish).then_some(HubSender::Gateway { site: None, permitted });
            }
            HubClaim::Site(site) => (site, None),
            HubClaim::Publication { site, subject } => (site, Some(subject)),
        };
        let permitted = self.publications(site)?;
        let may_publish = subject.is_none_or(|subject| permitted.permits(subject));
        may_publish.then(|| HubSender::Gateway { site: Some(site.clone()), permitted })
    }
}

/// A message of the cluster, and who vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedMessage {
    /// The message. Live messages come without [`UNSIGNED_HEADERS`](super::UNSIGNED_HEADERS).
    pub message: Message,
    /// The sender.
    pub sender: HubSender,
}

/// Last message of a gateway on a subject: the time of its batch, and its index.
type BatchPosition = (u64, u8);

/// Verifies the messages of the cluster.
#[derive(Debug)]
pub struct LinkVerifier {
    trust: RealmTrust,
    imports: PatternSet,
    /// Subjects on which messages without a signature are imported.
    clients: PatternSet,
    certificates: LruCache<CertificateId, KnownCertificate>,
    roots: LruCache<SignedRoot, ()>,
    positions: LruCache<(CertificateId, u64, Subject), BatchPosition>,
    /// Number of announced certificates that were checked since a time.
    checks: u32,
    checks_since: Instant,
    counts: SignatureCounts,
    notices: VecDeque<String>,
    /// The last refusal that is a problem of this host or of another one.
    problem: Option<(Instant, String)>,
}

impl LinkVerifier {
    /// Creates the verifier of a gateway that imports these subjects, and takes those of `clients` without a signature.
    pub fn new(trust: RealmTrust, imports: PatternSet, clients: PatternSet) -> LinkVerifier {
        LinkVerifier {
            trust,
            imports,
            clients,
            certificates: LruCache::new(CERTIFICATES_MAX),
            roots: LruCache::new(ROOTS_MAX),
            positions: LruCache::new(POSITIONS_MAX),
            checks: 0,
            checks_since: Instant::ZERO,
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
    pub fn problem(&self, since: Instant) -> Option<&str> {
        self.problem.as_ref().filter(|(at, _)| since <= *at).map(|(_, text)| text.as_str())
    }

    /// Checks the certificates of others by these rules from now on.
    pub fn set_trust(&mut self, now: ClockReading, trust: RealmTrust) {
        self.trust = trust;
        let mut known = Vec::new();
        while let Some((_, certificate)) = self.certificates.pop_lru() {
            known.push(certificate.member);
        }
        for member in known {
            if let Err(refusal) = self.add(member, now.wall) {
                self.refuse(now.instant, refusal);
            }
        }
    }

    /// Handles the announcement of a certificate. Returns whether a member of the realm asks for that of this gateway.
    pub fn on_certificate(&mut self, now: ClockReading, message: &Message) -> bool {
        let member =
            (!message.payload.is_empty()).then(|| message.payload.slice(1..)).and_then(ProvenCertificate::decode);
        let Some(member) = member else {
            self.refuse(now.instant, SignatureRefusal::Signature);
            return false;
        };
        let asks = message.payload[0] == ASKS;
        if self.certificates.get(&member.id()).is_some() {
            return asks;
        }
        if CHECK_INTERVAL <= now.instant.since(self.checks_since) {
            (self.checks, self.checks_since) = (0, now.instant);
        }
        self.checks += 1;
        if CHECKS_MAX < self.checks {
            return false;
        }
        match self.add(member, now.wall) {
            Ok(()) => asks,
            Err(refusal) => {
                self.refuse(now.instant, refusal);
                false
            }
        }
    }

    /// Opens a message that has just come from the cluster. `None` if it is not accepted.
    pub fn open(&mut self, now: ClockReading, message: Message) -> Option<OpenedMessage> {
        self.open_with(now, now.wall, message, &[])
    }

    /// Opens a message of the stream, where it arrived at this time. `None` if it is not accepted. The signature and the
    /// certificate stay in its header fields.
    pub fn open_stored(&mut self, now: ClockReading, stored: WallTime, message: Message) -> Option<OpenedMessage> {
        self.open_with(now, stored, message, &[SIGNATURE_HEADER, CERTIFICATE_HEADER])
    }

    /// Opens a message that arrived at a time. The fields `kept` of a signed one stay in its header fields.
    fn open_with(
        &mut self,
        now: ClockReading,
        arrived: WallTime,
        message: Message,
        kept: &[&str],
    ) -> Option<OpenedMessage> {
        let is_signed = message.headers.field(SIGNATURE_HEADER).is_some();
        let sender = match is_signed {
            true => self.verify(now, arrived, &message).map_err(|refusal| self.refuse(now.instant, refusal)).ok()?,
            false => self.client(now, &message)?,
        };
        let is_kept = |key: &str| is_signed && kept.iter().any(|kept| key.eq_ignore_ascii_case(kept));
        let headers = signed_headers(&message.headers, is_kept).ok()?;
        Some(OpenedMessage { message: Message { headers, ..message }, sender })
    }

    /// Returns the sender of a message without a signature; `None` if it is not accepted.
    fn client(&mut self, now: ClockReading, message: &Message) -> Option<HubSender> {
        let subject = &message.subject;
        let is_system = subject.as_bytes().first() == Some(&b'_');
        let claims = is_system || LinkEnvelope::is_in(&message.headers);
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

    /// Returns the signer of a message that came at this time.
    fn verify(
        &mut self,
        now: ClockReading,
        arrived: WallTime,
        message: &Message,
    ) -> Result<HubSender, SignatureRefusal> {
        let signature = message.headers.field(SIGNATURE_HEADER).and_then(BatchSignature::from_text);
        let signature = signature.ok_or(SignatureRefusal::Signature)?;
        let id = signature.batch.certificate;
        if !self.certificates.contains(&id) {
            let member = message.headers.field(CERTIFICATE_HEADER).and_then(ProvenCertificate::from_text);
            let member = member.filter(|member| member.id() == id).ok_or(SignatureRefusal::UnknownCertificate)?;
            self.add(member, now.wall)?;
        }
        let known = self.certificates.get_mut(&id).ok_or(SignatureRefusal::UnknownCertificate)?;
        let signed = WallTime::from_nanos(signature.batch.time_micros.saturating_mul(1_000));
        let difference = Duration::from_nanos(signed.as_nanos().abs_diff(arrived.as_nanos()));
        if CLOCK_DIFFERENCE_MAX < difference {
            return Err(SignatureRefusal::Clock { name: known.host.name.clone(), seconds: difference.as_secs() });
        }
        check_validity(&known.certificate, arrived)
            .map_err(|refusal| SignatureRefusal::Untrusted(refusal.to_string()))?;
        let root = signature.root(message_hash(message));
        if self.roots.get(&root).is_none() {
            if !root.is_signed_by(&known.host.keys.signing) {
                return Err(SignatureRefusal::Signature);
            }
            self.roots.put(root, ());
        }
        let claim = HubClaim::of(message);
        let Some(sender) = claim.as_ref().and_then(|claim| known.sender(claim)) else {
            let (name, subject) = (known.host.name.clone(), message.subject.clone());
            return Err(SignatureRefusal::Denied { name, subject, claim });
        };
        if message.subject.as_bytes().first() == Some(&b'_') {
            let position = (signature.batch.time_micros, signature.index);
            let key = (id, signature.batch.run, position_subject(&message.subject));
            let last = self.positions.get_or_insert_mut(key, || (0, 0));
            if position <= *last {
                return Err(SignatureRefusal::Repeated);
            }
            *last = position;
        }
        self.counts.verified += 1;
        Ok(sender)
    }

    fn add(&mut self, member: ProvenCertificate, now: WallTime) -> Result<(), SignatureRefusal> {
        let known = self.trust.check(member, now)?;
        self.certificates.put(known.member.id(), known);
        Ok(())
    }

    fn refuse(&mut self, now: Instant, refusal: SignatureRefusal) {
        let counts = &mut self.counts;
        let count = match &refusal {
            SignatureRefusal::Unsigned => &mut counts.unsigned,
            SignatureRefusal::UnknownCertificate => &mut counts.unknown_certificates,
            SignatureRefusal::Untrusted(_) => &mut counts.untrusted,
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
            self.problem = Some((now, refusal.to_string()));
        }
    }
}

/// Returns the subject under which the last message of a gateway is remembered. Replies to one gateway come in the order
/// of sending, so the number of the request is left out.
fn position_subject(subject: &Subject) -> Subject {
    let text = subject.as_str();
    let (without_number, _) = text.rsplit_once('.').filter(|_| text.starts_with(REPLY_PREFIX)).unwrap_or((text, ""));
    without_number.parse().unwrap_or_else(|_| subject.clone())
}
