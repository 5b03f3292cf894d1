//! `init`, `join` and `realm`: the keys of hosts, each in a place of its own.

use crate::support::command::{Outcome, Place, parse_json};
use crate::support::exit_code::{CONFIGURATION, DONE, FAILED, USAGE};
use seqcast::security::realm::{Certificate, CertificateFields, HostIdentity, PeerPermissions, SetupLine, Validity};
use seqcast::storage::realm::RealmDirectory;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// A host with the files of its realm.
struct Host(Place);

impl Host {
    fn new() -> Host {
        Host(Place::new())
    }

    /// Creates a host that has made a realm.
    fn first(arguments: &[&str]) -> Host {
        let host = Host::new();
        host.0.run(&[&["init", "--realm", "plant1", "--name", "A.test"], arguments].concat()).exits(DONE);
        host
    }

    fn directory(&self) -> PathBuf {
        self.0.dir().join("state/seqcast/realm")
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.directory().join(name)).unwrap()
    }

    /// Replaces a file, with the access rights of the former one.
    fn replace(&self, name: &str, text: &str) {
        fs::write(self.directory().join(name), text).unwrap();
    }

    fn invitation(&self) -> String {
        let outcome = self.0.run(&["realm", "invite"]).exits(DONE);
        outcome.stdout.trim_end().to_owned()
    }

    fn join(&self, line: &str, name: &str) -> Outcome {
        self.0.run_with_input(&["join", "-", "--name", name], line.as_bytes())
    }

    fn show(&self) -> Value {
        parse_json(&self.0.run(&["realm", "show", "--json"]).exits(DONE).stdout)
    }
}

/// Returns the texts in which a secret of the host could appear.
fn secret_texts(host: &Host) -> Vec<String> {
    let mut texts = Vec::new();
    for name in ["realm.key", "identity.key", "authority.key"] {
        let Ok(file) = fs::read_to_string(host.directory().join(name)) else { continue };
        let values = file.lines().filter_map(|line| line.split_once(": "));
        for (_, value) in values.filter(|(field, _)| ["secret", "seed"].contains(field)) {
            let bytes = base64_bytes(value);
            texts.push(value.trim_end_matches('=').to_owned());
            texts.push(value.trim_end_matches('=').replace('+', "-").replace('/', "_"));
            texts.push(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
            texts.push(format!("{bytes:?}"));
        }
    }
    assert!(8 <= texts.len(), "the secrets are found");
    texts
}

fn base64_bytes(text: &str) -> Vec<u8> {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let values = text.bytes().filter_map(|digit| digits.bytes().position(|known| known == digit));
    let bits: Vec<bool> = values.flat_map(|value| (0..6).rev().map(move |bit| value >> bit & 1 == 1)).collect();
    bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |value, bit| value << 1 | u8::from(*bit))).collect()
}

#[test]
fn joined_hosts_show_the_same_realm() {
    let (first, other) = (Host::first(&[]), Host::new());
    let line = first.invitation();
    assert!(line.starts_with("seqcast-join:"), "{line}");
    other.join(&format!("{line}\n"), "B.test").exits(DONE);
    let (one, two) = (first.show(), other.show());
    for field in ["realm", "mode", "request", "problem"] {
        assert_eq!(one[field], two[field], "{field}");
    }
    assert_eq!((&one["realm"], &one["mode"], &one["request"]), (&"plant1".into(), &"realm".into(), &Value::Null));
    assert_eq!((&one["name"], &two["name"]), (&"A.test".into(), &"B.test".into()));
    assert_ne!(one["fingerprint"], two["fingerprint"]);
    assert_eq!(one["certificate"]["publish"], serde_json::json!([">"]));
    assert_eq!((&one["certificate"]["not_after"], &one["is_authority"]), (&Value::Null, &false.into()));
    assert_eq!(first.invitation(), other.invitation());
}

#[test]
fn authority_admits_hosts_by_certificates() {
    let (first, other) = (Host::first(&["--mode", "pki"]), Host::new());
    let joined = other.join(&first.invitation(), "B.test").exits(DONE);
    let request = joined.stdout.trim_end().to_owned();
    assert!(request.starts_with("seqcast-request:"), "{request}");
    let waiting = other.show();
    assert_eq!(
        (&waiting["mode"], &waiting["name"], &waiting["certificate"]),
        (&"pki".into(), &Value::Null, &Value::Null)
    );
    let shown = waiting["request"].as_str().unwrap();

    let options = ["--name", "B.test", "--publish", "line.>,a", "--subscribe", ">", "--valid", "90d"];
    let signed = first.0.run(&[&["realm", "sign", shown], &options[..]].concat()).exits(DONE);
    let fingerprint = waiting["fingerprint"].as_str().unwrap();
    let signed = signed.reports(&["signed for B.test", "may publish   line.> a", "may receive   >", fingerprint]);
    other.join(&signed.stdout, "ignored").exits(DONE);
    let member = other.show();
    assert_eq!(
        (&member["name"], &member["request"], &member["problem"]),
        (&"B.test".into(), &Value::Null, &Value::Null)
    );
    assert_eq!(member["certificate"]["publish"], serde_json::json!(["line.>", "a"]));
    assert!(member["certificate"]["not_after"].as_str().unwrap().ends_with('Z'), "{member}");
    assert_eq!(first.show()["issued"], serde_json::json!([{ "name": "B.test", "fingerprint": fingerprint }]));

    // A further host can use neither this certificate nor this name, and cannot sign.
    let third = Host::new();
    let request = third.join(&first.invitation(), "C.test").exits(DONE).stdout;
    third.join(&signed.stdout, "C.test").exits(FAILED).reports(&["the certificate is for the keys", fingerprint]);
    let sign = |host: &Host, more: &[&str]| {
        host.0.run_with_input(&[&["realm", "sign", "-", "--name", "B.test"], more].concat(), request.as_bytes())
    };
    sign(&first, &[]).exits(FAILED).reports(&["the name 'B.test' is that of a host with the keys", fingerprint]);
    first.0.run_with_input(&["realm", "sign", "-", "--name", "A.test"], request.as_bytes()).exits(FAILED);
    sign(&other, &[]).exits(FAILED).reports(&["this host cannot sign", "authority.key"]);
    sign(&first, &["--replace"]).exits(DONE).reports(&["may publish   nothing"]);
}

#[test]
fn revoked_host_is_listed_and_its_name_free() {
    let (first, other, third) = (Host::first(&["--mode", "pki"]), Host::new(), Host::new());
    let line = first.invitation();
    let [request, next] = [&other, &third].map(|host| host.join(&line, "B.test").exits(DONE).stdout);
    let sign = |request: &str| first.0.run_with_input(&["realm", "sign", "-", "--name", "B.test"], request.as_bytes());
    sign(&request).exits(DONE);
    sign(&next).exits(FAILED).reports(&["that of a host with the keys"]);
    let before = first.show();
    assert_eq!((&before["revision"], &before["revoked"]), (&0.into(), &serde_json::json!([])));

    let revoke = |host: &Host, name: &str| host.0.run(&["realm", "revoke", name]);
    revoke(&first, "B.tst").exits(FAILED).reports(&["has admitted no host 'B.tst'", "did you mean B.test?"]);
    revoke(&first, "A.test").exits(FAILED).reports(&["'A.test' is this host"]);
    revoke(&other, "B.test").exits(FAILED).reports(&["authority.key", "run the command on the host where"]);
    let outcome = first.0.run(&["realm", "revoke", "B.test", "--json"]).exits(DONE);
    let fingerprint = &other.show()["fingerprint"];
    let expected = serde_json::json!({
        "name": "B.test", "fingerprint": fingerprint, "revision": 1, "revoked_hosts": 1,
    });
    assert_eq!(parse_json(&outcome.stdout), expected);
    revoke(&first, "B.test").exits(FAILED).reports(&["the keys of 'B.test' are revoked already"]);
    let again = ["realm", "revoke", "X.test", "--fingerprint", fingerprint.as_str().unwrap()];
    first.0.run(&again).exits(FAILED).reports(&["the keys of 'X.test' are revoked already"]);
    let row = serde_json::json!([{ "name": "B.test", "fingerprint": fingerprint }]);
    let after = first.show();
    assert_eq!((&after["revision"], &after["revoked"]), (&1.into(), &row));
    let table = first.0.run(&["realm", "show"]).exits(DONE).stdout;
    let line = format!("B.test       | {}", fingerprint.as_str().unwrap());
    assert!(table.contains("revoked host") && table.contains(&line), "{table}");

    sign(&request).exits(FAILED).reports(&["of the request are revoked", "new keys"]);
    sign(&next).exits(DONE);
    let revoked = revoke(&first, "B.test").exits(DONE).stdout;
    assert!(revoked.starts_with("revoked B.test SHA256:") && revoked.contains("(revision 2 of the list)"), "{revoked}");
    // A list that somebody has changed, with a correct checksum, is refused.
    let text = first.file("revoked").replace("revision: 2", "revision: 3");
    let (content, _) = text.split_at(text.find("checksum: ").unwrap());
    let forged = format!("{content}checksum: {:08x}\n", crc32c::crc32c(content.as_bytes()));
    check_file(&first, "revoked", |_| forged.clone(), &["the authority has not signed the revocation list"]);
}

#[test]
fn rotated_secret_replaces_the_former_one() {
    for mode in ["realm", "pki"] {
        let (first, other) = (Host::first(&["--mode", mode]), Host::new());
        let former = first.invitation();
        other.join(&former, "B.test").exits(DONE);
        let [one, two] = [&first, &other].map(Host::show);
        let files = ["identity.key", "certificate"].map(|name| fs::read(other.directory().join(name)).ok());
        let rotated = first.0.run(&["realm", "rotate"]).exits(DONE);
        rotated
            .prints(&format!("the realm plant1 (mode {mode}) has a new secret\n"))
            .reports(&["seqcast realm invite"]);
        let line = first.invitation();
        assert_ne!(line, former);
        let refused = other.0.run_with_input(&["join", "-"], line.as_bytes()).exits(FAILED);
        refused.reports(&["has another secret", "--replace-secret", "another realm with the same name"]);
        assert_eq!(other.invitation(), former);
        let joined = other.0.run_with_input(&["join", "-", "--replace-secret", "--json"], line.as_bytes()).exits(DONE);
        let joined = joined.reports(&["its secret was replaced"]);
        assert_eq!(parse_json(&joined.stdout)["secret_replaced"], true);
        assert_eq!(other.invitation(), line);
        assert_eq!(["identity.key", "certificate"].map(|name| fs::read(other.directory().join(name)).ok()), files);
        // The request for a certificate has a new signature each time.
        let fields = ["realm", "mode", "name", "fingerprint", "certificate", "problem"];
        for field in fields {
            assert_eq!((&first.show()[field], &other.show()[field]), (&one[field], &two[field]), "{field}");
        }
        let again = other.0.run_with_input(&["join", "-", "--json"], line.as_bytes()).exits(DONE);
        assert_eq!(parse_json(&again.reports(&["nothing has changed"]).stdout)["secret_replaced"], false);
    }
    let revoked = Host::first(&[]).0.run(&["realm", "revoke", "B.test"]).exits(FAILED);
    revoked.reports(&["can join again under a new name", "'seqcast realm rotate'"]);
}

#[test]
fn forgotten_name_is_no_longer_known() {
    let host = Host::first(&[]);
    let directory = RealmDirectory::new(&host.0.dir().join("state/seqcast"));
    let realm = directory.load().unwrap().realm;
    let fingerprint = HostIdentity::from_seed(&[2; 32]).keys().fingerprint();
    directory.pin(&realm, &"B.test".parse().unwrap(), fingerprint).unwrap();
    let row = serde_json::json!([{ "name": "B.test", "fingerprint": fingerprint.to_string() }]);
    assert_eq!(host.show()["peers"], row);
    let table = host.0.run(&["realm", "show"]).exits(DONE).stdout;
    assert!(table.contains(&format!("B.test     | {fingerprint}")), "{table}");
    host.0.run(&["realm", "forget", "B.test"]).exits(DONE).prints(&format!("forgot B.test {fingerprint}\n"));
    assert_eq!(host.show()["peers"], serde_json::json!([]));
    host.0.run(&["realm", "forget", "B.test"]).exits(FAILED).reports(&["knows no host 'B.test'", "seqcast realm show"]);
}

#[test]
fn expired_certificate_is_refused_and_shown() {
    let (first, other) = (Host::first(&["--mode", "pki"]), Host::new());
    other.join(&first.invitation(), "B.test").exits(DONE);
    let [directory, own] = [&first, &other].map(|host| RealmDirectory::new(&host.0.dir().join("state/seqcast")));
    let local = own.load().unwrap();
    let fields = CertificateFields {
        realm: local.realm.name.clone(),
        name: "B.test".parse().unwrap(),
        keys: *local.identity.keys(),
        validity: Validity { not_before: 0, not_after: 86_400 },
        serial: 1,
        permissions: PeerPermissions::all(),
    };
    let certificate = Certificate::sign(fields, &directory.load_authority(&local.realm).unwrap()).unwrap();
    let expired = ["the certificate of 'B.test' expired ", " days ago by the clock of this host", "set the clock"];
    let line = SetupLine::Certificate(certificate.clone()).text();
    other.join(&line, "B.test").exits(FAILED).reports(&expired);
    assert_eq!(other.show()["certificate"], Value::Null);
    // The certificate was valid when it was installed.
    own.install(&certificate).unwrap();
    assert_eq!(other.show()["problem"], "expired");
    other.0.run(&["realm", "show"]).exits(DONE).reports(&[&["other hosts refuse this host"][..], &expired].concat());
}

#[test]
fn lines_that_do_not_fit_are_refused() {
    let (authority, member) = (Host::first(&["--mode", "pki"]), Host::first(&[]));
    let request = Host::new().join(&authority.invitation(), "B.test").exits(DONE).stdout;
    let sign = |line: &str| authority.0.run_with_input(&["realm", "sign", "-", "--name", "B.test"], line.as_bytes());
    let certificate = sign(&request).exits(DONE).stdout;
    member.join(&certificate, "B.test").exits(FAILED).reports(&["needs no certificate of an authority"]);
    member.join(&request, "B.test").exits(USAGE).reports(&["the request of a host", "seqcast realm sign"]);
    sign(&certificate).exits(USAGE).reports(&["the line is a certificate"]);
    Host::new().join(&certificate, "B.test").exits(FAILED).reports(&["this host has no realm", "seqcast init"]);
    let foreign = Host::new();
    foreign.0.run(&["init", "--realm", "other", "--mode", "pki"]).exits(DONE);
    let outcome = foreign.0.run_with_input(&["realm", "sign", "-", "--name", "B.test"], request.as_bytes());
    outcome.exits(FAILED).reports(&["the request is for the realm 'plant1'"]);
}

#[test]
fn existing_realm_is_never_replaced() {
    let host = Host::first(&[]);
    let before = [host.file("realm.key"), host.file("identity.key"), host.file("certificate")];
    let foreign = Host::new();
    foreign.0.run(&["init", "--realm", "other"]).exits(DONE);
    let other = foreign.invitation();
    let problem = ["this host has a realm 'plant1' already", "state/seqcast/realm away first"];
    host.0.run(&["init"]).exits(FAILED).reports(&problem);
    // A realm of the same name is another one if its authority is.
    for line in [other, Host::first(&["--mode", "pki"]).invitation()] {
        host.join(&line, "B.test").exits(FAILED).reports(&problem);
    }
    assert_eq!([host.file("realm.key"), host.file("identity.key"), host.file("certificate")], before);
    let entries = fs::read_dir(host.directory().parent().unwrap()).unwrap();
    assert_eq!(entries.count(), 1, "no draft stays");
}

#[test]
fn files_are_private_with_any_umask() {
    let host = Host::new();
    let mut shell = Command::new("sh");
    host.0.set_environment(&mut shell);
    let init = format!("umask 0; exec {} init --mode pki", env!("CARGO_BIN_EXE_seqcast"));
    Outcome::of(shell.args(["-c", &init]).output().unwrap(), &[&init]).exits(DONE);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(host.directory()), 0o700);
    let files = ["authority.key", "certificate", "identity.key", "realm.key"];
    let mut found: Vec<_> = fs::read_dir(host.directory()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    found.sort();
    assert_eq!(found, files);
    for file in files {
        assert_eq!(mode(host.directory().join(file)), 0o600, "{file}");
    }
}

/// Runs `realm show` with a changed file, and checks that the problem is named; then restores the file.
#[track_caller]
fn check_file(host: &Host, name: &str, change: impl Fn(&str) -> String, problem: &[&str]) {
    let before = host.file(name);
    host.replace(name, &change(&before));
    let outcome = host.0.run(&["realm", "show"]).exits(CONFIGURATION);
    outcome.reports(&[problem, &[&format!("realm/{name}"), "  fix: "]].concat()).prints("");
    host.replace(name, &before);
}

#[test]
fn damaged_files_are_named_with_a_remedy() {
    let host = Host::first(&["--mode", "pki"]);
    for name in ["realm.key", "identity.key", "certificate"] {
        check_file(&host, name, |_| String::new(), &["is truncated"]);
        check_file(&host, name, |text| text[..text.len() / 2].to_owned(), &["is truncated"]);
        check_file(&host, name, |text| text.replacen("plant1", "plant2", 1), &["is damaged", "checksum"]);
        check_file(&host, name, |_| "# my notes\n".to_owned(), &["is no ", "of seqcast"]);
        check_file(&host, name, |text| text.replacen("version 1", "version 9", 1), &["version 9", "update seqcast"]);
    }
    let other = Host::new();
    other.0.run(&["init", "--realm", "other"]).exits(DONE);
    let problem = ["belongs to the realm 'other'", "in the realm 'plant1'"];
    check_file(&host, "identity.key", |_| other.file("identity.key"), &problem);
    let copy = Host::first(&[]);
    check_file(&host, "certificate", |_| copy.file("certificate"), &["for other keys than those of this host"]);
    host.0.run(&["realm", "show"]).exits(DONE);
    fs::remove_file(host.directory().join("identity.key")).unwrap();
    host.0.run(&["realm", "show"]).exits(CONFIGURATION).reports(&["identity.key is missing", "restore it"]);
    host.0.run(&["realm", "invite"]).exits(CONFIGURATION).prints("");
    Host::new().0.run(&["realm", "show"]).exits(FAILED).reports(&["this host has no realm", "seqcast join -"]);
}

#[test]
fn files_open_to_others_are_refused() {
    let host = Host::first(&[]);
    let set_mode = |name: &str, mode: u32| {
        fs::set_permissions(host.directory().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode("realm.key", 0o644);
    let fix = format!("chmod 600 {}", host.directory().join("realm.key").display());
    host.0
        .run(&["realm", "invite"])
        .exits(CONFIGURATION)
        .reports(&["other users have access", "0644", &fix])
        .prints("");
    set_mode("realm.key", 0o600);
    set_mode(".", 0o750);
    host.0.run(&["realm", "show"]).exits(CONFIGURATION).reports(&["mode 0750", "chmod 700"]);
    set_mode(".", 0o700);
    host.0.run(&["realm", "show"]).exits(DONE);
    let file = host.directory().join("identity.key");
    // Root alone can give a file away.
    if std::os::unix::fs::chown(&file, Some(65534), None).is_ok() {
        host.0
            .run(&["realm", "show"])
            .exits(CONFIGURATION)
            .reports(&["belongs to the user 'nobody'", "sudo -u nobody"]);
        let data = host.0.dir().join("foreign");
        fs::create_dir(&data).unwrap();
        std::os::unix::fs::chown(&data, Some(65534), None).unwrap();
        host.0.run(&["init", "--data-dir", "foreign"]).exits(CONFIGURATION).reports(&["foreign belongs to the user"]);
        assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
    }
}

#[test]
fn typing_errors_in_lines_are_named() {
    let (host, line) = (Host::new(), Host::first(&[]).invitation());
    let middle = line.len() / 2;
    let other = if line[middle..].starts_with('A') { "B" } else { "A" };
    let changed = format!("{}{other}{}", &line[..middle], &line[middle + 1..]);
    for (text, problem) in [
        (changed.as_str(), "a character of the line is wrong, missing or superfluous"),
        (&line[..line.len() - 1], "a character of the line is wrong, missing or superfluous"),
        (&line[1..], "the line does not begin with seqcast-join:"),
        (&format!("{line}!"), "the line contains '!'"),
        ("", "the line does not begin with"),
    ] {
        let outcome = host.join(text, "B.test").exits(USAGE).reports(&[problem, "  fix: copy the whole line again"]);
        assert!(!outcome.stderr.contains(&line[20..40]), "{outcome:?}");
    }
    assert!(!host.directory().exists());
    // A line that a mail has broken, and one on the command line.
    let broken = format!("  {}\r\n{}\n", &line[..middle], &line[middle..]);
    host.join(&broken, "B.test").exits(DONE);
    let outcome = Host::new().0.run(&["join", &line]).exits(DONE);
    outcome.reports(&["other users of this host may have seen the join line", "seqcast join -"]);
}

#[test]
fn join_line_is_not_shown_on_terminal() {
    let (host, line) = (Host::new(), Host::first(&[]).invitation());
    let join = format!("{} join - --name B.test", env!("CARGO_BIN_EXE_seqcast"));
    let mut script = host.0.terminal_command(&join).spawn().expect("script starts");
    let screen = host.0.dir().join("screen");
    let is_asked = || fs::read_to_string(&screen).is_ok_and(|text| text.contains("it is not shown:"));
    crate::support::wait::wait_until("the command asks for the line", is_asked);
    writeln!(script.stdin.take().unwrap(), "{line}").unwrap();
    let outcome = Outcome::of(script.wait_with_output().unwrap(), &[&join]).exits(DONE);
    assert!(outcome.stdout.contains("B.test") && !outcome.stdout.contains(&line[20..40]), "{outcome:?}");
    assert_eq!(host.show()["realm"], "plant1");
}

#[test]
fn no_output_has_a_secret() {
    for mode in ["realm", "pki"] {
        let (first, other) = (Host::new(), Host::new());
        let mut outcomes = vec![first.0.run(&["init", "--realm", "plant1", "--mode", mode, "--name", "A.test"])];
        let line = first.invitation();
        outcomes.push(other.join(&line, "B.test"));
        outcomes.push(other.join(&line, "B.test"));
        // The other host has no certificate yet in the mode pki.
        let peer = first.0.peer(&["--name", "A.test", "--set", "log-level=trace"]);
        for host in [&first, &other] {
            for arguments in [
                &["realm", "show"][..],
                &["realm", "show", "--json"],
                &["init", "--json"],
                &["realm", "forget", "C.test"],
                &["realm", "revoke", "C.test"],
                &["realm", "rotate"],
                &["realm", "sign", &line, "--name", "C.test"],
                &["config", "show"],
                &["debug", "bundle", "-o", "-"],
            ] {
                outcomes.push(host.0.run(arguments));
            }
        }
        let log = peer.stderr_so_far().join("\n");
        assert!(log.contains(&format!("security=\"{mode}\"")), "the peer is keyed: {log}");
        for secret in [secret_texts(&first), secret_texts(&other), vec![line[20..60].to_owned()]].concat() {
            for outcome in &outcomes {
                let text = format!("{} {}", outcome.stdout, outcome.stderr);
                assert!(!text.contains(&secret), "seqcast {} shows a secret", outcome.arguments);
            }
            assert!(!log.contains(&secret), "the log of the peer shows a secret");
        }
    }
}
