//! `seqcast bench` from one host to another.

use super::lan::{Lan, in_namespaces, run};
use crate::support::wait::wait_until;
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes from one change of the MTU to the next; about 150 ms of the load here. The kernel may count many datagrams
/// as one packet.
const BYTES: u64 = 3 << 20;

/// Runs a verb of the bench from the first host to the second and returns its rows.
fn bench(arguments: &[&str]) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seqcast"));
    command.arg("bench").args(arguments).args(["--interface", "10.75.0.0/24", "--open", "--json"]);
    command.args(["--publisher-via", "ip netns exec h1", "--subscriber-via", "ip netns exec h2"]);
    let text = run(&mut command);
    let answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let rows = answer["rows"].as_array().unwrap_or_else(|| panic!("no rows: {text}"));
    assert_eq!((&answer["ok"], &answer["found"]["interface"]), (&true.into(), &"eth0".into()), "{text}");
    rows.clone()
}

/// Returns the number of bytes that the switch has received from the first host.
fn bytes_received() -> u64 {
    let devices = fs::read_to_string("/proc/net/dev").expect("proc is mounted");
    let port =
        devices.lines().find_map(|line| line.trim_start().strip_prefix("port1:")).expect("the first host's port");
    let bytes = port.split_whitespace().next().expect("the bytes stand first");
    bytes.parse().expect("a number")
}

#[test]
fn bench_spans_two_hosts() {
    in_namespaces("netns::bench::bench_spans_two_hosts", || {
        let _lan = Lan::new(2);
        let rows = bench(&["throughput", "--rate", "20000/s", "--secs", "0.5", "--offloads-off"]);
        assert_eq!((rows.len(), &rows[3]["what"], &rows[3]["datagram_bytes"]), (4, &"library".into(), &1472.into()));
        for row in rows.iter().filter(|row| row["unsupported"].is_null()) {
            assert!(0 < row["received"].as_u64().unwrap_or(0), "{row}");
        }
    });
}

#[test]
fn bench_makes_the_network_lose_datagrams() {
    in_namespaces("netns::bench::bench_makes_the_network_lose_datagrams", || {
        let _lan = Lan::new(2);
        let table = "table netdev faults { chain ingress { type filter hook ingress device eth0 priority 0; \
                     ip saddr 10.75.0.1 numgen random mod 10 < 3 drop; }; }";
        let fault = format!("ip netns exec h2 nft '{table}'");
        let heal = "ip netns exec h2 nft delete table netdev faults";
        let rows = bench(&["loss", "--rate", "20000/s", "--secs", "0.5", "--fault", &fault, "--heal", heal]);
        let repaired: Vec<bool> = rows.iter().map(|row| 0 < row["repaired"].as_u64().unwrap_or(0)).collect();
        assert_eq!(repaired, [false, true], "{rows:#?}");
    });
}

#[test]
fn mtu_change_loses_nothing() {
    in_namespaces("netns::bench::mtu_change_loses_nothing", || {
        let _lan = Lan::new(2);
        let (is_over, changes) = (AtomicBool::new(false), AtomicU64::new(0));
        let rows = std::thread::scope(|scope| {
            scope.spawn(|| {
                for mtu in ["1500", "700"].iter().cycle().take(400).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    run(Command::new("ip").args(["-n", "h1", "link", "set", "eth0", "mtu", mtu]));
                    let goal = bytes_received() + BYTES;
                    wait_until("traffic flows", || goal <= bytes_received() || is_over.load(Ordering::Relaxed));
                    changes.fetch_add(1, Ordering::Relaxed);
                }
            });
            let sent = ["throughput", "--size", "1024", "--rate", "20000/s", "--secs", "1", "--no-raw"];
            let rows = bench(&sent);
            is_over.store(true, Ordering::Relaxed);
            rows
        });
        let changes = changes.load(Ordering::Relaxed);
        assert!(3 <= changes, "the MTU changed only {changes} times");
        let [sent, received, lost] = ["sent", "received", "lost"].map(|column| rows[0][column].as_u64());
        // A busy machine does not reach the rate.
        assert!(Some(2_000) < sent && received == sent && lost == Some(0), "{rows:#?}");
    });
}
