//! The certificates that a gateway has received and trusts, and those that it does not check again.
//!
//! Clients of the cluster may announce and store as many certificates as they like, and each check costs a verification.
//! So the proof of membership comes first: it costs a hash. Three budgets limit what follows.

use super::CERTIFICATES_MAX;
use super::check_budget::CheckBudget;
use super::known_certificate::KnownCertificate;
use super::realm_trust::RealmTrust;
use super::signature_refusal::SignatureRefusal;
use crate::security::ProvenCertificate;
use crate::security::batch_signature::CertificateId;
use crate::time::{ClockReading, WallTime};
use lru::LruCache;
use std::time::Duration;

/// Interval of the budgets.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of announced certificates of members that are checked in the interval. Only members can make them.
const MEMBER_CHECKS_MAX: u32 = 200;
/// The same for those without a proof of membership, which any client of the cluster can announce.
const OTHER_CHECKS_MAX: u32 = 20;
/// The same for those in the stream. Members made them as well, with former secrets of the realm.
const STORED_CHECKS_MAX: u32 = 200;

/// The certificates that a gateway knows.
#[derive(Debug)]
pub(super) struct KnownCertificates {
    trust: RealmTrust,
    trusted: LruCache<CertificateId, KnownCertificate>,
    /// Certificates of members that this host does not trust, with the reason. They are not checked again.
    refused: LruCache<CertificateId, SignatureRefusal>,
    member_checks: CheckBudget,
    other_checks: CheckBudget,
    stored_checks: CheckBudget,
}

impl KnownCertificates {
    /// Creates the collection of a host that knows no certificate yet.
    pub(super) fn new(trust: RealmTrust) -> KnownCertificates {
        KnownCertificates {
            trust,
            trusted: LruCache::new(CERTIFICATES_MAX),
            refused: LruCache::new(CERTIFICATES_MAX),
            member_checks: CheckBudget::new(MEMBER_CHECKS_MAX, CHECK_INTERVAL),
            other_checks: CheckBudget::new(OTHER_CHECKS_MAX, CHECK_INTERVAL),
            stored_checks: CheckBudget::new(STORED_CHECKS_MAX, CHECK_INTERVAL),
        }
    }

    /// Returns the number of certificates that this host trusts.
    pub(super) fn len(&self) -> usize {
        self.trusted.len()
    }

    /// Returns a certificate that this host trusts.
    pub(super) fn get(&mut self, id: &CertificateId) -> Option<&mut KnownCertificate> {
        self.trusted.get_mut(id)
    }

    /// Checks all certificates by these rules. Returns why some are not trusted any more.
    pub(super) fn set_trust(&mut self, now: WallTime, trust: RealmTrust) -> Vec<SignatureRefusal> {
        self.trust = trust;
        self.refused.clear();
        let mut known = Vec::new();
        while let Some((_, certificate)) = self.trusted.pop_lru() {
            known.push(certificate.member);
        }
        known.into_iter().filter_map(|member| self.check(member, now).err()).collect()
    }

    /// Adds a certificate that was announced, unless it is known.
    pub(super) fn add_announced(
        &mut self,
        now: ClockReading,
        member: ProvenCertificate,
    ) -> Result<(), SignatureRefusal> {
        if self.trusted.get(&member.id()).is_some() {
            return Ok(());
        }
        self.refuse_known(&member)?;
        let budget = match self.trust.is_of_member(&member) {
            true => &mut self.member_checks,
            false => &mut self.other_checks,
        };
        if !budget.take(now.instant) {
            return Err(SignatureRefusal::ExcessCertificate);
        }
        self.check(member, now.wall)
    }

    /// Adds the certificate of a message of the stream.
    pub(super) fn add_stored(&mut self, now: ClockReading, member: ProvenCertificate) -> Result<(), SignatureRefusal> {
        self.refuse_known(&member)?;
        if !self.trust.is_of_member(&member) && !self.stored_checks.take(now.instant) {
            return Err(SignatureRefusal::ExcessCertificate);
        }
        self.check(member, now.wall)
    }

    /// Refuses a certificate that was refused before.
    fn refuse_known(&mut self, member: &ProvenCertificate) -> Result<(), SignatureRefusal> {
        self.refused.get(&member.id()).map_or(Ok(()), |refusal| Err(refusal.clone()))
    }

    fn check(&mut self, member: ProvenCertificate, now: WallTime) -> Result<(), SignatureRefusal> {
        let id = member.id();
        let is_member = self.trust.is_of_member(&member);
        let checked = self.trust.check(member, is_member, now);
        if let Err(refusal) = &checked
            && is_member
        {
            self.refused.put(id, refusal.clone());
        }
        self.trusted.put(id, checked?);
        Ok(())
    }
}
