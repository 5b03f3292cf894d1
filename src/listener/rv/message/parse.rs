//! Parsing of the text form of messages.

use super::text::{NUMBER_TYPES, is_bare_name};
use super::{DEPTH_MAX, HEAD_BYTES, MAGIC, RvArray, RvElement, RvEncodeError, RvValue, kind, put_head, put_name};
use crate::event::timestamp::Timestamp;
use std::fmt::{self, Display};
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Reason why a text is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RvTextError {
    /// Number of the character at which the mistake was noticed, from 1 on.
    pub column: usize,
    /// Description of the mistake.
    pub reason: String,
}

impl Display for RvTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (column {})", self.reason, self.column)
    }
}

impl std::error::Error for RvTextError {}

/// Returns the bytes of the message that a text describes, such as `price=21.5, count:u32=7, note="as ordered"`.
///
/// # Errors
/// The text does not have the text form of a message, or a value does not fit its type.
pub fn encode_text(text: &str) -> Result<Vec<u8>, RvTextError> {
    let mut reader = TextReader { text, at: 0 };
    let message = reader.message(DEPTH_MAX)?;
    match reader.peek() {
        None => Ok(message),
        Some(_) => Err(reader.expected("a comma or the end")),
    }
}

/// A position in a text.
struct TextReader<'t> {
    text: &'t str,
    /// Number of bytes that are parsed.
    at: usize,
}

/// A value as it stands in the text.
enum ParsedValue<'t> {
    Bare(&'t str),
    Quoted(Vec<u8>),
    /// The bytes of a message.
    Message(Vec<u8>),
    Array(Vec<ParsedValue<'t>>),
}

impl<'t> TextReader<'t> {
    fn error(&self, reason: impl Into<String>) -> RvTextError {
        self.error_at(self.at, reason)
    }

    fn error_at(&self, at: usize, reason: impl Into<String>) -> RvTextError {
        RvTextError { column: self.text[..at].chars().count() + 1, reason: reason.into() }
    }

    fn expected(&self, what: &str) -> RvTextError {
        match self.rest().chars().next() {
            Some(found) => self.error(format!("{what} is expected before {found:?}")),
            None => self.error(format!("the text ends where {what} is expected")),
        }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Returns the next character that is no blank.
    fn peek(&mut self) -> Option<char> {
        self.at = self.text.len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    fn skip(&mut self, expected: char) -> bool {
        let is_found = self.peek() == Some(expected);
        if is_found {
            self.at += expected.len_utf8();
        }
        is_found
    }

    /// Takes characters up to one of these, without blanks at the end.
    fn take_until(&mut self, ends: &[char]) -> &'t str {
        let rest = self.rest();
        let taken = &rest[..rest.find(ends).unwrap_or(rest.len())];
        self.at += taken.len();
        taken.trim_end()
    }

    /// Parses fields up to a brace or the end, and returns the bytes of their message.
    fn message(&mut self, depth: usize) -> Result<Vec<u8>, RvTextError> {
        let depth = self.deeper(depth)?;
        let mut out = vec![0; 4];
        out.extend_from_slice(&MAGIC.to_be_bytes());
        if !matches!(self.peek(), None | Some('}')) {
            self.field(&mut out, depth)?;
            while self.skip(',') {
                self.field(&mut out, depth)?;
            }
        }
        debug_assert!(HEAD_BYTES <= out.len());
        let length = u32::try_from(out.len()).map_err(|_| self.error("the message is too large"))?;
        out[..4].copy_from_slice(&length.to_be_bytes());
        Ok(out)
    }

    fn deeper(&self, depth: usize) -> Result<usize, RvTextError> {
        depth.checked_sub(1).ok_or_else(|| self.error(format!("values are nested deeper than {DEPTH_MAX}")))
    }

    fn field(&mut self, out: &mut Vec<u8>, depth: usize) -> Result<(), RvTextError> {
        let name = self.name()?;
        let id = match self.skip('#') {
            false => None,
            true => Some(self.bare(&[':', '=', ',', '}'], "an id (0 to 65535)")?),
        };
        let type_name = match self.skip(':') {
            false => None,
            true => {
                self.peek();
                Some(self.take_until(&['=', ',', '}']))
            }
        };
        if !self.skip('=') {
            return Err(self.expected("'=' and a value"));
        }
        self.peek();
        let at = self.at;
        let value = self.value(depth)?;
        put_name(out, &name, id).map_err(|error| self.error_at(at, error.to_string()))?;
        put_value(out, type_name, &value).map_err(|reason| self.error_at(at, reason))
    }

    fn name(&mut self) -> Result<Vec<u8>, RvTextError> {
        if self.peek() == Some('"') {
            return self.quoted();
        }
        let at = self.at;
        let name = self.take_until(&['#', ':', '=', ',', '}']).as_bytes();
        match is_bare_name(name) {
            true => Ok(name.to_vec()),
            false => Err(self.error_at(at, "a name needs quotes, unless it has only letters, digits and _ - . $")),
        }
    }

    /// Parses the bare text up to one of these characters.
    fn bare<T: FromStr>(&mut self, ends: &[char], what: &str) -> Result<T, RvTextError> {
        self.peek();
        let at = self.at;
        let text = self.take_until(ends);
        text.parse().map_err(|_| self.error_at(at, format!("{text:?} is not {what}")))
    }

    fn value(&mut self, depth: usize) -> Result<ParsedValue<'t>, RvTextError> {
        match self.peek() {
            Some('"') => Ok(ParsedValue::Quoted(self.quoted()?)),
            Some('{') => {
                self.skip('{');
                let message = self.message(depth)?;
                if !self.skip('}') {
                    return Err(self.expected("a comma or '}'"));
                }
                Ok(ParsedValue::Message(message))
            }
            Some('[') => {
                self.skip('[');
                let depth = self.deeper(depth)?;
                let mut values = Vec::new();
                while !self.skip(']') {
                    if !values.is_empty() && !self.skip(',') {
                        return Err(self.expected("a comma or ']'"));
                    }
                    values.push(self.value(depth)?);
                }
                Ok(ParsedValue::Array(values))
            }
            _ => {
                let at = self.at;
                let text = self.take_until(&[',', '}', ']']);
                match text.find(['=', '"', '{', '[']) {
                    None => Ok(ParsedValue::Bare(text)),
                    Some(index) => Err(self.error_at(at + index, "a text with = \" { or [ needs quotes")),
                }
            }
        }
    }

    /// Parses a text in quotes.
    fn quoted(&mut self) -> Result<Vec<u8>, RvTextError> {
        let start = self.at;
        self.skip('"');
        let mut text = Vec::new();
        loop {
            let rest = self.rest();
            let end = rest.find(['"', '\\']);
            let end = end.ok_or_else(|| self.error_at(start, "the text in quotes does not end"))?;
            text.extend_from_slice(&rest.as_bytes()[..end]);
            self.at += end + 1;
            if rest.as_bytes()[end] == b'"' {
                return Ok(text);
            }
            let escape = self.rest().as_bytes();
            let (byte, taken) = match *escape {
                [escaped @ (b'"' | b'\\'), ..] => (escaped, 1),
                [b'n', ..] => (b'\n', 1),
                [b'r', ..] => (b'\r', 1),
                [b't', ..] => (b'\t', 1),
                [b'x', high, low, ..] => match (hex_digit(high), hex_digit(low)) {
                    (Some(high), Some(low)) => (high << 4 | low, 3),
                    _ => return Err(self.error("\\x needs two hexadecimal digits")),
                },
                _ => return Err(self.error("after a backslash in quotes stand \" \\ n r t or xNN")),
            };
            text.push(byte);
            self.at += taken;
        }
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Appends the type and the data of a value.
fn put_value(out: &mut Vec<u8>, type_name: Option<&str>, value: &ParsedValue<'_>) -> Result<(), String> {
    match (value, type_name) {
        (ParsedValue::Message(bytes), None | Some("msg")) => put_data(out, kind::MESSAGE, bytes),
        (ParsedValue::Array(values), type_name) => put_array(out, array_type(values, type_name)?, values),
        (ParsedValue::Quoted(text), None) => encode(out, RvValue::String(text)),
        (ParsedValue::Bare(text), None) => put_untyped(out, text),
        (ParsedValue::Quoted(text), Some("string")) => encode(out, RvValue::String(text)),
        (ParsedValue::Quoted(text), Some("subject")) => encode(out, subject_value(text)),
        (ParsedValue::Quoted(text), Some(type_name)) => match std::str::from_utf8(text) {
            Ok(text) => put_typed(out, type_name, text),
            Err(_) => Err(format!("the value is not {type_name}")),
        },
        (ParsedValue::Bare(text), Some(type_name)) => put_typed(out, type_name, text),
        (ParsedValue::Message(_), Some(type_name)) => Err(format!("a message in braces is no {type_name}")),
    }
}

fn subject_value(text: &[u8]) -> RvValue<'_> {
    RvValue::Subject(text.split(|byte| *byte == b'.').collect())
}

/// Appends a bare text without a type.
fn put_untyped(out: &mut Vec<u8>, text: &str) -> Result<(), String> {
    if let Ok(value) = text.parse() {
        return encode(out, RvValue::Bool(value));
    }
    match UNTYPED_NUMBERS.into_iter().find(|element| is_number(*element, text)) {
        Some(element) => put_number(out, element, text),
        None => encode(out, RvValue::String(text.as_bytes())),
    }
}

/// Types of numbers without a type, in the order in which they are tried.
const UNTYPED_NUMBERS: [RvElement; 4] = [RvElement::I32, RvElement::I64, RvElement::U64, RvElement::F64];

/// Returns whether a text without a type is a number of this type. Words such as `inf` are not.
fn is_number(element: RvElement, text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) && number_bytes(element, text).is_ok()
}

/// Appends a text of this type.
fn put_typed(out: &mut Vec<u8>, type_name: &str, text: &str) -> Result<(), String> {
    let element = NUMBER_TYPES.iter().find(|(name, _)| *name == type_name);
    if let Some((_, element)) = element {
        return put_number(out, *element, text);
    }
    match type_name {
        "string" => encode(out, RvValue::String(text.as_bytes())),
        "subject" => encode(out, subject_value(text.as_bytes())),
        "bool" => encode(out, RvValue::Bool(parsed(text, "true or false")?)),
        "ip" => encode(out, RvValue::IpAddress(parsed::<Ipv4Addr>(text, "an IPv4 address")?)),
        "port" => encode(out, RvValue::IpPort(parsed(text, "a port (0 to 65535)")?)),
        "opaque" => encode(out, RvValue::Opaque(&hex_bytes(text)?)),
        "encrypted" => encode(out, RvValue::Encrypted(&hex_bytes(text)?)),
        "datetime" => {
            let time: Timestamp = text.parse().map_err(|error| format!("{text:?}: {error}"))?;
            let micros = u64::try_from(time.as_micros()).map_err(|_| format!("{text:?} is before 1970"))?;
            let secs = u32::try_from(micros / 1_000_000).map_err(|_| format!("{text:?} is after 2106"))?;
            encode(out, RvValue::DateTime { secs, micros: (micros % 1_000_000) as u32 })
        }
        "xml" => {
            let (size, digits) = text.split_once(':').ok_or("XML is the size of its text, ':' and compressed bytes")?;
            let compressed = hex_bytes(digits)?;
            encode(out, RvValue::Xml { text_bytes: parsed(size, "a size in bytes")?, compressed: &compressed })
        }
        "msg" => Err("a message stands in braces, such as {price=21.5}".to_owned()),
        other if other.ends_with("[]") => Err(format!("{other} stands in brackets, such as [1, 2]")),
        other => Err(unknown_type(other)),
    }
}

fn unknown_type(name: &str) -> String {
    format!(
        "the type {name:?} is unknown; types are string, bool, i8 to i64, u8 to u64, f32, f64, datetime, ip, port, \
         opaque, subject, msg, encrypted and xml, and string[], msg[] and those of numbers with []"
    )
}

fn parsed<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not {what}"))
}

fn hex_bytes(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len().is_multiple_of(2));
    let digits = digits.ok_or_else(|| format!("{text:?} is not 0x and pairs of hexadecimal digits"))?;
    let pairs = digits.as_bytes().chunks_exact(2);
    let bytes = pairs.map(|pair| Some(hex_digit(pair[0])? << 4 | hex_digit(pair[1])?)).collect::<Option<Vec<u8>>>();
    bytes.ok_or_else(|| format!("{text:?} is not 0x and pairs of hexadecimal digits"))
}

/// Returns the big-endian bytes of a number.
fn number_bytes(element: RvElement, text: &str) -> Result<Vec<u8>, String> {
    Ok(match element {
        RvElement::I8 => parsed::<i8>(text, "an i8 (-128 to 127)")?.to_be_bytes().to_vec(),
        RvElement::U8 => parsed::<u8>(text, "a u8 (0 to 255)")?.to_be_bytes().to_vec(),
        RvElement::I16 => parsed::<i16>(text, "an i16 (-32768 to 32767)")?.to_be_bytes().to_vec(),
        RvElement::U16 => parsed::<u16>(text, "a u16 (0 to 65535)")?.to_be_bytes().to_vec(),
        RvElement::I32 => parsed::<i32>(text, "an i32")?.to_be_bytes().to_vec(),
        RvElement::U32 => parsed::<u32>(text, "a u32")?.to_be_bytes().to_vec(),
        RvElement::I64 => parsed::<i64>(text, "an i64")?.to_be_bytes().to_vec(),
        RvElement::U64 => parsed::<u64>(text, "a u64")?.to_be_bytes().to_vec(),
        RvElement::F32 => parsed::<f32>(text, "an f32")?.to_be_bytes().to_vec(),
        RvElement::F64 => parsed::<f64>(text, "an f64")?.to_be_bytes().to_vec(),
    })
}

fn put_number(out: &mut Vec<u8>, element: RvElement, text: &str) -> Result<(), String> {
    let kind = match element {
        RvElement::I8 | RvElement::I16 | RvElement::I32 | RvElement::I64 => kind::INT,
        RvElement::U8 | RvElement::U16 | RvElement::U32 | RvElement::U64 => kind::UINT,
        RvElement::F32 | RvElement::F64 => kind::REAL,
    };
    put_data(out, kind, &number_bytes(element, text)?)
}

/// Type of the elements of an array.
enum ArrayType {
    Strings,
    Messages,
    Numbers(RvElement),
}

/// Returns the type of an array: the one that is written, or the first that fits all values.
fn array_type(values: &[ParsedValue<'_>], type_name: Option<&str>) -> Result<ArrayType, String> {
    if let Some(name) = type_name {
        let element = name.strip_suffix("[]").ok_or_else(|| format!("values in brackets are no {name}"))?;
        let number = NUMBER_TYPES.iter().find(|(name, _)| *name == element);
        return match (element, number) {
            (_, Some((_, element))) => Ok(ArrayType::Numbers(*element)),
            ("string", None) => Ok(ArrayType::Strings),
            ("msg", None) => Ok(ArrayType::Messages),
            _ => Err(unknown_type(name)),
        };
    }
    let texts = values.iter().map(|value| if let ParsedValue::Bare(text) = value { Some(*text) } else { None });
    match values {
        [] => Err("an empty array needs a type, such as i32[]".to_owned()),
        [ParsedValue::Message(_), ..] => Ok(ArrayType::Messages),
        _ => match texts.collect::<Option<Vec<&str>>>() {
            Some(texts) => {
                let fits = |element: &RvElement| texts.iter().all(|text| is_number(*element, text));
                Ok(UNTYPED_NUMBERS.into_iter().find(fits).map_or(ArrayType::Strings, ArrayType::Numbers))
            }
            None => Ok(ArrayType::Strings),
        },
    }
}

fn put_array(out: &mut Vec<u8>, array_type: ArrayType, values: &[ParsedValue<'_>]) -> Result<(), String> {
    match array_type {
        ArrayType::Numbers(element) => {
            let mut bytes = Vec::new();
            for value in values {
                let ParsedValue::Bare(text) = value else { return Err("an array of numbers has another value".into()) };
                bytes.extend(number_bytes(element, text)?);
            }
            encode(out, RvValue::Array(RvArray { element, bytes: &bytes }))
        }
        ArrayType::Strings => {
            let text = |value| match value {
                &ParsedValue::Bare(text) => Ok(text.as_bytes()),
                ParsedValue::Quoted(text) => Ok(&text[..]),
                _ => Err("an array of strings has another value".to_owned()),
            };
            encode(out, RvValue::Strings(values.iter().map(text).collect::<Result<Vec<&[u8]>, String>>()?))
        }
        ArrayType::Messages => {
            let count = u32::try_from(values.len()).map_err(|_| RvEncodeError::Size.to_string())?;
            let mut bytes = count.to_be_bytes().to_vec();
            for value in values {
                let ParsedValue::Message(message) = value else {
                    return Err("an array of messages has another value".to_owned());
                };
                bytes.extend_from_slice(message);
            }
            put_data(out, kind::MESSAGES, &bytes)
        }
    }
}

/// Appends a type, the size of its data, and the data.
fn put_data(out: &mut Vec<u8>, kind: u8, data: &[u8]) -> Result<(), String> {
    put_head(out, kind, data.len()).map_err(|error| error.to_string())?;
    out.extend_from_slice(data);
    Ok(())
}

/// Appends the type, the size and the data of a value.
fn encode(out: &mut Vec<u8>, value: RvValue<'_>) -> Result<(), String> {
    super::encode::put_value(out, &value).map_err(|error| error.to_string())
}
