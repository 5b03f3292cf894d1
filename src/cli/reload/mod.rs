//! `config reload`: the running peer reads its configuration and the files of its realm again.

pub mod args;

use serde_json::{Value, json};

use self::args::ReloadOptions;
use super::connect;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{EscapedText, Output};
use crate::terminal::peer;

/// Runs `config reload`.
///
/// # Errors
/// The peer cannot be reached, has no files to read, or refuses them.
pub fn run(options: &ReloadOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let bus = connect::attach(options.socket.as_ref(), "reload")?;
    let answer = peer::show(&bus, json!({ "reload": {} }))?;
    let (refused, realm_refused) = (answer["refused_text"].as_str(), answer["realm_refused"].as_str());
    if options.json {
        out.line(&answer)?;
        let is_refused = refused.is_some() || realm_refused.is_some();
        return Ok(if is_refused { Exit::Configuration } else { Exit::Done });
    }
    if let Some(reason) = realm_refused {
        let failure = CommandFailure::of_peer(Exit::Configuration, reason);
        let text = format!("the files of the realm are refused, and everything stays as it was: {}", failure.text);
        return Err(CommandFailure { text, ..failure });
    }
    if let Some(errors) = refused {
        let text = format!("the configuration is refused, and the peer continues with the previous one\n{errors}");
        return Err(CommandFailure::new(Exit::Configuration, text));
    }
    out.bytes(text(&answer["reload"]).as_bytes())?;
    Ok(Exit::Done)
}

fn text(reload: &Value) -> String {
    let escaped = |value: &Value| EscapedText(value.as_str().unwrap_or_default().as_bytes()).to_string();
    let line = |change: &Value, note: &str| {
        let [key, old, new] = ["key", "old", "new"].map(|field| escaped(&change[field]));
        match old == new {
            true => format!("  {key}: changed{note}\n"),
            false => format!("  {key}: {old} -> {new}{note}\n"),
        }
    };
    let rows = |field: &str| reload[field].as_array().cloned().unwrap_or_default();
    let applied = rows("applied").iter().map(|change| line(change, "")).collect::<String>();
    let waiting = rows("restart_needed").iter().map(|change| line(change, " (needs a restart)")).collect::<String>();
    let realm = rows("realm").iter().map(|name| format!("  realm: {}\n", escaped(name))).collect::<String>();
    let changes = match applied + &waiting + &realm {
        changes if changes.is_empty() => "  nothing changed\n".to_owned(),
        changes => changes,
    };
    let read = if reload["file"].is_null() { "the realm".to_owned() } else { escaped(&reload["file"]) };
    format!("{read} was read again\n{changes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_needed_restarts_are_listed() {
        let change = |key: &str, old: &str, new: &str| json!({ "key": key, "old": old, "new": new });
        let reload = json!({
            "file": "p.yaml",
            "applied": [change("log-level", "info", "debug")],
            "restart_needed": [change("port", "1", "2"), change("accounts", "token ***", "token ***")],
        });
        assert_eq!(
            text(&reload),
            "p.yaml was read again\n  log-level: info -> debug\n  port: 1 -> 2 (needs a restart)\n  \
             accounts: changed (needs a restart)\n"
        );
        assert_eq!(text(&json!({ "file": "p.yaml" })), "p.yaml was read again\n  nothing changed\n");
        let realm = json!({ "file": null, "applied": [], "realm": ["secret", "revocations"] });
        assert_eq!(text(&realm), "the realm was read again\n  realm: secret\n  realm: revocations\n");
    }
}
