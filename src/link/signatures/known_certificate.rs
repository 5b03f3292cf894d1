//! A certificate that a gateway has checked, and what its host may do in the name of sites.

use super::hub_claim::HubClaim;
use crate::link::hub_sender::{HubSender, site_publications, speaks_for_any_site};
use crate::link::site_name::SiteName;
use crate::security::realm::Certificate;
use crate::security::{CertifiedHost, ProvenCertificate};
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::time::Instant;
use std::collections::BTreeMap;

/// Maximum number of sites of a certificate that are remembered.
const SITES_MAX: usize = 16;

/// A certificate that this host trusts while it is valid.
#[derive(Debug)]
pub(super) struct KnownCertificate {
    pub(super) member: ProvenCertificate,
    pub(super) certificate: Certificate,
    pub(super) host: CertifiedHost,
    publish: PermittedSubjects,
    /// Subjects on which the host may publish in the name of sites; `None` if it may not speak for the site.
    sites: BTreeMap<SiteName, Option<PermittedSubjects>>,
    /// Time up to which no further signatures of the host are checked, since too many wrong ones have come.
    pub(super) blocked_to: Instant,
}

impl KnownCertificate {
    /// Creates the entry of a host with this certificate.
    pub(super) fn new(member: ProvenCertificate, certificate: Certificate, host: CertifiedHost) -> KnownCertificate {
        let publish = PermittedSubjects::of(host.permissions.publish.iter().cloned());
        KnownCertificate { member, certificate, host, publish, sites: BTreeMap::new(), blocked_to: Instant::ZERO }
    }

    fn publications(&mut self, site: &SiteName) -> Option<PermittedSubjects> {
        if SITES_MAX <= self.sites.len() && !self.sites.contains_key(site) {
            self.sites.clear();
        }
        self.sites.entry(site.clone()).or_insert_with(|| site_publications(&self.publish, site)).clone()
    }

    /// Returns the sender of a message with this claim.
    pub(super) fn sender(&mut self, claim: &HubClaim) -> Option<HubSender> {
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
