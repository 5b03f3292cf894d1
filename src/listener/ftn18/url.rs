//! Calls in a URL (FTN5, use case 2): `GET /STREAM/INTERFACE/VERSION/FUNCTION?parameter=value`.
//!
//! The call is converted to the JSON message of an equivalent POST, so that the same checks apply. Credentials are in
//! Basic authentication (RFC 7617), or in the path after the function.

use super::fault::{CallFault, FaultName};
use crate::listener::percent_encoding;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Prefix of all interfaces, which locates the call in a path.
const INTERFACES: &str = "futoin.";
/// Parameters that are strings; the values of all others are JSON.
const STRINGS: [&str; 3] = ["type", "component", "last_id"];

/// A call in a path.
#[derive(Debug, PartialEq, Eq)]
pub struct CallPath<'a> {
    /// Path of the stream, which may be empty.
    pub stream: &'a str,
    /// Interface, version, function, and credentials if present.
    parts: Vec<&'a str>,
}

impl<'a> CallPath<'a> {
    /// Finds the call in a path. Returns `None` if the path has no call.
    pub fn find(path: &'a str) -> Option<CallPath<'a>> {
        let at = path.find(&format!("/{INTERFACES}"))?;
        let (stream, call) = path.split_at(at);
        Some(CallPath { stream, parts: call.split('/').skip(1).collect() })
    }

    /// Returns the message that makes the call. `authorization` is the header of that name.
    ///
    /// # Errors
    /// A part of the URL or of the header cannot be decoded. The fault names the part.
    pub fn message(&self, query: &str, authorization: Option<&str>) -> Result<String, CallFault> {
        let (interface, version, function, in_path) = match self.parts[..] {
            [interface, version, function] => (interface, version, function, None),
            [interface, version, function, credentials] => (interface, version, function, Some(credentials)),
            _ => return Err(invalid("a call in a URL is /STREAM/INTERFACE/VERSION/FUNCTION")),
        };
        let sec = match (authorization, in_path) {
            (Some(header), _) => Some(decode_basic(header)?),
            (None, Some(credentials)) => Some(decode_form("the credentials", credentials)?.into_owned()),
            (None, None) => None,
        };
        let mut parameters = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode_form("a parameter's name", name)?;
            let value = decode_form(&name, value)?;
            let value = match STRINGS.contains(&&*name) {
                true => to_json(&value),
                false => {
                    let error = |error| invalid(format!("the parameter {name:?} is no JSON: {error}"));
                    serde_json::from_str::<&RawValue>(&value).map_err(error)?.get().to_owned()
                }
            };
            if parameters.insert(name.clone(), value).is_some() {
                return Err(invalid(format!("the parameter {name:?} is given twice")));
            }
        }
        let parameters: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{}:{value}", to_json(name))).collect();
        let function = to_json(&format!("{interface}:{version}:{function}"));
        let sec = sec.map_or(String::new(), |sec| format!(",\"sec\":{}", to_json(&sec)));
        Ok(format!("{{\"f\":{function},\"p\":{{{}}}{sec}}}", parameters.join(",")))
    }
}

fn invalid(text: impl Into<String>) -> CallFault {
    CallFault::new(FaultName::InvalidRequest, text)
}

fn to_json(text: &str) -> String {
    serde_json::to_string(text).expect("a text is valid JSON")
}

/// Decodes `user:secret` from an Authorization header.
fn decode_basic(header: &str) -> Result<String, CallFault> {
    let refusal = || CallFault::new(FaultName::SecurityError, "Authorization is Basic with user:secret in base64");
    let (scheme, encoded) = header.split_once(' ').ok_or_else(refusal)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(refusal());
    }
    let bytes = BASE64_STANDARD.decode(encoded.trim()).map_err(|_| refusal())?;
    String::from_utf8(bytes).map_err(|_| refusal())
}

/// Decodes `%41` and `+` (WHATWG URL, application/x-www-form-urlencoded).
pub(crate) fn decode_form<'a>(what: &str, text: &'a str) -> Result<Cow<'a, str>, CallFault> {
    if !text.contains(['%', '+']) {
        return Ok(Cow::Borrowed(text));
    }
    let bytes = percent_encoding::decode(text, true);
    let bytes = bytes.ok_or_else(|| invalid(format!("{what:?}: % is followed by two hexadecimal digits")))?;
    let text = String::from_utf8(bytes);
    text.map(Cow::Owned).map_err(|error| invalid(format!("{what:?} is not UTF-8: {}", error.utf8_error())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, query: &str, authorization: Option<&str>) -> Result<String, String> {
        let call = CallPath::find(path).expect("a call");
        call.message(query, authorization).map_err(|fault| format!("{} {}", fault.name.as_str(), fault.text))
    }

    #[test]
    fn call_in_url_becomes_posted_message() {
        let ping = |sec: &str| Ok(format!(r#"{{"f":"futoin.evt.poll:1.1:ping","p":{{"echo":41}}{sec}}}"#));
        let path = "/ftn/futoin.evt.poll/1.1/ping";
        assert_eq!(CallPath::find(path).unwrap().stream, "/ftn");
        assert_eq!(check(path, "echo=41", None), ping(""));
        assert_eq!(check(path, "echo=41", Some("Basic YWxpY2U6cHdk")), ping(r#","sec":"alice:pwd""#));
        assert_eq!(check(&format!("{path}/alice%3Apw%20d"), "echo=41", None), ping(r#","sec":"alice:pw d""#));
        let add = check("/futoin.evt.gen/1.1/addEvent", "type=A&data=%7B%22a%22%3A+%22%2B%22%7D", None);
        assert_eq!(add.unwrap(), r#"{"f":"futoin.evt.gen:1.1:addEvent","p":{"data":{"a": "+"},"type":"A"}}"#);
        let poll = check("/futoin.evt.poll/1.1/pollEvents", "component=C&last_id=7&want=[%22A%22]", None);
        assert!(poll.unwrap().contains(r#""p":{"component":"C","last_id":"7","want":["A"]}"#));
    }

    #[test]
    fn unreadable_part_of_url_is_named() {
        let path = "/main/futoin.ping/1.0/ping";
        for (query, authorization, text) in [
            ("echo=4%1", None, r#"InvalidRequest "echo": %"#),
            ("echo=a", None, r#"InvalidRequest the parameter "echo" is no JSON: expected value at line 1 column 1"#),
            ("echo=%ff", None, r#"InvalidRequest "echo" is not UTF-8"#),
            ("echo=1&echo=2", None, r#"InvalidRequest the parameter "echo" is given twice"#),
            ("echo=1", Some("Bearer x"), "SecurityError Authorization is Basic"),
            ("echo=1", Some("Basic %"), "SecurityError Authorization is Basic"),
        ] {
            let fault = check(path, query, authorization).unwrap_err();
            assert!(fault.starts_with(text), "{query}: {fault}");
        }
        assert!(check("/futoin.ping/1.0", "", None).is_err() && check("/futoin.ping/1.0/ping/a/b", "", None).is_err());
        assert_eq!(CallPath::find("/main"), None);
    }
}
