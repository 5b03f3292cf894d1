//! The messages of gateways to each other, apart from manifests: their subjects and their JSON.

use super::site_name::SiteName;
use crate::subject::Subject;
use serde::{Deserialize, Serialize};

/// Subject of the LAN on which gateways announce themselves.
pub const ANNOUNCE_SUBJECT: &str = "_SEQCAST.LINK.GATEWAY";
/// Subject of the LAN on which gateways report what was lost on the way from other sites.
pub const LOSS_SUBJECT: &str = "_SEQCAST.LINK.LOSS";
/// Subjects of the LAN on which gateways publish: both of the above.
pub const GATEWAY_SUBJECTS: &str = "_SEQCAST.LINK.*";
/// Subjects of the cluster for manifests, followed by the site.
pub const MANIFEST_PREFIX: &str = "_SEQCAST.LINK.MANIFEST.";
/// Subjects of the cluster for the requests of manifests, followed by the site of the gateway that is asked.
pub const REQUEST_PREFIX: &str = "_SEQCAST.LINK.REQUEST.";
/// Subjects of the cluster on which a gateway says that it ends, followed by its site.
pub const BYE_PREFIX: &str = "_SEQCAST.LINK.BYE.";

/// Announcement of a gateway on its LAN.
#[derive(Serialize, Deserialize)]
pub(super) struct GatewayAnnouncement {
    pub(super) site: String,
    pub(super) gateway: String,
    /// True while it carries shares or is about to.
    pub(super) ready: bool,
    /// True if it leaves.
    #[serde(default)]
    pub(super) leaving: bool,
}

/// Request of a round of manifests.
#[derive(Serialize, Deserialize)]
pub(super) struct RequestText {
    pub(super) gateway: String,
    pub(super) share: u8,
    pub(super) after: u64,
}

/// Returns the subject of a site that begins so.
pub(super) fn system_subject(prefix: &str, site: &SiteName) -> Subject {
    format!("{prefix}{site}").parse().expect("the name of a site is a token of a subject")
}
