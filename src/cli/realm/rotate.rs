//! `realm rotate`: a new secret of the realm.

use serde_json::json;

use super::args::RealmReportOptions;
use super::{directory, file_failure, random_key, realm_text};
use crate::security::Secret;
use crate::security::realm::Realm;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note};

/// Runs `realm rotate`.
///
/// # Errors
/// This host has no realm, or its files cannot be used.
pub fn run(options: &RealmReportOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let directory = directory(&options.files)?;
    let former = directory.load().map_err(file_failure)?.realm;
    let realm = Realm { secret: Secret::new(*random_key()), ..former };
    directory.replace_secret(&realm).map_err(file_failure)?;
    match options.json {
        true => out.line(json!({
            "realm": realm.name.as_str(),
            "mode": realm.anchor.mode().as_str(),
            "directory": directory.path().display().to_string(),
        }))?,
        false => out.line(format_args!("the realm {} has a new secret", realm_text(&realm)))?,
    }
    out.flush()?;
    note("next: for each other host, run 'seqcast realm invite | ssh HOST seqcast join - --replace-secret'");
    note("then run 'seqcast config reload' on each host: a running peer uses the new secret for new handshakes");
    note("to shut out hosts that did not get the secret, restart the peers of all others: until then they share keys");
    Ok(Exit::Done)
}
