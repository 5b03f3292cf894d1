//! `peer`: the daemon of this host.

use serde_json::Value;

use super::args::DaemonOptions;
use super::config;
use crate::config::LogFormat;
use crate::daemon::log_output;
use crate::daemon::start::{Daemon, Options};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::note;
use crate::terminal::peer;

/// Runs a peer until a signal ends it.
///
/// # Errors
/// The configuration is wrong, or the peer cannot start.
pub fn run(options: &DaemonOptions) -> Result<Exit, CommandFailure> {
    let origin = config::daemon_origin(options);
    let config = config::load(&origin)?;
    log_output::start(&config).map_err(|error| CommandFailure::new(Exit::Failed, error))?;
    let all = Options { serve: true, signals: true, systemd: true, drop: None, config_origin: Some(origin) };
    let mut daemon = Daemon::open(&config, &all).map_err(|error| peer::start_failure(&error))?;
    if config.log_format == LogFormat::Text {
        note(banner(&daemon.status()));
    }
    daemon.run().map_err(|error| CommandFailure::new(Exit::Failed, format!("the peer cannot continue: {error}")))?;
    Ok(Exit::Done)
}

/// Returns the choices of the peer, for people.
fn banner(status: &Value) -> String {
    let text = |key: &str| status[key].as_str().unwrap_or("?").to_owned();
    let listeners = status["listeners"].as_array().map_or(&[][..], Vec::as_slice);
    let listener = |listener: &Value| {
        let text = |key: &str| listener[key].as_str().unwrap_or("?").to_owned();
        let access = match listener["accounts"].as_u64() {
            Some(0) | None if listener["tls"] == "verify" => "certificates",
            Some(0) | None => "anyone",
            Some(_) => "accounts",
        };
        let tls = listener["tls"].as_str().map_or(String::new(), |tls| format!(", TLS {tls}"));
        format!("  {:<10} {} ({access}{tls})\n", text("listener"), text("address"))
    };
    let servers = [&status["streams"], &status["http"]].into_iter().filter(|server| !server.is_null());
    let listeners: String = listeners.iter().chain(servers).map(listener).collect();
    let reach = match (&status["loopback"], &status["ttl"]) {
        (loopback, _) if loopback == true => "this host only; --interface NAME reaches a LAN",
        (_, ttl) if ttl == 0 => "this host only; ttl: 1 reaches the LAN",
        _ => "this LAN",
    };
    let reach = match status["copies_to"].as_array().map_or(0, Vec::len) {
        0 => reach.to_owned(),
        1 => "one other host, by unicast (key 'peers')".to_owned(),
        hosts => format!("{hosts} other hosts, by unicast to each (key 'peers')"),
    };
    let security = match (status["security"].as_str(), status["realm"].as_str()) {
        (Some(mode), Some(realm)) => {
            format!("realm      {realm} (mode {mode}): traffic is encrypted, and only members can read and publish")
        }
        _ if status["open_to_network"] == true => {
            "OPEN MODE  traffic is not encrypted: other hosts can read every message and publish any".to_owned()
        }
        _ => "open mode  traffic is not encrypted, and stays on this host".to_owned(),
    };
    format!(
        "peer {}, epoch {}\n  group      {} port {}: {reach}\n  interface  {} {} ({})\n  inbox      {}\n  socket     {}\n{listeners}  \
         {security}",
        text("name"),
        text("epoch"),
        text("group"),
        status["port"],
        text("interface"),
        text("address"),
        text("interface_reason"),
        text("inbox"),
        text("socket"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn banner_says_how_far_multicasts_reach() {
        let group_line = |status: &Value| {
            let banner = banner(status);
            let line = banner.lines().find(|line| line.contains("239.1.2.3")).unwrap();
            line.split_once(": ").unwrap().1.to_owned()
        };
        let reach = |loopback: bool, ttl: u8| {
            group_line(&json!({ "loopback": loopback, "ttl": ttl, "group": "239.1.2.3", "port": 7500 }))
        };
        assert_eq!(reach(false, 1), "this LAN");
        assert_eq!(reach(false, 0), "this host only; ttl: 1 reaches the LAN");
        assert_eq!(reach(true, 1), "this host only; --interface NAME reaches a LAN");
        let copying = |hosts: &[&str]| {
            group_line(&json!({ "loopback": false, "ttl": 1, "group": "239.1.2.3", "port": 7500, "copies_to": hosts }))
        };
        assert_eq!(copying(&[]), "this LAN");
        assert_eq!(copying(&["10.0.0.8:7500"]), "one other host, by unicast (key 'peers')");
        assert_eq!(copying(&["10.0.0.8:7500", "10.0.0.9:7500"]), "2 other hosts, by unicast to each (key 'peers')");
    }
}
