//! Encoding in the shortest form.

use super::{
    ELEMENT_BYTES_MAX, ELEMENTS_MAX, HEAD_BYTES, MAGIC, NAME_BYTES_MAX, RvField, RvMessage, RvValue, has_long_size,
    kind,
};
use std::fmt;

/// Size from which a size has the form of three bytes.
const MIDDLE_SIZE: usize = 120;
/// Size from which a size has the form of five bytes.
const LARGE_SIZE: usize = 30_000;

/// Reason why a message cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RvEncodeError {
    /// A name is too long or has a NUL.
    Name,
    /// A subject has no or too many elements, or one that is empty, too long, or has a dot or a NUL.
    Subject,
    /// A string of an array has a NUL.
    String,
    /// The bytes of an array are not a multiple of the width of its elements.
    Array,
    /// A size exceeds 32 bits.
    Size,
}

impl fmt::Display for RvEncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RvEncodeError::Name => "the name of a field is too long or has a NUL",
            RvEncodeError::Subject => "a subject has an element that is empty, too long, or has a dot or a NUL",
            RvEncodeError::String => "a string of an array has a NUL",
            RvEncodeError::Array => "an array ends within an element",
            RvEncodeError::Size => "a field is too large",
        })
    }
}

impl std::error::Error for RvEncodeError {}

impl RvMessage<'_> {
    /// Appends the message to `out`.
    ///
    /// # Errors
    /// A value cannot be expressed. `out` then has part of the message.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), RvEncodeError> {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&MAGIC.to_be_bytes());
        debug_assert_eq!(out.len() - start, HEAD_BYTES);
        self.fields.iter().try_for_each(|field| field.encode(out))?;
        let length = size32(out.len() - start)?;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

impl RvField<'_> {
    /// Appends the field to `out`.
    ///
    /// # Errors
    /// A value cannot be expressed. `out` then has part of the field.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), RvEncodeError> {
        put_name(out, self.name, self.id)?;
        put_value(out, &self.value)
    }
}

/// Appends the name and the id of a field with their length.
///
/// # Errors
/// The name is too long or has a NUL.
pub fn put_name(out: &mut Vec<u8>, name: &[u8], id: Option<u16>) -> Result<(), RvEncodeError> {
    let id_bytes = id.map_or(0, |_| 2);
    if NAME_BYTES_MAX - id_bytes < name.len() || name.contains(&0) {
        return Err(RvEncodeError::Name);
    }
    if name.is_empty() && id.is_none() {
        out.push(0);
        return Ok(());
    }
    out.push(u8::try_from(name.len() + 1 + id_bytes).expect("the length is checked"));
    out.extend_from_slice(name);
    out.push(0);
    id.into_iter().for_each(|id| out.extend_from_slice(&id.to_be_bytes()));
    Ok(())
}

/// Appends a size in its shortest form.
///
/// # Errors
/// The size exceeds 32 bits.
pub fn put_size(out: &mut Vec<u8>, size: usize) -> Result<(), RvEncodeError> {
    if size < MIDDLE_SIZE {
        out.push(u8::try_from(size).expect("the size is below 120"));
    } else if size < LARGE_SIZE {
        out.push(0x79);
        out.extend_from_slice(&u16::try_from(size + 2).expect("the size is below 30,000").to_be_bytes());
    } else {
        put_large_size(out, size)?;
    }
    Ok(())
}

/// Appends the type and the size of a field whose data, in its encoded form, follows. A nested message is its own size.
///
/// # Errors
/// The size does not fit the type.
pub fn put_head(out: &mut Vec<u8>, kind: u8, size: usize) -> Result<(), RvEncodeError> {
    out.push(kind);
    match kind {
        kind::MESSAGE => out.push(0x7a),
        kind::SUBJECT => {
            out.push(0x79);
            out.extend_from_slice(&u16::try_from(size + 2).map_err(|_| RvEncodeError::Size)?.to_be_bytes());
        }
        kind::MESSAGES => put_large_size(out, size)?,
        kind if has_long_size(kind) => put_size(out, size)?,
        _ => out.push(u8::try_from(size).map_err(|_| RvEncodeError::Size)?),
    }
    Ok(())
}

fn put_large_size(out: &mut Vec<u8>, size: usize) -> Result<(), RvEncodeError> {
    out.push(0x7a);
    out.extend_from_slice(&size32(size.checked_add(4).ok_or(RvEncodeError::Size)?)?.to_be_bytes());
    Ok(())
}

fn size32(size: usize) -> Result<u32, RvEncodeError> {
    u32::try_from(size).map_err(|_| RvEncodeError::Size)
}

/// Appends the type, the size and the data of a value.
pub(super) fn put_value(out: &mut Vec<u8>, value: &RvValue<'_>) -> Result<(), RvEncodeError> {
    match value {
        RvValue::Message(message) => {
            out.extend_from_slice(&[kind::MESSAGE, 0x7a]);
            message.encode(out)?;
        }
        RvValue::Subject(elements) => put_subject(out, elements)?,
        RvValue::DateTime { secs, micros } => {
            out.extend_from_slice(&[kind::DATE_TIME, 8]);
            out.extend_from_slice(&secs.to_be_bytes());
            out.extend_from_slice(&micros.to_be_bytes());
        }
        RvValue::Opaque(bytes) => put_bytes(out, kind::OPAQUE, bytes)?,
        RvValue::String(text) => {
            out.push(kind::STRING);
            put_size(out, text.len() + 1)?;
            out.extend_from_slice(text);
            out.push(0);
        }
        RvValue::Bool(value) => put_plain(out, kind::BOOL, &[u8::from(*value)]),
        RvValue::IpAddress(address) => put_plain(out, kind::IP, &address.octets()),
        RvValue::IpPort(port) => put_plain(out, kind::IP, &port.to_be_bytes()),
        RvValue::I8(value) => put_plain(out, kind::INT, &value.to_be_bytes()),
        RvValue::I16(value) => put_plain(out, kind::INT, &value.to_be_bytes()),
        RvValue::I32(value) => put_plain(out, kind::INT, &value.to_be_bytes()),
        RvValue::I64(value) => put_plain(out, kind::INT, &value.to_be_bytes()),
        RvValue::U8(value) => put_plain(out, kind::UINT, &value.to_be_bytes()),
        RvValue::U16(value) => put_plain(out, kind::UINT, &value.to_be_bytes()),
        RvValue::U32(value) => put_plain(out, kind::UINT, &value.to_be_bytes()),
        RvValue::U64(value) => put_plain(out, kind::UINT, &value.to_be_bytes()),
        RvValue::F32(value) => put_plain(out, kind::REAL, &value.to_be_bytes()),
        RvValue::F64(value) => put_plain(out, kind::REAL, &value.to_be_bytes()),
        RvValue::Encrypted(bytes) => put_bytes(out, kind::ENCRYPTED, bytes)?,
        RvValue::Array(array) if !array.bytes.len().is_multiple_of(array.element.width()) => {
            return Err(RvEncodeError::Array);
        }
        RvValue::Array(array) => put_bytes(out, array.element.kind(), array.bytes)?,
        RvValue::Xml { text_bytes, compressed } => {
            let mut size = Vec::new();
            put_size(&mut size, *text_bytes as usize)?;
            out.push(kind::XML);
            put_size(out, size.len() + compressed.len())?;
            out.extend_from_slice(&size);
            out.extend_from_slice(compressed);
        }
        RvValue::Strings(strings) => put_strings(out, strings)?,
        RvValue::Messages(messages) => put_messages(out, messages)?,
    }
    Ok(())
}

/// Appends a value of a type whose size has one byte.
fn put_plain(out: &mut Vec<u8>, kind: u8, data: &[u8]) {
    out.extend_from_slice(&[kind, u8::try_from(data.len()).expect("numbers have at most eight bytes")]);
    out.extend_from_slice(data);
}

fn put_bytes(out: &mut Vec<u8>, kind: u8, data: &[u8]) -> Result<(), RvEncodeError> {
    out.push(kind);
    put_size(out, data.len())?;
    out.extend_from_slice(data);
    Ok(())
}

/// Appends a subject, whose size always has three bytes.
fn put_subject(out: &mut Vec<u8>, elements: &[&[u8]]) -> Result<(), RvEncodeError> {
    let is_valid = |element: &&[u8]| {
        (1..=ELEMENT_BYTES_MAX).contains(&element.len()) && !element.iter().any(|byte| matches!(byte, 0 | b'.'))
    };
    if !(1..=ELEMENTS_MAX).contains(&elements.len()) || !elements.iter().all(is_valid) {
        return Err(RvEncodeError::Subject);
    }
    let bytes: usize = elements.iter().map(|element| element.len() + 2).sum();
    out.extend_from_slice(&[kind::SUBJECT, 0x79]);
    // 255 elements of 255 bytes, their count and the size itself together fit 16 bits.
    out.extend_from_slice(&u16::try_from(bytes + 3).map_err(|_| RvEncodeError::Size)?.to_be_bytes());
    out.push(u8::try_from(elements.len()).expect("the number is checked"));
    for element in elements {
        out.push(u8::try_from(element.len() + 2).expect("the length is checked"));
        out.extend_from_slice(element);
        out.push(0);
    }
    Ok(())
}

fn put_strings(out: &mut Vec<u8>, strings: &[&[u8]]) -> Result<(), RvEncodeError> {
    if strings.iter().any(|string| string.contains(&0)) {
        return Err(RvEncodeError::String);
    }
    out.push(kind::STRINGS);
    put_size(out, 4 + strings.iter().map(|string| string.len() + 1).sum::<usize>())?;
    out.extend_from_slice(&size32(strings.len())?.to_be_bytes());
    for string in strings {
        out.extend_from_slice(string);
        out.push(0);
    }
    Ok(())
}

/// Appends an array of messages, whose size always has five bytes.
fn put_messages(out: &mut Vec<u8>, messages: &[RvMessage<'_>]) -> Result<(), RvEncodeError> {
    let mut data = size32(messages.len())?.to_be_bytes().to_vec();
    messages.iter().try_for_each(|message| message.encode(&mut data))?;
    out.push(kind::MESSAGES);
    put_large_size(out, data.len())?;
    out.extend_from_slice(&data);
    Ok(())
}
