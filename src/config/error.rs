//! Configuration errors with their position and remedy.

use super::value_error::ValueError;
use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// The built-in default.
    Default,
    /// The configuration file; line and column count from 1, in characters; 0 if the error concerns the file as a
    /// whole.
    File {
        /// Name of the file, as given.
        name: Arc<str>,
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// A command-line flag, as it was typed.
    Flag(String),
    /// An environment variable, by name.
    Environment(String),
}

impl fmt::Display for ValueSource {
    /// Writes `default`, `param.yaml:3`, `--set port=1`, `$SEQCAST_SOCKET`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::Default => f.write_str("default"),
            ValueSource::File { name, line: 0, .. } => f.write_str(name),
            ValueSource::File { name, line, .. } => write!(f, "{name}:{line}"),
            ValueSource::Flag(flag) => f.write_str(flag),
            ValueSource::Environment(name) => write!(f, "${name}"),
        }
    }
}

/// One configuration error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Source of the wrong value.
    pub source: ValueSource,
    /// The key in question, in its canonical form; empty if the error concerns the whole.
    pub key: String,
    /// Kind of the error.
    pub reason: ConfigErrorKind,
    /// Remedy, if one is known.
    pub suggestion: Option<String>,
    /// The line in question.
    pub excerpt: Option<Excerpt>,
}

/// A line of the file with the marked part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The line, with control characters made harmless and cut to a readable length.
    pub text: String,
    /// Number of characters before the marked part.
    pub indent: usize,
    /// Width of the marked part in characters, at least 1.
    pub width: usize,
}

/// Kind of a configuration error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// The file cannot be read; holds the system's message.
    Unreadable(String),
    /// The file is a directory, a device or the like.
    NotAFile(&'static str),
    /// The file is too large.
    TooLarge {
        /// The limit in bytes.
        max: u64,
    },
    /// The file is not text: holds the offset of the first byte that is no UTF-8, or 0.
    Binary {
        /// Number of bytes before it.
        offset: usize,
    },
    /// The file has no content but white space and comments.
    Empty,
    /// The file is not YAML; holds the parser's message.
    Broken(String),
    /// The whole, or `parameters:`, is not a list of keys and values.
    NotAMap,
    /// An unknown key.
    UnknownKey,
    /// A key beside `parameters:` that belongs below it.
    Misplaced,
    /// A repeated key.
    Duplicate {
        /// Line of the first occurrence.
        first: usize,
    },
    /// A list where a value should be.
    List,
    /// Keys and values where a value should be.
    Map,
    /// A value that its key does not accept.
    Value {
        /// Value as written.
        text: String,
        /// Reason for the refusal.
        error: ValueError,
    },
    /// A value below its minimum, which is the value of another key.
    Conflict {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// The other key.
        other: &'static str,
        /// Its value.
        least: String,
        /// Reason for the relation.
        reason: &'static str,
    },
    /// A listener with the address of another one.
    AddressConflict {
        /// Address of the listener.
        address: SocketAddr,
        /// The key of the other listener.
        other: &'static str,
        /// Address of the other listener.
        other_address: SocketAddr,
    },
    /// An address of another family than the group.
    OtherFamily {
        /// The address.
        address: IpAddr,
        /// The group.
        group: IpAddr,
    },
    /// Unicast copies for other hosts would have to leave by the loopback interface.
    PeersOnLoopback {
        /// The value of the key `interface`.
        interface: String,
    },
    /// A file that a key names cannot be used; holds the reason.
    File(String),
    /// A value that another one does not let work; holds the reason.
    Inapplicable(&'static str),
    /// A listener that other hosts can reach without authentication.
    Unguarded {
        /// Address of the listener.
        address: SocketAddr,
    },
}

impl fmt::Display for ConfigErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigErrorKind::Unreadable(reason) => write!(f, "cannot be read: {reason}"),
            ConfigErrorKind::NotAFile(what) => write!(f, "is {what}, not a file"),
            ConfigErrorKind::TooLarge { max } => write!(f, "is larger than {max} bytes"),
            ConfigErrorKind::Binary { offset } => {
                write!(f, "is not text: byte {offset} is not UTF-8, or is a control character")
            }
            ConfigErrorKind::Empty => write!(f, "contains no configuration"),
            ConfigErrorKind::Broken(reason) => f.write_str(reason),
            ConfigErrorKind::NotAMap => write!(f, "must contain lines of the form 'key: value'"),
            ConfigErrorKind::UnknownKey => write!(f, "unknown key"),
            ConfigErrorKind::Misplaced => write!(f, "is not indented below 'parameters:'"),
            ConfigErrorKind::Duplicate { first } => write!(f, "is repeated; it was set in line {first}"),
            ConfigErrorKind::File(reason) => f.write_str(reason),
            ConfigErrorKind::Inapplicable(reason) => f.write_str(reason),
            ConfigErrorKind::AddressConflict { address, other, other_address } => {
                write!(f, "listens at {address}, which {other} uses already ({other_address})")
            }
            ConfigErrorKind::OtherFamily { address, group } => {
                write!(f, "{address} and the group {group} are not both IPv4 or both IPv6")
            }
            ConfigErrorKind::PeersOnLoopback { interface } => {
                write!(f, "other hosts cannot be reached by the interface {interface}, which stays on this host")
            }
            ConfigErrorKind::Unguarded { address } => {
                write!(f, "listens at {address}, which other hosts can reach, without accounts")
            }
            ConfigErrorKind::List => write!(f, "takes one value, not a list"),
            ConfigErrorKind::Map => write!(f, "takes one value, not further keys"),
            ConfigErrorKind::Value { text, error: ValueError::Empty } if text.is_empty() => ValueError::Empty.fmt(f),
            ConfigErrorKind::Value { text, error } => write!(f, "{:?}: {error}", shortened(text)),
            ConfigErrorKind::Conflict { key, value, other, least, reason } => {
                write!(f, "{key} ({value}) is less than {other} ({least}): {reason}")
            }
        }
    }
}

/// Shortens long values.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    if text.chars().count() <= CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(CHARS_MAX).chain(['…']).collect()
}

impl Excerpt {
    /// Returns the part of `line` around a position that starts after `before` characters and is `width` wide.
    pub(super) fn new(line: &str, before: usize, width: usize) -> Excerpt {
        const CHARS_MAX: usize = 100;
        const AHEAD: usize = 40;
        let cut = if CHARS_MAX < before + width.min(CHARS_MAX - AHEAD) { before - AHEAD } else { 0 };
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        let text: String = line.chars().skip(cut).take(CHARS_MAX).map(shown).collect();
        let indent = (before - cut).min(text.chars().count());
        let width = width.clamp(1, (text.chars().count() - indent).max(1));
        Excerpt { text: text.trim_end().to_owned(), indent, width }
    }
}

impl fmt::Display for ConfigError {
    /// Writes `file:line:column: key: reason`, the line with a caret below, and the suggestion.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            ValueSource::File { name, line, column } if *line != 0 => write!(f, "{name}:{line}:{column}: ")?,
            source => write!(f, "{source}: ")?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}", self.reason)?;
        if let (Some(excerpt), ValueSource::File { line, .. }) = (&self.excerpt, &self.source) {
            write!(f, "\n{line:>5} | {}\n      | ", excerpt.text)?;
            write!(f, "{}{}", " ".repeat(excerpt.indent), "^".repeat(excerpt.width))?;
        }
        if let Some(suggestion) = &self.suggestion {
            write!(f, "\n  fix: {suggestion}")?;
        }
        Ok(())
    }
}

impl Serialize for ConfigError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("ConfigError", 6)?;
        match &self.source {
            ValueSource::File { name, line, column } => {
                row.serialize_field("source", name.as_ref())?;
                row.serialize_field("line", line)?;
                row.serialize_field("column", column)?;
            }
            source => row.serialize_field("source", &source.to_string())?,
        }
        row.serialize_field("key", &self.key)?;
        row.serialize_field("reason", &self.reason.to_string())?;
        row.serialize_field("suggestion", &self.suggestion)?;
        row.end()
    }
}

/// All errors, in the order of the file, then of the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index != 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_of_a_long_line_contains_the_position() {
        let line = format!("{}here{}", "a".repeat(500), "b".repeat(500));
        let excerpt = Excerpt::new(&line, 500, 4);
        assert_eq!(&excerpt.text[excerpt.indent..excerpt.indent + excerpt.width], "here");
        assert!(excerpt.text.len() <= 100);
        let excerpt = Excerpt::new("a: \u{1b}[31m\tx", 3, 1000);
        assert_eq!(excerpt, Excerpt { text: "a:  [31m x".into(), indent: 3, width: 7 });
        assert_eq!(Excerpt::new("", 0, 1), Excerpt { text: String::new(), indent: 0, width: 1 });
        assert_eq!(Excerpt::new("ab", 9, 1), Excerpt { text: "ab".into(), indent: 2, width: 1 });
    }
}
