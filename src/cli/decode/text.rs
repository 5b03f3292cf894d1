//! Datagrams as text: a line for the datagram, an indented line for each record, and below it a line for each of its
//! messages, ranges or entries.

use std::fmt::Write as _;
use std::io;

use serde_json::{Map, Value};

use crate::terminal::output::{EscapedText, Output};

/// Fields that stand before the others of their line.
const LEADING: [&str; 4] = ["number", "name", "subject", "seq"];
/// Fields of the first line that are printed without their names.
const UNNAMED: [&str; 6] = ["frame", "time", "source", "destination", "kind", "bytes"];

/// Prints a datagram from its JSON fields.
///
/// # Errors
/// The same as of [`Output::line`].
pub(super) fn print(fields: &Map<String, Value>, out: &mut Output) -> io::Result<()> {
    let text = |name: &str| fields.get(name).map(scalar).unwrap_or_default();
    let kind = fields.get("kind").map_or_else(|| "discarded".to_owned(), scalar);
    let mut line = format!(
        "{} {} {} > {} {kind}, {} bytes",
        text("frame"),
        text("time"),
        text("source"),
        text("destination"),
        text("bytes")
    );
    for (name, value) in ordered(fields).filter(|(name, _)| !UNNAMED.contains(&name.as_str())) {
        append(&mut line, name, value);
    }
    out.line(line)?;
    for record in fields.get("records").and_then(Value::as_array).into_iter().flatten() {
        for (name, value) in record.as_object().into_iter().flatten() {
            print_object(name, value, 1, out)?;
        }
    }
    Ok(())
}

/// Returns the fields in the order of a line.
fn ordered(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let is_leading = |name: &String| LEADING.contains(&name.as_str());
    let leading = LEADING.iter().filter_map(|name| fields.get_key_value(*name));
    leading.chain(fields.iter().filter(move |(name, _)| !is_leading(name)))
}

/// Prints an object on a line, and its lists below it.
fn print_object(name: &str, value: &Value, depth: usize, out: &mut Output) -> io::Result<()> {
    let Value::Object(fields) = value else {
        return out.line(format_args!("{:depth$}{name} {}", "", scalar(value), depth = 2 * depth));
    };
    let mut line = format!("{:depth$}{name}", "", depth = 2 * depth);
    for (name, value) in ordered(fields) {
        append(&mut line, name, value);
    }
    out.line(line)?;
    for (name, list) in fields {
        print_list(name, list, depth + 1, out)?;
    }
    Ok(())
}

/// Prints each element of a list on lines of its own; a list in it stands one level deeper.
fn print_list(name: &str, list: &Value, depth: usize, out: &mut Output) -> io::Result<()> {
    for element in list.as_array().into_iter().flatten() {
        match element {
            Value::Array(_) => {
                out.line(format_args!("{:depth$}{}", "", singular(name), depth = 2 * depth))?;
                print_list("contents", element, depth + 1, out)?;
            }
            _ => print_object(singular(name), element, depth, out)?,
        }
    }
    Ok(())
}

/// Returns the name of an element of a list.
fn singular(name: &str) -> &str {
    match name {
        "entries" => "entry",
        name => name.strip_suffix('s').unwrap_or(name),
    }
}

/// Appends a field to a line: its name and value, with the fields of an object in braces. Lists are left out.
fn append(line: &mut String, name: &str, value: &Value) {
    match value {
        Value::Array(_) => (),
        Value::Object(fields) => {
            let inner = fields.iter().fold(String::new(), |mut text, (name, value)| {
                append(&mut text, name, value);
                text
            });
            write!(line, " {name}={{{}}}", inner.trim_start()).expect("a string takes everything");
        }
        _ => write!(line, " {name}={}", scalar(value)).expect("a string takes everything"),
    }
}

/// Returns a value that is no list and no object, safe for a terminal.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if text.contains(' ') || text.is_empty() => format!("{:?}", text),
        Value::String(text) => EscapedText(text.as_bytes()).to_string(),
        other => other.to_string(),
    }
}
