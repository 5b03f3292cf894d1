//! Peers beyond loopback: keys that two commands set up, the refusal without keys, and open mode.

use super::lan::{Host, Lan, Process, in_namespaces};
use super::{PORT, config_of, group, wait_until};
use crate::support::command::{Place, parse_json};
use crate::support::dissector::decode_with_both;
use crate::support::root;
use seqcast::bus::{Bus, OpenError, StartError};
use seqcast::config::Security;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Directory of the programs `seqcast` and `ssh`.
const PROGRAMS: &str = "/run/bin";

/// A user's shell on a host of the README: the hosts are called `first` and `other`.
struct Shell {
    host: Host,
    name: &'static str,
}

impl Shell {
    /// Opens shells on two hosts. Each reaches the other one by a stand-in for `ssh`.
    fn pair(lan: &Lan) -> [Shell; 2] {
        fs::create_dir(PROGRAMS).expect("/run is empty");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_seqcast"), format!("{PROGRAMS}/seqcast")).expect("a link");
        let shells = [Shell { host: lan.hosts[0], name: "first" }, Shell { host: lan.hosts[1], name: "other" }];
        let hosts = "case $1 in first) host=h1;; other) host=h2;; esac";
        let ssh = format!(
            "#!/bin/sh\n{hosts}\nexport HOME=/run/home-$1 XDG_RUNTIME_DIR=/run/home-$1 SEQCAST_NAME=$1\nshift\n\
             exec ip netns exec $host \"$@\"\n"
        );
        fs::write(format!("{PROGRAMS}/ssh"), ssh).expect("/run can be written");
        fs::set_permissions(format!("{PROGRAMS}/ssh"), fs::Permissions::from_mode(0o755)).expect("it is our file");
        shells.iter().for_each(|shell| fs::create_dir(shell.home()).expect("/run can be written"));
        shells
    }

    fn home(&self) -> String {
        format!("/run/home-{}", self.name)
    }

    /// Returns a line as a script in the environment of the user. All hosts of the test have one host name, so the name
    /// of the peer is set.
    fn script(&self, line: &str) -> String {
        let (home, name) = (self.home(), self.name);
        format!(
            "unset XDG_STATE_HOME; export HOME={home} XDG_RUNTIME_DIR={home} SEQCAST_NAME={name} PATH={PROGRAMS}:$PATH\n\
             cd {home}\n{line}"
        )
    }

    /// Runs a line to its end, which must succeed, and returns what it printed.
    fn run(&self, line: &str) -> String {
        self.host.run("sh", &["-c", &self.script(line)])
    }

    /// Runs a line to its end, which must fail, and returns what it reported and its exit code.
    fn refusal(&self, line: &str) -> String {
        self.run(&format!("{line} 2>&1 && exit 1; echo exit code $?"))
    }

    fn start(&self, line: &str) -> Process {
        self.host.start("sh", &["-c", &self.script(&format!("exec {line}"))])
    }

    /// Returns the names of the other peers that are up.
    fn peers(&self) -> Vec<String> {
        let report = || Bus::attach(self.socket()).ok()?.show("peers").ok();
        let rows = report().map_or(Vec::new(), |report| report["rows"].as_array().expect("rows").clone());
        let up = rows.iter().filter(|row| row["state"] == "up");
        up.map(|row| row["publisher"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn socket(&self) -> String {
        format!("{}/seqcast.sock", self.home())
    }
}

/// Returns the lines of README.md that begin with the prompt of a host, with the name of the host.
fn readme_lines() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("README.md")).expect("it is there");
    let lines = text.lines().filter_map(|line| line.split_once("$ "));
    let lines = lines.filter(|(host, _)| ["first", "other"].contains(host));
    lines.map(|(host, line)| (host.to_owned(), line.trim().to_owned())).collect()
}

#[test]
fn readme_commands_key_two_hosts() {
    in_namespaces("netns::keys::readme_commands_key_two_hosts", || {
        let lan = Lan::new(2);
        let shells = Shell::pair(&lan);
        let mut peers = Vec::new();
        let lines = readme_lines();
        for (host, line) in &lines {
            let shell = shells.iter().find(|shell| shell.name == host).expect("one of the two");
            match line.contains("seqcast peer") {
                true => peers.push(shell.start(line)),
                false => drop(shell.run(line)),
            }
        }
        assert_eq!((lines.len(), peers.len()), (4, 2), "{lines:?}");
        let [first, other] = &shells;
        wait_until("the peers know each other", || first.peers() == ["other"] && other.peers() == ["first"]);
        let subscriber = other.host.start("sh", &["-c", &other.script("exec seqcast sub plant.a --count 1")]);
        wait_until("a message arrives", || {
            first.run("seqcast pub plant.a hello");
            subscriber.lines().iter().any(|line| line.contains("hello"))
        });
        for shell in &shells {
            let status = Bus::attach(shell.socket()).expect("it runs").show("status").expect("it answers");
            let status = &status["status"];
            assert_eq!((&status["security"], &status["realm"]), (&"realm".into(), &"plant1".into()), "{status}");
        }
    });
}

#[test]
fn logged_keys_open_a_capture() {
    in_namespaces("netns::keys::logged_keys_open_a_capture", || {
        let lan = Lan::new(2);
        let [first, other] = Shell::pair(&lan);
        first.run("seqcast init --realm plant1");
        other.run("ssh first seqcast realm invite | seqcast join -");
        let capture = lan.hosts[0].start("dumpcap", &["-q", "-i", "eth0", "-f", "udp", "-w", "/run/lan.pcapng"]);
        wait_until("the capture has begun", || fs::metadata("/run/lan.pcapng").is_ok_and(|data| 0 < data.len()));
        fs::write("/run/shared.log", "").expect("/run can be written");
        fs::set_permissions("/run/shared.log", fs::Permissions::from_mode(0o644)).expect("it is our file");
        let refused = first.refusal("seqcast peer --interface eth0 --set key-log=/run/shared.log --log-level error");
        assert!(refused.contains("chmod 600") && refused.ends_with("exit code 3\n"), "{refused}");
        let _first = first.start("seqcast peer --interface eth0 --set key-log=/run/keys.log");
        let _other = other.start("seqcast peer --interface eth0");
        wait_until("the peers know each other", || first.peers() == ["other"] && other.peers() == ["first"]);
        let subscriber = other.host.start("sh", &["-c", &other.script("exec seqcast sub plant.a --count 1")]);
        wait_until("a message arrives", || {
            first.run("seqcast pub plant.a hello");
            subscriber.lines().iter().any(|line| line.contains("hello"))
        });
        // The kernel passes packets on to the capture late.
        wait_until("a message is captured", || {
            first.run("seqcast pub plant.a hello");
            first.run("seqcast decode /run/lan.pcapng --json || true").contains(r#""kind":"data""#)
        });
        capture.signal("INT");
        capture.finish();

        let decode = "seqcast decode /run/lan.pcapng --json";
        let sealed = first.run(decode);
        assert!(sealed.contains("--keys") && !sealed.contains("plant.a"), "{sealed}");
        let opened = first.run(&format!("{decode} --keys /run/keys.log --write /run/open.pcap"));
        for line in opened.lines().map(parse_json).filter(|line| !line["kind"].is_null()) {
            assert!(line["opened"] == true && line["records"].is_array(), "{line}");
        }
        assert!(opened.contains(r#""subject":"plant.a""#), "{opened}");
        // Wireshark shows the same of the new capture, but for the handshakes, which no log opens.
        let pairs = decode_with_both(&Place::new(), Path::new("/run/open.pcap"));
        let whole: Vec<_> = pairs.iter().filter(|pair| pair.discarded.is_none()).collect();
        let records: BTreeSet<&str> = whole.iter().flat_map(|pair| &pair.records).map(String::as_str).collect();
        assert!(["run", "heartbeat", "hello", "interest"].iter().all(|name| records.contains(name)), "{records:?}");
        for pair in whole {
            assert_eq!((&pair.dissected, &pair.defects), (&pair.decoded, &Vec::new()));
        }
        for (command, expected) in [
            (format!("{decode} --keys /run/keys.log --write /run/open.pcap"), "File exists"),
            (format!("{decode} --keys /run/lan.pcapng"), "stream did not contain valid UTF-8"),
            (format!("{decode} --keys README"), "No such file"),
            (format!("echo text >notes; {decode} --keys notes"), "line 1 is not one of a key log"),
        ] {
            let refused = first.refusal(&command);
            assert!(refused.contains(expected) && refused.ends_with("exit code 1\n"), "{command}: {refused}");
        }
    });
}

#[test]
fn peer_without_keys_does_not_start() {
    in_namespaces("netns::keys::peer_without_keys_does_not_start", || {
        let lan = Lan::new(2);
        let [shell, _] = Shell::pair(&lan);
        let expected = "seqcast: other hosts can reach this peer at 10.75.0.1 on eth0, and it has no keys: any of them could \
                        read everything and publish anything\n  fix: make this host a member of a realm, as the user of this \
                        peer: run 'seqcast init --realm NAME --name first' if it is the first host, else 'seqcast join - \
                        --name first' with the line that 'seqcast realm invite' prints there; to run without protection all \
                        the same, use --open, or security: open in the configuration\nexit code 3\n";
        for command in ["seqcast peer --interface eth0 --log-level error", "seqcast pub a.b x --embed --interface eth0"]
        {
            assert_eq!(shell.refusal(command), expected, "{command}");
        }
        // The commands get the options that this peer needs.
        let named =
            shell.refusal("seqcast peer --interface eth0 --log-level error --name A.test --set data-dir=/run/keys");
        assert!(named.contains("'seqcast init --realm NAME --name A.test --data-dir /run/keys'"), "{named}");
        assert!(named.contains("'seqcast join - --name A.test --data-dir /run/keys'"), "{named}");
        let pki = shell.refusal("seqcast peer --interface eth0 --log-level error --set security=pki");
        assert!(
            pki.contains("security: pki")
                && pki.contains("--realm NAME --mode pki --name first'")
                && pki.ends_with("code 3\n")
        );
        let bench = "seqcast bench throughput --interface eth0 --no-raw --secs 0.1 --subscriber-via 'ip netns exec h2'";
        assert!(shell.refusal(bench).contains("--open"), "{bench}");

        let mut config = config_of("A.test");
        config.security = Security::Auto;
        let error = lan.hosts[0].within(move || Bus::embed(&config)).expect_err("it has no keys");
        assert!(
            matches!(&error, OpenError::Start(StartError::Unprotected(keys)) if keys.interface == "eth0"),
            "{error}"
        );
        assert!(!Path::new("/run/home-first/.local").exists(), "a refusal changes nothing");
    });
}

#[test]
fn unkeyed_peer_never_leaves_loopback() {
    in_namespaces("netns::keys::unkeyed_peer_never_leaves_loopback", || {
        let lan = Lan::new(2);
        let [shell, _] = Shell::pair(&lan);
        let log = "log-file=/run/first.log";
        let _peer = shell.start(&format!("seqcast peer --group {} --port {PORT} --set {log}", group()));
        wait_until("the peer answers", || Bus::attach(shell.socket()).is_ok());
        // Other hosts can route an address of lo that is none of 127.0.0.0/8 to this host.
        shell.run("ip address delete 127.0.0.1/8 dev lo && ip address add 10.75.9.9/32 dev lo");
        let refused = "cannot continue with the address 10.75.9.9: other hosts can reach this peer at 10.75.9.9 on lo";
        let has_logged = || fs::read_to_string("/run/first.log").is_ok_and(|log| log.contains(refused));
        wait_until("the peer refuses the address", has_logged);
        let again = shell.refusal("seqcast peer --socket /run/again.sock --log-level error");
        assert!(again.contains("at 10.75.9.9 on lo") && again.ends_with("exit code 3\n"), "{again}");
    });
}

#[test]
fn open_peer_refuses_a_public_address() {
    in_namespaces("netns::keys::open_peer_refuses_a_public_address", || {
        let lan = Lan::new(2);
        let [shell, _] = Shell::pair(&lan);
        let _peer = shell.start("seqcast peer --interface eth0 --open --set log-file=/run/first.log");
        wait_until("the peer answers", || Bus::attach(shell.socket()).is_ok());
        shell.run("ip -4 address flush dev eth0 && ip address add 11.75.9.9/24 dev eth0");
        let refused =
            "cannot continue with the address 11.75.9.9: other hosts can reach this peer at 11.75.9.9 on eth0";
        let has_logged = || fs::read_to_string("/run/first.log").is_ok_and(|log| log.contains(refused));
        wait_until("the peer refuses the address", has_logged);
        let again = shell.refusal("seqcast peer --interface eth0 --open --socket again.sock --log-level error");
        assert!(again.contains("the address is public") && again.ends_with("exit code 3\n"), "{again}");
    });
}

#[test]
fn open_peer_is_loud_everywhere() {
    in_namespaces("netns::keys::open_peer_is_loud_everywhere", || {
        let lan = Lan::new(2);
        let [shell, _] = Shell::pair(&lan);
        let _peer = shell.start("seqcast peer --interface eth0 --open --http 2>/run/first.log");
        let health = || shell.run("seqcast health --json");
        wait_until("the peer answers", || Bus::attach(shell.socket()).is_ok());
        wait_until("the notice is there", || health().contains(r#""check":"open""#));
        for (command, expected) in [
            (
                "cat /run/first.log",
                "OPEN MODE  traffic is not encrypted: other hosts can read every message and publish any",
            ),
            (
                "cat /run/first.log",
                "WARN this peer is open, and other hosts can reach it at 10.75.0.1 on eth0: any of them can",
            ),
            ("seqcast show status", "| OPEN: other hosts can read every message and publish any\n"),
            ("seqcast show status --json", r#""open_to_network":true"#),
            ("seqcast show health", "seqcast init, seqcast join"),
            ("seqcast doctor 2>&1 || true", "it reports (open): this peer is open"),
            ("curl -s http://127.0.0.1:7580/api/v1/status", r#""open_to_network":true"#),
            ("curl -s http://127.0.0.1:7580/metrics", "\nseqcast_open 1\n"),
            ("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:7580/readyz", "200"),
        ] {
            let text = shell.run(command);
            assert!(text.contains(expected), "{command}: {text}");
        }
        // On loopback nobody else can reach it.
        let quiet = shell.start("seqcast peer --socket quiet.sock --port 7501 --open --http 7581 2>/run/quiet.log");
        wait_until("the peer answers", || Bus::attach(format!("{}/quiet.sock", shell.home())).is_ok());
        for (command, expected) in [
            ("cat /run/quiet.log", "open mode  traffic is not encrypted, and stays on this host"),
            ("seqcast show status --json --socket quiet.sock", r#""open_to_network":false"#),
            ("curl -s http://127.0.0.1:7581/metrics", "\nseqcast_open 0\n"),
        ] {
            let text = shell.run(command);
            assert!(text.contains(expected), "{command}: {text}");
        }
        drop(quiet);
    });
}

#[test]
fn copied_identity_is_named_on_both_hosts() {
    in_namespaces("netns::keys::copied_identity_is_named_on_both_hosts", || {
        let lan = Lan::new(2);
        let shells = Shell::pair(&lan);
        let [first, other] = &shells;
        first.run("seqcast init --realm plant1");
        other.run(
            "mkdir -p .local/state/seqcast && cp -a /run/home-first/.local/state/seqcast/realm .local/state/seqcast",
        );
        let _peers = [first, other].map(|shell| shell.start("seqcast peer --interface eth0 --name first"));
        let expected = "several hosts have the keys of first: 10.75.0.1, 10.75.0.2; one is a copy of the other";
        for shell in &shells {
            wait_until("the peer answers", || Bus::attach(shell.socket()).is_ok());
            wait_until("the copy is named", || shell.run("seqcast show health").contains(expected));
            let health = shell.run("seqcast show health");
            assert!(health.contains("seqcast join - --name NAME") && !health.contains("the same name"), "{health}");
            let status = shell.run("seqcast show status --json");
            assert!(status.contains(r#""security":"realm""#), "{status}");
        }
    });
}

#[test]
fn clock_that_is_years_off_is_named() {
    in_namespaces("netns::keys::clock_that_is_years_off_is_named", || {
        let lan = Lan::new(2);
        let shells = Shell::pair(&lan);
        let [first, other] = &shells;
        first.run("seqcast init --realm plant1 --mode pki");
        other.run("ssh first seqcast realm invite | seqcast join - > request");
        // The clock of the authority was three years slow. A peer cannot run with a faked clock, since its timers stop.
        let slow = "LD_PRELOAD='/usr/$LIB/faketime/libfaketime.so.1' FAKETIME=-3y";
        first.run("cp /run/home-other/request request");
        first.run(&format!(
            "{slow} seqcast realm sign - --name other --publish '>' --subscribe '>' < request > certificate"
        ));
        let refusal = other.refusal("seqcast join - < /run/home-first/certificate");
        assert!(refusal.contains("the certificate of 'other' expired 7") && refusal.contains(" days ago"), "{refusal}");
        other.run(&format!("{slow} seqcast join - < /run/home-first/certificate"));
        let _peers = [first, other].map(|shell| shell.start("seqcast peer --interface eth0"));
        for (shell, check, found, fix) in [
            (first, "trust", "the peer at 10.75.0.2:", "(seqcast realm sign), or set the clock"),
            (other, "certificate", "the certificate of 'other' expired ", "(seqcast realm sign), or set the clock"),
        ] {
            wait_until("the peer answers", || Bus::attach(shell.socket()).is_ok());
            wait_until("the fault is named", || {
                let health = shell.run("seqcast show health");
                let parts = [check, found, fix, "the certificate of 'other' expired", "by the clock of this host"];
                parts.iter().all(|part| health.contains(part))
            });
        }
        assert!(first.peers().is_empty(), "nobody is trusted instead");
    });
}

#[test]
fn certificate_limits_the_programs_of_a_host() {
    in_namespaces("netns::keys::certificate_limits_the_programs_of_a_host", || {
        let lan = Lan::new(2);
        let [first, other] = &Shell::pair(&lan);
        first.run("seqcast init --realm plant1 --mode pki");
        other.run("ssh first seqcast realm invite | seqcast join - > request");
        first.run(
            "seqcast realm sign - --name other --publish 'line.>' --subscribe 'cmd.*' < /run/home-other/request > certificate",
        );
        other.run("seqcast join - < /run/home-first/certificate");
        let _peers = [first, other].map(|shell| shell.start("seqcast peer --interface eth0"));
        wait_until("the peers know each other", || first.peers() == ["other"] && other.peers() == ["first"]);
        let subscriber = first.host.start("sh", &["-c", &first.script("exec seqcast sub '>' --count 1")]);
        wait_until("a permitted message arrives", || {
            other.run("seqcast pub line.a hello");
            subscriber.lines().iter().any(|line| line.contains("hello"))
        });
        for (command, expected) in [
            ("seqcast pub cmd.stop x", "does not let its programs publish on cmd.stop;"),
            ("seqcast pub cmd.stop x --embed --interface eth0", "does not let its programs publish on cmd.stop;"),
            ("seqcast sub '>' --count 1", "does not let its programs subscribe to >;"),
        ] {
            let refused = other.refusal(command);
            assert!(refused.contains(expected) && refused.ends_with("exit code 1\n"), "{command}: {refused}");
        }
        // It may not publish on the inbox of others by its patterns, and answers all the same.
        let _replier = other.start("seqcast reply cmd.ask pong");
        wait_until("a question is answered", || first.run("seqcast req cmd.ask ping || true").contains("pong"));
        let peers = first.run("seqcast show peers");
        assert!(peers.contains("| member |") && peers.contains("| other  |"), "{peers}");
        let counters = Bus::attach(first.socket()).expect("it runs").show("counters").expect("it answers");
        let rows = counters["rows"].as_array().expect("rows");
        let denied = rows.iter().find(|row| row["counter"] == "messages_denied").expect("it is counted");
        assert_eq!(denied["value"], 0, "an honest peer sends nothing that its certificate does not permit");
    });
}
