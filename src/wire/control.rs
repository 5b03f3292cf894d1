//! Announcements of peers: HEARTBEAT, HELLO, BYE; and the encoder of all control datagrams.

use super::header::{Header, Kind, number};
use super::reader::Reader;
use super::{
    BYE, CHECK_BYTES, DecodeError, EXPIRED, HEARTBEAT, HELLO, INTEREST, INTEREST_REQUEST, MANIFEST, PAD,
    RECEIVER_REPORT, RECORD_HEADER_BYTES, RESEND_REQUEST, Record,
};
use crate::message::{Dseq, Epoch, PeerName};
use bytes::{BufMut, Bytes, BytesMut};
use std::time::Duration;

/// HELLO flag: the sender requests a HELLO in answer.
const WANTS_REPLY: u8 = 0x01;
/// A field of an announcement: the sender's token for the receiver.
const FIELD_TOKEN: u8 = 0x01;
/// A field of an announcement: the echo of the receiver's token.
const FIELD_ECHO: u8 = 0x02;
/// A field of an announcement: the sender's loss of the receiver's multicast stream.
const FIELD_REPORT: u8 = 0x03;
/// A field of an announcement: the version of the sender's advertised subscriptions.
const FIELD_INTEREST: u8 = 0x04;
/// A field of an announcement: the version of the receiver's advertised subscriptions that the sender knows.
const FIELD_INTEREST_KNOWN: u8 = 0x05;
/// A field of an announcement: number of datagrams in the preceding report that the sender's own kernel dropped.
const FIELD_REPORT_OVERRUN: u8 = 0x06;
/// A field of an announcement: outcome of the queue-group messages that the receiver assigned to the sender.
const FIELD_QUEUE: u8 = 0x07;
/// Field with the lost messages of the directed stream, in the report.
const FIELD_REPORT_DIRECTED: u8 = 0x08;
/// Bytes of QUEUE.
const QUEUE_BYTES: usize = 48;
/// Bytes of INTEREST: the version, and the flags of [`InterestAnnouncement`].
const INTEREST_BYTES: usize = 9;
/// The sender suppresses messages that match no known subscription.
const INTEREST_SUPPRESSES: u8 = 0x01;
/// The sender requests the version of its subscriptions that the receiver knows.
const INTEREST_WANTS_CONFIRMATION: u8 = 0x02;
/// Bytes of a report.
const REPORT_BYTES: usize = 48;

/// Announcement of a peer: the body of HEARTBEAT and BYE, and the end of HELLO.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |  type = 0x40  |   flags = 0   |             length            |
/// +---------------+---------------+-------------------------------+
/// |              high: dseq of the last data datagram             |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |           trail: oldest dseq that can be resent               |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |     manifest trail: oldest dseq whose content is known        |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |             heartbeat interval in milliseconds                |
/// +---------------------------------------------------------------+
/// |               pub-window-time in milliseconds                 |
/// +---------------------------------------------------------------+
/// |     directed high: last dseq of the stream to the receiver    |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |      directed count: messages begun in the stream to it       |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |  directed receiver: epoch of the receiver of both; 0: none    |
/// |                                                               |
/// +---------------+-----------------------------------------------+
/// |  name bytes   |               name (1 to 64)                 ...
/// +---------------+---------------+-------------------------------+
/// |     field     |             length            |    bytes     ... any number, skipped if unknown
/// +---------------+-------------------------------+---------------+
/// ```
/// BYE is the same with type 0x42.
///
/// ```text
/// field = 0x01 TOKEN, 8 bytes; 0x02 ECHO, 8 bytes; 0x03 REPORT, 48 bytes; 0x04 INTEREST, 9 bytes; 0x05
///         INTEREST_KNOWN, 8 bytes; 0x06 REPORT_OVERRUN, 8 bytes, after REPORT; 0x07 QUEUE, 48 bytes; 0x08
///         REPORT_DIRECTED, 8 bytes, after REPORT
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAnnouncement {
    /// Dseq of the last data datagram; 0 before the first.
    pub high: Dseq,
    /// Oldest dseq that can be retransmitted; `high + 1` if none can.
    pub trail: Dseq,
    /// Oldest dseq whose subjects and seqs are still known; `high + 1` if none.
    pub manifest_trail: Dseq,
    /// Maximum time between two heartbeats; whole milliseconds, at least 1.
    pub heartbeat: Duration,
    /// Minimum time that an idle subject keeps its number; whole milliseconds.
    pub pub_window_time: Duration,
    /// Last dseq of the directed stream to the receiver of this record; 0 in multicast.
    pub directed_high: Dseq,
    /// Messages begun in the directed stream to the receiver of this record; 0 in multicast.
    pub directed_count: u64,
    /// Receiver of the directed stream to which these two belong; `None` in multicast. A peer that restarted at the
    /// same address recognizes by it that they do not concern its own stream.
    pub directed_receiver: Option<Epoch>,
    /// The sender's name, for people.
    pub name: PeerName,
    /// The sender's token for the receiver, not 0. A receiver that returns it can be reached at its address (W101).
    /// Only in unicast.
    pub token: Option<u64>,
    /// Echo of the receiver's token for the sender, not 0. Only in unicast.
    pub echo: Option<u64>,
    /// The sender's loss of the streams of `directed_receiver`. Only in unicast.
    pub report: Option<Box<Report>>,
    /// The sender's announcement on subscriptions.
    pub interest: Option<InterestAnnouncement>,
    /// Version up to which the sender knows the advertised subscriptions of `directed_receiver`. Only in unicast.
    pub interest_known: Option<u64>,
    /// Outcome of the queue-group messages that `directed_receiver` assigned to the sender. Only in unicast.
    pub queue: Option<Box<QueueReport>>,
}

/// Outcome of the queue-group messages that one peer assigned to another.
///
/// ```text
/// share count of the multicast stream · share count of the directed stream
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueReport {
    /// Outcome in the multicast stream.
    pub multicast: ShareCount,
    /// Outcome in the directed stream.
    pub directed: ShareCount,
}

/// Assignments in one stream, as its receiver counts them.
///
/// ```text
/// settled u64 · served u64 · returned u64
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareCount {
    /// Datagram up to which the receiver awaits nothing.
    pub settled: Dseq,
    /// Number of assignments up to `settled` that a member received.
    pub served: u64,
    /// Number of assignments up to `settled` that the receiver returned to the publisher.
    pub returned: u64,
}

impl QueueReport {
    fn decode(reader: &mut Reader<'_>) -> Result<QueueReport, DecodeError> {
        let mut next = || {
            let (settled, served, returned) = (reader.u64()?, reader.u64()?, reader.u64()?);
            Ok(ShareCount { settled: Dseq(number(settled)?), served: number(served)?, returned: number(returned)? })
        };
        Ok(QueueReport { multicast: next()?, directed: next()? })
    }

    fn encode(&self, out: &mut BytesMut) {
        for ShareCount { settled, served, returned } in [self.multicast, self.directed] {
            out.put_u64(settled.0);
            out.put_u64(served);
            out.put_u64(returned);
        }
    }
}

/// A peer's announcement on subscriptions, in each heartbeat, HELLO and BYE.
///
/// ```text
/// version u64 · flags u8: 0x01 SUPPRESSES, 0x02 WANTS_CONFIRMATION
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterestAnnouncement {
    /// Version of the last change of the sender's advertised subscriptions.
    pub version: u64,
    /// True if the sender suppresses messages that match no known subscription (W143).
    pub suppresses: bool,
    /// True if the sender requests at once the version up to which its subscriptions are known (W146). Meaningful in
    /// unicast only.
    pub wants_confirmation: bool,
}

impl InterestAnnouncement {
    fn decode(value: &mut Reader<'_>) -> Result<InterestAnnouncement, DecodeError> {
        let (version, flags) = (number(value.u64()?)?, value.u8()?);
        Ok(InterestAnnouncement {
            version,
            suppresses: flags & INTEREST_SUPPRESSES != 0,
            wants_confirmation: flags & INTEREST_WANTS_CONFIRMATION != 0,
        })
    }

    fn encode(self, out: &mut BytesMut) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        out.put_u64(self.version);
        out.put_u8(
            flag(self.suppresses, INTEREST_SUPPRESSES) | flag(self.wants_confirmation, INTEREST_WANTS_CONFIRMATION),
        );
    }
}

/// A receiver's loss of a publisher's streams since its first contact with the epoch: of the multicast stream, but for
/// `directed_lost`. All numbers only rise,
/// except `pending` and `unverified`, whose datagrams may still be settled.
///
/// ```text
/// missing u64 · repaired u64 · pending u64 · unverified u64 · lost min u64 · lost max u64
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of datagrams that were missing at first.
    pub missing: u64,
    /// Of these, datagrams that were requested and arrived.
    pub repaired: u64,
    /// Of these, datagrams still awaited.
    pub pending: u64,
    /// Of these, datagrams whose content cannot be known.
    pub unverified: u64,
    /// Messages lost: lower bound.
    pub lost_min: u64,
    /// Messages lost: upper bound.
    pub lost_max: u64,
    /// Of the missing datagrams, those that the receiver's own kernel dropped; in the field REPORT_OVERRUN.
    pub overrun: u64,
    /// Messages of the directed stream lost; in the field REPORT_DIRECTED.
    pub directed_lost: u64,
}

impl Report {
    fn decode(reader: &mut Reader<'_>) -> Result<Report, DecodeError> {
        let mut next = || number(reader.u64()?);
        let (missing, repaired, pending, unverified) = (next()?, next()?, next()?, next()?);
        let (lost_min, lost_max) = (next()?, next()?);
        if lost_max < lost_min {
            return Err(DecodeError::Field(FIELD_REPORT));
        }
        Ok(Report { missing, repaired, pending, unverified, lost_min, lost_max, overrun: 0, directed_lost: 0 })
    }

    fn encode(&self, out: &mut BytesMut) {
        let Report { missing, repaired, pending, unverified, lost_min, lost_max, overrun: _, directed_lost: _ } = *self;
        for number in [missing, repaired, pending, unverified, lost_min, lost_max] {
            out.put_u64(number);
        }
    }
}

impl PeerAnnouncement {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<PeerAnnouncement, DecodeError> {
        let high = Dseq(number(reader.u64()?)?);
        let trail = Dseq(number(reader.u64()?)?);
        let manifest_trail = Dseq(number(reader.u64()?)?);
        let heartbeat_ms = reader.u32()?;
        if heartbeat_ms == 0 {
            return Err(DecodeError::Interval);
        }
        let heartbeat = Duration::from_millis(u64::from(heartbeat_ms));
        let pub_window_time = Duration::from_millis(u64::from(reader.u32()?));
        let directed_high = Dseq(number(reader.u64()?)?);
        let directed_count = number(reader.u64()?)?;
        let directed_receiver = Epoch::new(reader.u64()?);
        let name_bytes = usize::from(reader.u8()?);
        let name = reader.bytes(name_bytes)?;
        let name = std::str::from_utf8(&name).map_err(|_| DecodeError::NameEncoding)?;
        let name = name.parse().map_err(DecodeError::Name)?;
        let mut announce = PeerAnnouncement {
            high,
            trail,
            manifest_trail,
            heartbeat,
            pub_window_time,
            directed_high,
            directed_count,
            directed_receiver,
            name,
            token: None,
            echo: None,
            report: None,
            interest: None,
            interest_known: None,
            queue: None,
        };
        while !reader.is_done() {
            announce.decode_field(reader)?;
        }
        Ok(announce)
    }

    /// Decodes one of the fields at the end; fields of other versions are skipped.
    fn decode_field(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        let field = reader.u8()?;
        let bytes = usize::from(reader.u16()?);
        let mut value = reader.record(bytes)?;
        let is_new = match field {
            FIELD_TOKEN => self.token.replace(token(field, &mut value)?).is_none(),
            FIELD_ECHO => self.echo.replace(token(field, &mut value)?).is_none(),
            FIELD_REPORT if bytes == REPORT_BYTES => {
                self.report.replace(Box::new(Report::decode(&mut value)?)).is_none()
            }
            FIELD_REPORT => false,
            FIELD_REPORT_OVERRUN => match (&mut self.report, bytes) {
                (Some(report), 8) if report.overrun == 0 => {
                    report.overrun = number(value.u64()?)?;
                    report.overrun != 0
                }
                _ => false,
            },
            FIELD_REPORT_DIRECTED => match (&mut self.report, bytes) {
                (Some(report), 8) if report.directed_lost == 0 => {
                    report.directed_lost = number(value.u64()?)?;
                    report.directed_lost != 0
                }
                _ => false,
            },
            FIELD_INTEREST if bytes == INTEREST_BYTES => {
                self.interest.replace(InterestAnnouncement::decode(&mut value)?).is_none()
            }
            FIELD_INTEREST_KNOWN if bytes == 8 => self.interest_known.replace(number(value.u64()?)?).is_none(),
            FIELD_QUEUE if bytes == QUEUE_BYTES => {
                self.queue.replace(Box::new(QueueReport::decode(&mut value)?)).is_none()
            }
            FIELD_INTEREST | FIELD_INTEREST_KNOWN | FIELD_QUEUE => false,
            _ => true,
        };
        if is_new { Ok(()) } else { Err(DecodeError::Field(field)) }
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.high.0);
        out.put_u64(self.trail.0);
        out.put_u64(self.manifest_trail.0);
        out.put_u32(millis(self.heartbeat).max(1));
        out.put_u32(millis(self.pub_window_time));
        out.put_u64(self.directed_high.0);
        out.put_u64(self.directed_count);
        out.put_u64(self.directed_receiver.map_or(0, Epoch::bits));
        let name = self.name.as_str().as_bytes();
        out.put_u8(u8::try_from(name.len()).expect("names have at most 64 bytes"));
        out.put_slice(name);
        for (field, token) in [(FIELD_TOKEN, self.token), (FIELD_ECHO, self.echo)] {
            if let Some(token) = token {
                assert_ne!(token, 0, "0 is no token");
                put_field(out, field, 8);
                out.put_u64(token);
            }
        }
        if let Some(report) = &self.report {
            put_field(out, FIELD_REPORT, REPORT_BYTES as u16);
            report.encode(out);
            if report.overrun != 0 {
                put_field(out, FIELD_REPORT_OVERRUN, 8);
                out.put_u64(report.overrun);
            }
            if report.directed_lost != 0 {
                put_field(out, FIELD_REPORT_DIRECTED, 8);
                out.put_u64(report.directed_lost);
            }
        }
        if let Some(announcement) = self.interest {
            put_field(out, FIELD_INTEREST, INTEREST_BYTES as u16);
            announcement.encode(out);
        }
        if let Some(known) = self.interest_known {
            put_field(out, FIELD_INTEREST_KNOWN, 8);
            out.put_u64(known);
        }
        if let Some(queue) = &self.queue {
            put_field(out, FIELD_QUEUE, QUEUE_BYTES as u16);
            queue.encode(out);
        }
    }
}

/// Decodes the value of a token field.
fn token(field: u8, value: &mut Reader<'_>) -> Result<u64, DecodeError> {
    match (value.left(), value.u64()) {
        (8, Ok(token)) if token != 0 => Ok(token),
        _ => Err(DecodeError::Field(field)),
    }
}

fn put_field(out: &mut BytesMut, field: u8, bytes: u16) {
    out.put_u8(field);
    out.put_u16(bytes);
}

/// Converts to whole milliseconds, at most 2^32 - 1.
fn millis(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

/// Greeting that a starting peer sends, and the answer to it.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |  type = 0x41  |   flags = 0   |             length            |
/// +---------------+---------------+-------------------------------+
/// |           cookie; 0: none, or the sender requests one         |
/// |                                                               |
/// +---------------+-----------------------------------------------+
/// | hello flags   |          as HEARTBEAT from `high` on         ...
/// +---------------+-----------------------------------------------+
///
/// hello flags = 0x01 WANTS_REPLY; others are ignored
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Proof that the sender can be reached at its address; 0 if it has none.
    pub cookie: u64,
    /// True if the sender requests a HELLO in answer.
    pub wants_reply: bool,
    /// Announcement of the sender.
    pub announce: PeerAnnouncement,
}

impl Hello {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Hello, DecodeError> {
        let cookie = reader.u64()?;
        let flags = reader.u8()?;
        let announce = PeerAnnouncement::decode(reader)?;
        Ok(Hello { cookie, wants_reply: flags & WANTS_REPLY != 0, announce })
    }
}

/// Encodes a control datagram with this one record, followed by PAD if needed so that it has at least `padded_to` bytes
/// (at most three more). `padded_to` is at most 65,507; 0 means no padding.
///
/// # Panics
/// Panics if the header is not that of a control datagram, if the record is not a control record, or if it is larger
/// than a datagram.
pub fn encode_control(header: &Header, record: &Record, padded_to: usize) -> Bytes {
    assert_eq!(header.kind, Kind::Control, "only control datagrams hold control records");
    assert!(padded_to <= super::DATAGRAM_BYTES_MAX, "padding to more than a datagram holds");
    let mut body = BytesMut::with_capacity(256);
    let (record_type, flags) = match record {
        Record::Heartbeat(announce) => {
            announce.encode(&mut body);
            (HEARTBEAT, 0)
        }
        Record::Bye(announce) => {
            announce.encode(&mut body);
            (BYE, 0)
        }
        Record::Hello(hello) => {
            body.put_u64(hello.cookie);
            body.put_u8(if hello.wants_reply { WANTS_REPLY } else { 0 });
            hello.announce.encode(&mut body);
            (HELLO, 0)
        }
        Record::ResendRequest(request) => (RESEND_REQUEST, request.encode(&mut body)),
        Record::Manifest(manifest) => {
            manifest.encode(&mut body);
            (MANIFEST, 0)
        }
        Record::Expired(expired) => (EXPIRED, expired.encode(&mut body)),
        Record::Interest(interest) => {
            interest.encode(&mut body);
            (INTEREST, 0)
        }
        Record::InterestRequest(request) => {
            request.encode(&mut body);
            (INTEREST_REQUEST, 0)
        }
        Record::ReceiverReport(report) => {
            report.encode(&mut body);
            (RECEIVER_REPORT, 0)
        }
        Record::Run(_) | Record::Fragment(_) | Record::UnknownData(_) => panic!("not a control record: {record:?}"),
    };
    let bytes = header.bytes() + RECORD_HEADER_BYTES + body.len() + CHECK_BYTES;
    assert!(bytes <= super::DATAGRAM_BYTES_MAX, "larger than a datagram");
    let mut out = BytesMut::with_capacity(bytes.max(padded_to) + RECORD_HEADER_BYTES);
    header.encode(&mut out);
    put_record(&mut out, record_type, flags, &body);
    if bytes < padded_to {
        let pad_bytes = (padded_to - bytes).saturating_sub(RECORD_HEADER_BYTES);
        put_record(&mut out, PAD, 0, &vec![0; pad_bytes]);
    }
    // The check value of mode 0 covers all bytes before it.
    let check = crc32c::crc32c(&out);
    out.put_u32(check);
    out.freeze()
}

fn put_record(out: &mut BytesMut, record_type: u8, flags: u8, body: &[u8]) {
    out.put_u8(record_type);
    out.put_u8(flags);
    out.put_u16(u16::try_from(body.len()).expect("records are smaller than a datagram"));
    out.put_slice(body);
}
