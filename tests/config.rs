//! The configuration from the user's view: the file, the flags, the texts of errors.

mod errors;

use crate::support::{TempDir, root};
use errors::CASES;
use seqcast::config::{Config, ConfigErrors, DatagramSize, KEYS, Override, ValueSource};
use seqcast::rng::Rng;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// The keys that the shipped file sets away from their defaults, as seed 002 shows them.
const SEED_KEYS: [&str; 4] = ["pub-window-size", "pub-window-time", "sub-window-size", "sub-window-time"];

fn shown(config: &Config) -> Vec<(&'static str, String)> {
    config.show().into_iter().map(|row| (row.key, row.value)).collect()
}

#[test]
fn every_mistake_is_reported_with_position_and_remedy() {
    for case in CASES {
        let errors = Config::from_text("param.yaml", case.text).expect_err(case.name);
        assert_eq!(errors.to_string(), case.errors, "{}", case.name);
    }
}

#[test]
fn shipped_file_has_defaults_except_the_seeds_windows() {
    let path = root().join("config/param.yaml");
    let config = Config::load(&path).expect("the shipped file is right");
    for (row, default) in config.show().into_iter().zip(Config::for_this_host().show()) {
        assert!(matches!(row.source, ValueSource::File { .. }), "{} is missing in {}", row.key, path.display());
        assert_eq!(row.value != default.value, SEED_KEYS.contains(&row.key), "{}: {}", row.key, row.value);
    }
    assert_eq!((config.pub_window_size, config.pub_window_time.as_secs()), (10 << 20, 60));
}

/// Returns the lines without which the example of a key is refused.
fn needed_by(key: &str) -> &'static str {
    match key {
        "peers" => "  interface: auto\n",
        "nats-tls-first" => "  nats-tls: cert.pem key.pem\n",
        "link" => "  site: plant1\n  link-live: plant.>\n",
        _ => "",
    }
}

#[test]
fn each_key_changes_only_its_own_value() {
    for (index, key) in KEYS.iter().enumerate() {
        let needed = needed_by(key.name);
        let before = Config::from_text("before.yaml", &format!("parameters:\n  port: 7500\n{needed}")).unwrap();
        let before = shown(&before);
        let text = format!("parameters:\n  {}: {}\n{needed}", key.name, key.example);
        let config = Config::from_text("param.yaml", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let after = shown(&config);
        let changed: Vec<_> = (0..KEYS.len()).filter(|i| before[*i] != after[*i]).collect();
        assert_eq!(changed, [index], "{}", key.name);
        assert_eq!(config.show()[index].source.to_string(), "param.yaml:2");
        // The displayed value is read back.
        let again = format!("parameters:\n  {}: {}\n{needed}", key.name.replace('-', "_"), after[index].1);
        assert_eq!(shown(&Config::from_text("again.yaml", &again).unwrap()), after, "{again}");
    }
}

#[test]
fn keys_of_the_core_reach_its_settings() {
    let core = [
        "name",
        "port",
        "heartbeat",
        "reliability",
        "resend-size",
        "resend-time",
        "resend-rate",
        "pace",
        "pace-floor",
        "history-count",
        "history-subject-size",
        "history-time",
        "history-rules",
        "history-size",
        "linger",
        "forget",
        "pub-window-size",
        "pub-window-time",
        "pub-window-max",
        "sub-window-size",
        "sub-window-time",
        "sub-window-max",
        "message-size",
        "datagram-size",
        "receive-buffer",
        "hold-size",
        "reassembly-size",
        "gaps-max",
        // Each copy of a multicast gets a share of the rates.
        "peers",
        "peers-max",
        "interest-max",
        "interest",
        "subscriptions-max",
        "client-subscriptions-max",
        "match-cache",
        "advisory-subjects",
    ];
    let before = Config::for_this_host().settings(1472);
    let mut reached = BTreeSet::new();
    for key in KEYS {
        let text = format!("parameters:\n  {}: {}\n{}", key.name, key.example, needed_by(key.name));
        if Config::from_text("param.yaml", &text).unwrap().settings(1472) != before {
            reached.insert(key.name);
        }
    }
    assert_eq!(reached, BTreeSet::from(core));
}

#[test]
fn history_rules_are_a_text_or_a_list() {
    let list = "parameters:\n  history-rules:\n    - plant.*.alarm count 100,000 size 16 mb\n    - '> time 5 min'\n  \
                history-count: 7\n";
    let config = Config::from_text("param.yaml", list).unwrap_or_else(|errors| panic!("{errors}"));
    let rules = config.settings(1472).recovery.history.overrides;
    let rules: Vec<_> =
        rules.iter().map(|rule| (rule.pattern.as_str(), rule.count_max, rule.bytes_max, rule.time.as_secs())).collect();
    assert_eq!(rules, [("plant.*.alarm", 100_000, 16 << 20, 3600), (">", 7, 1 << 20, 300)]);
    let text = "plant.*.alarm size 16 mb count 100000;  ";
    let refused = Config::resolve(None, &[Override::set("history-rules", text)]).unwrap_err().to_string();
    assert!(refused.contains("a space on both sides"), "{refused}");
    let text = "plant.*.alarm size 16 mb count 100000 ; > time 5 min";
    let overrides = [Override::set("history-rules", text), Override::set("history-count", "7")];
    let same = Config::resolve(None, &overrides).unwrap();
    assert_eq!(same.settings(1472), config.settings(1472));
    assert_eq!(shown(&same), shown(&config));
    for (text, count) in [("", 0), ("    - a count 0\n", 1)] {
        let text = format!("parameters:\n  history-rules:{}\n{text}", if text.is_empty() { " []" } else { "" });
        assert_eq!(Config::from_text("param.yaml", &text).unwrap().history_rules.len(), count, "{text}");
    }
    let many = format!("parameters:\n  history-rules:\n{}", "    - a count 2\n".repeat(257));
    let refused = Config::from_text("param.yaml", &many).unwrap_err().to_string();
    assert!(refused.starts_with("param.yaml:259:7: history-rules: ") && refused.contains("more than 256"), "{refused}");
}

#[test]
fn automatic_datagram_size_fits_the_interface() {
    let mut config = Config::default();
    for (payload_bytes, expected) in
        [(1472, 1472), (1232, 1232), (16_000, 8972), (65_488, 32_600), (65_507, 32_600), (100, 576)]
    {
        assert_eq!(config.datagram_bytes(payload_bytes), expected);
    }
    config.datagram_size = DatagramSize::Bytes(9000);
    assert_eq!(config.datagram_bytes(1472), 9000);
}

#[test]
fn flags_override_the_environment_and_that_the_file() {
    let dir = TempDir::new();
    let path = dir.file("param.yaml", "parameters:\n  port: 1\n  ttl: 2\n  heartbeat: 2 sec\n");
    let environment = |name: &str, key: &str, value: &str| Override {
        key: key.into(),
        value: value.into(),
        source: ValueSource::Environment(name.into()),
    };
    let overrides = [
        environment("SEQCAST_PORT", "port", "3"),
        environment("SEQCAST_TTL", "ttl", "4"),
        Override::flag("--port", "port", "5"),
        Override::set("pub_window_size", "1 mb"),
    ];
    let config = Config::resolve(Some(&path), &overrides).unwrap();
    assert_eq!((config.port, config.ttl, config.heartbeat.as_secs(), config.pub_window_size), (5, 4, 2, 1 << 20));
    let source = |key: &str| config.show().into_iter().find(|row| row.key == key).unwrap().source.to_string();
    assert_eq!(source("port"), "--port 5");
    assert_eq!(source("ttl"), "$SEQCAST_TTL");
    assert_eq!(source("heartbeat"), format!("{}:4", path.display()));
    assert_eq!(source("pub-window-size"), "--set pub_window_size=1 mb");
    assert_eq!(source("group"), "default");
}

#[test]
fn errors_name_their_flag_or_variable() {
    let check = |overrides: &[Override], expected: &str| {
        assert_eq!(Config::resolve(None, overrides).unwrap_err().to_string(), expected);
    };
    check(
        &[Override::flag("--port", "port", "x"), Override::set("prot", "1")],
        "--port x: port: \"x\": not a whole number\n  fix: allowed: 1 to 65535\n\
         --set prot=1: prot: unknown key\n  fix: did you mean port?",
    );
    check(
        &[Override {
            key: "group".into(),
            value: " ".into(),
            source: ValueSource::Environment("SEQCAST_GROUP".into()),
        }],
        "$SEQCAST_GROUP: group: \" \": the value is missing\n  fix: write group: 239.1.2.3",
    );
    check(
        &[Override::set("pub-window-max", "1 mb")],
        "--set pub-window-max=1 mb: pub-window-max: pub-window-max (1 mb) is less than pub-window-size (4 mb): the hard limit cannot be \
         below the size at which the window rotates\n  fix: raise pub-window-max to 4 mb, or lower pub-window-size",
    );
}

#[test]
fn flag_replaces_a_wrong_value_of_the_file() {
    let dir = TempDir::new();
    let path = dir.file("param.yaml", "parameters:\n  ttl: x\n  pub-window-size: 100 mb\n");
    let overrides = [Override::flag("--pub-window-max", "pub-window-max", "1 gb"), Override::flag("--ttl", "ttl", "2")];
    let errors = Config::resolve(Some(&path), &overrides).unwrap_err();
    assert_eq!(errors.0.len(), 1, "a mistake in the file stays one, even if a flag covers it: {errors}");
    assert_eq!(errors.0[0].key, "ttl");
}

#[test]
fn file_that_is_no_text_is_refused() {
    let dir = TempDir::new();
    let check = |path: &Path, expected: &str| {
        let ConfigErrors(errors) = Config::load(path).expect_err(expected);
        assert_eq!(errors.len(), 1);
        let text = errors[0].to_string();
        assert_eq!(text.lines().next(), Some(format!("{}: {expected}", path.display()).as_str()));
    };
    check(&dir.path().join("none.yaml"), "cannot be read: No such file or directory");
    check(dir.path(), "is a directory, not a file");
    check(&dir.file("file", "").join("x"), "cannot be read: Not a directory");
    check(&dir.file("empty", ""), "contains no configuration");
    check(&dir.file("nul", "parameters:\0"), "is not text: byte 11 is not UTF-8, or is a control character");
    check(&dir.file("binary", b"\x7fELF\xff\xfe"), "is not text: byte 4 is not UTF-8, or is a control character");
    check(&dir.file("large", "#".repeat(1024 * 1024 + 1)), "is larger than 1048576 bytes");
    check(Path::new("/dev/zero"), "is a pipe, a socket or a device, not a file");
    let socket = dir.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    check(&socket, "is a pipe, a socket or a device, not a file");
    Config::load(&dir.file("comments", format!("# {}\nparameters:\n", "x".repeat(1024 * 1023)))).unwrap();
}

#[test]
fn reading_changes_nothing_on_disk() {
    let dir = TempDir::new();
    let socket = dir.path().join("run/peer.sock");
    let log = dir.path().join("log/peer.log");
    let text = format!("parameters:\n  socket: {}\n  log-file: {}\n  port: x\n", socket.display(), log.display());
    let path = dir.file("param.yaml", &text);
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    assert!(Config::load(&path).is_err());
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["param.yaml"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
}

#[test]
fn rows_and_errors_are_machine_readable() {
    let config = Config::from_text("param.yaml", "parameters:\n  port: 7501\n").unwrap();
    let rows = serde_json::to_value(config.show()).unwrap();
    let row = rows.as_array().unwrap().iter().find(|row| row["key"] == "port").unwrap();
    assert_eq!(row["value"], "7501");
    assert_eq!(row["source"], "param.yaml:2");
    assert_eq!(row["default"], "7500");
    let errors = Config::from_text("param.yaml", "parameters:\n  port: x\n").unwrap_err();
    let expected = serde_json::json!([{
        "source": "param.yaml", "line": 2, "column": 9, "key": "port",
        "reason": "\"x\": not a whole number", "suggestion": "allowed: 1 to 65535",
    }]);
    assert_eq!(serde_json::to_value(errors.0).unwrap(), expected);
}

#[test]
fn documentation_lists_every_key_with_default_and_range() {
    let text = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let mut documented = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        documented.push((cells[0].to_owned(), cells[1].to_owned(), cells[2].to_owned(), cells[3].to_owned()));
    }
    let quoted = |text: &str| format!("`{text}`");
    let row = |key: &seqcast::config::Key| (quoted(key.name), quoted(key.default), (key.range)(), quoted(key.example));
    let expected: Vec<_> = KEYS.iter().map(row).collect();
    assert_eq!(documented, expected);
}

#[test]
fn damaged_file_is_refused_or_read_without_panic() {
    let text = fs::read_to_string(root().join("config/param.yaml")).unwrap();
    let seed = 0x5eed;
    let mut rng = Rng::new(seed);
    let noise = b"\t\n:-&*[]{}'\"|>%@`!?#, \xff\0";
    for round in 0..300 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..=rng.below(8) {
            let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
            match rng.below(4) {
                0 => drop(bytes.remove(at)),
                1 => bytes.insert(at, noise[usize::try_from(rng.below(noise.len() as u64)).unwrap()]),
                2 => bytes.truncate(at.max(2)),
                _ => bytes[at] = u8::try_from(rng.below(256)).unwrap(),
            }
            if bytes.is_empty() {
                break;
            }
        }
        let damaged = String::from_utf8_lossy(&bytes);
        if let Err(errors) = Config::from_text("param.yaml", &damaged) {
            assert!(!errors.0.is_empty() && !errors.to_string().is_empty(), "round {round} of seed {seed}");
        }
    }
}

#[test]
fn reachable_listener_needs_accounts_or_permission() {
    let read = |text: &str| Config::from_text("param.yaml", &format!("parameters:\n{text}"));
    for listener in ["nats", "redis"] {
        let refused = read(&format!("  {listener}: 0.0.0.0\n")).unwrap_err().to_string();
        let port = if listener == "nats" { 4222 } else { 6379 };
        assert!(
            refused.starts_with(&format!("param.yaml:2:{}: {listener}: listens at 0.0.0.0:{port}", listener.len() + 5)),
            "{refused}"
        );
        assert!(refused.contains(&format!("{listener}-open: yes")) && refused.contains("accounts: user"), "{refused}");
        for text in [
            format!("  {listener}: on\n"),
            format!("  {listener}: '::1'\n"),
            format!("  {listener}: 0.0.0.0\n  {listener}-open: yes\n"),
            format!("  {listener}: 0.0.0.0\n  accounts:\n    - user a password b\n    - token c headers\n"),
        ] {
            read(&text).unwrap_or_else(|errors| panic!("{text}{errors}"));
        }
    }
    let refused = read("  accounts: user alice pasword s3cret\n").unwrap_err().to_string();
    assert!(refused.contains("user NAME password WORD") && !refused.contains("s3cret"), "{refused}");
}

#[test]
fn accounts_need_certificates_of_rendezvous_clients() {
    let read = |text: &str| Config::from_text("param.yaml", &format!("parameters:\n  accounts: token t\n{text}"));
    for address in ["on", "0.0.0.0"] {
        let refused = read(&format!("  rv: {address}\n")).unwrap_err().to_string();
        assert!(refused.contains("rv-open: yes") && refused.contains("verify CA"), "{refused}");
        for key in ["rv-open: yes", "rv-tls: cert.pem key.pem verify ca.pem"] {
            read(&format!("  rv: {address}\n  {key}\n")).unwrap_or_else(|errors| panic!("{errors}"));
        }
    }
}

#[test]
fn open_listener_without_accounts_needs_permission() {
    let keys = [
        ("nats", "nats-open"),
        ("nats-ws", "nats-ws-open"),
        ("redis", "redis-open"),
        ("hat", "hat-open"),
        ("rv", "rv-open"),
        ("ftn18", "ftn18-open"),
        ("http", "http-open"),
    ];
    for (listener, key) in keys {
        let read = |value: &str| {
            let text = format!("parameters:\n  {listener}: 0.0.0.0\n  {key}: {value}\n");
            Config::from_text("param.yaml", &text)
        };
        let refused = read("no").unwrap_err().to_string();
        assert!(refused.contains(&format!("{key}: yes")), "{refused}");
        read("yes").unwrap_or_else(|errors| panic!("{errors}"));
    }
}

#[test]
fn repeated_account_is_reported_at_its_second_position() {
    let read = |text: &str| Config::from_text("param.yaml", text).unwrap_err().to_string();
    let error = read(
        "parameters:\n  accounts:\n    - user bob password x\n    - token t\n    - user bob password s3cret\n    - token t\n",
    );
    assert!(error.starts_with("param.yaml:5:7: accounts: ") && error.contains("user bob is repeated"), "{error}");
    assert!(!error.contains("s3cret") && !error.contains("token t"), "{error}");
}

#[test]
fn two_listeners_at_one_address_are_refused() {
    let read = |text: &str| {
        Config::from_text("param.yaml", &format!("parameters:\n  nats-open: yes\n  redis-open: yes\n{text}"))
    };
    for (nats, redis) in [("4444", "4444"), ("0.0.0.0:7", "7"), ("7", "'[::]:7'"), ("192.0.2.1:6379", "192.0.2.1")] {
        let error = read(&format!("  nats: {nats}\n  redis: {redis}\n")).unwrap_err().to_string();
        assert!(
            error.starts_with("param.yaml:5:10: redis: listens at ") && error.contains("which nats uses already"),
            "{error}"
        );
    }
    let error = read("  redis: 4444\n  ftn18: 4444\n").unwrap_err().to_string();
    assert!(error.contains("ftn18: listens at 127.0.0.1:4444, which redis uses already"), "{error}");
    for (nats, redis) in [("0", "0"), ("127.0.0.1:7", "127.0.0.2:7"), ("7", "8"), ("off", "4222")] {
        read(&format!("  nats: {nats}\n  redis: {redis}\n")).unwrap_or_else(|errors| panic!("{errors}"));
    }
}

#[test]
fn yes_and_on_are_equal() {
    for (words, expected) in [(["yes", "on", "true"], true), (["no", "off", "false"], false)] {
        for word in words {
            let text = format!("parameters:\n  interest: {word}\n  nats-headers: {word}\n  redis: {word}\n");
            let config = Config::from_text("param.yaml", &text).unwrap_or_else(|errors| panic!("{errors}"));
            assert_eq!((config.interest, config.nats_headers, config.redis.is_some()), (expected, expected, expected));
        }
    }
}

#[test]
fn listener_memory_is_checked_only_with_listeners() {
    let read = |text: &str| Config::from_text("param.yaml", &format!("parameters:\n  client-queue-size: 2 gb\n{text}"));
    read("").unwrap_or_else(|errors| panic!("{errors}"));
    let error = read("  redis: on\n").unwrap_err().to_string();
    assert!(
        error.starts_with("param.yaml:2:22: client-queue-size: listener-memory (1 gb) is less than four times"),
        "{error}"
    );
    read("  redis: on\n  listener-memory: 8 gb\n").unwrap_or_else(|errors| panic!("{errors}"));
}
