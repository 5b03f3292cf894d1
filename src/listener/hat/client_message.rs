//! Messages that clients send.
//!
//! ```text
//! InitReq     name text · token optional text · subscriptions array of types · server optional integer
//!             · persisted boolean
//! EventsAck   –
//! RegisterReq array of registrations
//! QueryReq    choice: latest · timeseries · server
//!
//! latest      types optional
//! timeseries  types optional · from, to, source from, source to: optional timestamps · choice: descending, ascending
//!             · choice: by timestamp, by source timestamp · limit optional integer · after optional id
//! server      server integer · persisted boolean · limit optional integer · after optional id
//! ```
//!
//! `persisted` is ignored, since clients receive only stored events. Numbers outside the range of events, servers or
//! times are valid: a query with such a number finds no event.

use super::chatter::{ChatterMessage, PING, PONG};
use super::fault::HatFault;
use super::registration_refusal::RegistrationRefusal;
use super::sbs::{SbsError, SbsReader, put_boolean, put_count, put_integer, put_optional, put_text};
use super::server_message::SERVER_TYPES;
use super::settings::Settings;
use super::value::{id, micros, put_id, put_pattern, put_registration, put_time, registration, subtypes, time};
use crate::event::model::{EventId, Registration, ServerId};
use crate::event::store::{Query, Series, SeriesOrder, ServerQuery, TimeSpan};
use crate::event::timestamp::Timestamp;
use crate::subject::event_type::{TypeError, TypePattern};
use bytes::BytesMut;

pub(super) const INIT_REQ: &str = "HatEventer.MsgInitReq";
const EVENTS_ACK: &str = "HatEventer.MsgEventsAck";
const REGISTER_REQ: &str = "HatEventer.MsgRegisterReq";
const QUERY_REQ: &str = "HatEventer.MsgQueryReq";

/// A message from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HatClientMessage {
    /// A ping, which requests a pong.
    Ping,
    /// The answer to a ping.
    Pong,
    /// The client's identity and subscriptions.
    Init(Init),
    /// A request to register these events, or the reason why they cannot be registered.
    Register(Result<Vec<Registration>, RegistrationRefusal>),
    /// A query; `None` if no event can match it.
    Query(Option<Query>),
    /// An acknowledgement of events, which the listener does not request.
    EventsAck,
}

/// The first message of a client, apart from pings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// Name of the client, for people. It may be empty, and other clients may have it too.
    pub name: String,
    /// Token that authenticates the client.
    pub token: Option<String>,
    /// Events that the client subscribes to.
    pub subscription: EventSubscription,
    /// True if the client wants stored events only. This listener sends only stored events.
    pub persisted: bool,
}

/// Subscriptions of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSubscription {
    /// Patterns of the wanted types, without those that can match no type.
    pub patterns: Vec<TypePattern>,
    /// Server of the wanted events; `None` for all servers.
    pub server: Option<ServerId>,
}

impl HatClientMessage {
    /// Decodes a message of a client.
    ///
    /// # Errors
    /// Returns the client's fault, which ends its connection.
    pub fn decode(message: &ChatterMessage<'_>, settings: &Settings) -> Result<HatClientMessage, HatFault> {
        let mut reader = SbsReader::new(message.body);
        let (type_name, read) = match message.type_name {
            PING => (PING, Ok(HatClientMessage::Ping)),
            PONG => (PONG, Ok(HatClientMessage::Pong)),
            EVENTS_ACK => (EVENTS_ACK, Ok(HatClientMessage::EventsAck)),
            INIT_REQ => (INIT_REQ, init(&mut reader, settings).map(HatClientMessage::Init)),
            REGISTER_REQ => match registrations(&mut reader, settings) {
                // The rest of the body was not read.
                Ok(Err(refusal @ RegistrationRefusal::TooMany { .. })) => {
                    return Ok(HatClientMessage::Register(Err(refusal)));
                }
                read => (REGISTER_REQ, read.map(HatClientMessage::Register).map_err(BodyFault::Encoding)),
            },
            QUERY_REQ => (QUERY_REQ, query(&mut reader, settings).map(HatClientMessage::Query)),
            name => return Err(unexpected_type(name)),
        };
        let decoded = read.and_then(|decoded| Ok(reader.end().map(|()| decoded)?));
        decoded.map_err(|fault| match fault {
            BodyFault::Encoding(error) => HatFault::Malformed { type_name, error },
            BodyFault::Content(fault) => fault,
        })
    }

    /// Returns the type of the message.
    pub fn type_name(&self) -> &'static str {
        match self {
            HatClientMessage::Ping => PING,
            HatClientMessage::Pong => PONG,
            HatClientMessage::Init(_) => INIT_REQ,
            HatClientMessage::Register(_) => REGISTER_REQ,
            HatClientMessage::Query(_) => QUERY_REQ,
            HatClientMessage::EventsAck => EVENTS_ACK,
        }
    }

    /// Returns the body of the message as a client encodes it. Returns `None` for a refused registration and for a
    /// query that no event can match.
    pub fn encode(&self) -> Option<BytesMut> {
        let mut out = BytesMut::new();
        match self {
            HatClientMessage::Ping | HatClientMessage::Pong | HatClientMessage::EventsAck => {}
            HatClientMessage::Init(init) => put_init(&mut out, init),
            HatClientMessage::Register(registrations) => {
                let registrations = registrations.as_ref().ok()?;
                put_count(&mut out, registrations.len());
                registrations.iter().for_each(|registration| put_registration(&mut out, registration));
            }
            HatClientMessage::Query(query) => put_query(&mut out, query.as_ref()?),
        }
        Some(out)
    }
}

/// Returns the fault of a message type that only a server sends, or that is unknown.
fn unexpected_type(name: &str) -> HatFault {
    match SERVER_TYPES.into_iter().find(|known| *known == name) {
        Some(known) => HatFault::Unexpected(known),
        None => HatFault::unknown_type(name),
    }
}

/// Fault of the body of a message.
enum BodyFault {
    /// The bytes cannot be decoded.
    Encoding(SbsError),
    /// The decoded values are not allowed.
    Content(HatFault),
}

impl From<SbsError> for BodyFault {
    fn from(malformed: SbsError) -> BodyFault {
        BodyFault::Encoding(malformed)
    }
}

fn init(reader: &mut SbsReader<'_>, settings: &Settings) -> Result<Init, BodyFault> {
    let name = reader.text()?.to_owned();
    let token = reader.optional(SbsReader::text)?.map(str::to_owned);
    let mut patterns = patterns(reader, settings)?;
    let server = reader.optional(SbsReader::integer)?.map(server);
    if server == Some(None) {
        patterns.clear();
    }
    let subscription = EventSubscription { patterns, server: server.flatten() };
    Ok(Init { name, token, subscription, persisted: reader.boolean()? })
}

/// Returns the server with this id, if the id is in range.
fn server(number: i128) -> Option<ServerId> {
    u32::try_from(number).ok().map(ServerId)
}

/// Reads patterns of types. Omits those that can match no type.
fn patterns(reader: &mut SbsReader<'_>, settings: &Settings) -> Result<Vec<TypePattern>, BodyFault> {
    let (count, max) = (reader.count(1)?, settings.types_max);
    if max < count {
        return Err(BodyFault::Content(HatFault::Types { count, max }));
    }
    let (mut list, mut patterns, mut wildcards) = (Vec::new(), Vec::new(), 0);
    for _ in 0..count {
        subtypes(reader, &mut list)?;
        // A lookup follows the patterns without `?` on a single path, whatever the event.
        wildcards += if list.contains(&"?") { list.len() } else { 0 };
        patterns.extend(pattern(&list));
    }
    let max = settings.wildcard_subtypes_max;
    if max < wildcards {
        return Err(BodyFault::Content(HatFault::Wildcards { subtypes: wildcards, max }));
    }
    Ok(patterns)
}

/// Returns the pattern with these subtypes, unless it can match no type.
fn pattern(subtypes: &[&str]) -> Option<TypePattern> {
    match (TypePattern::new(subtypes.iter().copied()), subtypes) {
        (Ok(pattern), _) => Some(pattern),
        // The longest subject has no space for a further subtype, so `*` matches only zero subtypes.
        (Err(TypeError::Subject(_)), [head @ .., "*"]) => TypePattern::new(head.iter().copied()).ok(),
        (Err(_), _) => None,
    }
}

/// Reads all events to be registered, unless the registration has too many. It reads them even after an invalid one, so
/// that it detects malformed ones.
fn registrations(
    reader: &mut SbsReader<'_>,
    settings: &Settings,
) -> Result<Result<Vec<Registration>, RegistrationRefusal>, SbsError> {
    // A registration has at least a type, and markers for no source timestamp and no payload.
    let (count, max) = (reader.count(3)?, settings.registrations_max);
    if max < count {
        return Ok(Err(RegistrationRefusal::TooMany { count, max }));
    }
    let (mut list, mut found) = (Vec::new(), Ok(Vec::new()));
    for number in 1..=count {
        let read = registration(reader, settings.message_bytes_max, &mut list)?;
        match (&mut found, read) {
            (Ok(found), Ok(registration)) => found.push(registration),
            (Ok(_), Err(error)) => found = Err(RegistrationRefusal::Event { number, error }),
            (Err(_), _) => {}
        }
    }
    Ok(found)
}

fn query(reader: &mut SbsReader<'_>, settings: &Settings) -> Result<Option<Query>, BodyFault> {
    match reader.choice(3)? {
        0 => Ok(Some(Query::Latest(reader.optional(|reader| patterns(reader, settings))?))),
        1 => series(reader, settings),
        _ => server_query(reader),
    }
}

fn series(reader: &mut SbsReader<'_>, settings: &Settings) -> Result<Option<Query>, BodyFault> {
    let types = reader.optional(|reader| patterns(reader, settings))?;
    let mut next = || reader.optional(micros);
    let (time, source_time) = (span(next()?, next()?), span(next()?, next()?));
    let is_descending = reader.choice(2)? == 0;
    let by = if reader.choice(2)? == 0 { SeriesOrder::Time } else { SeriesOrder::SourceTime };
    let limit = limit(reader)?;
    let event_id = |[of, session, instance]: [i128; 3]| {
        Some(EventId { server: server(of)?, session: unsigned(session)?, instance: unsigned(instance)? })
    };
    let after = match reader.optional(id)?.map(event_id) {
        // No event has this id, so no event follows it.
        Some(None) => return Ok(None),
        after => after.flatten(),
    };
    let (Some(time), Some(source_time)) = (time, source_time) else { return Ok(None) };
    Ok(Some(Query::Series(Series { types, time, source_time, by, is_descending, after, limit })))
}

fn server_query(reader: &mut SbsReader<'_>) -> Result<Option<Query>, BodyFault> {
    let number = reader.integer()?;
    let _persisted = reader.boolean()?;
    let limit = limit(reader)?;
    let after = reader.optional(id)?;
    if let Some([after, ..]) = after
        && after != number
    {
        return Err(BodyFault::Content(HatFault::OtherServer { after, server: number }));
    }
    let Some(server) = server(number) else { return Ok(None) };
    // An id outside the range of ids is replaced by the nearest position of the server.
    let after = after.map(|[_, session, instance]| match unsigned(session) {
        Some(session) => {
            EventId { server, session, instance: unsigned(instance).unwrap_or(if instance < 0 { 0 } else { u64::MAX }) }
        }
        None if session < 0 => EventId { server, session: 0, instance: 0 },
        None => EventId { server, session: u64::MAX, instance: u64::MAX },
    });
    Ok(Some(Query::Server(ServerQuery { server, after, limit })))
}

fn unsigned(number: i128) -> Option<u64> {
    u64::try_from(number).ok()
}

/// Reads the maximum number of wanted events.
fn limit(reader: &mut SbsReader<'_>) -> Result<Option<usize>, SbsError> {
    let limit = reader.optional(SbsReader::integer)?;
    Ok(limit.map(|limit| usize::try_from(limit).unwrap_or(if limit < 0 { 0 } else { usize::MAX })))
}

/// Returns the span between two times in microseconds since 1970; `None` if it contains no valid timestamp.
fn span(from: Option<i128>, to: Option<i128>) -> Option<TimeSpan> {
    let (first, last) = (i128::from(Timestamp::MIN.as_micros()), i128::from(Timestamp::MAX.as_micros()));
    let is_empty = from.is_some_and(|from| last < from) || to.is_some_and(|to| to < first);
    let is_reversed = matches!((from, to), (Some(from), Some(to)) if to < from);
    let bound = |micros: i128| time(micros.clamp(first, last)).expect("between two times");
    (!is_empty && !is_reversed).then(|| TimeSpan { from: from.map(bound), to: to.map(bound) })
}

fn put_init(out: &mut BytesMut, init: &Init) {
    put_text(out, &init.name);
    put_optional(out, init.token.as_deref(), put_text);
    put_patterns(out, &init.subscription.patterns);
    put_optional(out, init.subscription.server, |out, server| put_integer(out, server.0.into()));
    put_boolean(out, init.persisted);
}

fn put_patterns(out: &mut BytesMut, patterns: &[TypePattern]) {
    put_count(out, patterns.len());
    patterns.iter().for_each(|pattern| put_pattern(out, pattern));
}

fn put_query(out: &mut BytesMut, query: &Query) {
    let put_limit = |out: &mut BytesMut, limit| put_optional(out, limit, put_count);
    match query {
        Query::Latest(types) => {
            put_count(out, 0);
            put_optional(out, types.as_deref(), put_patterns);
        }
        Query::Series(series) => {
            put_count(out, 1);
            put_optional(out, series.types.as_deref(), put_patterns);
            let Series { time, source_time, .. } = series;
            for bound in [time.from, time.to, source_time.from, source_time.to] {
                put_optional(out, bound, put_time);
            }
            put_count(out, usize::from(!series.is_descending));
            put_count(out, usize::from(series.by == SeriesOrder::SourceTime));
            put_limit(out, series.limit);
            put_optional(out, series.after, put_id);
        }
        Query::Server(query) => {
            put_count(out, 2);
            put_integer(out, query.server.0.into());
            put_boolean(out, false);
            put_limit(out, query.limit);
            put_optional(out, query.after, put_id);
        }
    }
}
