//! `realm sign`: the authority's certificate for another host.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;

use super::args::SignOptions;
use super::line_input::setup_line;
use super::{directory, file_failure, line_failure};
use crate::clock::{Clock, random_u64};
use crate::message::PeerName;
use crate::security::realm::{
    Certificate, CertificateFields, Fingerprint, PeerPermissions, Realm, SetupLine, Validity,
};
use crate::storage::realm::LocalRealm;
use crate::subject::Pattern;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note};

/// Seconds by which the clock of another host may be slow when it gets its certificate.
const SLOW_CLOCK_SECONDS: u64 = 3600;

/// Runs `realm sign`.
///
/// # Errors
/// This host is not the authority, the request is wrong, or the name is that of another host.
pub fn run(options: &SignOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let directory = directory(&options.files)?;
    let LocalRealm { realm, certificate: own, revocations, .. } = directory.load().map_err(file_failure)?;
    let authority = directory.load_authority(&realm).map_err(file_failure)?;
    let mut names = directory.issued(&realm).map_err(file_failure)?;
    names.extend(own.map(|own| (own.fields().name.clone(), own.fields().keys.fingerprint())));
    let request = match setup_line(&options.request, "the request that 'seqcast join' printed")? {
        SetupLine::Request(request) => request,
        other => return Err(line_failure(&other, "give the line that 'seqcast join' printed on the other host")),
    };
    let is_revoked = |keys: &Fingerprint| revocations.as_ref().is_some_and(|list| list.contains(keys));
    check_request(&request, &realm, &names, is_revoked, options)?;
    let now = Clock::now().wall.as_nanos() / 1_000_000_000;
    let validity = Validity {
        not_before: now.saturating_sub(SLOW_CLOCK_SECONDS),
        not_after: now.saturating_add(options.valid.as_secs()),
    };
    let permissions = PeerPermissions { publish: options.publish.clone(), subscribe: options.subscribe.clone() };
    let (name, keys) = (options.name.clone(), request.fields().keys);
    let fields =
        CertificateFields { realm: realm.name.clone(), name, keys, validity, serial: random_u64(), permissions };
    let certificate = Certificate::sign(fields, &authority)
        .map_err(|error| CommandFailure::new(Exit::Usage, error).fix("name fewer or shorter patterns"))?;
    directory.record_issued(&realm, &certificate).map_err(file_failure)?;
    print(&certificate, options.json, out)
}

/// Checks that the request is for this realm and of keys that are not revoked, and that its name is not that of another
/// host. The name of a revoked host is free.
fn check_request(
    request: &Certificate,
    realm: &Realm,
    names: &BTreeMap<PeerName, Fingerprint>,
    is_revoked: impl Fn(&Fingerprint) -> bool,
    options: &SignOptions,
) -> Result<(), CommandFailure> {
    let requested = &request.fields().realm;
    if *requested != realm.name {
        let text = format!("the request is for the realm '{requested}', and this host is in '{}'", realm.name);
        return Err(CommandFailure::new(Exit::Failed, text)
            .fix("sign it on the authority's host of that realm, or let the other host join this realm"));
    }
    let presented = request.fields().keys.fingerprint();
    if is_revoked(&presented) {
        let text = format!("the keys {presented} of the request are revoked");
        return Err(CommandFailure::new(Exit::Failed, text).fix(
            "give that host new keys: move its directory 'realm' of data-dir away, and run 'seqcast join -' there again",
        ));
    }
    match names.get(&options.name) {
        Some(issued) if *issued != presented && !options.replace && !is_revoked(issued) => {
            let text = format!("the name '{}' is that of a host with the keys {issued}", options.name);
            Err(CommandFailure::new(Exit::Failed, text)
                .fix("choose another name, or add --replace if the host was set up again"))
        }
        _ => Ok(()),
    }
}

fn print(certificate: &Certificate, is_json: bool, out: &mut Output) -> Result<Exit, CommandFailure> {
    let CertificateFields { name, keys, validity, serial, permissions, .. } = certificate.fields();
    let line = SetupLine::Certificate(certificate.clone()).text();
    let fingerprint = keys.fingerprint();
    if is_json {
        out.line(json!({
            "line": *line,
            "name": name.as_str(),
            "fingerprint": fingerprint.to_string(),
            "serial": serial.to_string(),
            "not_before": time_text(validity.not_before),
            "not_after": time_text(validity.not_after),
            "publish": pattern_list(&permissions.publish),
            "subscribe": pattern_list(&permissions.subscribe),
        }))?;
        return Ok(Exit::Done);
    }
    out.line(&*line)?;
    out.flush()?;
    note(format_args!("signed for {name}, valid until {}", time_text(validity.not_after).unwrap_or_default()));
    note(format_args!("  may publish   {}", pattern_text(&permissions.publish)));
    note(format_args!("  may receive   {}", pattern_text(&permissions.subscribe)));
    note(format_args!("  fingerprint   {fingerprint} (compare it with 'seqcast realm show' on that host)"));
    note("next: give the certificate to 'seqcast join' on that host");
    Ok(Exit::Done)
}

/// Returns the patterns as texts.
pub(super) fn pattern_list(patterns: &[Pattern]) -> Vec<&str> {
    patterns.iter().map(Pattern::as_str).collect()
}

/// Returns the patterns for people.
pub(super) fn pattern_text(patterns: &[Pattern]) -> String {
    if patterns.is_empty() { "nothing".to_owned() } else { pattern_list(patterns).join(" ") }
}

/// Returns a time of a certificate in the form of RFC 3339; `None` for 0, no limit. Times after the year 9999 count as
/// its end.
pub(super) fn time_text(seconds: u64) -> Option<String> {
    const SECONDS_MAX: u64 = 253_402_300_799;
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(SECONDS_MAX));
    (seconds != 0).then(|| humantime::format_rfc3339_seconds(time).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_no_limit_or_are_dates() {
        assert_eq!(time_text(0), None);
        assert_eq!(time_text(1_800_000_000).as_deref(), Some("2027-01-15T08:00:00Z"));
        assert_eq!(time_text(u64::MAX).as_deref(), Some("9999-12-31T23:59:59Z"));
    }

    #[test]
    fn absent_permissions_are_nothing() {
        let patterns = ["a.>".parse().unwrap(), "b".parse().unwrap()];
        assert_eq!((pattern_text(&patterns), pattern_text(&[])), ("a.> b".to_owned(), "nothing".to_owned()));
    }
}
