//! `join`: this host becomes a member of a realm, or installs its certificate.

use super::args::JoinOptions;
use super::line_input::setup_line;
use super::show::request_of;
use super::{Membership, config_of, file_failure, line_failure, random_key, realm_text};
use crate::clock::{Clock, random_u64};
use crate::message::PeerName;
use crate::security::realm::{Certificate, HostIdentity, PeerPermissions, Realm, RealmMode, SetupLine};
use crate::storage::realm::{LocalRealm, NewRealm, RealmDirectory};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note};

/// Note about the peer of this host after a file has changed.
const RELOAD_NOTE: &str =
    "next: if the peer of this host runs, run 'seqcast config reload', so that it uses the new file";

/// Runs `join`.
///
/// # Errors
/// The line is wrong or does not fit this host, or the files cannot be written.
pub fn run(options: &JoinOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let config = config_of(&options.files, options.name.as_ref())?;
    let directory = RealmDirectory::new(&config.data_dir);
    match setup_line(&options.line, "the line of 'seqcast realm invite' or 'seqcast realm sign'")? {
        SetupLine::Join(realm) => join(&directory, &realm, &config.name, options, out),
        SetupLine::Certificate(certificate) => install(&directory, &certificate, options.json, out),
        request @ SetupLine::Request(_) => Err(line_failure(
            &request,
            "sign it on the authority's host (seqcast realm sign), then give the certificate to this command",
        )),
    }
}

fn join(
    directory: &RealmDirectory,
    realm: &Realm,
    name: &PeerName,
    options: &JoinOptions,
    out: &mut Output,
) -> Result<Exit, CommandFailure> {
    let is_json = options.json;
    // A realm whose files cannot be used is not replaced: the creation of another one fails below.
    let present = directory.load().ok();
    if let Some(local) = present.filter(|local| local.realm.name == realm.name && local.realm.anchor == realm.anchor) {
        return take_secret(directory, realm, &local, name, options, out);
    }
    let seed = random_key();
    let identity = HostIdentity::from_seed(&seed);
    let mode = realm.anchor.mode();
    let permissions = match mode {
        RealmMode::Realm => PeerPermissions::all(),
        RealmMode::Pki => PeerPermissions::default(),
    };
    let own = Certificate::sign_own(realm.name.clone(), name.clone(), &identity, permissions, random_u64())
        .expect("names and one pattern of each kind fit");
    let certificate = (mode == RealmMode::Realm).then_some(&own);
    directory.create(&NewRealm { realm, seed: &seed, certificate, authority_seed: None }).map_err(file_failure)?;
    let request = (mode == RealmMode::Pki).then(|| SetupLine::Request(own).text());
    let membership = Membership { realm, name, identity: &identity, directory, has_new_secret: false };
    match &request {
        Some(request) if !is_json => out.line(&**request)?,
        _ => membership.print(is_json, request.as_ref().map(|request| request.as_str()), out)?,
    }
    out.flush()?;
    if request.is_some() {
        note(format_args!("this host's fingerprint is {}", identity.keys().fingerprint()));
        note(format_args!(
            "next: run 'seqcast realm sign REQUEST --name {name} --publish … --subscribe …' on the authority's host, with \
             this request; then give the certificate that it prints to 'seqcast join' here"
        ));
    }
    Ok(Exit::Done)
}

/// Replaces the secret of this host's realm if the line has another one. Keys, certificate and names stay.
fn take_secret(
    directory: &RealmDirectory,
    realm: &Realm,
    local: &LocalRealm,
    name: &PeerName,
    options: &JoinOptions,
    out: &mut Output,
) -> Result<Exit, CommandFailure> {
    let has_new_secret = local.realm.secret != realm.secret;
    if has_new_secret && !options.replace_secret {
        let text = format!("this host is in the realm {} already, and the line has another secret", realm_text(realm));
        return Err(CommandFailure::new(Exit::Failed, text).fix(
            "if the realm has a new secret (seqcast realm rotate), add --replace-secret; if it is another realm with the \
             same name, move the directory 'realm' of data-dir away first",
        ));
    }
    if has_new_secret {
        directory.replace_secret(realm).map_err(file_failure)?;
    }
    let request = local.certificate.is_none().then(|| request_of(local, name));
    let name = local.certificate.as_ref().map_or(name, |certificate| &certificate.fields().name);
    let membership = Membership { realm, name, identity: &local.identity, directory, has_new_secret };
    membership.print(options.json, request.as_deref(), out)?;
    out.flush()?;
    match has_new_secret {
        true => {
            note("this host was in the realm already: its secret was replaced, and its keys and names stay");
            note(RELOAD_NOTE);
        }
        false => note("this host was in the realm already, with the same secret: nothing has changed"),
    }
    Ok(Exit::Done)
}

fn install(
    directory: &RealmDirectory,
    certificate: &Certificate,
    is_json: bool,
    out: &mut Output,
) -> Result<Exit, CommandFailure> {
    let local = directory.load().map_err(file_failure)?;
    if local.realm.anchor.mode() == RealmMode::Realm {
        return Err(CommandFailure::new(
            Exit::Failed,
            format!("the realm {} needs no certificate of an authority", realm_text(&local.realm)),
        )
        .fix("nothing is to be done: this host has signed its own certificate"));
    }
    let keys = local.identity.keys();
    if certificate.fields().keys != *keys {
        let other = certificate.fields().keys.fingerprint();
        let text =
            format!("the certificate is for the keys {other}, and this host has the keys {}", keys.fingerprint());
        return Err(CommandFailure::new(Exit::Failed, text).fix(
            "install it on the host with those keys; 'seqcast realm show' prints the request of this host until it has \
             a certificate",
        ));
    }
    let now = Clock::now().wall;
    let checked = local.trust().check(&certificate.encode(), &keys.static_key, now);
    let own = checked.map_err(|refusal| CommandFailure::of_peer(Exit::Failed, refusal))?;
    directory.install(certificate).map_err(file_failure)?;
    let (realm, identity) = (&local.realm, &local.identity);
    let membership = Membership { realm, name: &own.name, identity, directory, has_new_secret: false };
    membership.print(is_json, None, out)?;
    out.flush()?;
    note(RELOAD_NOTE);
    Ok(Exit::Done)
}
