//! The header fields of durable messages.
//!
//! At the cluster a message has `Seqcast-Durable` with the number of messages before it in its stream that its LAN has
//! lost: importers do not wait for these. `Nats-Msg-Id` lets the cluster's stream drop what comes twice. On the LAN of an
//! importer `Seqcast-Stored` has its sequence in the cluster's stream and the time at which it was stored, so the other
//! gateways know that it was delivered.

use super::hub_position::{HubPosition, StoredArrival};
use crate::link::envelope::{LinkEnvelope, ORIGIN_HEADER};
use crate::link::position::StreamPoint;
use crate::link::stream_counts::CountedMessage;
use crate::message::{Count, HeaderError, Headers, Message};

/// Key of the header field that marks a durable message at the cluster.
pub const DURABLE_HEADER: &str = "Seqcast-Durable";
/// Key of the header field with the name of the cluster's stream, the sequence of the message in it, and the time in
/// nanoseconds since 1970 at which it was stored.
pub const STORED_HEADER: &str = "Seqcast-Stored";
/// Key of the header field with the signature of the gateway, in a realm.
pub const SIGNATURE_HEADER: &str = "Seqcast-Signature";
/// Key by which the cluster recognizes a message that comes twice (JetStream).
pub const ID_HEADER: &str = "Nats-Msg-Id";

/// Returns a counted message as it is sent to the cluster.
///
/// # Errors
/// One of the fields cannot be written.
pub(super) fn durable_message(counted: CountedMessage) -> Result<Message, HeaderError> {
    let CountedMessage { export, lost, .. } = counted;
    let lost = lost.to_string();
    let id = message_id(&export.envelope, export.message.subject.as_str());
    let origin = export.envelope.to_value();
    let others = without(&export.message.headers, &[DURABLE_HEADER, ID_HEADER, ORIGIN_HEADER]);
    let own = [(ORIGIN_HEADER, origin.as_str()), (DURABLE_HEADER, lost.as_str()), (ID_HEADER, id.as_str())];
    let headers = Headers::from_pairs(own.into_iter().chain(others))?;
    Ok(Message { headers, ..export.message })
}

/// Returns the id of a message: the same at all gateways of its site, if its publisher has numbered it.
fn message_id(envelope: &LinkEnvelope, subject: &str) -> String {
    let LinkEnvelope { share, number, publisher, point, .. } = envelope;
    match point.position.seq {
        Some(seq) => format!("{} {:016x} {subject}", publisher.epoch, seq.raw()),
        None => format!("{} {share} {number}", point.gateway),
    }
}

/// Why a message is sent with another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherId {
    /// The stream has an earlier copy, which importers may refuse.
    Again,
    /// The stream has lost the message.
    Restored,
}

impl OtherId {
    fn suffix(self) -> &'static str {
        match self {
            OtherId::Again => " again",
            OtherId::Restored => " restored",
        }
    }
}

/// Returns the header fields of a durable message with another id, so that the stream stores it beside an earlier copy.
///
/// # Errors
/// One of the fields cannot be written.
pub(super) fn with_other_id(headers: &Headers, other: OtherId) -> Result<Headers, HeaderError> {
    let id = format!("{}{}", headers.field(ID_HEADER).unwrap_or_default(), other.suffix());
    Headers::from_pairs(std::iter::once((ID_HEADER, id.as_str())).chain(without(headers, &[ID_HEADER])))
}

/// A message of the cluster's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredMessage {
    pub(super) arrival: StoredArrival,
    /// Where it comes from; `None` if a client of the cluster has sent it.
    pub(super) origin: Option<DurableOrigin>,
    pub(super) message: Message,
}

/// Origin of a durable message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DurableOrigin {
    pub(super) envelope: LinkEnvelope,
    /// Number of messages before it in its stream that its LAN has lost, at least.
    pub(super) lost: u64,
}

impl DurableOrigin {
    /// Returns whether all of these messages before it are lost on its LAN, so that nothing waits for them.
    pub(super) fn explains(&self, missing: Count) -> bool {
        missing.min() <= self.lost
    }
}

impl StoredMessage {
    /// Reads a message of the stream; `None` if its origin cannot be read, or if it was not exported as durable.
    pub(super) fn read(arrival: StoredArrival, message: Message) -> Option<StoredMessage> {
        let lost = message.headers.field(DURABLE_HEADER);
        let origin = match (LinkEnvelope::find(&message.headers), lost) {
            (None, None) => None,
            (Some(Ok(envelope)), Some(lost)) => Some(DurableOrigin { envelope, lost: lost.parse().ok()? }),
            _ => return None,
        };
        Some(StoredMessage { arrival, origin, message })
    }

    /// Returns the message as it is delivered to the LAN of the stream `name`.
    ///
    /// # Errors
    /// One of the fields cannot be written.
    pub(super) fn to_delivery(&self, name: &str) -> Result<Message, HeaderError> {
        let arrival = format!("{name} {} {}", self.arrival.sequence, self.arrival.at.as_nanos());
        let of_client = self.origin.is_none().then_some((ORIGIN_HEADER, "-"));
        let own = std::iter::once((STORED_HEADER, arrival.as_str())).chain(of_client);
        // The signature covers `Seqcast-Durable` and `Nats-Msg-Id`, so both stay.
        let is_signed = self.message.headers.field(SIGNATURE_HEADER).is_some();
        let removed = if is_signed { &[STORED_HEADER][..] } else { &[STORED_HEADER, DURABLE_HEADER, ID_HEADER] };
        let others = without(&self.message.headers, removed);
        let headers = Headers::from_pairs(own.chain(others))?;
        Ok(Message { headers, ..self.message.clone() })
    }

    /// Returns whether it is a copy of a message that the stream had lost.
    pub(super) fn is_restored(&self) -> bool {
        self.message.headers.field(ID_HEADER).is_some_and(|id| id.ends_with(OtherId::Restored.suffix()))
    }

    /// Returns its point; `None` for a message of a client.
    pub(super) fn point(&self) -> Option<&StreamPoint> {
        self.origin.as_ref().map(|origin| &origin.envelope.point)
    }

    /// Returns the bytes that it takes while it waits.
    pub(super) fn bytes(&self) -> usize {
        512 + self.message.body_bytes()
    }
}

/// Returns the arrival in the stream `name` of a message that a gateway has delivered to the LAN.
pub(super) fn stored_arrival(headers: &Headers, name: &str) -> Option<StoredArrival> {
    let text = headers.field(STORED_HEADER)?.strip_prefix(name)?.strip_prefix(' ')?;
    let HubPosition { sequence, at } = text.parse().ok()?;
    Some(StoredArrival { sequence, at: at? })
}

fn without<'a>(headers: &'a Headers, keys: &[&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
    headers.iter().filter(|(name, _)| !keys.iter().any(|key| name.eq_ignore_ascii_case(key)))
}
