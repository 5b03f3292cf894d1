//! Decoding: a walk through the fields, and the values of all types.

use super::{
    DEPTH_MAX, ELEMENT_BYTES_MAX, HEAD_BYTES, ITEMS_MAX, MAGIC, RvArray, RvElement, RvField, RvMessage, RvValue,
    has_long_size, kind,
};
use std::fmt;
use std::iter::FusedIterator;
use std::net::Ipv4Addr;

/// Reason why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RvDecodeError {
    /// The second word of a message is not [`MAGIC`].
    Magic,
    /// The length of a message is below [`HEAD_BYTES`], or not the number of its bytes.
    Length,
    /// A field ends beyond its message, or has bytes beyond its value.
    Bounds,
    /// A name does not end with a NUL, or has another one.
    Name,
    /// The size of a field is not one of its type.
    Size(u8),
    /// The type of a field is unknown.
    Kind(u8),
    /// A subject has no elements, or an element that is empty, too long, or has a dot or a NUL.
    Subject,
    /// Messages are nested deeper than [`DEPTH_MAX`].
    Depth,
    /// The message has more than [`ITEMS_MAX`] fields and elements.
    Items,
}

impl fmt::Display for RvDecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RvDecodeError::Magic => write!(f, "a message does not begin with its length and 9955eeaa"),
            RvDecodeError::Length => write!(f, "the length of a message is wrong"),
            RvDecodeError::Bounds => write!(f, "a field does not fit its message"),
            RvDecodeError::Name => write!(f, "the name of a field is malformed"),
            RvDecodeError::Size(kind) => write!(f, "a field of type {kind} has a wrong size"),
            RvDecodeError::Kind(kind) => write!(f, "a field has the unknown type {kind}"),
            RvDecodeError::Subject => write!(f, "a subject is malformed"),
            RvDecodeError::Depth => write!(f, "messages are nested deeper than {DEPTH_MAX}"),
            RvDecodeError::Items => write!(f, "a message has more than {ITEMS_MAX} fields and elements"),
        }
    }
}

impl std::error::Error for RvDecodeError {}

/// A field whose data is not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RvRawField<'a> {
    /// Name without its NUL; may be empty.
    pub name: &'a [u8],
    /// Id of the field.
    pub id: Option<u16>,
    /// Type code.
    pub kind: u8,
    /// Data of the field. That of a nested message is the whole message.
    pub data: &'a [u8],
    /// All bytes of the field.
    pub bytes: &'a [u8],
}

/// Walks through the fields of the message that these bytes are.
///
/// # Errors
/// The bytes are not one message with their length. The iterator ends after its first error.
pub fn fields(
    message: &[u8],
) -> Result<impl FusedIterator<Item = Result<RvRawField<'_>, RvDecodeError>>, RvDecodeError> {
    let mut rest = RvFieldReader { bytes: message };
    let length = rest.u32().map_err(|_| RvDecodeError::Length)?;
    let magic = rest.u32().map_err(|_| RvDecodeError::Length)?;
    if magic != MAGIC {
        return Err(RvDecodeError::Magic);
    }
    if length as usize != message.len() {
        return Err(RvDecodeError::Length);
    }
    Ok(std::iter::from_fn(move || {
        if rest.bytes.is_empty() {
            return None;
        }
        let field = rest.field();
        if field.is_err() {
            rest.bytes = &[];
        }
        Some(field)
    })
    .fuse())
}

impl<'a> RvMessage<'a> {
    /// Decodes the message that these bytes are, with all nested messages.
    ///
    /// # Errors
    /// The bytes are not one message with their length, or exceed [`DEPTH_MAX`] or [`ITEMS_MAX`].
    pub fn decode(bytes: &'a [u8]) -> Result<RvMessage<'a>, RvDecodeError> {
        let mut items = ITEMS_MAX;
        message(bytes, DEPTH_MAX, &mut items)
    }
}

impl<'a> RvRawField<'a> {
    /// Decodes the value, with all nested messages.
    ///
    /// # Errors
    /// The data is no value of the type, or exceeds [`DEPTH_MAX`] or [`ITEMS_MAX`].
    pub fn value(&self) -> Result<RvValue<'a>, RvDecodeError> {
        let mut items = ITEMS_MAX;
        value(self.kind, self.data, DEPTH_MAX, &mut items)
    }
}

/// Decodes a message. `depth` is the number of levels left, and `items` that of fields and elements.
fn message<'a>(bytes: &'a [u8], depth: usize, items: &mut usize) -> Result<RvMessage<'a>, RvDecodeError> {
    let depth = depth.checked_sub(1).ok_or(RvDecodeError::Depth)?;
    let mut message = RvMessage::default();
    for field in fields(bytes)? {
        let RvRawField { name, id, kind, data, .. } = field?;
        *items = items.checked_sub(1).ok_or(RvDecodeError::Items)?;
        message.fields.push(RvField { name, id, value: value(kind, data, depth, items)? });
    }
    Ok(message)
}

fn value<'a>(kind: u8, data: &'a [u8], depth: usize, items: &mut usize) -> Result<RvValue<'a>, RvDecodeError> {
    let wrong_size = RvDecodeError::Size(kind);
    Ok(match kind {
        kind::MESSAGE => RvValue::Message(message(data, depth, items)?),
        kind::SUBJECT => RvValue::Subject(subject(data)?),
        kind::DATE_TIME => {
            let mut reader = RvFieldReader { bytes: data };
            let (secs, micros) = (reader.u32().or(Err(wrong_size))?, reader.u32().or(Err(wrong_size))?);
            reader.end(wrong_size)?;
            RvValue::DateTime { secs, micros }
        }
        kind::OPAQUE => RvValue::Opaque(data),
        kind::STRING => RvValue::String(data.strip_suffix(&[0]).unwrap_or(data)),
        kind::BOOL if data.is_empty() => return Err(wrong_size),
        kind::BOOL => RvValue::Bool(data.iter().any(|byte| *byte != 0)),
        kind::IP | kind::INT | kind::UINT | kind::REAL => number(kind, data).ok_or(wrong_size)?,
        kind::ENCRYPTED => RvValue::Encrypted(data),
        kind::XML => {
            let mut reader = RvFieldReader { bytes: data };
            let text_bytes = reader.long_size().map_err(|_| wrong_size)?;
            RvValue::Xml { text_bytes, compressed: reader.bytes }
        }
        kind::STRINGS => RvValue::Strings(strings(data, items)?),
        kind::MESSAGES => RvValue::Messages(messages(data, depth, items)?),
        kind => {
            let element = RvElement::of_kind(kind).ok_or(RvDecodeError::Kind(kind))?;
            if !data.len().is_multiple_of(element.width()) {
                return Err(wrong_size);
            }
            RvValue::Array(RvArray { element, bytes: data })
        }
    })
}

/// Decodes a number, an address or a port; the size is its width.
fn number<'a>(kind: u8, data: &[u8]) -> Option<RvValue<'a>> {
    Some(match (kind, data) {
        (kind::IP, &[a, b, c, d]) => RvValue::IpAddress(Ipv4Addr::new(a, b, c, d)),
        (kind::IP, &[a, b]) => RvValue::IpPort(u16::from_be_bytes([a, b])),
        (kind::INT, data) => match data.len() {
            1 => RvValue::I8(i8::from_be_bytes(data.try_into().ok()?)),
            2 => RvValue::I16(i16::from_be_bytes(data.try_into().ok()?)),
            4 => RvValue::I32(i32::from_be_bytes(data.try_into().ok()?)),
            _ => RvValue::I64(i64::from_be_bytes(data.try_into().ok()?)),
        },
        (kind::UINT, data) => match data.len() {
            1 => RvValue::U8(u8::from_be_bytes(data.try_into().ok()?)),
            2 => RvValue::U16(u16::from_be_bytes(data.try_into().ok()?)),
            4 => RvValue::U32(u32::from_be_bytes(data.try_into().ok()?)),
            _ => RvValue::U64(u64::from_be_bytes(data.try_into().ok()?)),
        },
        (kind::REAL, data) if data.len() == 4 => RvValue::F32(f32::from_be_bytes(data.try_into().ok()?)),
        (kind::REAL, data) => RvValue::F64(f64::from_be_bytes(data.try_into().ok()?)),
        _ => return None,
    })
}

/// Decodes the elements of a subject.
fn subject(data: &[u8]) -> Result<Vec<&[u8]>, RvDecodeError> {
    let (count, mut rest) = data.split_first().ok_or(RvDecodeError::Subject)?;
    let mut elements = Vec::with_capacity(usize::from(*count));
    while let Some((length, behind)) = rest.split_first() {
        let bytes = usize::from(*length).checked_sub(2).filter(|bytes| (1..=ELEMENT_BYTES_MAX).contains(bytes));
        let (element, behind) = bytes.and_then(|bytes| behind.split_at_checked(bytes)).ok_or(RvDecodeError::Subject)?;
        rest = behind.strip_prefix(&[0]).ok_or(RvDecodeError::Subject)?;
        if element.iter().any(|byte| matches!(byte, 0 | b'.')) {
            return Err(RvDecodeError::Subject);
        }
        elements.push(element);
    }
    if elements.is_empty() || elements.len() != usize::from(*count) {
        return Err(RvDecodeError::Subject);
    }
    Ok(elements)
}

fn strings<'a>(data: &'a [u8], items: &mut usize) -> Result<Vec<&'a [u8]>, RvDecodeError> {
    let wrong_size = RvDecodeError::Size(kind::STRINGS);
    let mut reader = RvFieldReader { bytes: data };
    let count = reader.u32().map_err(|_| wrong_size)?;
    let mut strings = Vec::new();
    for _ in 0..count {
        *items = items.checked_sub(1).ok_or(RvDecodeError::Items)?;
        let end = reader.bytes.iter().position(|byte| *byte == 0).ok_or(wrong_size)?;
        strings.push(reader.take(end)?);
        reader.take(1)?;
    }
    reader.end(wrong_size)?;
    Ok(strings)
}

fn messages<'a>(data: &'a [u8], depth: usize, items: &mut usize) -> Result<Vec<RvMessage<'a>>, RvDecodeError> {
    let wrong_size = RvDecodeError::Size(kind::MESSAGES);
    let mut reader = RvFieldReader { bytes: data };
    let count = reader.u32().map_err(|_| wrong_size)?;
    let mut messages = Vec::new();
    for _ in 0..count {
        *items = items.checked_sub(1).ok_or(RvDecodeError::Items)?;
        let nested = reader.message()?;
        messages.push(message(nested, depth, items)?);
    }
    reader.end(wrong_size)?;
    Ok(messages)
}

/// Unread bytes of a message.
#[derive(Clone, Copy, Debug)]
struct RvFieldReader<'a> {
    bytes: &'a [u8],
}

impl<'a> RvFieldReader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], RvDecodeError> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(RvDecodeError::Bounds)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, RvDecodeError> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, RvDecodeError> {
        Ok(u16::from_be_bytes(self.take(2)?.try_into().expect("two bytes")))
    }

    fn u32(&mut self) -> Result<u32, RvDecodeError> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    /// Returns an error if bytes are left.
    fn end(&self, error: RvDecodeError) -> Result<(), RvDecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(error) }
    }

    /// Reads a nested message as bytes. Its length is its size.
    fn message(&mut self) -> Result<&'a [u8], RvDecodeError> {
        let mut head = *self;
        let length = head.u32()? as usize;
        if length < HEAD_BYTES {
            return Err(RvDecodeError::Length);
        }
        if head.u32()? != MAGIC {
            return Err(RvDecodeError::Magic);
        }
        self.take(length)
    }

    /// Reads a size that may have a long form.
    fn long_size(&mut self) -> Result<u32, RvDecodeError> {
        match self.u8()? {
            0x79 => u32::from(self.u16()?).checked_sub(2).ok_or(RvDecodeError::Bounds),
            0x7a => self.u32()?.checked_sub(4).ok_or(RvDecodeError::Bounds),
            size => Ok(u32::from(size)),
        }
    }

    /// Reads a field without a look into its data.
    fn field(&mut self) -> Result<RvRawField<'a>, RvDecodeError> {
        let before = self.bytes;
        let name_bytes = self.u8()?;
        let (name, id) = name_and_id(self.take(usize::from(name_bytes))?)?;
        let kind = self.u8()?;
        let data = match kind {
            kind::MESSAGE if self.u8()? != 0x7a => return Err(RvDecodeError::Size(kind)),
            kind::MESSAGE => self.message()?,
            kind if has_long_size(kind) => {
                let size = self.long_size()?;
                self.take(size as usize)?
            }
            kind::DATE_TIME | kind::BOOL | kind::IP | kind::INT | kind::UINT | kind::REAL => {
                let size = self.u8()?;
                self.take(usize::from(size))?
            }
            kind => return Err(RvDecodeError::Kind(kind)),
        };
        Ok(RvRawField { name, id, kind, data, bytes: &before[..before.len() - self.bytes.len()] })
    }
}

/// Splits the bytes of a name: an id follows a NUL at the third byte from the end.
fn name_and_id(bytes: &[u8]) -> Result<(&[u8], Option<u16>), RvDecodeError> {
    let (name, id) = match bytes {
        [name @ .., 0, high, low] => (name, Some(u16::from_be_bytes([*high, *low]))),
        [name @ .., 0] => (name, None),
        [] => (bytes, None),
        _ => return Err(RvDecodeError::Name),
    };
    if name.contains(&0) { Err(RvDecodeError::Name) } else { Ok((name, id)) }
}
