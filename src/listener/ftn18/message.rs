//! Messages of FutoIn (FTN3): requests and responses, each a JSON object.

use super::fault::{CallFault, FaultName};
use crate::event::stream::model::StreamEvent;
use crate::event::timestamp::Timestamp;
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The fields of a request.
const FIELDS: [&str; 6] = ["f", "p", "rid", "forcersp", "sec", "obf"];

/// A received message, decoded independently of its interface.
#[derive(Debug)]
pub enum IncomingMessage<'a> {
    /// A call.
    Request(CallRequest<'a>),
    /// An answer to a call of this side.
    Response {
        /// The id, as this side gave it.
        rid: String,
        /// True if it has no error.
        is_ok: bool,
    },
}

/// A call.
#[derive(Debug)]
pub struct CallRequest<'a> {
    /// Its id in its original form, which the answer repeats.
    pub rid: Option<&'a RawValue>,
    /// Interface, version and function, or the error of the message.
    pub function: Result<String, CallFault>,
    /// The parameters by name, in their original form.
    pub parameters: BTreeMap<String, &'a RawValue>,
    /// Credentials of the caller.
    pub sec: Option<String>,
}

type RawFields<'a> = BTreeMap<String, &'a RawValue>;

/// Reads a message.
///
/// # Errors
/// The text is no JSON object; the fault gives the position.
pub fn read(text: &str) -> Result<IncomingMessage<'_>, CallFault> {
    let mut fields: RawFields<'_> = serde_json::from_str(text).map_err(|error| not_an_object(&error))?;
    let rid = fields.get("rid").copied();
    if ["r", "e"].iter().any(|name| fields.contains_key(*name))
        && !fields.contains_key("f")
        && let Some(rid) = rid.and_then(string)
    {
        return Ok(IncomingMessage::Response { rid, is_ok: !fields.contains_key("e") });
    }
    let (parameters, sec) = (fields.remove("p"), fields.remove("sec"));
    let function = match fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        Some(name) => Err(invalid(format!("a request has no field {name:?}"))),
        None if rid.is_some_and(|rid| string(rid).is_none()) => Err(invalid("rid is no string")),
        None => match fields.get("f").map(|f| string(f)) {
            None => Err(invalid("f is missing: the interface, its version, and the function")),
            Some(None) => Err(invalid("f is no string")),
            Some(Some(function)) => Ok(function),
        },
    };
    let (mut request, mut wrong) = (CallRequest { rid, function, parameters: BTreeMap::new(), sec: None }, None);
    match parameters.map(|p| serde_json::from_str(p.get())) {
        Some(Ok(parameters)) => request.parameters = parameters,
        Some(Err(_)) => wrong = Some("p is no object"),
        None => wrong = Some("p is missing: the parameters"),
    }
    match sec.map(|sec| (sec.get() == "null", string(sec))) {
        None | Some((true, _)) => {}
        Some((false, Some(sec))) => request.sec = Some(sec),
        Some((false, None)) => wrong = Some("sec is no string"),
    }
    if let (Ok(_), Some(text)) = (&request.function, wrong) {
        request.function = Err(invalid(text));
    }
    Ok(IncomingMessage::Request(request))
}

/// Reports where a text is no JSON object. The value there is omitted, since it may be long or confidential.
fn not_an_object(error: &serde_json::Error) -> CallFault {
    let (line, column) = (error.line(), error.column());
    invalid(match error.classify() {
        Category::Data => format!("a message is a JSON object: another value stands at line {line} column {column}"),
        Category::Io | Category::Syntax | Category::Eof => format!("a message is a JSON object: {error}"),
    })
}

fn invalid(text: impl Into<String>) -> CallFault {
    CallFault::new(FaultName::InvalidRequest, text)
}

/// Returns the string that a JSON text encodes, if it is one.
pub fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// Returns a text as JSON.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is valid JSON")
}

/// Returns an answer: the result as JSON, or the error.
pub fn response(rid: Option<&RawValue>, result: &Result<String, CallFault>) -> String {
    let mut text = match result {
        Ok(result) => format!("{{\"r\":{result}"),
        Err(fault) => format!("{{\"e\":{},\"edesc\":{}", quoted(fault.name.as_str()), quoted(&fault.text)),
    };
    if let Some(rid) = rid {
        write!(text, ",\"rid\":{}", rid.get()).expect("a String takes any text");
    }
    text.push('}');
    text
}

/// Maximum bytes of the envelope of [`on_events`] beside the events, and of that of an answer with events.
pub const ENVELOPE_BYTES: usize = 256;

/// Returns the call that pushes a group to a consumer (FTN18 3.3.3). `version` is that of the receiver's interface.
pub fn on_events(version: &str, rid: &str, seq: u32, events: &[StreamEvent]) -> String {
    let events = list(events);
    format!(
        "{{\"f\":\"futoin.evt.receiver:{version}:onEvents\",\"p\":{{\"seq\":{seq},\"events\":{events}}},\"rid\":\"{rid}\"}}"
    )
}

/// Returns events as a JSON array.
pub fn list(events: &[StreamEvent]) -> String {
    let mut text = String::with_capacity(2 + events.iter().map(StreamEvent::bytes).sum::<usize>());
    text.push('[');
    for (index, event) in events.iter().enumerate() {
        if 0 < index {
            text.push(',');
        }
        let StreamEvent { id, kind, data, time, .. } = event;
        // Types contain no character that JSON escapes.
        write!(
            text,
            "{{\"id\":\"{id}\",\"type\":\"{kind}\",\"data\":{},\"ts\":\"{}\"}}",
            data.as_str(),
            seconds(*time)
        )
        .expect("a String takes any text");
    }
    text.push(']');
    text
}

/// Returns a time like `2026-11-21T07:53:59Z`, in whole seconds and in UTC.
fn seconds(time: Timestamp) -> String {
    let mut text = time.to_string();
    text.truncate("2026-11-21T07:53:59".len());
    text + "Z"
}
