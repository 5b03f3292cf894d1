//! `realm revoke`: the authority revokes the keys of a host.

use serde_json::json;

use super::args::RevokeOptions;
use super::{directory, file_failure, realm_text};
use crate::config::nearest;
use crate::message::PeerName;
use crate::security::realm::RealmMode;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note};

/// Runs `realm revoke`.
///
/// # Errors
/// The realm has no authority, or this host does not have its key; no host of this name can be revoked; or the files
/// cannot be used.
pub fn run(options: &RevokeOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let directory = directory(&options.files)?;
    let local = directory.load().map_err(file_failure)?;
    let (realm, name) = (&local.realm, &options.name);
    if realm.anchor.mode() == RealmMode::Realm {
        let text = format!(
            "in the realm {} no host can be revoked: everybody who knows its secret can join again under a new name",
            realm_text(realm)
        );
        return Err(CommandFailure::new(Exit::Failed, text).fix(format_args!(
            "draw a new secret with 'seqcast realm rotate', and give it to every host but '{name}'"
        )));
    }
    let authority = directory.load_authority(realm).map_err(file_failure)?;
    let is_own = |fingerprint| fingerprint == local.identity.keys().fingerprint();
    if local.certificate.as_ref().is_some_and(|own| own.fields().name == *name)
        || options.fingerprint.is_some_and(is_own)
    {
        return Err(CommandFailure::new(Exit::Failed, format!("'{name}' is this host, which has the authority's key"))
            .fix("if others know that key, make another realm (seqcast init --mode pki): they can admit any host"));
    }
    let issued = directory.issued(realm).map_err(file_failure)?;
    let of_name = || issued.get(name).copied().ok_or_else(|| unknown(name, issued.keys()));
    let fingerprint = options.fingerprint.map_or_else(of_name, Ok)?;
    let Some(list) = directory.revoke(realm, &authority, name, fingerprint).map_err(file_failure)? else {
        return Err(CommandFailure::new(Exit::Failed, format!("the keys of '{name}' are revoked already"))
            .fix("nothing is to be done; 'seqcast realm show' lists the revoked hosts"));
    };
    let (revision, count) = (list.fields().revision, list.fields().hosts.len());
    match options.json {
        true => out.line(json!({
            "name": name.as_str(),
            "fingerprint": fingerprint.to_string(),
            "revision": revision,
            "revoked_hosts": count,
        }))?,
        false => out.line(format_args!("revoked {name} {fingerprint} (revision {revision} of the list)"))?,
    }
    out.flush()?;
    note(
        "next: run 'seqcast config reload' here: the running peer then refuses the host, and the others get the list from it",
    );
    Ok(Exit::Done)
}

/// Returns the failure for a name that the authority has given to no host.
fn unknown<'a>(name: &PeerName, issued: impl Iterator<Item = &'a PeerName>) -> CommandFailure {
    let list = "'seqcast realm show' lists the admitted hosts";
    let fix = match nearest(name.as_str(), issued.map(PeerName::as_str)) {
        Some(near) => format!("did you mean {near}? {list}"),
        None => list.to_owned(),
    };
    CommandFailure::new(Exit::Failed, format!("the authority has admitted no host '{name}'")).fix(fix)
}
