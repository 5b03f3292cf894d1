//! The position of a site in the stream, which the cluster stores.
//!
//! A stream of its own keeps the last position of each site. A gateway that writes one names the revision that it has
//! read: if another gateway of the site has written since, the cluster refuses, and this one reads it anew.

use super::hub_time;
use crate::link::site_name::SiteName;
use crate::time::WallTime;
use async_nats::jetstream::context::{Context, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, LastRawMessageErrorKind, StorageType};

/// Subjects of the stored positions, followed by the names of the stream and the site.
const POSITION_PREFIX: &str = "_SEQCAST.LINK.POSITION";

/// A stored position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredPosition {
    /// Stream sequence; `None` if the site has none yet.
    pub(super) position: Option<u64>,
    /// Revision of the stored value; 0 if there is none.
    pub(super) revision: u64,
    /// Time at which it was stored, by the clock of the cluster, if this was read.
    pub(super) at: Option<WallTime>,
}

/// Where the position of a site is stored.
#[derive(Clone, Debug)]
pub(super) struct PositionStore {
    stream: String,
    subject: String,
    copies: usize,
}

/// Reason why a position is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PositionError {
    /// Another gateway has written one.
    Overtaken,
    /// The cluster refuses, or does not answer.
    Refused(String),
}

impl PositionStore {
    /// Returns the store for the position of `site` in the stream `name`.
    pub(super) fn new(name: &str, site: &SiteName, copies: usize) -> PositionStore {
        let subject = format!("{POSITION_PREFIX}.{name}.{site}");
        PositionStore { stream: format!("{name}_POSITIONS"), subject, copies }
    }

    /// Reads the position.
    ///
    /// # Errors
    /// The cluster refuses, or does not answer.
    pub(super) async fn read(&self, context: &Context) -> Result<StoredPosition, String> {
        let config = Config {
            name: self.stream.clone(),
            description: Some("Positions up to which sites have read the stream of seqcast".into()),
            subjects: vec![format!("{}.>", self.subject.rsplit_once('.').map_or("", |(prefix, _)| prefix))],
            max_messages_per_subject: 1,
            storage: StorageType::File,
            num_replicas: self.copies,
            allow_direct: true,
            ..Config::default()
        };
        let stream = match context.get_stream(&self.stream).await {
            Ok(stream) => stream,
            Err(_) => context.get_or_create_stream(config).await.map_err(|error| error.to_string())?,
        };
        match stream.get_last_raw_message_by_subject(&self.subject).await {
            Ok(stored) => {
                let position = parse_position(&stored.payload);
                if position.is_none() {
                    tracing::warn!(self.subject, "the stored position cannot be read, and is written anew");
                }
                Ok(StoredPosition { position, revision: stored.sequence, at: hub_time(stored.time) })
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                Ok(StoredPosition { position: None, revision: 0, at: None })
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Writes the position over the value with this revision. Returns the new revision.
    ///
    /// # Errors
    /// Another gateway has written one, or the cluster refuses, or does not answer.
    pub(super) async fn write(&self, context: &Context, position: u64, revision: u64) -> Result<u64, PositionError> {
        let message =
            PublishMessage::build().payload(position.to_string().into()).expected_last_subject_sequence(revision);
        let refused = |error: async_nats::jetstream::context::PublishError| match error.kind() {
            PublishErrorKind::WrongLastSequence => PositionError::Overtaken,
            _ => PositionError::Refused(error.to_string()),
        };
        let answer = context.send_publish(self.subject.clone(), message).await.map_err(refused)?;
        answer.await.map(|stored| stored.sequence).map_err(refused)
    }
}

/// Reads a stored position; `None` if it is none. Any client of the cluster may have written it.
fn parse_position(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_position_counts_as_absent() {
        let positions = [&b"120"[..], b"", b"12x", b"-1", b"99999999999999999999", &[0xff]].map(parse_position);
        assert_eq!(positions, [Some(120), None, None, None, None, None]);
    }
}
