//! Tests of a path that drops large datagrams without a word.

use super::lan::{Lan, in_namespaces};
use super::{group, wait_until, wait_until_some};

#[test]
fn size_that_a_path_drops_is_avoided() {
    in_namespaces("netns::mtu::size_that_a_path_drops_is_avoided", || {
        let lan = Lan::new(2);
        let [here, there] = [lan.hosts[0], lan.hosts[1]];
        let publisher = here.start_peer("A.mtu", group(), &["reliability=2 sec"]);
        let subscriber = there.start_peer("B.mtu", group(), &["reliability=2 sec"]);
        let reader = subscriber.subscribe("t.>");
        wait_until("the peers hear each other", || publisher.rows("peers").iter().any(|row| row["state"] == "up"));
        there.fault("meta l4proto udp meta length > 1450 counter name hits drop");
        assert_eq!(publisher.report("status")["status"]["datagram_bytes"], 1472);
        let large = "x".repeat(100_000);
        publisher.publish_one("t.first", &large);
        let find = || publisher.findings().iter().find(|finding| finding["check"] == "mtu").cloned();
        let finding = wait_until_some(|| "a finding about the size".to_owned(), find);
        let part = "do not arrive at B.1 on the host 10.75.0.2, those of 1400 bytes do; this peer sends no larger ones";
        assert!(finding["found"].as_str().is_some_and(|found| found.contains(part)), "{finding}");
        assert_eq!(finding["severity"], "warning");
        assert_eq!(publisher.report("status")["status"]["datagram_bytes"], 1400);
        let has_arrived = |subject: &str| {
            let is_meant = |line: &String| line.contains(r#""type":"message""#) && line.contains(subject);
            reader.lines().iter().any(is_meant)
        };
        wait_until("the first message arrives, from the history", || has_arrived("t.first"));

        let hits = there.hits();
        publisher.publish_one("t.second", &large);
        wait_until("the second message arrives", || has_arrived("t.second"));
        assert_eq!(there.hits(), hits, "no large datagram is sent any more");
        let resent = publisher.counter("resend_bytes");
        assert!(resent < 1_000_000, "{resent} bytes were resent");
        assert_eq!(subscriber.rows("loss")[0]["lost"], 0);
    });
}
