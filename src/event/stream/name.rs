//! Names of seed 003: of streams, types, components, users and consumers; and the ids of events in a stream.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Maximum length of the name of a stream, in bytes.
const STREAM_BYTES_MAX: usize = 32;
/// Maximum length of a type and of a component, in bytes (003, sections 2.1.2 and 3.1).
const TEXT_MAX: usize = 16;
/// Maximum length of the name of a user, in bytes.
const USER_BYTES_MAX: usize = 255;

/// The reason why a text is not a valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamNameError {
    /// The text is not a name of a stream.
    Stream,
    /// The text is not a type of an event.
    Type,
    /// The text is not a name of a component.
    Component,
    /// The text is not a name of a user.
    User,
    /// The text is not an id of an event.
    Id,
}

impl fmt::Display for StreamNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamNameError::Stream => {
                write!(
                    f,
                    "the name of a stream is 1 to {STREAM_BYTES_MAX} of a-z, 0-9, _ and -, and begins with a letter"
                )
            }
            StreamNameError::Type => write!(f, "the type of an event in a stream is 1 to {TEXT_MAX} of A-Z and _"),
            StreamNameError::Component => write!(f, "a component is 1 to {TEXT_MAX} of A-Z, a-z, 0-9 and _"),
            StreamNameError::User => {
                write!(f, "a user is 1 to {USER_BYTES_MAX} bytes without control characters and without ':'")
            }
            StreamNameError::Id => write!(f, "the id of an event in a stream is a number from 1 to {}", StreamId::MAX),
        }
    }
}

impl std::error::Error for StreamNameError {}

/// Returns whether the text has 1 to `max` bytes, all of which `is_allowed` accepts.
fn has_only(text: &str, max: usize, is_allowed: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.len() <= max && text.bytes().all(is_allowed)
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $error:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = StreamNameError;

            fn from_str(text: &str) -> Result<$name, StreamNameError> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok($name(text.into())) } else { Err(StreamNameError::$error) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// Name of a stream of a peer. The events that are added to it have event types that begin with its name.
    StreamName,
    Stream,
    |text| {
        text.starts_with(|first: char| first.is_ascii_lowercase())
            && has_only(text, STREAM_BYTES_MAX, |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
    }
);

name!(
    /// The type of an event in a stream: `^[A-Z_]{1,16}$` (003, section 3.1).
    StreamType,
    Type,
    |text| has_only(text, TEXT_MAX, |byte| byte.is_ascii_uppercase() || byte == b'_')
);

name!(
    /// A component of a user, which reads a stream independently of the user's other components: `^[A-Za-z0-9_]{1,16}$`
    /// (003, section 3.1).
    Component,
    Component,
    |text| has_only(text, TEXT_MAX, |byte| byte.is_ascii_alphanumeric() || byte == b'_')
);

name!(
    /// Name of a user of this peer (003, section 2.2.4).
    UserName,
    User,
    |text| {
        !text.is_empty() && text.len() <= USER_BYTES_MAX && !text.contains(|c: char| c.is_control() || c == ':')
    }
);

impl Component {
    /// Returns whether the component names live consumers, which are not registered (003, section 2.2.4).
    pub fn is_live(&self) -> bool {
        self.as_str() == "LIVE"
    }
}

/// Name of a reliable consumer of a stream: a component of a user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Consumer {
    /// The user.
    pub user: UserName,
    /// The component.
    pub component: Component,
}

impl fmt::Display for Consumer {
    /// Writes `user:component`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.user, self.component)
    }
}

impl FromStr for Consumer {
    type Err = StreamNameError;

    fn from_str(text: &str) -> Result<Consumer, StreamNameError> {
        let (user, component) = text.split_once(':').ok_or(StreamNameError::Component)?;
        Ok(Consumer { user: user.parse()?, component: component.parse()? })
    }
}

/// The id of an event in one stream. Ids rise, with gaps (003, section 2.1.1). 1 to 10^18 - 1; 0 is the position before
/// the first event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

impl StreamId {
    /// Position before the first event.
    pub const START: StreamId = StreamId(0);
    /// Last possible id.
    pub const MAX: StreamId = StreamId(999_999_999_999_999_999);

    /// Returns the id of this number; `None` if the number is too great.
    pub fn from_number(number: u64) -> Option<StreamId> {
        if number <= StreamId::MAX.0 { Some(StreamId(number)) } else { None }
    }

    /// Returns the number.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for StreamId {
    type Err = StreamNameError;

    /// Parses `^[1-9][0-9]{0,17}$` (003, section 3.1): the id of an event, but not the position before the first one.
    fn from_str(text: &str) -> Result<StreamId, StreamNameError> {
        match has_only(text, 18, |byte| byte.is_ascii_digit()) && !text.starts_with('0') {
            true => text.parse().map(StreamId).map_err(|_| StreamNameError::Id),
            false => Err(StreamNameError::Id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the texts of the first list are names, and those of the second are not.
    fn check<T: FromStr<Err = StreamNameError> + fmt::Display>(names: &[&str], others: &[&str]) {
        for text in names {
            assert_eq!(text.parse::<T>().map(|name| name.to_string()), Ok((*text).to_owned()));
        }
        for text in others {
            assert!(text.parse::<T>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn invalid_names_are_refused() {
        check::<StreamName>(
            &["main", "a", "a-1_b", &"x".repeat(32)],
            &["", "Main", "1a", "-a", "a.b", "a/b", &"x".repeat(33)],
        );
        check::<StreamType>(
            &["A", "_", "SOME_EVENT", "ABCDEFGHIJKLMNOP"],
            &["", "a", "A1", "ABCDEFGHIJKLMNOPQ", "A\n", "Ä"],
        );
        check::<Component>(&["LIVE", "a_1", "ABCDEFGHIJKLMNOP"], &["", "a-b", "ABCDEFGHIJKLMNOPQ", "a\n", "ä"]);
        check::<UserName>(&["alice", "ä b", &"x".repeat(255)], &["", "a:b", "a\n", &"x".repeat(256)]);
        check::<StreamId>(&["1", "999999999999999999"], &["", "0", "01", "+1", "1000000000000000000", "1\n", "-1"]);
        check::<Consumer>(&["alice:C1"], &["alice", ":C1", "alice:", "alice:a:b"]);
    }

    #[test]
    fn only_the_exact_name_is_live() {
        let is_live = |text: &str| text.parse::<Component>().unwrap().is_live();
        assert!(is_live("LIVE"));
        assert!(!is_live("Live") && !is_live("LIVE1"));
    }
}
