//! Header fields in arguments.

use crate::message::Headers;

/// A header field as typed: key and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderField {
    /// Text before the first colon.
    pub key: String,
    /// Text after it, without an optional space.
    pub value: String,
}

/// Reads a header field: `key: value`.
///
/// # Errors
/// Returns the reason why it is none.
pub fn field(text: &str) -> Result<HeaderField, String> {
    let Some((key, value)) = text.split_once(':') else {
        return Err("a header field is KEY:VALUE".to_owned());
    };
    let value = value.strip_prefix(' ').unwrap_or(value);
    Headers::from_pairs([(key, value)]).map_err(|error| error.to_string())?;
    Ok(HeaderField { key: key.to_owned(), value: value.to_owned() })
}

/// Returns the headers of a message from checked fields.
pub fn headers(fields: &[HeaderField]) -> Headers {
    let pairs = fields.iter().map(|field| (field.key.as_str(), field.value.as_str()));
    Headers::from_pairs(pairs).expect("each field was checked when the arguments were read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_header_field_is_refused() {
        let parsed = field("Content-Type: text/plain: yes").unwrap();
        assert_eq!((parsed.key.as_str(), parsed.value.as_str()), ("Content-Type", "text/plain: yes"));
        assert_eq!(headers(&[parsed]).block().as_ref(), b"Content-Type: text/plain: yes\r\n");
        assert_eq!(field("k:").unwrap().value, "");
        assert_eq!(field("none"), Err("a header field is KEY:VALUE".to_owned()));
        assert!(field("a b: c").unwrap_err().contains("\"a b\""));
        assert!(field("a: b\nc").unwrap_err().contains("line break"));
    }
}
