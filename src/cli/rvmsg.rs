//! Messages of Rendezvous on the command line: `pub --rvmsg` and `sub --format rvmsg`.

use std::fmt;

use bytes::Bytes;
use clap::ValueEnum;
use serde_json::Value;

use crate::listener::rv::message::{self, RvMessage, encode_text};
use crate::terminal::output::EscapedText;

/// Form in which payloads are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PayloadFormat {
    /// Text, with control characters escaped.
    #[default]
    Text,
    /// The fields of messages of Rendezvous; other payloads as text.
    Rvmsg,
}

/// Parses the argument of `--rvmsg`.
///
/// # Errors
/// Returns the reason with an example.
pub fn payload(text: &str) -> Result<Bytes, String> {
    let bytes = encode_text(text).map_err(|error| format!("{error}; write it like 'price=21.5, count:u32=7'"))?;
    Ok(bytes.into())
}

/// Returns the fields of a payload in JSON; `None` if it is no message of Rendezvous.
pub fn fields_json(payload: &[u8]) -> Option<Value> {
    RvMessage::decode(payload).ok().map(|message| message::json(&message))
}

/// A payload as text in a form.
#[derive(Clone, Copy, Debug)]
pub struct FormattedPayload<'a> {
    /// The payload.
    pub payload: &'a [u8],
    /// Its form.
    pub format: PayloadFormat,
}

impl fmt::Display for FormattedPayload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.format, RvMessage::decode(self.payload)) {
            (PayloadFormat::Rvmsg, Ok(message)) => write!(f, "{{{message}}}"),
            _ => write!(f, "{}", EscapedText(self.payload)),
        }
    }
}
