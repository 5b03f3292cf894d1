//! The position of a site in the stream, which the cluster stores.
//!
//! A stream of its own keeps the last position of each site. A gateway that writes one names the revision that it has
//! read: if another gateway of the site has written since, the cluster refuses, and this one reads it anew. In a realm the
//! position is signed, so that no client of the cluster makes a site skip messages.

use super::{hub_time, single_message};
use crate::daemon::link::hub::header_map;
use crate::daemon::link::signing::LinkSigning;
use crate::link::durable::{HubPosition, StoredPosition};
use crate::link::site_name::SiteName;
use crate::link::system_messages::POSITION_PREFIX;
use crate::message::Message;
use crate::time::WallTime;
use async_nats::jetstream::context::{Context, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, RawMessage, StorageType};

/// A position with the state of its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PositionEntry {
    pub(super) position: StoredPosition,
    /// Revision of the stored value; 0 if there is none.
    pub(super) revision: u64,
    /// Time at which it was stored, by the clock of the cluster, if this was read.
    pub(super) at: Option<WallTime>,
}

/// A position that the cluster stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrittenPosition {
    pub(super) position: HubPosition,
    /// Revision of the stored value.
    pub(super) revision: u64,
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
        let subject = format!("{POSITION_PREFIX}{name}.{site}");
        PositionStore { stream: format!("{name}_POSITIONS"), subject, copies }
    }

    /// Reads the position.
    ///
    /// # Errors
    /// The cluster refuses, or does not answer.
    pub(super) async fn read(&self, context: &Context, signing: Option<&LinkSigning>) -> Result<PositionEntry, String> {
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
        if context.get_stream(&self.stream).await.is_err() {
            context.get_or_create_stream(config).await.map_err(|error| error.to_string())?;
        }
        let Some(stored) = single_message::last_on(context, &self.stream, &self.subject).await? else {
            return Ok(PositionEntry { position: StoredPosition::None, revision: 0, at: None });
        };
        let (revision, at) = (stored.sequence, hub_time(stored.time));
        let position = position_of(stored, signing).map_or(StoredPosition::Unreadable, StoredPosition::At);
        if position == StoredPosition::Unreadable {
            tracing::warn!(subject = self.subject, "the stored position is none of this site, and is written anew");
        }
        Ok(PositionEntry { position, revision, at })
    }

    /// Writes the position over the value with this revision.
    ///
    /// # Errors
    /// Another gateway has written one, or the cluster refuses, or does not answer.
    pub(super) async fn write(
        &self,
        context: &Context,
        signing: Option<&LinkSigning>,
        position: HubPosition,
        revision: u64,
    ) -> Result<WrittenPosition, PositionError> {
        let subject = self.subject.parse().map_err(|_| PositionError::Refused("a name is too long".to_owned()))?;
        let message = Message::new(subject, position.to_string());
        let message = match signing {
            Some(signing) => signing.sign(vec![message]).pop().flatten(),
            None => Some(message),
        };
        let unsigned = || PositionError::Refused("the position cannot be signed".to_owned());
        let Message { headers, payload, .. } = message.ok_or_else(unsigned)?;
        let message = PublishMessage::build()
            .headers(header_map(&headers))
            .payload(payload)
            .expected_last_subject_sequence(revision);
        let refused = |error: async_nats::jetstream::context::PublishError| match error.kind() {
            PublishErrorKind::WrongLastSequence => PositionError::Overtaken,
            _ => PositionError::Refused(error.to_string()),
        };
        let answer = context.send_publish(self.subject.clone(), message).await.map_err(refused)?;
        let stored = answer.await.map_err(refused)?;
        Ok(WrittenPosition { position, revision: stored.sequence })
    }
}

/// Returns the position in a stored message; `None` if it has none, or if no gateway of its site has signed it.
fn position_of(stored: RawMessage, signing: Option<&LinkSigning>) -> Option<HubPosition> {
    let at = hub_time(stored.time)?;
    let message = single_message::bus_message(stored)?;
    let message = match signing {
        Some(signing) => signing.open_stored(at, message)?,
        None => message,
    };
    std::str::from_utf8(&message.payload).ok()?.parse().ok()
}
