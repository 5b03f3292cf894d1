//! `debug bundle`: one file with all that a maintainer needs to know about the local peer and its host.

pub mod args;

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::{Map, Value, json};

use self::args::{BundleOptions, DebugCommand, DebugOptions};
use super::bus_options::PeerOptions;
use super::connect;
use crate::bus::Bus;
use crate::clock::Clock;
use crate::config::Config;
use crate::daemon::interface;
use crate::daemon::show::REPORTS;
use crate::doctor;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note};
use crate::terminal::peer;

/// Maximum number of rows of each report.
const ROWS_MAX: u64 = 1_000;
/// Maximum number of bytes of each file of the system.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Settings of the kernel that matter for multicast.
const SYSCTLS: [&str; 14] = [
    "kernel.osrelease",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.conf.default.rp_filter",
    "net.ipv4.igmp_max_memberships",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.ipv6.conf.all.disable_ipv6",
];

/// Files with the memberships, routes and counters of this network namespace.
const FILES: [&str; 7] = [
    "/proc/net/dev",
    "/proc/net/igmp",
    "/proc/net/igmp6",
    "/proc/net/route",
    "/proc/net/snmp",
    "/proc/net/udp",
    "/proc/net/udp6",
];

/// Runs `debug`.
///
/// # Errors
/// The file exists or cannot be written.
pub fn run(options: &DebugOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    match &options.what {
        DebugCommand::Bundle(options) => write_bundle(options, out),
    }
}

fn write_bundle(options: &BundleOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let bundle = bundle(options);
    if let Some(error) = bundle["peer"]["error"].as_str() {
        note(format_args!("the bundle describes this host alone: {error}"));
    }
    let text = format!("{bundle:#}\n");
    let name = format!("seqcast-debug-{}.json", Clock::now().wall.as_nanos() / 1_000_000_000);
    let path = options.output.as_deref().unwrap_or(Path::new(&name));
    if path == Path::new("-") {
        out.bytes(text.as_bytes())?;
        return Ok(Exit::Done);
    }
    write_new(path, text.as_bytes()).map_err(|error| {
        let fix = match error.kind() {
            io::ErrorKind::AlreadyExists => "name a file that does not exist yet with -o",
            _ => "name a file in another directory with -o, or print the bundle with -o -",
        };
        CommandFailure::new(Exit::Failed, format!("{} cannot be written: {error}", path.display())).fix(fix)
    })?;
    match options.json {
        true => out.line(json!({ "file": path.display().to_string(), "bytes": text.len() }))?,
        false => out.line(path.display())?,
    }
    note("the bundle has no passwords and tokens of the configuration; read it before you publish it");
    Ok(Exit::Done)
}

/// Writes a file that does not exist yet, readable by its owner only. A file that cannot be written whole is removed.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes).inspect_err(|_| drop(fs::remove_file(path)))
}

fn bundle(options: &BundleOptions) -> Value {
    let peer_options = PeerOptions { socket: options.socket.clone(), ..PeerOptions::default() };
    let config = connect::config_of_peer(&peer_options);
    let attached = connect::attach(options.socket.as_ref(), "debug");
    let now = Clock::now().wall;
    let mut bundle = json!({
        "bundle": 1,
        "created_ns": now.as_nanos(),
        "version": env!("CARGO_PKG_VERSION"),
        "wire": crate::wire::VERSION,
        "local_protocol": crate::listener::frame::VERSION,
        "interfaces": interfaces(),
        "sysctls": SYSCTLS.iter().map(|name| (*name, sysctl(name))).collect::<std::collections::BTreeMap<_, _>>(),
        "files": FILES.iter().map(|path| (*path, system_file(path))).collect::<std::collections::BTreeMap<_, _>>(),
        "doctor": with_config(&config, doctor::host_report),
    });
    match attached {
        Ok(bus) => {
            let [debug, levels] =
                ["debug", "log"].map(|command| answer(peer::show(&bus, json!({ command: {} })), command));
            bundle["peer"] = debug;
            bundle["log_levels"] = levels;
            bundle["reports"] = reports(&bus);
        }
        Err(failure) => {
            bundle["peer"] = json!({ "error": failure.to_string() });
            bundle["command_config"] = with_config(&config, |config| json!(config.show()));
        }
    }
    bundle
}

/// Returns a part that needs the configuration of the command, or the reason why there is none.
fn with_config(config: &Result<Config, CommandFailure>, part: impl FnOnce(&Config) -> Value) -> Value {
    match config {
        Ok(config) => part(config),
        Err(failure) => json!({ "error": failure.to_string() }),
    }
}

/// Returns a part of an answer, or the reason why there is none.
fn answer(answer: Result<Value, CommandFailure>, part: &str) -> Value {
    match answer {
        Ok(mut answer) => answer[part].take(),
        Err(failure) => json!({ "error": failure.to_string() }),
    }
}

/// Returns every report of the peer, by name.
fn reports(bus: &Bus) -> Value {
    let mut reports = Map::new();
    for name in REPORTS {
        let report = peer::show(bus, json!({ "show": name, "limit": ROWS_MAX }));
        let report = match report {
            Ok(report) => report,
            Err(failure) => json!({ "error": failure.to_string() }),
        };
        reports.insert(name.to_owned(), report);
    }
    Value::Object(reports)
}

fn interfaces() -> Value {
    let listed = match interface::list() {
        Ok(listed) => listed,
        Err(error) => return json!({ "error": error.to_string() }),
    };
    let row = |interface: &interface::Interface| {
        json!({
            "name": interface.name,
            "index": interface.index,
            "mtu": interface.mtu,
            "up": interface.up,
            "running": interface.running,
            "multicast": interface.multicast,
            "loopback": interface.loopback,
            "point_to_point": interface.point_to_point,
            "addresses": interface.addresses.iter().map(|address| address.ip.to_string()).collect::<Vec<_>>(),
        })
    };
    listed.iter().map(row).collect()
}

/// Returns a setting of the kernel; null if it has none of this name.
fn sysctl(name: &str) -> Option<String> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    system_file(&path).map(|text| text.trim().to_owned())
}

/// Returns the beginning of a file of the system; null if it cannot be read.
fn system_file(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
