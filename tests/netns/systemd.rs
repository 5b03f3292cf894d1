//! The status of a peer in systemd: its numbers are those of `show`, also where messages are lost.

use super::lan::{Lan, in_namespaces};
use super::{group, wait_until, wait_until_some};
use std::os::unix::net::UnixDatagram;

#[test]
fn systemd_status_counts_lost_messages() {
    in_namespaces("netns::systemd::systemd_status_counts_lost_messages", || {
        let lan = Lan::new(2);
        let systemd = UnixDatagram::bind("/run/notify").unwrap();
        systemd.set_nonblocking(true).unwrap();
        let receiver = lan.hosts[1].start_service("B.systemd", group(), &[], Some("/run/notify"));
        let sender = lan.hosts[0].start_peer("A.systemd", group(), &[]);
        wait_until("the peers hear each other", || receiver.rows("peers").iter().any(|row| row["state"] == "up"));
        let _subscriber = receiver.subscribe("a.b");
        sender.publish_one("a.b", "received");
        lan.hosts[1].fault("ip daddr 239.255.83.67 udp dport 7500 counter name hits drop");
        (0..3).for_each(|_| sender.publish_one("a.b", "lost"));
        wait_until("they are lost", || 3 <= lan.hosts[1].hits());
        lan.hosts[1].heal();
        sender.publish_one("a.b", "received");
        let next = || {
            let mut bytes = [0; 1000];
            let count = systemd.recv(&mut bytes).ok()?;
            Some(String::from_utf8(bytes[..count].to_vec()).unwrap())
        };
        wait_until_some(|| "the status".to_owned(), || next().filter(|text| text == "STATUS=1 peer, 3 lost"));
        assert_eq!(receiver.rows("loss")[0]["msg_loss"]["count"], 3, "{:?}", receiver.rows("loss"));
    });
}
