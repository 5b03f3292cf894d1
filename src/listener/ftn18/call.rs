//! Calls of FTN18: their interfaces, versions, functions and parameters, and their checks in the order of FTN3.

use super::fault::{CallFault, FaultName};
use super::message::{CallRequest, string};
use crate::event::model::Json;
use crate::event::stream::name::{Component, StreamId, StreamType, UserName};
use bytes::Bytes;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum size in bytes of most answers to a client, and of the messages of a client (FTN3, without `maxreqsize` and
/// `maxrspsize`).
pub const MESSAGE_BYTES: usize = 64 << 10;
/// Maximum size of a list of events in bytes, for interfaces that allow it.
pub const LIST_BYTES: usize = 8 << 20;

/// A valid call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A ping. Its answer returns the number.
    Ping {
        /// The number.
        echo: i32,
    },
    /// Adds an event; the answer is its id.
    Add {
        /// Type of the event.
        kind: StreamType,
        /// Data of the event.
        data: Json,
    },
    /// Registers a consumer.
    Register(Component),
    /// Requests the events after a position.
    Poll {
        /// Component of the consumer.
        component: Component,
        /// Position that the consumer has accepted.
        last: Option<StreamId>,
        /// The wanted types; `None` for all types.
        want: Option<BTreeSet<StreamType>>,
        /// Maximum bytes of the answer.
        answer_bytes_max: usize,
    },
    /// Requests that events are pushed over this connection from now on.
    Ready {
        /// Component of the consumer.
        component: Component,
        /// The wanted types; `None` for all types.
        want: Option<BTreeSet<StreamType>>,
        /// Version of the consumer's `futoin.evt.receiver`.
        version: Version,
    },
}

/// A version of the interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 1.0: a list of events has at most 64 kB.
    V1_0,
    /// 1.1: a list of events has at most 8 MB.
    V1_1,
}

impl Version {
    /// Returns the name used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::V1_0 => "1.0",
            Version::V1_1 => "1.1",
        }
    }

    /// Returns the maximum bytes of a call of `onEvents`.
    pub fn push_bytes_max(self) -> usize {
        match self {
            Version::V1_0 => MESSAGE_BYTES,
            Version::V1_1 => LIST_BYTES,
        }
    }
}

/// The channel over which a call arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// True if no third party can read or change messages: the channel is encrypted, or does not leave the host.
    pub is_secure: bool,
    /// True if the server can call the client too.
    pub is_bidirectional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallInterface {
    Ping,
    Gen,
    Poll,
    Push,
}

/// Checks a request, and returns the caller and the call. `user` is the user that the request's credentials
/// authenticate, or the fault of the credentials.
///
/// # Errors
/// Returns the error with its name in FTN18.
pub fn check(
    request: &CallRequest<'_>,
    user: Result<Option<UserName>, CallFault>,
    channel: Channel,
) -> Result<(UserName, Call), CallFault> {
    let user = user?;
    let function = request.function.clone()?;
    let (interface, version, function) = parse_function(&function)?;
    if interface == CallInterface::Gen && !channel.is_secure {
        let text = "futoin.evt.gen is only for channels that are secure: TLS, or within the host";
        return Err(CallFault::new(FaultName::SecurityError, text));
    }
    let user =
        user.ok_or_else(|| CallFault::new(FaultName::SecurityError, "Anonymous not allowed: send credentials in sec"))?;
    if interface == CallInterface::Push && !channel.is_bidirectional {
        return Err(invalid("futoin.evt.push needs a channel on which both can call: use a WebSocket"));
    }
    let mut parameters = Parameters { function, unread: request.parameters.clone() };
    let call = match function {
        "ping" => Call::Ping { echo: parameters.required("echo", integer, "a whole number of 32 bits")? },
        "addEvent" => Call::Add { kind: parameters.kind()?, data: parameters.any("data")? },
        "registerConsumer" => Call::Register(parameters.component()?),
        "pollEvents" => Call::Poll {
            component: parameters.component()?,
            last: parameters.optional("last_id", id, "the id of an event, as a text of digits")?,
            want: parameters.want()?,
            answer_bytes_max: match (interface, version) {
                (CallInterface::Poll, Version::V1_1) => LIST_BYTES,
                _ => MESSAGE_BYTES,
            },
        },
        _ => Call::Ready { component: parameters.component()?, want: parameters.want()?, version },
    };
    parameters.end()?;
    Ok((user, call))
}

/// Parses `interface:major.minor:function`.
fn parse_function(text: &str) -> Result<(CallInterface, Version, &'static str), CallFault> {
    let parts: Vec<&str> = text.split(':').collect();
    let [interface, version, function] = parts[..] else {
        return Err(invalid(format!("{text:?} is not interface:version:function")));
    };
    let numbers = version.split_once('.').filter(|(major, minor)| is_number(major) && is_number(minor));
    let Some((major, minor)) = numbers else {
        return Err(invalid(format!("{version:?} is no version such as 1.1")));
    };
    let interface_id = match interface {
        "futoin.ping" => CallInterface::Ping,
        "futoin.evt.gen" => CallInterface::Gen,
        "futoin.evt.poll" => CallInterface::Poll,
        "futoin.evt.push" => CallInterface::Push,
        _ => return Err(CallFault::new(FaultName::UnknownInterface, format!("there is no interface {interface:?}"))),
    };
    let version = match (major, minor) {
        ("1", "0") => Version::V1_0,
        ("1", "1") if interface_id != CallInterface::Ping => Version::V1_1,
        _ => {
            let last = if interface_id == CallInterface::Ping { "1.0" } else { "1.0 and 1.1" };
            let text = format!("{interface} has no version {version} here, but {last}");
            return Err(CallFault::new(FaultName::NotSupportedVersion, text));
        }
    };
    let functions: &[&'static str] = match interface_id {
        CallInterface::Ping => &["ping"],
        CallInterface::Gen => &["addEvent", "ping"],
        CallInterface::Poll => &["registerConsumer", "pollEvents", "ping"],
        CallInterface::Push => &["readyToReceive", "registerConsumer", "pollEvents", "ping"],
    };
    match functions.iter().find(|known| **known == function) {
        Some(function) => Ok((interface_id, version, function)),
        None => Err(invalid(format!("{interface} has no function {function:?}, but {}", functions.join(", ")))),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn invalid(text: impl Into<String>) -> CallFault {
    CallFault::new(FaultName::InvalidRequest, text)
}

fn integer(value: &RawValue) -> Option<i32> {
    serde_json::from_str(value.get()).ok()
}

fn id(value: &RawValue) -> Option<StreamId> {
    string(value)?.parse().ok()
}

/// Parameters that have not been read yet.
struct Parameters<'a> {
    function: &'static str,
    unread: BTreeMap<String, &'a RawValue>,
}

impl Parameters<'_> {
    fn required<T>(&mut self, name: &str, read: impl Fn(&RawValue) -> Option<T>, what: &str) -> Result<T, CallFault> {
        let Some(value) = self.unread.remove(name) else {
            return Err(invalid(format!("{} needs the parameter {name}: {what}", self.function)));
        };
        read(value).ok_or_else(|| invalid(format!("{name} of {} is {what}", self.function)))
    }

    /// Reads a parameter that may be null, or left out.
    fn optional<T>(
        &mut self,
        name: &str,
        read: impl Fn(&RawValue) -> Option<T>,
        what: &str,
    ) -> Result<Option<T>, CallFault> {
        match self.unread.get(name).is_none_or(|value| value.get() == "null") {
            true => {
                self.unread.remove(name);
                Ok(None)
            }
            false => self.required(name, read, what).map(Some),
        }
    }

    fn kind(&mut self) -> Result<StreamType, CallFault> {
        self.required("type", |value| string(value)?.parse().ok(), "1 to 16 of A-Z and _")
    }

    fn component(&mut self) -> Result<Component, CallFault> {
        self.required("component", |value| string(value)?.parse().ok(), "1 to 16 of A-Z, a-z, 0-9 and _")
    }

    fn want(&mut self) -> Result<Option<BTreeSet<StreamType>>, CallFault> {
        let read = |value: &RawValue| {
            let texts: Vec<String> = serde_json::from_str(value.get()).ok()?;
            texts.iter().map(|text| text.parse().ok()).collect()
        };
        self.optional("want", read, "a list of types, each 1 to 16 of A-Z and _")
    }

    /// Returns any JSON in its original form.
    fn any(&mut self, name: &str) -> Result<Json, CallFault> {
        let read = |value: &RawValue| Some(Json::from_bytes(Bytes::copy_from_slice(value.get().as_bytes())));
        let json = self.required(name, read, "a JSON value")?;
        json.map_err(|error| invalid(format!("{name} of {}: {error}", self.function)))
    }

    fn end(&self) -> Result<(), CallFault> {
        match self.unread.keys().next() {
            None => Ok(()),
            Some(name) => Err(invalid(format!("{} has no parameter {name:?}", self.function))),
        }
    }
}
