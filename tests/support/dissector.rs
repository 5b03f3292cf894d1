//! The dissector for Wireshark, run by `tshark`, and its comparison with `seqcast decode`.

use super::command::{Place, parse_json};
use super::exit_code::DONE;
use super::root;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The values of each field of a datagram, by the name of the field in Wireshark without `seqcast.`.
pub type Fields = BTreeMap<String, Vec<String>>;

/// Fields that only the dissector has: parts of the layout, and bytes that `decode` prints in another form.
const ONLY_DISSECTED: [&str; 7] =
    ["version", "mode", "check", "sealed", "record", "run.messages.headers", "fragment.chunk"];
/// Epochs, which Wireshark prints with `0x`.
const EPOCHS: [&str; 5] = ["epoch", "receiver", "directed_receiver", "publisher", "peer"];

/// A datagram of a capture as both programs print it.
#[derive(Debug)]
pub struct DatagramPair {
    /// Reason of the discard that `decode` reports; `None` for a valid datagram.
    pub discarded: Option<String>,
    /// Types of the records.
    pub records: BTreeSet<String>,
    /// Fields that `decode` prints.
    pub decoded: Fields,
    /// Fields that the dissector shows, but for those that only it has.
    pub dissected: Fields,
    /// Defects that the dissector shows.
    pub defects: Vec<String>,
}

/// Decodes a capture with both programs. Returns its datagrams of seqcast in order.
pub fn decode_with_both(place: &Place, capture: &Path) -> Vec<DatagramPair> {
    let path = capture.to_str().expect("paths of tests are UTF-8");
    let output = place.run(&["decode", path, "--json"]).exits(DONE).stdout;
    let decoded: Vec<Value> = output.lines().map(parse_json).collect();
    let mut frames = dissect(path, dissector_fields());
    decoded
        .iter()
        .map(|datagram| {
            let frame = datagram["frame"].as_u64().expect("each datagram has a number");
            let mut dissected = frames.remove(&frame).unwrap_or_else(|| panic!("{datagram} is not dissected"));
            let defects = ["malformed", "bad_check"].into_iter().filter(|name| dissected.remove(*name).is_some());
            let defects = defects.map(str::to_owned).collect();
            dissected.retain(|name, _| !ONLY_DISSECTED.contains(&name.as_str()));
            let records = datagram["records"].as_array().into_iter().flatten();
            DatagramPair {
                discarded: datagram["discarded"].as_str().map(str::to_owned),
                records: records.flat_map(|record| record.as_object().unwrap().keys().cloned()).collect(),
                decoded: decoded_fields(datagram),
                dissected,
                defects,
            }
        })
        .collect()
}

/// Runs `tshark` with the dissector and returns its output.
fn tshark(arguments: &[&str]) -> String {
    let script = root().join("tools/wireshark/seqcast.lua");
    let script = format!("lua_script:{}", script.display());
    // Some arguments must come first.
    let output = Command::new("tshark").args(arguments).args(["-X", &script]).output().expect("tshark starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("Lua"), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("tshark prints UTF-8")
}

/// Returns the names of all fields of the dissector, and of its two defects. `tshark` takes a second to list them.
fn dissector_fields() -> &'static [String] {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    NAMES.get_or_init(list_dissector_fields)
}

fn list_dissector_fields() -> Vec<String> {
    let output = tshark(&["-G", "fields"]);
    let name = |line: &str| line.split('\t').nth(2)?.strip_prefix("seqcast.").map(str::to_owned);
    let names: Vec<String> = output.lines().filter_map(name).collect();
    assert!(80 < names.len(), "{names:?}");
    names
}

/// Returns the fields of each dissected frame, in none of which the script of the dissector fails.
fn dissect(capture: &str, names: &[String]) -> BTreeMap<u64, Fields> {
    let mut arguments = vec![
        "-r",
        capture,
        "-Y",
        "seqcast",
        "-T",
        "fields",
        "-E",
        "aggregator=/s",
        "-e",
        "frame.number",
        "-e",
        "_ws.lua.error",
    ];
    let names: Vec<String> = names.iter().map(|name| format!("seqcast.{name}")).collect();
    names.iter().for_each(|name| arguments.extend(["-e", name]));
    let output = tshark(&arguments);
    let row = |line: &str| {
        let mut cells = line.split('\t');
        let frame = cells.next().unwrap().parse().expect("the number of the frame");
        assert_eq!(cells.next(), Some(""), "the script fails in frame {frame}");
        let fields = names.iter().zip(cells).filter(|(_, cell)| !cell.is_empty());
        let values = |cell: &str| cell.split(' ').map(|value| plain(value).to_owned()).collect();
        (frame, fields.map(|(name, cell)| (name["seqcast.".len()..].to_owned(), values(cell))).collect())
    };
    output.lines().map(row).collect()
}

/// Returns a truth value as all versions of Wireshark print it.
fn plain(value: &str) -> &str {
    match value {
        "True" => "1",
        "False" => "0",
        other => other,
    }
}

/// Returns the fields of a datagram of `decode --json`, as Wireshark prints them.
fn decoded_fields(datagram: &Value) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in datagram.as_object().unwrap() {
        match name.as_str() {
            "frame" | "time" | "source" | "destination" | "bytes" | "discarded" | "reason" => (),
            "records" => collect("", value, &mut fields),
            _ => collect(name, value, &mut fields),
        }
    }
    fields
}

fn collect(name: &str, value: &Value, fields: &mut Fields) {
    let last = name.rsplit('.').next().unwrap();
    let text = match value {
        Value::Object(_) if last == "headers" => return,
        Value::Object(inner) => {
            for (key, value) in inner {
                collect(&if name.is_empty() { key.clone() } else { format!("{name}.{key}") }, value, fields);
            }
            return;
        }
        Value::Array(elements) => return elements.iter().for_each(|element| collect(name, element, fields)),
        Value::Bool(value) => u8::from(*value).to_string(),
        Value::String(text) => match last {
            "payload" => hex(text.as_bytes()),
            "payload_base64" => hex(&BASE64_STANDARD.decode(text).expect("Base64")),
            _ if EPOCHS.contains(&last) => format!("0x{text}"),
            _ => text.clone(),
        },
        other => other.to_string(),
    };
    // Wireshark has no empty ranges of bytes.
    if !text.is_empty() {
        fields.entry(name.replace("payload_base64", "payload")).or_default().push(text);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
