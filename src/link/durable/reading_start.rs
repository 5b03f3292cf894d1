//! How a gateway begins to read the stream.

use super::hub_position::HubPosition;

/// State of the stored position of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoredPosition {
    /// Nothing: the site has not read the stream.
    #[default]
    None,
    /// Something that no gateway of the site has written.
    Unreadable,
    /// The position up to which the site has read.
    At(HubPosition),
}

/// State of the cluster when a gateway begins to read the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadingStart {
    /// The stored position of the site.
    pub stored: StoredPosition,
    /// Whether this gateway was the last one that stored the position.
    pub is_own: bool,
    /// Stream sequence of the first message that the stream has, or of its next one if it has none.
    pub first: u64,
    /// The last message that it has had.
    pub last: HubPosition,
    /// Whether the stream was made after the position was stored.
    pub is_new: bool,
}

/// Reading of the stream that a gateway has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedReading {
    /// Position behind which messages are delivered.
    pub position: HubPosition,
    /// Stream sequence behind which messages are read.
    pub read_from: u64,
    /// Number of messages that the stream has removed and this site has not read.
    pub removed: u64,
}
