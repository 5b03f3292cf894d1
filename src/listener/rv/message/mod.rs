//! RVMSG: self-describing messages of named, typed fields.
//!
//! ```text
//! message  u32 length of the whole message | 99 55 ee aa | field …
//! field    u8 length of the name | name, NUL, [u16 id] | u8 type | size | data
//! size     00..78, 7b..ff: the value | 79 u16: the value + 2 | 7a u32: the value + 4
//! ```
//!
//! All integers are big-endian. The long forms of the size exist only for types of variable length. A nested message
//! has the size byte 7a and is its own size. [`fields`] walks through the fields of a message without a look into
//! their data; [`RvMessage::decode`] decodes all of it, and [`RvMessage::encode`] writes the shortest form of each
//! size. `Display` writes the text form of a message, which [`encode_text`] parses, and [`json()`] its fields for
//! programs.

mod decode;
mod encode;
mod json;
mod parse;
#[cfg(test)]
mod tests;
mod text;

pub use decode::{RvDecodeError, RvRawField, fields};
pub use encode::{RvEncodeError, put_head, put_name, put_size};
pub use json::json;
pub use parse::{RvTextError, encode_text};

use std::net::Ipv4Addr;

/// Second word of each message.
pub const MAGIC: u32 = 0x9955_eeaa;
/// Size of a message without fields, in bytes: its length and [`MAGIC`].
pub const HEAD_BYTES: usize = 8;
/// Maximum depth of nested messages that are decoded. The outermost message has depth 1.
pub const DEPTH_MAX: usize = 32;
/// Maximum number of fields, strings of arrays and messages of arrays that are decoded, over all depths.
pub const ITEMS_MAX: usize = 1 << 18;
/// Maximum size of a name in bytes, without its NUL and its id.
pub const NAME_BYTES_MAX: usize = 254;
/// Maximum size of an element of a subject in bytes.
pub const ELEMENT_BYTES_MAX: usize = 253;
/// Maximum number of elements of a subject.
pub const ELEMENTS_MAX: usize = 255;

/// Type codes of fields.
pub mod kind {
    /// A nested message.
    pub const MESSAGE: u8 = 1;
    /// A subject.
    pub const SUBJECT: u8 = 2;
    /// Seconds and microseconds.
    pub const DATE_TIME: u8 = 3;
    /// Bytes.
    pub const OPAQUE: u8 = 7;
    /// A text with a NUL.
    pub const STRING: u8 = 8;
    /// A truth value.
    pub const BOOL: u8 = 9;
    /// An IPv4 address or a port.
    pub const IP: u8 = 10;
    /// A signed integer.
    pub const INT: u8 = 11;
    /// An unsigned integer.
    pub const UINT: u8 = 12;
    /// A floating-point number.
    pub const REAL: u8 = 13;
    /// Encrypted bytes.
    pub const ENCRYPTED: u8 = 32;
    /// Compressed XML.
    pub const XML: u8 = 47;
    /// An array of strings.
    pub const STRINGS: u8 = 48;
    /// An array of messages.
    pub const MESSAGES: u8 = 49;
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RvMessage<'a> {
    /// Fields in their order. Names may repeat.
    pub fields: Vec<RvField<'a>>,
}

impl<'a> RvMessage<'a> {
    /// Returns the value of the first field with this name.
    pub fn get(&self, name: &[u8]) -> Option<&RvValue<'a>> {
        self.fields.iter().find(|field| field.name == name).map(|field| &field.value)
    }

    /// Appends a field without an id.
    pub fn push(&mut self, name: &'a (impl AsRef<[u8]> + ?Sized), value: RvValue<'a>) {
        self.fields.push(RvField { name: name.as_ref(), id: None, value });
    }
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct RvField<'a> {
    /// Name without its NUL, at most [`NAME_BYTES_MAX`] bytes, 252 with an id; may be empty.
    pub name: &'a [u8],
    /// Id of the field.
    pub id: Option<u16>,
    /// Value of the field.
    pub value: RvValue<'a>,
}

/// Value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum RvValue<'a> {
    /// A nested message.
    Message(RvMessage<'a>),
    /// Elements of a subject: 1 to [`ELEMENTS_MAX`], each of 1 to [`ELEMENT_BYTES_MAX`] bytes without dot and NUL.
    Subject(Vec<&'a [u8]>),
    /// A point in time.
    DateTime {
        /// Seconds since 1970.
        secs: u32,
        /// Microseconds of the second.
        micros: u32,
    },
    /// Bytes.
    Opaque(&'a [u8]),
    /// Text without its NUL, normally UTF-8.
    String(&'a [u8]),
    /// A truth value.
    Bool(bool),
    /// An IPv4 address.
    IpAddress(Ipv4Addr),
    /// An IP port.
    IpPort(u16),
    /// A signed integer of 8 bits.
    I8(i8),
    /// A signed integer of 16 bits.
    I16(i16),
    /// A signed integer of 32 bits.
    I32(i32),
    /// A signed integer of 64 bits.
    I64(i64),
    /// An unsigned integer of 8 bits.
    U8(u8),
    /// An unsigned integer of 16 bits.
    U16(u16),
    /// An unsigned integer of 32 bits.
    U32(u32),
    /// An unsigned integer of 64 bits.
    U64(u64),
    /// A floating-point number of 32 bits.
    F32(f32),
    /// A floating-point number of 64 bits.
    F64(f64),
    /// Encrypted bytes.
    Encrypted(&'a [u8]),
    /// An array of numbers.
    Array(RvArray<'a>),
    /// Compressed XML.
    Xml {
        /// Size of the text in bytes.
        text_bytes: u32,
        /// The text, compressed by zlib.
        compressed: &'a [u8],
    },
    /// An array of strings without their NULs.
    Strings(Vec<&'a [u8]>),
    /// An array of messages.
    Messages(Vec<RvMessage<'a>>),
}

/// An array of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RvArray<'a> {
    /// Type of the elements.
    pub element: RvElement,
    /// Big-endian elements without gaps: a multiple of the width of the element.
    pub bytes: &'a [u8],
}

/// Type of the elements of an array of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RvElement {
    /// Signed integers of 8 bits.
    I8,
    /// Unsigned integers of 8 bits.
    U8,
    /// Signed integers of 16 bits.
    I16,
    /// Unsigned integers of 16 bits.
    U16,
    /// Signed integers of 32 bits.
    I32,
    /// Unsigned integers of 32 bits.
    U32,
    /// Signed integers of 64 bits.
    I64,
    /// Unsigned integers of 64 bits.
    U64,
    /// Floating-point numbers of 32 bits.
    F32,
    /// Floating-point numbers of 64 bits.
    F64,
}

/// Type codes of arrays of numbers.
const ELEMENTS: [(u8, RvElement); 10] = [
    (34, RvElement::I8),
    (35, RvElement::U8),
    (36, RvElement::I16),
    (37, RvElement::U16),
    (38, RvElement::I32),
    (39, RvElement::U32),
    (40, RvElement::I64),
    (41, RvElement::U64),
    (44, RvElement::F32),
    (45, RvElement::F64),
];

impl RvElement {
    /// Returns the width of an element in bytes.
    pub fn width(self) -> usize {
        match self {
            RvElement::I8 | RvElement::U8 => 1,
            RvElement::I16 | RvElement::U16 => 2,
            RvElement::I32 | RvElement::U32 | RvElement::F32 => 4,
            RvElement::I64 | RvElement::U64 | RvElement::F64 => 8,
        }
    }

    /// Returns the type code of an array of such elements.
    pub fn kind(self) -> u8 {
        let found = ELEMENTS.iter().find(|(_, element)| *element == self);
        found.expect("the table has each element").0
    }

    fn of_kind(kind: u8) -> Option<RvElement> {
        ELEMENTS.iter().find(|(code, _)| *code == kind).map(|(_, element)| *element)
    }
}

/// Returns whether the size of this type may have a long form. A nested message is not among them.
fn has_long_size(kind: u8) -> bool {
    use kind::{ENCRYPTED, MESSAGES, OPAQUE, STRING, STRINGS, SUBJECT, XML};
    matches!(kind, SUBJECT | OPAQUE | STRING | ENCRYPTED | XML | STRINGS | MESSAGES)
        || RvElement::of_kind(kind).is_some()
}
