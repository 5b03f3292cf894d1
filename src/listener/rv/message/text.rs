//! Text form of messages, for people: `price=21.5, count:u32=7, note="as ordered"`.
//!
//! ```text
//! message   [field *("," field)]
//! field     [name] ["#" id] [":" type] "=" value
//! name      letters, digits and _ - . $, or a quoted text
//! value     bare text | quoted text | "{" message "}" | "[" [value *("," value)] "]"
//! quoted    '"', text with \" \\ \n \r \t and \xNN for a byte, '"'
//! ```
//!
//! Without a type, `true` and `false` are truth values, numbers have the first fitting type of i32, i64, u64 and f64,
//! and everything else is a string. Bytes are `0x` and hexadecimal digits; XML has the size of its text and a colon
//! before them. A message that is written and parsed again is the same, but for the microseconds of a time that are a
//! second or more.

use super::{RvArray, RvElement, RvField, RvMessage, RvValue};
use crate::event::timestamp::Timestamp;
use std::borrow::Cow;
use std::fmt::{self, Display, Write as _};

/// Types of numbers by name.
pub(super) const NUMBER_TYPES: [(&str, RvElement); 10] = [
    ("i8", RvElement::I8),
    ("u8", RvElement::U8),
    ("i16", RvElement::I16),
    ("u16", RvElement::U16),
    ("i32", RvElement::I32),
    ("u32", RvElement::U32),
    ("i64", RvElement::I64),
    ("u64", RvElement::U64),
    ("f32", RvElement::F32),
    ("f64", RvElement::F64),
];

/// Returns whether a name needs no quotes.
pub(super) fn is_bare_name(name: &[u8]) -> bool {
    name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-.$".contains(byte))
}

impl Display for RvMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.fields, |f, field| write!(f, "{field}"))
    }
}

impl Display for RvField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match is_bare_name(self.name) {
            true => self.name.iter().try_for_each(|byte| f.write_char(char::from(*byte)))?,
            false => write!(f, "{}", QuotedText(self.name))?,
        }
        if let Some(id) = self.id {
            write!(f, "#{id}")?;
        }
        write_type(f, &self.value)?;
        write!(f, "={}", self.value)
    }
}

/// Writes a colon and the type of a value, unless the value shows its type.
fn write_type(f: &mut fmt::Formatter<'_>, value: &RvValue<'_>) -> fmt::Result {
    match value {
        RvValue::Message(_) | RvValue::String(_) | RvValue::Bool(_) | RvValue::I32(_) => Ok(()),
        RvValue::F64(number) if number.is_finite() => Ok(()),
        value => write!(f, ":{}", type_name(value)),
    }
}

/// Returns the name of the type of a value.
pub(super) fn type_name(value: &RvValue<'_>) -> Cow<'static, str> {
    let name = match value {
        RvValue::Message(_) => "msg",
        RvValue::String(_) => "string",
        RvValue::Bool(_) => "bool",
        RvValue::I32(_) => "i32",
        RvValue::Subject(_) => "subject",
        RvValue::DateTime { .. } => "datetime",
        RvValue::Opaque(_) => "opaque",
        RvValue::IpAddress(_) => "ip",
        RvValue::IpPort(_) => "port",
        RvValue::I8(_) => "i8",
        RvValue::I16(_) => "i16",
        RvValue::I64(_) => "i64",
        RvValue::U8(_) => "u8",
        RvValue::U16(_) => "u16",
        RvValue::U32(_) => "u32",
        RvValue::U64(_) => "u64",
        RvValue::F32(_) => "f32",
        RvValue::F64(_) => "f64",
        RvValue::Encrypted(_) => "encrypted",
        RvValue::Xml { .. } => "xml",
        RvValue::Strings(_) => "string[]",
        RvValue::Messages(_) => "msg[]",
        RvValue::Array(array) => return format!("{}[]", array.element.name()).into(),
    };
    name.into()
}

impl RvElement {
    fn name(self) -> &'static str {
        let found = NUMBER_TYPES.iter().find(|(_, element)| *element == self);
        found.expect("the table has each element").0
    }
}

impl Display for RvValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RvValue::Message(message) => write!(f, "{{{message}}}"),
            RvValue::Subject(elements) => write!(f, "{}", QuotedText(&elements.join(&b'.'))),
            RvValue::DateTime { secs, micros } => {
                let micros = i64::from(*secs) * 1_000_000 + i64::from(*micros);
                let time = Timestamp::from_micros(micros).expect("2^33 seconds end in the year 2242");
                write!(f, "{time}")
            }
            RvValue::Opaque(bytes) | RvValue::Encrypted(bytes) => write!(f, "{}", HexText(bytes)),
            RvValue::String(text) => write!(f, "{}", QuotedText(text)),
            RvValue::Bool(value) => write!(f, "{value}"),
            RvValue::IpAddress(address) => write!(f, "{address}"),
            RvValue::IpPort(port) => write!(f, "{port}"),
            RvValue::I8(number) => write!(f, "{number}"),
            RvValue::I16(number) => write!(f, "{number}"),
            RvValue::I32(number) => write!(f, "{number}"),
            RvValue::I64(number) => write!(f, "{number}"),
            RvValue::U8(number) => write!(f, "{number}"),
            RvValue::U16(number) => write!(f, "{number}"),
            RvValue::U32(number) => write!(f, "{number}"),
            RvValue::U64(number) => write!(f, "{number}"),
            RvValue::F32(number) => write!(f, "{number:?}"),
            RvValue::F64(number) => write!(f, "{number:?}"),
            RvValue::Array(array) => write!(f, "[{array}]"),
            RvValue::Xml { text_bytes, compressed } => write!(f, "{text_bytes}:{}", HexText(compressed)),
            RvValue::Strings(strings) => {
                f.write_char('[')?;
                write_list(f, strings, |f, text| write!(f, "{}", QuotedText(text)))?;
                f.write_char(']')
            }
            RvValue::Messages(messages) => {
                f.write_char('[')?;
                write_list(f, messages, |f, message| write!(f, "{{{message}}}"))?;
                f.write_char(']')
            }
        }
    }
}

impl Display for RvArray<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elements: Vec<&[u8]> = self.bytes.chunks_exact(self.element.width()).collect();
        write_list(f, &elements, |f, bytes| write_number(f, self.element, bytes))
    }
}

/// Writes a big-endian number of this type.
fn write_number(f: &mut fmt::Formatter<'_>, element: RvElement, bytes: &[u8]) -> fmt::Result {
    let mut padded = [0; 8];
    padded[8 - bytes.len()..].copy_from_slice(bytes);
    let bits = u64::from_be_bytes(padded);
    match element {
        RvElement::I8 => write!(f, "{}", bits as u8 as i8),
        RvElement::I16 => write!(f, "{}", bits as u16 as i16),
        RvElement::I32 => write!(f, "{}", bits as u32 as i32),
        RvElement::I64 => write!(f, "{}", bits as i64),
        RvElement::U8 | RvElement::U16 | RvElement::U32 | RvElement::U64 => write!(f, "{bits}"),
        RvElement::F32 => write!(f, "{:?}", f32::from_bits(bits as u32)),
        RvElement::F64 => write!(f, "{:?}", f64::from_bits(bits)),
    }
}

/// Writes items with commas between them.
fn write_list<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    mut write: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if 0 < index {
            f.write_str(", ")?;
        }
        write(f, item)?;
    }
    Ok(())
}

/// Bytes as hexadecimal digits.
struct HexText<'a>(&'a [u8]);

impl Display for HexText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Bytes as text in quotes. Control characters and invalid UTF-8 are escaped, so that they cannot harm a terminal.
struct QuotedText<'a>(&'a [u8]);

impl Display for QuotedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' => f.write_str("\\\"")?,
                    '\\' => f.write_str("\\\\")?,
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\t' => f.write_str("\\t")?,
                    c if c.is_control() => write_escaped(f, c.encode_utf8(&mut [0; 4]).as_bytes())?,
                    c => f.write_char(c)?,
                }
            }
            write_escaped(f, chunk.invalid())?;
        }
        f.write_char('"')
    }
}

fn write_escaped(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}
