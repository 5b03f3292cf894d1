//! The claim of a message of the cluster: the site in whose name it is sent, and the subject on which it is published.

use super::CERTIFICATE_PREFIX;
use crate::event::server_origin::SITE_HEADER;
use crate::link::envelope::ORIGIN_HEADER;
use crate::link::event_relay::{EVENT_PREFIX, REQUEST_HEADER};
use crate::link::site_name::SiteName;
use crate::link::system_messages::{
    BYE_PREFIX, CALL_PREFIX, INTEREST_PREFIX, MANIFEST_PREFIX, POSITION_PREFIX, REPLY_PREFIX, REQUEST_PREFIX,
    RESTORE_PREFIX, SUBJECT_HEADER,
};
use crate::message::{Headers, Message};
use crate::subject::Subject;

/// Claim of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HubClaim {
    /// Sent by a gateway; names no site.
    Gateway,
    /// It is of a gateway of this site.
    Site(SiteName),
    /// It is published on the subject in this site.
    Publication {
        /// The site.
        site: SiteName,
        /// Subject of the message on a LAN.
        subject: Subject,
    },
}

impl HubClaim {
    /// Returns the claim of a message; `None` if no gateway sends such a message.
    pub(super) fn of(message: &Message) -> Option<HubClaim> {
        let (subject, headers) = (message.subject.as_str(), &message.headers);
        let origin = || site_in(headers, |key| key.eq_ignore_ascii_case(ORIGIN_HEADER));
        if !subject.starts_with('_') {
            return Some(HubClaim::Publication { site: origin()?, subject: message.subject.clone() });
        }
        if subject.starts_with(REQUEST_PREFIX) || subject.starts_with(RESTORE_PREFIX) {
            return Some(HubClaim::Gateway);
        }
        if subject.starts_with(REPLY_PREFIX) {
            return Some(HubClaim::Site(origin()?));
        }
        if subject.starts_with(CALL_PREFIX) {
            let called = headers.field(SUBJECT_HEADER)?;
            // Every host may use some subjects that begin so, but none of them crosses.
            let called = Some(called).filter(|called| !called.starts_with('_'))?;
            return Some(HubClaim::Publication { site: origin()?, subject: called.parse().ok()? });
        }
        if let Some(words) = subject.strip_prefix(EVENT_PREFIX) {
            let mut words = words.split('.');
            let site = match (words.next()?, words.next()?) {
                ("SERVER" | "FOLLOW", site) => site.parse().ok(),
                ("QUERY", _) => site_in(headers, |key| key == REQUEST_HEADER),
                ("PAGE", _) => site_in(headers, |key| key == SITE_HEADER),
                _ => None,
            };
            return site.map(HubClaim::Site);
        }
        if let Some(words) = subject.strip_prefix(POSITION_PREFIX) {
            return words.rsplit('.').next()?.parse().ok().map(HubClaim::Site);
        }
        let prefixes = [MANIFEST_PREFIX, BYE_PREFIX, INTEREST_PREFIX, CERTIFICATE_PREFIX];
        let site = prefixes.iter().find_map(|prefix| subject.strip_prefix(prefix));
        site?.parse().ok().map(HubClaim::Site)
    }
}

/// Returns the site that the first word of a header field names.
fn site_in(headers: &Headers, is_key: impl Fn(&str) -> bool) -> Option<SiteName> {
    let (_, value) = headers.iter().find(|(key, _)| is_key(key))?;
    value.split(' ').next()?.parse().ok()
}
