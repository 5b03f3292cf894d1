//! Header fields of a message.

use bytes::Bytes;
use std::fmt;

/// Header fields of a message: `key: value` lines, each terminated by CR LF, as in NATS/1.0 headers without their
/// version line. They are opaque on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Bytes);

/// Status line of the answer to a request without a responder.
const NO_RESPONDERS_LINE: &[u8] = b"NATS/1.0 503\r\n";

/// Reason for which a header field is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// The key is empty or has a space, a colon, or a character outside printable ASCII.
    Key(String),
    /// The value has CR or LF.
    Value(String),
    /// The block has a line that is not `key: value` and CR LF.
    Block,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeaderError::Key(key) => {
                write!(f, "header key {key:?} must be printable ASCII without spaces and colons, and not empty")
            }
            HeaderError::Value(key) => write!(f, "the value of header {key:?} must not hold a line break"),
            HeaderError::Block => write!(f, "headers must be lines of the form 'key: value'"),
        }
    }
}

impl std::error::Error for HeaderError {}

/// First capacity of a block in bytes: most blocks fit, so they do not grow while they are built.
const BLOCK_BYTES: usize = 256;

impl Headers {
    /// Creates empty headers.
    pub const fn new() -> Headers {
        Headers(Bytes::new())
    }

    /// Builds a block from (key, value) pairs, in order.
    ///
    /// # Errors
    /// [`HeaderError::Key`] and [`HeaderError::Value`] name the offending key.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Headers, HeaderError> {
        let mut block = Vec::new();
        for (key, value) in pairs {
            if key.is_empty() || key.bytes().any(|b| !b.is_ascii_graphic() || b == b':') {
                return Err(HeaderError::Key(key.to_owned()));
            }
            if value.contains(['\r', '\n']) {
                return Err(HeaderError::Value(key.to_owned()));
            }
            if block.is_empty() {
                block.reserve(BLOCK_BYTES);
            }
            block.extend_from_slice(key.as_bytes());
            block.extend_from_slice(b": ");
            block.extend_from_slice(value.as_bytes());
            block.extend_from_slice(b"\r\n");
        }
        // The rest of the capacity is returned: blocks may wait in queues that count their length.
        Ok(Headers(block.into_boxed_slice().into()))
    }

    /// Creates headers from a received block. [`Headers::iter`] skips the lines that are invalid.
    pub fn from_block(block: Bytes) -> Headers {
        Headers(block)
    }

    /// Returns the block in its wire representation.
    pub fn block(&self) -> &Bytes {
        &self.0
    }

    /// Creates the headers of the answer to a request without a responder: a status line, as NATS servers send it.
    pub const fn no_responders() -> Headers {
        Headers(Bytes::from_static(NO_RESPONDERS_LINE))
    }

    /// Returns whether these are the headers of the answer to a request without a responder.
    pub fn is_no_responders(&self) -> bool {
        self.0.starts_with(NO_RESPONDERS_LINE)
    }

    /// Returns whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of the first field with this key, in any case.
    pub fn field(&self, key: &str) -> Option<&str> {
        self.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
    }

    /// Returns the (key, value) pairs in order; lines that are not `key: value` in UTF-8 are skipped.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.split(|b| *b == b'\n').filter_map(|line| {
            let line = std::str::from_utf8(line).ok()?;
            let (key, value) = line.strip_suffix('\r').unwrap_or(line).split_once(':')?;
            Some((key, value.trim_start_matches(' ')))
        })
    }
}
