//! The messages of gateways to each other, apart from manifests: their subjects and their JSON.

use super::durable::DurableAnnouncement;
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
/// Subjects of the cluster for the requests of messages that its stream has lost, followed by the site that is asked.
pub const RESTORE_PREFIX: &str = "_SEQCAST.LINK.RESTORE.";
/// Subjects of the cluster on which a gateway says that it ends, followed by its site.
pub const BYE_PREFIX: &str = "_SEQCAST.LINK.BYE.";
/// Subjects of the cluster on which a gateway announces the interest of its site, followed by the site.
pub const INTEREST_PREFIX: &str = "_SEQCAST.LINK.INTEREST.";
/// Subjects of the cluster for requests to the programs of a site, followed by the site.
pub const CALL_PREFIX: &str = "_SEQCAST.LINK.CALL.";
/// Subjects of the cluster for the replies to these, followed by the site and the gateway that sent the request, and
/// its number.
pub const REPLY_PREFIX: &str = "_SEQCAST.LINK.REPLY.";
/// Subjects of the cluster for the positions of sites in its stream, followed by the names of the stream and the site.
pub const POSITION_PREFIX: &str = "_SEQCAST.LINK.POSITION.";
/// Subjects of the cluster on which its stream answers a gateway, followed by the site and the gateway. Only the servers
/// of the cluster publish there.
pub const INBOX_PREFIX: &str = "_SEQCAST.LINK.INBOX.";
/// Header field of such a request with its subject.
pub const SUBJECT_HEADER: &str = "Seqcast-Subject";
/// Header field of a reply that a gateway sends itself. The value [`NO_RESPONDERS`] says that no program of the site
/// subscribes to the subject.
pub const STATUS_HEADER: &str = "Seqcast-Status";
/// Status of a request without a responder.
pub const NO_RESPONDERS: &str = "503";

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
    /// Patterns to which it subscribes on the LAN. They are no interest of the site.
    #[serde(default)]
    pub(super) patterns: Vec<String>,
    /// State of its durable messages.
    #[serde(default)]
    pub(super) durable: DurableAnnouncement,
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
