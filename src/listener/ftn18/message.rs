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
        /// Id of the call, as this side assigned it.
        rid: String,
        /// True if the answer is not an error.
        is_ok: bool,
    },
}

/// A call.
#[derive(Debug)]
pub struct CallRequest<'a> {
    /// Id of the call in its original form, which the answer repeats.
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
/// The text is not a JSON object. The fault names the position.
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
    let (mut request, mut problem) = (CallRequest { rid, function, parameters: BTreeMap::new(), sec: None }, None);
    match parameters.map(|p| serde_json::from_str(p.get())) {
        Some(Ok(parameters)) => request.parameters = parameters,
        Some(Err(_)) => problem = Some("p is no object"),
        None => problem = Some("p is missing: the parameters"),
    }
    match sec.map(|sec| (sec.get() == "null", string(sec))) {
        None | Some((true, _)) => {}
        Some((false, Some(sec))) => request.sec = Some(sec),
        Some((false, None)) => problem = Some("sec is no string"),
    }
    if let (Ok(_), Some(text)) = (&request.function, problem) {
        request.function = Err(invalid(text));
    }
    Ok(IncomingMessage::Request(request))
}

/// Returns the fault of a text that is not a JSON object. The fault omits the value, which may be long or confidential.
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

/// Returns the string that a JSON text encodes; `None` if the text is another value.
pub fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// Returns a text as JSON.
fn to_json(text: &str) -> String {
    serde_json::to_string(text).expect("a text is valid JSON")
}

/// Returns an answer: the result as JSON, or the error.
pub fn response(rid: Option<&RawValue>, result: &Result<String, CallFault>) -> String {
    let mut text = match result {
        Ok(result) => format!("{{\"r\":{result}"),
        Err(fault) => format!("{{\"e\":{},\"edesc\":{}", to_json(fault.name.as_str()), to_json(&fault.text)),
    };
    if let Some(rid) = rid {
        write!(text, ",\"rid\":{}", rid.get()).expect("a String takes any text");
    }
    text.push('}');
    text
}

/// Maximum size in bytes of [`on_events`], and of an answer with events, without the events.
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
