//! Filter of a subscription: the messages that it gets.

use crate::subject::glob::Glob;
use crate::subject::{Pattern, SUBJECT_BYTES_MAX, Subject};
use bytes::Bytes;
use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

/// Name of a queue group. Each message goes to exactly one of the subscriptions that share the name in the whole LAN.
/// The name has 1 to 255 bytes of UTF-8 without spaces and control characters. Cloning copies a reference only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queue(Bytes);

/// Reason for which a text is not a name of a queue group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// The text is empty.
    Empty,
    /// The text is longer than 255 bytes. Holds its length.
    TooLong(usize),
    /// The text has a space or control character. Holds its position in bytes.
    Character(usize),
    /// The text is not UTF-8.
    Encoding,
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueError::Empty => write!(f, "the name of a queue group must not be empty"),
            QueueError::TooLong(bytes) => {
                write!(f, "the name of a queue group has at most {SUBJECT_BYTES_MAX} bytes, this one has {bytes}")
            }
            QueueError::Character(at) => {
                write!(f, "space or control character at byte {at}: not allowed in the name of a queue group")
            }
            QueueError::Encoding => write!(f, "the name of a queue group must be UTF-8"),
        }
    }
}

impl std::error::Error for QueueError {}

impl Queue {
    /// Creates a name from received bytes.
    ///
    /// # Errors
    /// Returns the reason for which the bytes are not a name.
    pub fn from_bytes(bytes: Bytes) -> Result<Queue, QueueError> {
        match () {
            () if bytes.is_empty() => Err(QueueError::Empty),
            () if SUBJECT_BYTES_MAX < bytes.len() => Err(QueueError::TooLong(bytes.len())),
            () if std::str::from_utf8(&bytes).is_err() => Err(QueueError::Encoding),
            () => match bytes.iter().position(|byte| *byte <= b' ' || *byte == 0x7f) {
                Some(at) => Err(QueueError::Character(at)),
                None => Ok(Queue(bytes)),
            },
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked on construction")
    }
}

impl Borrow<[u8]> for Queue {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for Queue {
    type Err = QueueError;

    fn from_str(text: &str) -> Result<Queue, QueueError> {
        Queue::from_bytes(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Selection of the messages that a subscription gets. Cloning copies references and the glob, if present.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionFilter {
    /// Pattern that the subject must match.
    pub pattern: Pattern,
    /// Glob that the subject as a channel ([`channel`](crate::subject::channel)) must match, if present.
    pub glob: Option<Glob>,
    /// Queue group of the subscription, if any: it then gets only its share of these messages.
    pub queue: Option<Queue>,
}

impl From<Pattern> for SubscriptionFilter {
    fn from(pattern: Pattern) -> SubscriptionFilter {
        SubscriptionFilter { pattern, glob: None, queue: None }
    }
}

impl SubscriptionFilter {
    /// Returns whether the filter matches this subject, regardless of the queue group's sharing.
    pub fn matches(&self, subject: &Subject) -> bool {
        self.pattern.matches(subject)
            && self.glob.as_ref().is_none_or(|glob| glob.matches(&crate::subject::channel::of_subject(subject)))
    }
}
