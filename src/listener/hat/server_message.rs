//! Messages that servers send.
//!
//! ```text
//! InitRes      choice: status · text of an error
//! StatusNotify status = choice: standby, starting, operational, stopping
//! EventsNotify array of events
//! RegisterRes  choice: array of events · failure
//! QueryRes     array of events · more follows boolean
//! ```

use super::chatter::{ChatterMessage, PING, PONG};
use super::fault::HatFault;
use super::sbs::{SbsError, SbsReader, put_boolean, put_count, put_text};
use super::value::{events, put_events};
use crate::event::model::Event;
use crate::event::store::QueryPage;
use bytes::BytesMut;
use std::fmt;

const INIT_RES: &str = "HatEventer.MsgInitRes";
const STATUS_NOTIFY: &str = "HatEventer.MsgStatusNotify";
pub(super) const EVENTS_NOTIFY: &str = "HatEventer.MsgEventsNotify";
const REGISTER_RES: &str = "HatEventer.MsgRegisterRes";
const QUERY_RES: &str = "HatEventer.MsgQueryRes";

/// Types of messages that only servers send.
pub(super) const SERVER_TYPES: [&str; 5] = [INIT_RES, STATUS_NOTIFY, EVENTS_NOTIFY, REGISTER_RES, QUERY_RES];

/// Status of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Another server is active.
    Standby,
    /// The server is starting.
    Starting,
    /// The server is active; it registers events only in this status.
    Operational,
    /// The server is stopping.
    Stopping,
}

impl Status {
    /// All statuses, in the order of their encoding.
    const ALL: [Status; 4] = [Status::Standby, Status::Starting, Status::Operational, Status::Stopping];
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Standby => "standby",
            Status::Starting => "starting",
            Status::Operational => "operational",
            Status::Stopping => "stopping",
        })
    }
}

/// A message from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HatServerMessage {
    /// A ping, which requests a pong.
    Ping,
    /// The answer to a ping.
    Pong,
    /// The status of the server for an accepted client, or the reason of a refusal.
    Init(Result<Status, String>),
    /// The new status of the server.
    Status(Status),
    /// Events to which the client subscribes.
    Events(Vec<Event>),
    /// The events that were registered; `None` if the registration failed.
    Registered(Option<Vec<Event>>),
    /// The answer to a query.
    Found(QueryPage),
}

impl HatServerMessage {
    /// Returns the type of the message.
    pub fn type_name(&self) -> &'static str {
        match self {
            HatServerMessage::Ping => PING,
            HatServerMessage::Pong => PONG,
            HatServerMessage::Init(_) => INIT_RES,
            HatServerMessage::Status(_) => STATUS_NOTIFY,
            HatServerMessage::Events(_) => EVENTS_NOTIFY,
            HatServerMessage::Registered(_) => REGISTER_RES,
            HatServerMessage::Found(_) => QUERY_RES,
        }
    }

    /// Returns the body of the message.
    pub fn encode(&self) -> BytesMut {
        let mut out = BytesMut::new();
        match self {
            HatServerMessage::Ping | HatServerMessage::Pong => {}
            HatServerMessage::Init(Ok(status)) => {
                put_count(&mut out, 0);
                put_status(&mut out, *status);
            }
            HatServerMessage::Init(Err(text)) => {
                put_count(&mut out, 1);
                put_text(&mut out, text);
            }
            HatServerMessage::Status(status) => put_status(&mut out, *status),
            HatServerMessage::Events(events) => put_events(&mut out, events.iter()),
            HatServerMessage::Registered(Some(events)) => {
                put_count(&mut out, 0);
                put_events(&mut out, events.iter());
            }
            HatServerMessage::Registered(None) => put_count(&mut out, 1),
            HatServerMessage::Found(answer) => {
                put_events(&mut out, answer.events.iter());
                put_boolean(&mut out, answer.more_follows);
            }
        }
        out
    }

    /// Decodes the message, as a client does.
    ///
    /// # Errors
    /// [`HatFault::Malformed`], [`HatFault::UnknownType`].
    pub fn decode(message: &ChatterMessage<'_>) -> Result<HatServerMessage, HatFault> {
        let mut reader = SbsReader::new(message.body);
        let (type_name, read) = match message.type_name {
            PING => (PING, Ok(HatServerMessage::Ping)),
            PONG => (PONG, Ok(HatServerMessage::Pong)),
            INIT_RES => (INIT_RES, init_answer(&mut reader).map(HatServerMessage::Init)),
            STATUS_NOTIFY => (STATUS_NOTIFY, status(&mut reader).map(HatServerMessage::Status)),
            EVENTS_NOTIFY => (EVENTS_NOTIFY, events(&mut reader).map(HatServerMessage::Events)),
            REGISTER_RES => (REGISTER_RES, registered(&mut reader).map(HatServerMessage::Registered)),
            QUERY_RES => (QUERY_RES, answer(&mut reader).map(HatServerMessage::Found)),
            name => return Err(HatFault::unknown_type(name)),
        };
        let malformed = |error| HatFault::Malformed { type_name, error };
        let decoded = read.map_err(malformed)?;
        reader.end().map_err(malformed)?;
        Ok(decoded)
    }
}

fn put_status(out: &mut BytesMut, status: Status) {
    put_count(out, Status::ALL.iter().position(|other| *other == status).expect("one of all"));
}

fn init_answer(reader: &mut SbsReader<'_>) -> Result<Result<Status, String>, SbsError> {
    Ok(if reader.choice(2)? == 0 { Ok(status(reader)?) } else { Err(reader.text()?.to_owned()) })
}

fn status(reader: &mut SbsReader<'_>) -> Result<Status, SbsError> {
    Ok(Status::ALL[reader.choice(Status::ALL.len())?])
}

fn registered(reader: &mut SbsReader<'_>) -> Result<Option<Vec<Event>>, SbsError> {
    if reader.choice(2)? == 0 { events(reader).map(Some) } else { Ok(None) }
}

fn answer(reader: &mut SbsReader<'_>) -> Result<QueryPage, SbsError> {
    Ok(QueryPage { events: events(reader)?, more_follows: reader.boolean()? })
}
