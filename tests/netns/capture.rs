//! Real traffic, captured while datagrams are lost: `decode` and the dissector for Wireshark print the same of it.

use super::lan::{Lan, in_namespaces};
use super::{ONE_IN_TEN, group, wait_until};
use crate::support::TempDir;
use crate::support::command::Place;
use crate::support::dissector::decode_with_both;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn dissector_and_decoder_agree_on_lossy_traffic() {
    in_namespaces("netns::capture::dissector_and_decoder_agree_on_lossy_traffic", || {
        let lan = Lan::new(2);
        let directory = TempDir::new();
        let file = directory.path().join("lan.pcapng");
        let path = file.to_str().expect("paths of tests are UTF-8");
        let capture = lan.hosts[1].start("dumpcap", &["-q", "-i", "eth0", "-f", "udp", "-w", path]);
        wait_until("the capture has begun", || fs::metadata(&file).is_ok_and(|data| 0 < data.len()));
        let settings = ["reliability=2 sec"];
        let publisher = lan.hosts[0].start_peer("A.capture", group(), &settings);
        let receiver = lan.hosts[1].start_peer("B.capture", group(), &settings);
        let subscription = receiver.subscribe("capture.>");
        lan.hosts[1].fault(&format!("udp dport 7500 {ONE_IN_TEN} counter name hits drop"));
        // The capture may end without the last packets, which the kernel has not passed on yet.
        publisher.publish_one("capture.large", &"x".repeat(20_000));
        publisher.publish("capture.small", 500, 1_000).finish();
        wait_until("everything is delivered", || subscription.lines().len() == 501);
        lan.hosts[1].heal();
        capture.signal("INT");
        capture.finish();

        let pairs = decode_with_both(&Place::new(), &file);
        for pair in &pairs {
            assert_eq!((&pair.discarded, &pair.defects), (&None, &Vec::new()), "{pair:?}");
            assert_eq!(pair.dissected, pair.decoded);
        }
        let records: BTreeSet<&str> = pairs.iter().flat_map(|pair| &pair.records).map(String::as_str).collect();
        for record in ["run", "fragment", "heartbeat", "hello", "resend_request", "receiver_report", "interest"] {
            assert!(records.contains(record), "{record} is not among {records:?}");
        }
    });
}
