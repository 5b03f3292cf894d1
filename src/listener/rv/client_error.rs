//! Advisories about errors of a client, which that client alone gets.

use super::advisory::{AdvisoryClass, EncodedAdvisory, encode, field, text};
use super::message::RvValue;
use super::settings::Settings;
use crate::listener::permissions::{Denial, DeniedAction};
use crate::message::Refusal;

/// Returns the reason for which a message of this size is not published.
pub(super) fn too_large_text(settings: &Settings, bytes: usize) -> String {
    format!("the message has {bytes} bytes; the limit of the bus is {}", settings.message_bytes_max)
}

/// Returns the advisory about a message that is too large, with this reason.
pub(super) fn too_large(settings: &Settings, reason: &str) -> Option<EncodedAdvisory> {
    let host = settings.host.to_string();
    let rest = vec![
        field("ADV_DESC", text(reason)),
        field("host", text(&host)),
        field("lost", RvValue::U32(1)),
        field("scid", RvValue::IpPort(settings.service)),
    ];
    encode(AdvisoryClass::Error, "DATALOSS.MSG_TOO_LARGE", rest)
}

/// Returns the advisory `name` about a subject that the client of this transport cannot use.
pub(super) fn illegal(name: &str, subject: &[u8], transport: &str, reason: &str) -> Option<EncodedAdvisory> {
    let rest = vec![
        field("ADV_DESC", text(reason)),
        field("sub", RvValue::String(subject)),
        field("tport", text(transport)),
        field("descr", text(reason)),
    ];
    encode(AdvisoryClass::Error, name, rest)
}

/// Returns the reason of a refusal for people.
pub(super) fn refusal_text(refusal: &Refusal) -> String {
    match refusal {
        Refusal::MessageTooLarge { bytes, bytes_max } => {
            format!("the message has {bytes} bytes; the limit is {bytes_max}")
        }
        Refusal::TooManySubscriptions { max } => format!("there may be at most {max} subscriptions"),
        Refusal::PublishDenied(subject) => Denial::new(DeniedAction::Publish, subject).to_string(),
        Refusal::SubscribeDenied(pattern) => Denial::new(DeniedAction::Subscribe, pattern).to_string(),
        Refusal::Subject(error) => error.to_string(),
        Refusal::Stopping => "the daemon is stopping".to_owned(),
        Refusal::TooManyGlobSteps { .. } | Refusal::QueueLive | Refusal::QueueDiscovery => {
            "the daemon refuses the request".to_owned()
        }
    }
}
