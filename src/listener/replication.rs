//! Payloads of the messages between peers that have event journals: announcements of servers, requests and pages.
//!
//! Announcements use the subject [`SERVER_PREFIX`] followed by the server's number. Requests use [`REQUEST_PREFIX`]
//! with that number, and pages use the reply subject of the request. Gateways that relay these messages to other sites
//! say so on [`RELAY_SUBJECT`]. `docs/local-protocol.md` describes all bytes,
//! including those of events.

use crate::event::model::{Event, EventId, Payload};
use crate::event::replication::{Announcement, ReplicationPage, ReplicationRequest};
use crate::listener::codec::{FrameError, FrameReader};
use crate::listener::event::{events, id, put_events, put_id, put_time, put_types, read_types, time};
use crate::subject::permitted_subjects::PermittedSubjects;
use bytes::{BufMut, Bytes, BytesMut};

/// Prefix of the subject of announcements; the number of the server follows.
pub(crate) const SERVER_PREFIX: &str = "_EVENT.SERVER.";
/// Prefix of the subject of requests; the number of the server follows.
pub(crate) const REQUEST_PREFIX: &str = "_EVENT.QUERY.";
/// Subject on which gateways say that they relay announcements to followers in other sites.
pub(crate) const RELAY_SUBJECT: &str = "_EVENT.RELAY";
/// Maximum number of type patterns of a request.
pub(crate) const TYPES_MAX: usize = 256;

/// First byte of each payload.
const VERSION: u8 = 1;
/// Flags of an announcement.
const HELD: u8 = 0x01;
const FOLLOWS: u8 = 0x02;
/// A flag of a page.
const MORE: u8 = 0x01;

/// Returns the maximum number of bytes of an event in a list of events.
pub(crate) fn event_bytes(event: &Event) -> usize {
    /// Maximum bytes of numbers, lengths and the subject.
    const FIELDS_BYTES: usize = 320;
    FIELDS_BYTES + event.payload_size()
}

/// Maximum number of bytes before the events of a payload.
pub(crate) const HEAD_BYTES: usize = 64;

/// Encodes an announcement as a payload.
pub(crate) fn encode_announcement(announcement: &Announcement) -> Bytes {
    let Announcement { opened, is_held, follows, since, until, events } = announcement;
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    out.put_u8(if *is_held { HELD } else { 0 } | if *follows { FOLLOWS } else { 0 });
    put_time(&mut out, *opened);
    put_id(&mut out, *since);
    put_id(&mut out, *until);
    put_events(&mut out, events);
    out.freeze()
}

/// Reads an announcement, with its events only if `wants_events` is true. [`Announcement::is_sound`] checks its
/// consistency.
pub(crate) fn read_announcement(payload: Bytes, wants_events: bool) -> Result<Announcement, FrameError> {
    let (mut reader, flags) = begin(payload, HELD | FOLLOWS)?;
    let opened = time(&mut reader)?;
    let (since, until) = (id(&mut reader)?, id(&mut reader)?);
    let mut announced = Vec::new();
    if wants_events {
        announced = events(&mut reader)?;
        reader.end()?;
    }
    let (is_held, follows) = (flags & HELD != 0, flags & FOLLOWS != 0);
    Ok(Announcement { opened, is_held, follows, since, until, events: announced })
}

/// Encodes what gateways say on [`RELAY_SUBJECT`].
pub(crate) fn encode_relay() -> Bytes {
    Bytes::from_static(&[VERSION, 0])
}

/// Checks what a gateway says on [`RELAY_SUBJECT`].
pub(crate) fn read_relay(payload: Bytes) -> Result<(), FrameError> {
    let (reader, _) = begin(payload, 0)?;
    reader.end()
}

/// Encodes a request as a payload.
pub(crate) fn encode_request(request: &ReplicationRequest) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    out.put_u8(0);
    put_id(&mut out, request.after);
    put_types(&mut out, &request.types);
    out.freeze()
}

/// Reads a request.
pub(crate) fn read_request(payload: Bytes) -> Result<ReplicationRequest, FrameError> {
    let (mut reader, _) = begin(payload, 0)?;
    let after = id(&mut reader)?;
    let types = read_types(&mut reader)?;
    reader.end()?;
    if TYPES_MAX < types.len() {
        return Err(FrameError::Value("types"));
    }
    Ok(ReplicationRequest { after, types })
}

/// Encodes a page as a payload.
pub(crate) fn encode_page(page: &ReplicationPage) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    out.put_u8(if page.more_follows { MORE } else { 0 });
    put_id(&mut out, page.covered);
    put_events(&mut out, &page.events);
    out.freeze()
}

/// Reads a page.
pub(crate) fn read_page(payload: Bytes) -> Result<ReplicationPage, FrameError> {
    let (mut reader, flags) = begin(payload, MORE)?;
    let covered = id(&mut reader)?;
    let events = events(&mut reader)?;
    reader.end()?;
    Ok(ReplicationPage { covered, more_follows: flags & MORE != 0, events })
}

/// Removes the events whose JSON is nested deeper than [`JSON_DEPTH_MAX`](crate::event::model::JSON_DEPTH_MAX), and
/// returns their ids. Peers of older versions store and announce such events.
pub(crate) fn remove_too_deep_events(events: &mut Vec<Event>) -> Vec<EventId> {
    let is_too_deep = |event: &mut Event| matches!(&event.payload, Some(Payload::Json(json)) if json.is_too_deep());
    events.extract_if(.., is_too_deep).map(|event| event.id).collect()
}

/// Removes the events on whose subjects, those of their types, their server may not publish, and returns their ids.
pub(crate) fn remove_denied_events(events: &mut Vec<Event>, permitted: &PermittedSubjects) -> Vec<EventId> {
    let is_denied = |event: &mut Event| !permitted.permits(event.event_type.subject());
    events.extract_if(.., is_denied).map(|event| event.id).collect()
}

/// Checks the version and returns the flags.
fn begin(payload: Bytes, flags_known: u8) -> Result<(FrameReader, u8), FrameError> {
    let mut reader = FrameReader::new(payload);
    if reader.u8()? != VERSION {
        return Err(FrameError::Value("version"));
    }
    let flags = reader.u8()?;
    if flags & !flags_known == 0 { Ok((reader, flags)) } else { Err(FrameError::Value("flags")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::model::{Json, ServerId};
    use crate::event::timestamp::Timestamp;
    use crate::rng::Rng;

    fn position(session: u64, instance: u64) -> EventId {
        EventId { server: ServerId(7), session, instance }
    }

    fn event(instance: u64, event_type: &str, payload: Option<Payload>) -> Event {
        Event {
            id: position(2, instance),
            event_type: event_type.parse().unwrap(),
            timestamp: Timestamp::MIN,
            source_timestamp: (instance == 1).then_some(Timestamp::MIN),
            payload,
        }
    }

    fn samples() -> (Announcement, ReplicationRequest, ReplicationPage) {
        let binary = Payload::Binary { type_name: "t".into(), bytes: Bytes::from_static(b"\x00\xff") };
        let events = vec![event(1, "a/b", None), event(2, "a", Some(binary))];
        let announcement = Announcement {
            opened: Timestamp::MIN,
            is_held: true,
            follows: false,
            since: position(1, 3),
            until: position(2, 2),
            events: events.clone(),
        };
        let request =
            ReplicationRequest { after: position(1, 0), types: vec!["a/*".parse().unwrap(), "?".parse().unwrap()] };
        (announcement, request, ReplicationPage { covered: position(2, 9), more_follows: true, events })
    }

    #[test]
    fn events_without_permission_are_removed() {
        let mut events = vec![event(1, "line/a", None), event(2, "cmd/stop", None), event(3, "line", None)];
        let permitted = PermittedSubjects::of(["line.>".parse().unwrap()]);
        assert_eq!(remove_denied_events(&mut events, &permitted), [position(2, 2), position(2, 3)]);
        assert_eq!(events, [event(1, "line/a", None)]);
    }

    #[test]
    fn encoded_payload_is_decoded_unchanged() {
        let (announcement, request, page) = samples();
        for (is_held, follows) in [(true, false), (false, true), (true, true), (false, false)] {
            let announcement = Announcement { is_held, follows, ..announcement.clone() };
            assert_eq!(read_announcement(encode_announcement(&announcement), true), Ok(announcement.clone()));
            let without = Announcement { events: Vec::new(), ..announcement.clone() };
            assert_eq!(read_announcement(encode_announcement(&announcement), false), Ok(without));
        }
        assert_eq!(read_request(encode_request(&request)), Ok(request));
        for more_follows in [true, false] {
            let page = ReplicationPage { more_follows, ..page.clone() };
            assert_eq!(read_page(encode_page(&page)), Ok(page));
        }
    }

    #[test]
    fn only_too_deep_events_are_removed() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let deep = |instance: u64, depth: usize| {
            let json = Json::from_stored(nested(depth).into()).unwrap();
            event(instance, "a", Some(Payload::Json(json)))
        };
        let (announcement, _, page) = samples();
        let binary = Payload::Binary { type_name: "".into(), bytes: nested(1000).into() };
        let events = vec![deep(1, 900), deep(2, 901), event(3, "a", Some(binary)), deep(4, 1000), event(5, "a", None)];
        let announcement = Announcement { until: position(2, 5), events: events.clone(), ..announcement };
        let page = ReplicationPage { events: events.clone(), ..page };
        let read = [
            read_announcement(encode_announcement(&announcement), true).unwrap().events,
            read_page(encode_page(&page)).unwrap().events,
        ];
        for mut read in read {
            assert_eq!(read, events);
            assert_eq!(remove_too_deep_events(&mut read), [position(2, 2), position(2, 4)]);
            assert_eq!(read, [events[0].clone(), events[2].clone(), events[4].clone()]);
        }
        let announcement = Announcement { events: vec![events[0].clone(), events[4].clone()], ..announcement };
        assert!(announcement.is_sound(), "what was taken out leaves no gap");
    }

    #[test]
    fn encoded_event_stays_within_the_reported_size() {
        let long = "x".repeat(255);
        let binary = Payload::Binary { type_name: long.as_str().into(), bytes: vec![0; 1000].into() };
        let event = event(1, &long, Some(binary));
        let page = ReplicationPage { covered: position(2, 1), more_follows: false, events: vec![event.clone()] };
        let alone = encode_page(&ReplicationPage { events: Vec::new(), ..page.clone() }).len();
        let bytes = encode_page(&page).len();
        assert!(alone <= HEAD_BYTES && bytes - alone <= event_bytes(&event), "{alone} {bytes}");
        let announcement = Announcement { events: Vec::new(), ..samples().0 };
        assert!(encode_announcement(&announcement).len() <= HEAD_BYTES);
    }

    #[test]
    fn malformed_payload_is_refused() {
        let (announcement, request, page) = samples();
        let types = vec!["a".parse().unwrap(); TYPES_MAX + 1];
        let long = encode_request(&ReplicationRequest { types, ..request.clone() });
        assert_eq!(read_request(long), Err(FrameError::Value("types")));
        let payloads = [encode_announcement(&announcement), encode_request(&request), encode_page(&page)];
        let read = |at: usize, payload: Bytes| match at {
            0 => read_announcement(payload, true).map(drop),
            1 => read_request(payload).map(drop),
            _ => read_page(payload).map(drop),
        };
        let mut rng = Rng::new(5);
        for (at, payload) in payloads.iter().enumerate() {
            let with = |position: usize, byte: u8| {
                let mut bytes = payload.to_vec();
                bytes[position] = byte;
                Bytes::from(bytes)
            };
            assert_eq!(read(at, with(0, 2)), Err(FrameError::Value("version")));
            assert_eq!(read(at, with(1, 0x80)), Err(FrameError::Value("flags")));
            assert_eq!(read(at, Bytes::from([&payload[..], &[0][..]].concat())), Err(FrameError::Trailing(1)));
            for length in 0..payload.len() {
                assert!(read(at, payload.slice(..length)).is_err(), "{length} bytes of {at}");
            }
            for _ in 0..20_000 {
                // Every payload is either read or refused, without a panic.
                drop(read(at, with(rng.below(payload.len() as u64) as usize, rng.below(256) as u8)));
            }
        }
    }
}
