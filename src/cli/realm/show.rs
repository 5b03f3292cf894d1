//! `realm show`: the realm of this host, without its secrets.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::args::RealmReportOptions;
use super::sign::{pattern_list, pattern_text, time_text};
use super::{config_of, file_failure, realm_text};
use crate::clock::Clock;
use crate::message::PeerName;
use crate::security::realm::{
    Certificate, CertificateFields, Fingerprint, PeerPermissions, RealmMode, RevocationList, SetupLine, TrustRefusal,
};
use crate::storage::realm::{LocalRealm, RealmDirectory};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note};
use crate::terminal::table::{Column, TextTable};

/// The realm as `realm show` reports it.
struct RealmReport {
    local: LocalRealm,
    directory: RealmDirectory,
    /// Request for a certificate, until one is installed.
    request: Option<String>,
    /// Names in certificates of this authority; `None` on other hosts.
    issued: Option<BTreeMap<PeerName, Fingerprint>>,
    /// Reason why other hosts do not accept the certificate of this one.
    problem: Option<TrustRefusal>,
}

/// Runs `realm show`.
///
/// # Errors
/// This host has no realm, or its files cannot be used.
pub fn run(options: &RealmReportOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let config = config_of(&options.files, None)?;
    let directory = RealmDirectory::new(&config.data_dir);
    let local = directory.load().map_err(file_failure)?;
    let issued = match directory.has_authority() {
        true => Some(directory.issued(&local.realm).map_err(file_failure)?),
        false => None,
    };
    let request = match &local.certificate {
        Some(_) => None,
        None => Some(request_of(&local, &config.name)),
    };
    let problem = local.certificate.as_ref().and_then(|certificate| problem(&local, certificate));
    let report = RealmReport { local, directory, request, issued, problem };
    match options.json {
        true => out.line(report.json())?,
        false => report.print(out)?,
    }
    out.flush()?;
    if let Some(problem) = report.problem.as_ref().filter(|_| !options.json) {
        CommandFailure::of_peer(Exit::Failed, format!("other hosts refuse this host: {problem}")).report(false);
    }
    if report.request.is_some() && !options.json {
        note("next: run 'seqcast realm sign REQUEST --name …' with this request on the authority's host");
    }
    Ok(Exit::Done)
}

/// Returns the request of this host for a certificate.
pub(super) fn request_of(local: &LocalRealm, name: &PeerName) -> String {
    let (realm, none) = (local.realm.name.clone(), PeerPermissions::default());
    // The authority chooses the serial number of the certificate.
    let own = Certificate::sign_own(realm, name.clone(), &local.identity, none, 0).expect("names fit");
    SetupLine::Request(own).text().to_string()
}

/// Returns the reason why other hosts refuse the certificate of this one.
fn problem(local: &LocalRealm, certificate: &Certificate) -> Option<TrustRefusal> {
    let static_key = local.identity.keys().static_key;
    local.trust().check(&certificate.encode(), &static_key, Clock::now().wall).err()
}

impl RealmReport {
    fn json(&self) -> Value {
        let LocalRealm { realm, identity, certificate, pins, revocations } = &self.local;
        let certificate = certificate.as_ref().map(|certificate| {
            let CertificateFields { name, validity, serial, permissions, .. } = certificate.fields();
            json!({
                "name": name.as_str(),
                "serial": serial.to_string(),
                "not_before": time_text(validity.not_before),
                "not_after": time_text(validity.not_after),
                "publish": pattern_list(&permissions.publish),
                "subscribe": pattern_list(&permissions.subscribe),
            })
        });
        json!({
            "realm": realm.name.as_str(),
            "mode": realm.anchor.mode().as_str(),
            "name": self.local.certificate.as_ref().map(|certificate| certificate.fields().name.as_str()),
            "fingerprint": identity.keys().fingerprint().to_string(),
            "directory": self.directory.path().display().to_string(),
            "is_authority": self.issued.is_some(),
            "certificate": certificate,
            "request": self.request,
            "problem": self.problem.as_ref().map(TrustRefusal::as_str),
            "peers": name_rows(pins),
            "issued": self.issued.as_ref().map(name_rows),
            "revision": revocations.as_ref().map_or(0, |list| list.fields().revision),
            "revoked": name_rows(revoked_hosts(revocations.as_ref())),
        })
    }

    fn print(&self, out: &mut Output) -> Result<(), CommandFailure> {
        let LocalRealm { realm, identity, certificate, pins, revocations } = &self.local;
        out.line(format_args!("realm        {}", realm_text(realm)))?;
        if let Some(certificate) = certificate {
            let CertificateFields { name, validity, permissions, .. } = certificate.fields();
            out.line(format_args!("this host    {name}"))?;
            let end = time_text(validity.not_after).map_or("without limit".to_owned(), |end| format!("until {end}"));
            out.line(format_args!("valid        {end}"))?;
            out.line(format_args!("may publish  {}", pattern_text(&permissions.publish)))?;
            out.line(format_args!("may receive  {}", pattern_text(&permissions.subscribe)))?;
        }
        out.line(format_args!("fingerprint  {}", identity.keys().fingerprint()))?;
        out.line(format_args!("files        {}", self.directory.path().display()))?;
        if self.issued.is_some() {
            out.line("authority    this host signs certificates")?;
        }
        if let Some(list) = revocations {
            out.line(format_args!("revocations  revision {}", list.fields().revision))?;
        }
        if let Some(request) = &self.request {
            out.line(format_args!("request      {request}"))?;
        }
        if realm.anchor.mode() == RealmMode::Realm {
            print_names("known host", pins, out)?;
        }
        if let Some(issued) = &self.issued {
            print_names("admitted host", issued, out)?;
        }
        print_names("revoked host", revoked_hosts(revocations.as_ref()), out)
    }
}

/// Returns the hosts of a revocation list, as the other lists have theirs.
fn revoked_hosts(list: Option<&RevocationList>) -> impl Iterator<Item = (&PeerName, &Fingerprint)> {
    list.into_iter().flat_map(|list| list.fields().hosts.iter().map(|(fingerprint, name)| (name, fingerprint)))
}

fn name_rows<'a>(names: impl IntoIterator<Item = (&'a PeerName, &'a Fingerprint)>) -> Value {
    let row = |(name, fingerprint): (&PeerName, &Fingerprint)| json!({ "name": name.as_str(), "fingerprint": fingerprint.to_string() });
    names.into_iter().map(row).collect()
}

/// Prints the names as a table, if there are any.
fn print_names<'a>(
    header: &'static str,
    names: impl IntoIterator<Item = (&'a PeerName, &'a Fingerprint)>,
    out: &mut Output,
) -> Result<(), CommandFailure> {
    let mut names = names.into_iter().peekable();
    if names.peek().is_none() {
        return Ok(());
    }
    let mut table = TextTable::new(&[Column::new(header).left(), Column::new("fingerprint").left()]);
    for (name, fingerprint) in names {
        table.row(vec![name.to_string(), fingerprint.to_string()]);
    }
    out.line("")?;
    Ok(out.bytes(table.to_string().as_bytes())?)
}
