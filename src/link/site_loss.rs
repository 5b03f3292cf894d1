//! Losses of messages of another site, and their reports on the LAN.

use super::envelope::LinkEnvelope;
use super::site_name::SiteName;
use crate::message::{Count, Epoch};
use crate::subject::Subject;
use serde::Deserialize;

/// Messages of another site that will not be delivered to this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteLoss {
    /// Origin of the message behind them, or of the last one of them.
    pub origin: LinkEnvelope,
    /// The subject.
    pub subject: Subject,
    /// Number of missing messages.
    pub count: Count,
    /// True if the message of the origin follows the missing ones, and is not one of them.
    pub follows: bool,
}

impl SiteLoss {
    /// Returns the report of the loss as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let LinkEnvelope { site, publisher, .. } = &self.origin;
        let text = serde_json::json!({
            "site": site.to_string(),
            "epoch": publisher.epoch.to_string(),
            "publisher": publisher.name.as_ref().map(ToString::to_string),
            "subject": self.subject.to_string(),
            "lost_min": self.count.min(),
            "lost_max": Some(self.count.max()).filter(|max| *max != u64::MAX),
            "origin": self.origin.to_value(),
            "follows": self.follows,
        });
        text.to_string().into_bytes()
    }
}

/// A report, as the other gateways of the site read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SiteLossReport {
    /// Origin of the message behind the missing ones, or of the last one of them.
    pub(super) origin: LinkEnvelope,
    pub(super) subject: Subject,
    /// True if the message of the origin follows the missing ones.
    pub(super) follows: bool,
}

impl SiteLossReport {
    /// Reads a report. `None` if it is none.
    pub(super) fn from_json(report: &[u8]) -> Option<SiteLossReport> {
        let ReportText { subject, origin, follows } = serde_json::from_slice(report).ok()?;
        let (origin, subject) = (LinkEnvelope::from_value(&origin).ok()?, subject.parse().ok()?);
        Some(SiteLossReport { origin, subject, follows })
    }
}

/// The JSON of a report, as far as it is read.
#[derive(Deserialize)]
struct ReportText {
    subject: String,
    origin: String,
    follows: bool,
}

/// The last gateway of a site has ended, and its manifests did not name everything, as far as they have arrived. Any
/// number of messages may be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteTail {
    /// The site.
    pub site: SiteName,
    /// Epoch of the gateway.
    pub gateway: Epoch,
}
