//! What a subscription wants, beside where its messages go.

use crate::subject::glob::Glob;
use crate::subject::{Pattern, SUBJECT_BYTES_MAX, Subject};
use bytes::Bytes;
use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

/// The name of a queue group: of the subscriptions that share it, each message goes to exactly one in the whole LAN. 1 to 255
/// bytes of UTF-8 without spaces and control characters. Cloning copies a reference only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queue(Bytes);

/// Why a text is no name of a queue group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueError {
    /// Nothing at all.
    Empty,
    /// Longer than 255 bytes; holds the length.
    TooLong(usize),
    /// A space or control character. Holds the byte position.
    Character(usize),
    /// Not UTF-8.
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
    /// Takes bytes as they came from the network.
    ///
    /// # Errors
    /// Says what makes them no name.
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

    /// The name as text.
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

/// Which messages a subscription gets. Cloning copies references, and the glob if there is one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionFilter {
    /// Those whose subject matches this,
    pub pattern: Pattern,
    /// and whose subject as a channel ([`channel`](crate::subject::channel)) matches this, if it is there.
    pub glob: Option<Glob>,
    /// Of these only its share, if it is one of a queue group.
    pub queue: Option<Queue>,
}

impl From<Pattern> for SubscriptionFilter {
    fn from(pattern: Pattern) -> SubscriptionFilter {
        SubscriptionFilter { pattern, glob: None, queue: None }
    }
}

impl SubscriptionFilter {
    /// Whether it is about this subject; the share of a queue group is not looked at.
    pub fn matches(&self, subject: &Subject) -> bool {
        self.pattern.matches(subject)
            && self.glob.as_ref().is_none_or(|glob| glob.matches(&crate::subject::channel::of_subject(subject)))
    }
}
