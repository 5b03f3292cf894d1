//! The signatures of a link in a realm: of what it sends to the cluster, and of what comes from there.

use crate::clock::Clock;
use crate::config::Config;
use crate::daemon::link::report::SecurityReport;
use crate::daemon::link_realm::{LinkRealm, LinkRealmUpdates};
use crate::link::gateway_settings::GatewaySettings;
use crate::link::signatures::signer::LinkSigner;
use crate::link::signatures::verifier::{LinkVerifier, VerifiedMessage};
use crate::link::site_name::SiteName;
use crate::message::{Epoch, Message};
use crate::subject::pattern_set::PatternSet;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::time::{ClockReading, WallTime};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for which a refused message is a problem of the peer's health.
const PROBLEM_TIME: Duration = Duration::from_secs(60);

/// The signatures of a link.
pub(super) struct LinkSigning {
    realm: String,
    signer: RefCell<LinkSigner>,
    verifier: RefCell<LinkVerifier>,
    updates: LinkRealmUpdates,
    /// Sentence about exported patterns that the certificate of this host limits.
    limited: Option<String>,
}

impl LinkSigning {
    /// Creates the signatures of a gateway with this epoch.
    pub(super) fn new(
        config: &Config,
        site: &SiteName,
        gateway: Epoch,
        realm: LinkRealm,
        updates: LinkRealmUpdates,
    ) -> LinkSigning {
        let LinkRealm { name, trust, certificate, key } = realm;
        LinkSigning {
            realm: name,
            signer: RefCell::new(LinkSigner::new(site.clone(), gateway, key, trust.code_key().clone(), certificate)),
            verifier: RefCell::new(LinkVerifier::new(
                trust,
                config.link_import.clone(),
                config.link_import_clients.clone(),
            )),
            updates,
            limited: None,
        }
    }

    /// Notes which exported patterns the certificate of this host limits.
    pub(super) fn report_limited_exports(&mut self, config: &Config, settings: &GatewaySettings) {
        let exports = [
            ("link-live", &config.link_live, &settings.exports),
            ("link-durable", &config.link_durable, &settings.durable.exports),
            ("link-services", &config.link_services, &settings.services),
        ];
        let mut limited = exports.iter().filter_map(|(key, wanted, exported)| {
            let pattern = wanted.patterns().iter().find(|pattern| !exported.contains(pattern))?;
            Some((key, pattern))
        });
        let limited = limited.next();
        self.limited = limited.map(|(key, pattern)| {
            format!("the certificate of this host does not permit all subjects of {key} '{pattern}'; others stay here")
        });
        if let Some(limited) = &self.limited {
            tracing::warn!("{limited}");
        }
    }

    /// Returns the next message for the cluster, signed. `poll` gives those of the gateway.
    pub(super) fn next_for_hub(&self, poll: impl FnMut() -> Option<Message>) -> Option<Message> {
        self.signer.borrow_mut().poll(Clock::now(), poll)
    }

    /// Signs a batch of durable messages. `None` in place of one that cannot be signed.
    pub(super) fn sign(&self, messages: Vec<Message>) -> Vec<Option<Message>> {
        self.signer.borrow_mut().sign(Clock::now(), messages)
    }

    /// Handles a change of the connection. Returns the messages that are not sent any more.
    pub(super) fn on_link(&self, is_linked: bool) -> impl Iterator<Item = Message> {
        self.signer.borrow_mut().on_link(Clock::now().instant, is_linked).into_iter()
    }

    /// Handles the announcement of a certificate.
    pub(super) fn on_certificate(&self, message: &Message) {
        let now = Clock::now();
        if self.verifier.borrow_mut().on_certificate(now, message) {
            self.signer.borrow_mut().on_certificate_request(now.instant);
        }
    }

    /// Opens a message of the cluster.
    pub(super) fn open(&self, message: Message) -> Option<VerifiedMessage> {
        self.verifier.borrow_mut().open(Clock::now(), message)
    }

    /// Opens a message that a stream has stored at this time.
    pub(super) fn open_stored(&self, stored: WallTime, message: Message) -> Option<Message> {
        let opened = self.verifier.borrow_mut().open_stored(Clock::now(), stored, message);
        opened.map(|opened| opened.message)
    }

    /// Takes over a change of the realm, and logs what was refused.
    pub(super) fn on_tick(&self, now: ClockReading) {
        let mut verifier = self.verifier.borrow_mut();
        if let Some(LinkRealm { trust, certificate, .. }) = self.updates.take() {
            self.signer.borrow_mut().set_realm(now.instant, trust.code_key().clone(), certificate);
            verifier.set_trust(now, trust);
        }
        self.signer.borrow_mut().take_notice().iter().for_each(|notice| tracing::warn!("{notice}"));
        while let Some(notice) = verifier.poll_notice() {
            tracing::warn!("{notice}");
        }
    }

    /// Returns the part of the report.
    pub(super) fn report(&self) -> SecurityReport {
        let (verifier, signer) = (self.verifier.borrow(), self.signer.borrow());
        let counts = verifier.counts();
        let problem = verifier.problem(Clock::now().instant - PROBLEM_TIME).or_else(|| self.limited.clone());
        SecurityReport {
            realm: self.realm.clone(),
            counts: BTreeMap::from([
                ("certificates", verifier.certificates() as u64),
                ("signed", signer.signed_count),
                ("unsignable", signer.unsignable_count),
                ("verified", counts.verified),
                ("unsigned", counts.unsigned),
                ("unknown_certificates", counts.unknown_certificates),
                ("invalid_certificates", counts.invalid_certificates),
                ("excess_certificates", counts.excess_certificates),
                ("untrusted", counts.untrusted),
                ("bad_signatures", counts.bad_signatures),
                ("stale", counts.stale),
                ("repeated", counts.repeated),
                ("denied", counts.denied),
            ]),
            problem,
        }
    }
}

/// Returns the exported subjects that the certificate of this host permits.
pub(super) fn permitted_exports(exports: &PatternSet, publications: &PermittedSubjects) -> PatternSet {
    publications.patterns().map_or_else(|| exports.clone(), |permitted| exports.intersection(permitted))
}
