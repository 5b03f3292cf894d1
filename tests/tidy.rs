//! Checks of habits that no compiler checks: layers, budgets, rule marks, waits, leftovers, and the locations of
//! files.
//!
//! Each check is a function of text that returns complaints, and is tested on small texts of its own.

mod budgets;
mod circles;
mod comments;
mod dependencies;
mod documents;
mod keys;
mod names;
mod rules;
mod source;
mod test_names;
mod waits;

use crate::support::root;
use seqcast::config::KEYS;
use source::{code, without_tests};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Files and directories allowed at the top of the tree.
const TOP: [&str; 18] = [
    ".ci",
    ".gitignore",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "SECURITY.md",
    "benches",
    "clippy.toml",
    "config",
    "deny.toml",
    "docs",
    "examples",
    "rustfmt.toml",
    "src",
    "tests",
    "tools",
];

/// A part of the crate, the other parts that it may use, and the external crates that it may use.
struct Layer {
    module: &'static str,
    may_use: &'static [&'static str],
    crates: &'static [&'static str],
}

const BASE: &[&str] = &["time", "rng", "subject", "seqno", "message"];

/// The arrows of the architecture, lowest first. A longer path means that part of a module alone.
const LAYERS: &[Layer] = &[
    Layer { module: "time", may_use: &[], crates: &[] },
    Layer { module: "rng", may_use: &[], crates: &[] },
    Layer { module: "subject", may_use: &[], crates: &["bytes", "foldhash", "hashbrown"] },
    Layer { module: "seqno", may_use: &["time"], crates: &[] },
    Layer { module: "message", may_use: BASE, crates: &["bytes"] },
    Layer { module: "offset", may_use: &["seqno", "message"], crates: &[] },
    Layer { module: "wire", may_use: BASE, crates: &["bytes", "crc32c"] },
    Layer {
        module: "security",
        may_use: &["time", "rng", "subject", "seqno", "message", "wire", "proto::effect", "proto::resend"],
        crates: &["base64", "bytes", "crc32c", "curve25519_dalek", "ring", "snow", "subtle", "zeroize"],
    },
    Layer { module: "delivery", may_use: &["subject", "seqno", "message", "wire"], crates: &[] },
    Layer {
        module: "proto",
        may_use: &["time", "rng", "subject", "seqno", "offset", "message", "wire", "delivery"],
        crates: &["bytes", "foldhash", "hashbrown", "lru"],
    },
    Layer { module: "clock", may_use: &["time"], crates: &["libc"] },
    Layer { module: "shared_memory", may_use: &[], crates: &["bytes", "libc", "nix"] },
    Layer { module: "event", may_use: BASE, crates: &["base64", "bytes", "foldhash", "lru", "serde", "serde_json"] },
    Layer {
        module: "listener",
        may_use: &["time", "rng", "subject", "seqno", "offset", "message", "wire", "delivery", "event"],
        crates: &["base64", "bytes", "ring", "serde", "serde_json", "subtle"],
    },
    Layer {
        module: "link",
        may_use: &["time", "subject", "seqno", "message", "security", "delivery", "event", "listener::replication"],
        crates: &["bytes", "lru", "serde", "serde_json"],
    },
    Layer {
        module: "storage",
        may_use: &["time", "rng", "subject", "message", "security", "clock", "event"],
        crates: &[
            "base64",
            "bytes",
            "crc32c",
            "crossbeam_channel",
            "foldhash",
            "nix",
            "percent_encoding",
            "postgres",
            "redis",
            "ring",
            "rusqlite",
            "rustls",
            "rustls_native_certs",
            "serde",
            "serde_json",
            "tokio",
            "tokio_postgres",
            "tokio_rustls",
            "tracing",
            "zeroize",
        ],
    },
    Layer {
        module: "config",
        may_use: &[
            "message",
            "seqno",
            "subject",
            "time",
            "proto",
            "listener::access",
            "listener::nkey",
            "listener::permissions",
            "event::model",
            "event::store::retention",
            "event::stream",
            "link::local_subjects",
            "link::site_name",
        ],
        crates: &["humantime", "nix", "serde", "serde_yaml"],
    },
    Layer {
        module: "daemon",
        may_use: &[
            "time",
            "rng",
            "subject",
            "seqno",
            "offset",
            "message",
            "wire",
            "delivery",
            "proto",
            "clock",
            "event",
            "link",
            "listener",
            "security",
            "storage",
            "config",
            "shared_memory",
        ],
        crates: &[
            "async_nats",
            "axum",
            "tungstenite",
            "bytes",
            "crossbeam_channel",
            "foldhash",
            "futures_util",
            "hashbrown",
            "hyper",
            "hyper_util",
            "libc",
            "lru",
            "mio",
            "nix",
            "ring",
            "rustls",
            "rustls_native_certs",
            "serde",
            "serde_json",
            "signal_hook",
            "socket2",
            "tokio",
            "tokio_rustls",
            "tracing",
            "tracing_subscriber",
            "x509_cert",
        ],
    },
    Layer {
        module: "bus",
        may_use: &[
            "clock",
            "time",
            "rng",
            "subject",
            "seqno",
            "offset",
            "message",
            "delivery",
            "proto",
            "event",
            "listener",
            "config",
            "storage",
            "daemon",
            "shared_memory",
        ],
        crates: &["bytes", "crossbeam_channel", "futures_core", "mio", "serde", "serde_json", "socket2", "tracing"],
    },
    Layer {
        module: "sim",
        may_use: &[
            "time", "rng", "subject", "seqno", "offset", "message", "wire", "security", "delivery", "proto", "event",
            "link", "listener",
        ],
        crates: &["bytes", "crc32c", "foldhash", "hashbrown", "serde", "serde_json"],
    },
    Layer {
        module: "terminal",
        may_use: &["clock", "time", "message", "config", "daemon", "bus"],
        crates: &["humantime", "indicatif", "nix", "serde", "serde_json", "signal_hook"],
    },
    Layer {
        module: "bench",
        may_use: &["clock", "time", "subject", "message", "security", "config", "storage", "daemon", "bus", "terminal"],
        crates: &["clap", "crossbeam_channel", "hdrhistogram", "libc", "nix", "serde", "serde_json", "socket2"],
    },
    Layer {
        module: "doctor",
        may_use: &["clock", "time", "message", "wire", "config", "daemon", "bus", "proto::effect", "terminal"],
        crates: &["libc", "nix", "serde", "serde_json", "socket2"],
    },
    Layer {
        module: "cli",
        may_use: &[
            "clock", "time", "subject", "seqno", "offset", "message", "wire", "security", "event", "listener",
            "config", "storage", "daemon", "bus", "terminal", "bench", "doctor",
        ],
        crates: &[
            "base64",
            "bytes",
            "clap",
            "clap_complete",
            "crc32fast",
            "clap_mangen",
            "crossbeam_channel",
            "etherparse",
            "foldhash",
            "humantime",
            "lz4_flex",
            "mcap",
            "nix",
            "pcap_parser",
            "ratatui",
            "rustyline",
            "ruzstd",
            "serde",
            "serde_json",
            "zeroize",
        ],
    },
];

/// Modules without I/O.
const PURE: [&str; 11] =
    ["time", "rng", "subject", "seqno", "message", "wire", "security", "delivery", "proto", "event", "listener"];
const IMPURE: [&str; 16] = [
    "UdpSocket",
    "TcpStream",
    "UnixStream",
    "std::fs",
    "std::env",
    "std::io::std",
    "std::thread",
    "std::process",
    "Mutex",
    "RwLock",
    "RefCell",
    "static mut",
    "thread_local!",
    "OnceLock",
    "std::time::Instant",
    "SystemTime",
];

/// A text file of the tree, by its path from the top.
struct File {
    path: String,
    text: String,
}

/// Returns every text file that belongs to the tree; build results and version control do not.
fn tree() -> Vec<File> {
    fn walk(dir: &Path, files: &mut Vec<File>) {
        for entry in fs::read_dir(dir).expect("a readable directory") {
            let path = entry.expect("a readable entry").path();
            let name = path.file_name().expect("entries have names").to_string_lossy().into_owned();
            let built = ["target", ".git", "corpus", "artifacts", "node_modules"].contains(&name.as_str());
            if path.is_dir() && !built {
                walk(&path, files);
            } else if path.is_file()
                && !built
                && let Ok(text) = fs::read_to_string(&path)
            {
                let path = path.strip_prefix(root()).expect("below the top").to_string_lossy().into_owned();
                files.push(File { path, text });
            }
        }
    }
    let mut files = Vec::new();
    walk(root(), &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn rust() -> Vec<File> {
    tree().into_iter().filter(|file| file.path.ends_with(".rs")).collect()
}

/// Returns whether the file as a whole holds tests.
fn is_test(path: &str) -> bool {
    !path.starts_with("src/") || path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn assert_tidy(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Complains about all files for which `check(path, text)` does.
fn assert_each(files: &[File], check: impl Fn(&str, &str) -> Vec<String>) {
    assert_tidy(files.iter().flat_map(|file| check(&file.path, &file.text)).collect());
}

// ---- layers

/// Returns the module path of a file in `src`: `src/proto/window/mod.rs` is `proto::window`.
fn module(path: &str) -> String {
    let path = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    path.replace('/', "::")
}

/// Returns whether the path `used` is `of` or something in it.
fn within(used: &str, of: &str) -> bool {
    used.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Returns every path that follows `prefix` in blanked code, groups spelled out: `crate::a::{b, c::d}` gives `a::b`,
/// `a::c::d`.
fn paths(code: &str, prefix: &str) -> Vec<String> {
    fn names(text: &str, before: &str, found: &mut Vec<String>) -> usize {
        let text_trimmed = text.trim_start();
        let skipped = text.len() - text_trimmed.len();
        if let Some(group) = text_trimmed.strip_prefix('{') {
            let mut at = skipped + 1;
            let mut rest = group;
            while !rest.trim_start().is_empty() && !rest.trim_start().starts_with('}') {
                let used = names(rest, before, found).max(1);
                rest = &rest[used.min(rest.len())..];
                at += used;
                let comma = rest.find([',', '}']).unwrap_or(rest.len());
                let step = if rest[comma..].starts_with(',') { comma + 1 } else { comma };
                rest = &rest[step..];
                at += step;
            }
            return at + 1;
        }
        let name: String = text_trimmed.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let at = skipped + name.len();
        let path = if before.is_empty() { name.clone() } else { format!("{before}::{name}") };
        match text[at..].strip_prefix("::") {
            Some(rest) if !rest.starts_with('<') => at + 2 + names(rest, &path, found),
            _ => {
                found.push(path);
                at
            }
        }
    }
    let mut found = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        let before = code[..at].chars().next_back();
        if !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            names(&code[at + prefix.len()..], "", &mut found);
        }
    }
    found
}

/// Complains about uses that point down the table of layers, and about crates that the layer may not use.
fn check_layers(path: &str, text: &str) -> Vec<String> {
    let own = module(path);
    if is_test(path) || own == "lib" || own == "main" {
        return Vec::new();
    }
    let top = own.split("::").next().unwrap_or_default();
    let Some(layer) = LAYERS.iter().find(|layer| layer.module == top) else {
        return vec![format!("{path}: no layer is written down for '{top}' (tests/tidy.rs, LAYERS)")];
    };
    let code = without_tests(&code(text));
    let mut used = paths(&code, "crate::");
    if !own.contains("::") {
        used.extend(paths(&code, "super::"));
    }
    let allowed = |path: &String| within(path, top) || layer.may_use.iter().any(|may| within(path, may));
    let mut complaints: Vec<_> = used
        .iter()
        .filter(|path| path.chars().next().is_some_and(char::is_lowercase) && !allowed(path))
        .map(|used| format!("{path}: {top} may not use crate::{used}"))
        .collect();
    // A module of our own may have the name of a crate.
    let is_own = |name: &str| {
        used.iter().any(|path| path.rsplit("::").next() == Some(name)) || code.contains(&format!("mod {name};"))
    };
    for dependency in dependencies() {
        let is_used = !paths(&code, &format!("{dependency}::")).is_empty() && !is_own(&dependency);
        if is_used && !layer.crates.contains(&dependency.as_str()) {
            complaints.push(format!("{path}: {top} may not use the crate {dependency}"));
        }
    }
    complaints
}

/// Returns the crates that the library depends on, as code names them.
fn dependencies() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let section =
        manifest.split("\n[dependencies]\n").nth(1).expect("dependencies").split("\n[").next().unwrap_or_default();
    let name = |line: &str| line.split_once(" =").map(|(name, _)| name.replace('-', "_"));
    section.lines().filter(|line| !line.starts_with('#')).filter_map(name).collect()
}

/// Checks inside the core that only `peer` uses `peer`, and only it makes effects.
fn check_core(path: &str, text: &str) -> Vec<String> {
    let own = module(path);
    if is_test(path) || !within(&own, "proto") || within(&own, "proto::peer") || own == "proto::effect" {
        return Vec::new();
    }
    let code = without_tests(&code(text));
    let mut complaints = Vec::new();
    if own != "proto" && paths(&code, "crate::").iter().any(|used| within(used, "proto::peer")) {
        complaints.push(format!("{path}: a part of the core may not use proto::peer"));
    }
    if !paths(&code, "Effect::").is_empty() {
        complaints.push(format!("{path}: only proto::peer makes effects; return a value"));
    }
    complaints
}

fn check_pure(path: &str, text: &str) -> Vec<String> {
    let own = module(path);
    if is_test(path) || !PURE.iter().any(|pure| within(&own, pure)) {
        return Vec::new();
    }
    let code = without_tests(&code(text));
    let impure = IMPURE.iter().filter(|word| code.contains(**word));
    impure.map(|word| format!("{path}: {word} in a module without I/O, clocks, locks and globals")).collect()
}

#[test]
fn layers_use_only_what_is_below_them() {
    let files = rust();
    assert_each(&files, check_layers);
    assert_each(&files, check_core);
    assert_each(&files, check_pure);
}

#[test]
fn layer_checks_notice_violations() {
    assert_eq!(module("src/proto/window/mod.rs"), "proto::window");
    assert_eq!(module("src/time.rs"), "time");
    let check = |text: &str, expected: &[&str]| assert_eq!(paths(&code(text), "crate::"), expected, "{text}");
    check(
        "use crate::a::{b, c::{d, e}, f::*};\ncrate::g::H::new()",
        &["a::b", "a::c::d", "a::c::e", "a::f::", "g::H::new"],
    );
    check("use crate::{\n    a::B,\n    c::D,\n};", &["a::B", "c::D"]);
    check("// crate::a\nlet x = \"crate::b\"; mycrate::c;", &[]);
    let complains = |path: &str, text: &str| !check_layers(path, text).is_empty();
    assert!(complains("src/time.rs", "use crate::proto::Settings;"));
    assert!(complains("src/time.rs", "use super::proto::Settings;"));
    assert!(complains("src/proto/send.rs", "use crate::clock;"));
    assert!(complains("src/proto/send.rs", "use crate::{message::Epoch, clock};"));
    assert!(complains("src/config/mod.rs", "use crate::daemon::multicast;"));
    assert!(complains("src/proto/send.rs", "fn f() { mio::Poll::new() }"));
    assert!(complains("src/listener/frame.rs", "use crate::proto::effect::Input;"));
    assert!(complains("src/newcomer.rs", ""));
    assert!(complains("src/config/mod.rs", "use crate::daemon::interface::choose;"));
    assert!(!complains("src/proto/send.rs", "use crate::wire::{Header, Kind};\nuse super::loss;"));
    assert!(!complains("src/proto/send.rs", "#[cfg(test)]\nmod tests {\n    use crate::sim::World;\n}"));
    assert!(!check_core("src/proto/recv.rs", "use crate::proto::peer::Peer;").is_empty());
    assert!(!check_core("src/proto/recv.rs", "Effect::Stopped").is_empty());
    assert!(check_core("src/proto/peer/mod.rs", "Effect::Stopped").is_empty());
    assert!(!check_pure("src/wire/mod.rs", "std::thread::sleep(x)").is_empty());
    assert!(check_pure("src/wire/mod.rs", "// std::thread").is_empty());
}

// ---- configuration

/// Returns the fields of the configuration that no code outside its own table reads.
fn unread_keys(files: &[(&str, &str)]) -> Vec<String> {
    let readers: Vec<_> = files
        .iter()
        .filter(|(path, _)| path.starts_with("src/") && !is_test(path) && *path != "src/config/keys.rs")
        .map(|(path, text)| (*path, without_tests(&code(text))))
        .collect();
    let reads = |field: &str| {
        readers.iter().any(|(path, code)| {
            let own = if path.starts_with("src/config/") { "self." } else { "config." };
            let prefix = format!("{own}{field}");
            code.match_indices(&prefix)
                .any(|(at, _)| !code[at + prefix.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        })
    };
    let unread = KEYS.iter().map(|key| key.name.replace('-', "_")).filter(|field| !reads(field));
    unread.map(|field| format!("nothing reads config.{field}")).collect()
}

#[test]
fn every_key_of_the_configuration_is_read() {
    let files = rust();
    let files: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    assert_tidy(unread_keys(&files));
}

// ---- leftovers

/// Words that must not stay in code, outside literals and comments.
const LEFTOVERS: [&str; 8] =
    ["dbg!(", "todo!(", "unimplemented!(", "#[ignore", "allow(dead_code", "#![allow", "allow(unused", "allow(clippy::"];

fn check_leftovers(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let blanked = code(text);
    for (index, (line, raw)) in blanked.lines().zip(text.lines()).enumerate() {
        let mut found: Vec<&str> = LEFTOVERS.into_iter().filter(|word| line.contains(word)).collect();
        let comment = raw.split_once("//").map_or("", |(_, comment)| comment);
        found.extend(
            [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")]
                .into_iter()
                .filter(|word| comment.contains(word)),
        );
        let prints = ["println!(", "print!(", "eprintln!(", "eprint!("].iter().any(|word| line.contains(word));
        let library =
            path.starts_with("src/") && !path.starts_with("src/cli") && path != "src/main.rs" && !is_test(path);
        if prints && library && without_tests(&blanked).lines().nth(index).is_some_and(|line| line.contains("print")) {
            found.push("printing in the library; return a value or log");
        }
        complaints.extend(found.iter().map(|word| format!("{path}:{}: {word}", index + 1)));
    }
    complaints
}

/// Complains about paths of a single machine; `path` is only for the complaint.
fn check_machine(path: &str, text: &str) -> Vec<String> {
    let places = [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!(".cargo/", "registry")];
    let found = |(index, line): (usize, &str)| {
        let place = places.iter().find(|place| line.contains(**place))?;
        Some(format!("{path}:{}: names a place of one machine: {place}", index + 1))
    };
    text.lines().enumerate().filter_map(found).collect()
}

#[test]
fn nothing_is_left_over() {
    assert_each(&rust(), check_leftovers);
    assert_each(&tree(), check_machine);
}

#[test]
fn leftover_checks_notice_violations() {
    let check =
        |path: &str, text: &str, expected: usize| assert_eq!(check_leftovers(path, text).len(), expected, "{text}");
    check("src/a.rs", "dbg!(x); todo!()", 2);
    check("src/a.rs", "#[ignore]\n#[ignore = \"slow\"]", 2);
    check("src/a.rs", "#[allow(dead_code)]", 1);
    check("src/a.rs", concat!("x(); // FIX", "ME: later"), 1);
    check("src/a.rs", "println!(\"x\")", 1);
    check("src/a.rs", "#[cfg(test)]\nmod tests { fn f() { println!(\"x\") } }", 0);
    check("src/cli/a.rs", "println!(\"x\")", 0);
    check("src/a.rs", "let x = \"todo!()\"; // dbg!(x)", 0);
    assert_eq!(check_machine("a.md", concat!("see /wo", "rk/main")).len(), 1);
    assert!(check_machine("a.md", "see /works, /run/seqcast").is_empty());
}

// ---- clocks

/// Methods that the linter must refuse.
const BANNED: [&str; 9] = [
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::collections::hash_map::RandomState::new",
    "std::collections::HashMap::iter",
    "std::collections::HashSet::iter",
    "usize::to_be_bytes",
    "crossbeam_channel::unbounded",
    "std::sync::mpsc::channel",
    "tokio::sync::mpsc::unbounded_channel",
];

/// The one file of the library that may read the clock.
const CLOCK: &str = "src/clock.rs";

#[test]
fn only_the_clock_reads_the_clock() {
    let lints = fs::read_to_string(root().join("clippy.toml")).expect("clippy.toml");
    for method in BANNED {
        assert!(lints.contains(&format!("path = \"{method}\"")), "clippy.toml must refuse {method}");
    }
    for file in rust().iter().filter(|file| file.path.starts_with("src/") && file.path != CLOCK && !is_test(&file.path))
    {
        let code = without_tests(&code(&file.text));
        assert!(!code.contains("disallowed_methods"), "{}: only {CLOCK} may lift a ban of clippy.toml", file.path);
    }
}

// ---- scripts and test modules

/// Checks that a script stops at its first error and is executable in the tree.
fn check_script(path: &str, text: &str, is_executable: bool) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.starts_with("#!/usr/bin/env bash\n") && !text.lines().any(|line| line == "set -euo pipefail") {
        complaints.push(format!("{path}: lacks 'set -euo pipefail'"));
    }
    if text.starts_with("#!/") && !is_executable {
        complaints.push(format!("{path}: begins with #! and is not executable"));
    }
    complaints
}

#[test]
fn scripts_stop_at_errors_and_are_executable() {
    assert_each(&tree(), |path, text| {
        let mode = fs::metadata(root().join(path)).expect("a file of the tree").permissions().mode();
        check_script(path, text, mode & 0o111 != 0)
    });
}

#[test]
fn script_check_notices_violations() {
    let strict = "#!/usr/bin/env bash\nset -euo pipefail\n";
    assert!(check_script("tools/a", strict, true).is_empty());
    assert_eq!(check_script("tools/a", strict, false).len(), 1);
    assert_eq!(check_script("tools/a", "#!/usr/bin/env bash\n", true).len(), 1);
    assert!(check_script("src/a.rs", "#![no_main]", false).is_empty());
}

/// Returns test files and folders that `main`, the text of tests/main.rs, does not name: they would never run.
fn unnamed_modules<'a>(main: &str, paths: impl Iterator<Item = &'a str>) -> Vec<String> {
    let module = |path: &'a str| {
        let name = path.strip_prefix("tests/")?.strip_suffix(".rs")?;
        Some(name.strip_suffix("/mod").unwrap_or(name)).filter(|name| !name.contains('/'))
    };
    let named = |name: &str| main.lines().any(|line| line == format!("mod {name};"));
    let forgotten = paths.filter_map(module).filter(|name| *name != "main" && !named(name));
    forgotten.map(|name| format!("tests/main.rs does not name {name}")).collect()
}

#[test]
fn every_test_file_is_run() {
    let files = rust();
    let main = files.iter().find(|file| file.path == "tests/main.rs").expect("tests/main.rs");
    assert_tidy(unnamed_modules(&main.text, files.iter().map(|file| file.path.as_str())));
    let paths = ["tests/a.rs", "tests/b.rs", "tests/main.rs", "tests/a/deeper.rs", "tests/d/mod.rs", "src/c.rs"];
    let expected = ["tests/main.rs does not name b", "tests/main.rs does not name d"];
    assert_eq!(unnamed_modules("mod a;\n", paths.into_iter()), expected);
}

// ---- the top of the tree

#[test]
fn top_of_the_tree_holds_only_known_entries() {
    let ignored = fs::read_to_string(root().join(".gitignore")).expect(".gitignore");
    let ignored: Vec<_> = ignored.lines().map(|line| line.trim_matches('/')).collect();
    for entry in fs::read_dir(root()).expect("a readable directory") {
        let name = entry.expect("a readable entry").file_name().to_string_lossy().into_owned();
        let known = TOP.contains(&name.as_str()) || name == ".git" || ignored.contains(&name.as_str());
        assert!(known, "{name} does not belong at the top of the tree");
    }
}
