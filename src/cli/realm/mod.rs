//! `init`, `join` and `realm`: they set up the keys of this host and its realm.

pub mod args;
mod init;
mod join;
mod line_input;
mod revoke;
mod rotate;
mod show;
mod sign;

use std::io;

use serde_json::json;
use zeroize::Zeroizing;

use self::args::{ForgetOptions, InitOptions, JoinOptions, RealmCommand, RealmFileOptions, RealmReportOptions};
use super::bus_options::PeerOptions;
use super::config;
use crate::clock::fill_random;
use crate::config::Config;
use crate::message::PeerName;
use crate::security::realm::{HostIdentity, KEY_BYTES, Realm, SetupLine};
use crate::storage::realm::{RealmDirectory, RealmFileError, RealmFileFault};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note};
use crate::terminal::value::Setting;

/// Runs `init`.
///
/// # Errors
/// This host has a realm, or the files cannot be written.
pub fn run_init(options: &InitOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    init::run(options, out)
}

/// Runs `join`.
///
/// # Errors
/// The line is wrong or does not fit this host, or the files cannot be written.
pub fn run_join(options: &JoinOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    join::run(options, out)
}

/// Runs `realm`.
///
/// # Errors
/// This host has no realm, its files cannot be used, or a line is wrong.
pub fn run(what: &RealmCommand, out: &mut Output) -> Result<Exit, CommandFailure> {
    match what {
        RealmCommand::Invite(options) => invite(options, out),
        RealmCommand::Show(options) => show::run(options, out),
        RealmCommand::Sign(options) => sign::run(options, out),
        RealmCommand::Forget(options) => forget(options, out),
        RealmCommand::Revoke(options) => revoke::run(options, out),
        RealmCommand::Rotate(options) => rotate::run(options, out),
    }
}

fn invite(options: &RealmReportOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let local = directory(&options.files)?.load().map_err(file_failure)?;
    let mode = local.realm.anchor.mode();
    let line = SetupLine::Join(local.realm).text();
    match options.json {
        true => out.line(json!({ "line": *line }))?,
        false => out.line(&*line)?,
    }
    out.flush()?;
    note(format_args!(
        "warning: the line is the secret of the realm (mode {mode}): pass it on by ssh or in person only"
    ));
    Ok(Exit::Done)
}

fn forget(options: &ForgetOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let directory = directory(&options.files)?;
    let local = directory.load().map_err(file_failure)?;
    let name = &options.name;
    let Some(fingerprint) = directory.forget(&local.realm, name).map_err(file_failure)? else {
        return Err(CommandFailure::new(Exit::Failed, format!("this host knows no host '{name}'"))
            .fix("'seqcast realm show' lists the names"));
    };
    match options.json {
        true => out.line(json!({ "name": name.as_str(), "fingerprint": fingerprint.to_string() }))?,
        false => out.line(format_args!("forgot {name} {fingerprint}"))?,
    }
    Ok(Exit::Done)
}

/// Returns the configuration of the peer whose files the options name.
fn config_of(files: &RealmFileOptions, name: Option<&PeerName>) -> Result<Config, CommandFailure> {
    let data_dir = files
        .data_dir
        .as_ref()
        .map(|path| Setting { key: "data-dir".to_owned(), value: path.to_string_lossy().into_owned() });
    config::resolve(&PeerOptions {
        config: files.config.clone(),
        name: name.map(PeerName::to_string),
        settings: data_dir.into_iter().collect(),
        ..PeerOptions::default()
    })
}

fn directory(files: &RealmFileOptions) -> Result<RealmDirectory, CommandFailure> {
    Ok(RealmDirectory::new(&config_of(files, None)?.data_dir))
}

/// Returns 32 random bytes that are erased when they are dropped.
fn random_key() -> Zeroizing<[u8; KEY_BYTES]> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    fill_random(&mut *key);
    key
}

/// Returns the failure for a file that cannot be used: the problem, and the remedy.
fn file_failure(error: RealmFileError) -> CommandFailure {
    let exit = match error.fault {
        RealmFileFault::NoRealm
        | RealmFileFault::Occupied(_)
        | RealmFileFault::NoAuthority
        | RealmFileFault::Full(_)
        | RealmFileFault::RevocationsFull(_)
        | RealmFileFault::System { .. } => Exit::Failed,
        _ => Exit::Configuration,
    };
    CommandFailure::of_peer(exit, error)
}

/// Returns the failure for a line of the wrong kind.
fn line_failure(line: &SetupLine, fix: &str) -> CommandFailure {
    let what = match line {
        SetupLine::Join(_) => "the line is a join line",
        SetupLine::Request(_) => "the line is the request of a host",
        SetupLine::Certificate(_) => "the line is a certificate",
    };
    CommandFailure::new(Exit::Usage, what).fix(fix)
}

/// The membership of this host in a realm, which `init` and `join` report.
struct Membership<'a> {
    realm: &'a Realm,
    name: &'a PeerName,
    identity: &'a HostIdentity,
    directory: &'a RealmDirectory,
    /// True if the host was in the realm already, and has another secret of it now.
    has_new_secret: bool,
}

impl Membership<'_> {
    /// Prints the membership; `request` is the request for a certificate, if one is needed.
    fn print(&self, is_json: bool, request: Option<&str>, out: &mut Output) -> io::Result<()> {
        let (realm, name, directory) = (self.realm, self.name.as_str(), self.directory.path().display());
        let fingerprint = self.identity.keys().fingerprint();
        if is_json {
            return out.line(json!({
                "realm": realm.name.as_str(),
                "mode": realm.anchor.mode().as_str(),
                "name": name,
                "fingerprint": fingerprint.to_string(),
                "directory": directory.to_string(),
                "request": request,
                "secret_replaced": self.has_new_secret,
            }));
        }
        out.line(format_args!("realm        {}", realm_text(realm)))?;
        out.line(format_args!("this host    {name}"))?;
        out.line(format_args!("fingerprint  {fingerprint}"))?;
        out.line(format_args!("files        {directory}"))
    }
}

/// Returns the realm and its mode for people.
fn realm_text(realm: &Realm) -> String {
    format!("{} (mode {})", realm.name, realm.anchor.mode())
}
