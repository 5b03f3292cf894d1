//! `log level`: the levels of the running peer's log.

pub mod args;

use std::time::Duration;

use serde_json::{Value, json};

use self::args::{LogCommand, LogLevelOptions, LogOptions};
use super::connect;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::Output;
use crate::terminal::peer;
use crate::terminal::table::{Column, TextTable};

/// Runs `log`.
///
/// # Errors
/// The peer cannot be reached, has no log of its own, or refuses the level.
pub fn run(options: &LogOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    match &options.what {
        LogCommand::Level(options) => level(options, out),
    }
}

fn level(options: &LogLevelOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let bus = connect::attach(options.socket.as_ref(), "log")?;
    let command = match options.directive {
        None => json!({}),
        Some(directive) => {
            let millis = options.time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
            json!({ "level": directive.to_string(), "for_ms": millis })
        }
    };
    let answer = peer::show(&bus, json!({ "log": command }))?;
    match options.json {
        true => out.line(&answer)?,
        false => out.bytes(table(&answer["log"]).to_string().as_bytes())?,
    }
    Ok(Exit::Done)
}

fn table(levels: &Value) -> TextTable {
    let columns = ["target", "level", "then", "logs"].map(|header| Column::new(header).left());
    let mut table = TextTable::new(&columns);
    for row in levels.as_array().map_or(&[][..], Vec::as_slice) {
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let then = row["reverts_in_ms"].as_u64().map_or(String::new(), |millis| {
            let left = Duration::from_secs(millis.div_ceil(1000));
            format!("{} in {}", text("reverts_to"), humantime::format_duration(left))
        });
        table.row(vec![text("target"), text("level"), then, text("meaning")]);
    }
    table
}
