//! Losses of messages of another site, and their reports on the LAN.

use super::envelope::{LinkEnvelope, parse_epoch};
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
    /// Whether they are durable messages.
    pub is_durable: bool,
}

impl SiteLoss {
    /// Returns a loss of live messages.
    pub fn of_live(origin: LinkEnvelope, subject: Subject, count: Count, follows: bool) -> SiteLoss {
        SiteLoss { origin, subject, count, follows, is_durable: false }
    }

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
            "durable": self.is_durable,
        });
        text.to_string().into_bytes()
    }
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

impl SiteTail {
    /// Returns the report of the tail as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let text = serde_json::json!({
            "site": self.site.to_string(),
            "gateway": self.gateway.to_string(),
            "tail": true,
        });
        text.to_string().into_bytes()
    }
}

/// Maximum bytes of a report. The longest one that a gateway writes has less than a half of them.
const REPORT_BYTES_MAX: usize = 4096;

/// A report of a gateway, as the peers of its LAN read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteReport {
    /// Messages of a stream are lost.
    Loss(Box<SiteLoss>),
    /// Any number of messages of a site may be lost.
    Tail(SiteTail),
}

impl SiteReport {
    /// Reads a report. `None` if it is none. Any program of an open LAN can have written it.
    pub fn from_json(report: &[u8]) -> Option<SiteReport> {
        if REPORT_BYTES_MAX < report.len() {
            return None;
        }
        match serde_json::from_slice(report).ok()? {
            ReportText::Loss { subject, origin, follows, durable, lost_min, lost_max } => {
                let (origin, subject) = (LinkEnvelope::from_value(&origin).ok()?, subject.parse().ok()?);
                let max = lost_max.unwrap_or(u64::MAX);
                let count = (lost_min <= max).then(|| Count::from_bounds(lost_min, max))?;
                Some(SiteReport::Loss(Box::new(SiteLoss { origin, subject, count, follows, is_durable: durable })))
            }
            ReportText::Tail { site, gateway, tail } => {
                let tail = tail.then_some(SiteTail { site: site.parse().ok()?, gateway: parse_epoch(&gateway)? });
                tail.map(SiteReport::Tail)
            }
        }
    }
}

/// The JSON of a report, as far as it is read.
#[derive(Deserialize)]
#[serde(untagged)]
enum ReportText {
    Loss {
        subject: String,
        origin: String,
        follows: bool,
        #[serde(default)]
        durable: bool,
        lost_min: u64,
        lost_max: Option<u64>,
    },
    Tail {
        site: String,
        gateway: String,
        tail: bool,
    },
}
