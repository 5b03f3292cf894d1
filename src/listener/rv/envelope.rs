//! Envelopes: the messages on a connection. Their fields state their kind, and `data` is the message of a program.

use super::fault::RvFault;
use super::message::{RvEncodeError, RvField, RvMessage, RvRawField, RvValue, fields, kind};
use super::subject;

/// Name of the field with the kind of the envelope.
const MTYPE: &[u8] = b"mtype";
/// Name of the field with the subject.
const SUB: &[u8] = b"sub";
/// Name of the field with the reply subject.
const RETURN: &[u8] = b"return";
/// Name of the field with the message of a program.
const DATA: &[u8] = b"data";

/// Returns whether an envelope itself uses a field of this name. All other fields of a message belong to the message.
pub(super) fn is_own_field(name: &[u8]) -> bool {
    [MTYPE, SUB, RETURN, DATA].contains(&name)
}

/// Kind of an envelope, by its letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RvLetter {
    /// `A`: an advisory of the daemon.
    Advisory,
    /// `C`: the end of a listen.
    Cancel,
    /// `D`: a message.
    Data,
    /// `I`: init.
    Init,
    /// `L`: a listen.
    Listen,
    /// `R`: the answer to an init.
    Response,
    /// `S`: not used by clients.
    Process,
}

impl RvLetter {
    fn of(text: &[u8]) -> Option<RvLetter> {
        Some(match text {
            b"A" => RvLetter::Advisory,
            b"C" => RvLetter::Cancel,
            b"D" => RvLetter::Data,
            b"I" => RvLetter::Init,
            b"L" => RvLetter::Listen,
            b"R" => RvLetter::Response,
            b"S" => RvLetter::Process,
            _ => return None,
        })
    }

    /// Returns the letter as a text.
    pub fn as_bytes(self) -> &'static [u8] {
        match self {
            RvLetter::Advisory => b"A",
            RvLetter::Cancel => b"C",
            RvLetter::Data => b"D",
            RvLetter::Init => b"I",
            RvLetter::Listen => b"L",
            RvLetter::Response => b"R",
            RvLetter::Process => b"S",
        }
    }
}

/// An envelope. Its message is not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RvEnvelope<'a> {
    /// Kind of the envelope.
    pub letter: RvLetter,
    /// Data of the field with the subject.
    pub subject: Option<&'a [u8]>,
    /// Reply subject as text.
    pub reply: Option<&'a [u8]>,
    /// Field with the message.
    pub data: Option<RvRawField<'a>>,
    /// True if the envelope has other fields.
    pub has_others: bool,
    /// All bytes of the envelope.
    pub bytes: &'a [u8],
}

impl<'a> RvEnvelope<'a> {
    /// Decodes a frame. If a name repeats, its first field counts.
    ///
    /// # Errors
    /// The frame is malformed, or has no valid kind.
    pub fn decode(bytes: &'a [u8]) -> Result<RvEnvelope<'a>, RvFault> {
        let (mut letter, mut subject, mut reply, mut data, mut has_others) = (None, None, None, None, false);
        for field in fields(bytes).map_err(RvFault::Message)? {
            let field = field.map_err(RvFault::Message)?;
            match field.name {
                MTYPE if letter.is_none() => {
                    let text = field.data.strip_suffix(&[0]).filter(|_| field.kind == kind::STRING);
                    letter = Some(text.and_then(RvLetter::of).ok_or(RvFault::Letter)?);
                }
                SUB if subject.is_none() => {
                    subject = Some(Some(field.data).filter(|_| field.kind == kind::SUBJECT).ok_or(RvFault::Subject)?);
                }
                RETURN if reply.is_none() => {
                    let text = field.data.strip_suffix(&[0]).unwrap_or(field.data);
                    reply = Some(Some(text).filter(|_| field.kind == kind::STRING).ok_or(RvFault::Subject)?);
                }
                DATA if data.is_none() => data = Some(field),
                name => has_others |= !is_own_field(name),
            }
        }
        let letter = letter.ok_or(RvFault::Letter)?;
        // A program that names no reply subject may send an empty one.
        let reply = reply.filter(|reply| !reply.is_empty());
        Ok(RvEnvelope { letter, subject, reply, data, has_others, bytes })
    }

    /// Returns the bytes of the fields that belong to the message, beside `data`.
    pub fn others(&self) -> Vec<u8> {
        let fields = fields(self.bytes).into_iter().flatten().flatten();
        fields.filter(|field| !is_own_field(field.name)).flat_map(|field| field.bytes).copied().collect()
    }
}

/// Returns the envelope of a message that the daemon itself sends. `None` if the protocol cannot express the subject.
pub(super) fn frame(subject: &[u8], letter: RvLetter, reply: Option<&[u8]>, data: RvMessage<'_>) -> Option<Vec<u8>> {
    let mut envelope = RvMessage::default();
    envelope.push(SUB, RvValue::Subject(subject::elements(subject)?));
    envelope.push(MTYPE, RvValue::String(letter.as_bytes()));
    reply.into_iter().for_each(|reply| envelope.push(RETURN, RvValue::String(reply)));
    envelope.push(DATA, RvValue::Message(data));
    let mut out = Vec::new();
    envelope.encode(&mut out).ok().map(|()| out)
}

/// Appends the fields of an envelope before its reply subject.
///
/// # Errors
/// The protocol cannot express the subject.
pub(super) fn put_subject(out: &mut Vec<u8>, subject: &[u8]) -> Result<(), RvEncodeError> {
    let elements = subject::elements(subject).ok_or(RvEncodeError::Subject)?;
    RvField { name: SUB, id: None, value: RvValue::Subject(elements) }.encode(out)
}

/// Appends the kind of the envelope and its reply subject.
pub(super) fn put_letter(out: &mut Vec<u8>, letter: RvLetter, reply: &[u8]) {
    out.extend_from_slice(b"\x06mtype\0\x08\x02");
    out.extend_from_slice(letter.as_bytes());
    out.push(0);
    if !reply.is_empty() {
        let reply = RvField { name: RETURN, id: None, value: RvValue::String(reply) };
        reply.encode(out).expect("the name of the field is short");
    }
}

/// Appends the name of the field with the message.
pub(super) fn put_data_name(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x05data\0");
}
