//! The notifications of a peer to systemd. The test has the socket that systemd would have.

use crate::support::command::{Place, RunningCommand, parse_json, signal};
use crate::support::exit_code::{CONFIGURATION, DONE, UNREACHABLE};
use crate::support::wait::{let_time_pass, wait_until, wait_until_some};
use seqcast::clock::monotonic_micros;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time after which systemd would end a peer that has not notified it; its notifications come twice as often.
const WATCHDOG_TIME: Duration = Duration::from_millis(200);

/// The socket of a service manager that was named to a peer.
struct ServiceManager {
    socket: UnixDatagram,
}

impl ServiceManager {
    /// Starts this place's peer as a service.
    fn start(place: &Place, arguments: &[&str]) -> (ServiceManager, RunningCommand) {
        let path = place.dir().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let arguments = [&["peer"], arguments].concat();
        // This does not depend on the signal handling that the tests were started with.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_seqcast")]).args(&arguments);
        place.set_environment(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("NOTIFY_SOCKET", path).env("WATCHDOG_USEC", WATCHDOG_TIME.as_micros().to_string());
        let peer = RunningCommand::new(command.spawn().unwrap(), &arguments);
        (ServiceManager { socket }, peer)
    }

    /// Returns the next notification, if one has come.
    fn next(&self) -> Option<String> {
        let mut bytes = [0; 1000];
        let count = self.socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8(bytes[..count].to_vec()).unwrap())
    }

    /// Waits for a notification, and returns the ones before it.
    #[track_caller]
    fn wait_for(&self, notification: &str) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            let next = wait_until_some(|| format!("{notification:?} comes"), || self.next());
            if next == notification {
                return before;
            }
            before.push(next);
        }
    }
}

#[test]
fn systemd_learns_readiness_status_and_stop() {
    let place = Place::new();
    let (systemd, mut peer) = ServiceManager::start(&place, &[]);
    assert_eq!(systemd.wait_for("READY=1\nSTATUS=0 peers, 0 lost"), [""; 0], "nothing precedes it");
    // Nothing has to be waited for any more: the group is joined, and the peer accepts clients.
    UnixStream::connect(place.socket()).unwrap();
    let status = place.show("status");
    assert_eq!(status["status"]["phase"], "running", "{status}");
    let second = place.start(&["peer", "--socket", "second.sock"]);
    systemd.wait_for("STATUS=1 peer, 0 lost");
    drop(second);
    peer.signal("TERM");
    systemd.wait_for("STOPPING=1\nSTATUS=stopping");
    assert_eq!(peer.ended().code(), Some(DONE));
}

#[test]
fn reload_is_notified_until_it_ends() {
    let place = Place::new();
    let write = |text: &str| std::fs::write(place.dir().join("param.yaml"), text).unwrap();
    write("parameters:\n  linger: 1 sec\n");
    let (systemd, peer) = ServiceManager::start(&place, &["--config", "param.yaml"]);
    systemd.wait_for("READY=1\nSTATUS=0 peers, 0 lost");
    let wait_for_reload = |begin: u64| {
        let is_reloading = |text: &String| text.starts_with("RELOADING=1\n");
        let text = wait_until_some(|| "a reload begins".to_owned(), || systemd.next().filter(is_reloading));
        let micros: u64 = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().parse().unwrap();
        systemd.wait_for("READY=1");
        assert!((begin..=monotonic_micros()).contains(&micros), "{text} is not after {begin}");
    };
    write("parameters:\n  linger: 1 sec\n  log-level: debug\n");
    let begin = monotonic_micros();
    peer.signal("HUP");
    wait_for_reload(begin);
    peer.await_report("configuration read again");
    write("parameters:\n  linger: never\n");
    let begin = monotonic_micros();
    place.run(&["config", "reload"]).exits(CONFIGURATION);
    wait_for_reload(begin);
}

#[test]
fn failed_start_is_not_reported_as_ready() {
    let place = Place::new();
    let (systemd, mut peer) = ServiceManager::start(&place, &["--interface", "nosuch0"]);
    assert_eq!(peer.ended().code(), Some(UNREACHABLE));
    assert_eq!(systemd.next(), None);
}

#[test]
fn stopped_loop_feeds_no_watchdog() {
    let place = Place::new();
    let (systemd, _peer) = ServiceManager::start(&place, &[]);
    systemd.wait_for("READY=1\nSTATUS=0 peers, 0 lost");
    let pid = place.show("status")["status"]["pid"].as_u64().unwrap();
    for _ in 0..3 {
        systemd.wait_for("WATCHDOG=1");
    }
    let pid = u32::try_from(pid).unwrap();
    signal(pid, "STOP");
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    wait_until("the peer stands still", || state().contains(") T "));
    while systemd.next().is_some() {}
    let_time_pass(2 * WATCHDOG_TIME, "a peer that runs would send four notifications");
    assert_eq!(systemd.next(), None);
    signal(pid, "CONT");
    systemd.wait_for("WATCHDOG=1");
}

#[test]
fn unusable_notify_socket_leaves_the_peer_running() {
    let place = Place::new();
    let mut command = place.command(&["peer"]);
    command.env("NOTIFY_SOCKET", place.dir().join("nothing"));
    let peer = RunningCommand::new(command.spawn().unwrap(), &["peer"]);
    peer.await_report("systemd cannot be notified");
    let peer = place.reachable(peer);
    assert_eq!(parse_json(&place.run(&["show", "status", "--json"]).exits(DONE).stdout)["status"]["phase"], "running");
    drop(peer);
}
