//! Fields of messages in JSON.

use super::text::type_name;
use super::{RvMessage, RvValue};
use serde_json::{Value, json};

/// Returns the fields of a message as a list of objects with `name`, `id` if there is one, `type` and `value`. The value
/// of a nested message is such a list. Numbers that JSON does not have, times, addresses, bytes and XML are texts, as
/// in the text form; so are arrays of numbers with a part that JSON does not have. Invalid UTF-8 is replaced.
pub fn json(message: &RvMessage<'_>) -> Value {
    let fields = message.fields.iter().map(|field| {
        let name = String::from_utf8_lossy(field.name);
        let mut object = json!({ "name": name, "type": type_name(&field.value), "value": value_json(&field.value) });
        if let Some(id) = field.id {
            object["id"] = id.into();
        }
        object
    });
    fields.collect()
}

fn value_json(value: &RvValue<'_>) -> Value {
    match value {
        RvValue::Message(message) => json(message),
        RvValue::Messages(messages) => messages.iter().map(json).collect(),
        RvValue::String(text) => String::from_utf8_lossy(text).into(),
        RvValue::Subject(elements) => String::from_utf8_lossy(&elements.join(&b'.')).into(),
        RvValue::Strings(texts) => texts.iter().map(|text| String::from_utf8_lossy(text)).collect(),
        // The text form of these is JSON, unless a number is infinite or none.
        RvValue::Bool(_)
        | RvValue::I8(_)
        | RvValue::I16(_)
        | RvValue::I32(_)
        | RvValue::I64(_)
        | RvValue::U8(_)
        | RvValue::U16(_)
        | RvValue::U32(_)
        | RvValue::U64(_)
        | RvValue::F32(_)
        | RvValue::F64(_)
        | RvValue::Array(_) => {
            let text = value.to_string();
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        }
        value => value.to_string().into(),
    }
}
