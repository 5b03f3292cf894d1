//! Tests of unicast copies: a LAN on which no multicast arrives, and the key `peers`.

use super::lan::{Lan, Peer, Process, in_namespaces};
use super::tap::Tap;
use super::{Account, ONE_IN_TEN, PORT, group, settled_by_epoch, wait_until, wait_until_some};

/// Statements of a host that no multicast of another host reaches.
const NO_MULTICAST: &str = "ip daddr 224.0.0.0/4 drop";

/// Two hosts list all others and the switch, where the test records what was sent. The third lists nobody: it hears
/// both, and they get its messages by request alone.
/// Proves: W168, W169, W170
#[test]
fn lan_without_multicast_works_by_unicast() {
    in_namespaces("netns::copies::lan_without_multicast_works_by_unicast", || {
        let lan = Lan::new(3);
        let tap = Tap::new(group(), PORT);
        lan.hosts.iter().for_each(|host| host.fault(NO_MULTICAST));
        let listing = ["reliability=2 sec", "peers=10.75.0.1-3, 10.75.0.254"];
        let peers: Vec<Peer> = [("A.copies", &listing[..]), ("B.copies", &listing[..]), ("C.copies", &listing[..1])]
            .into_iter()
            .zip(&lan.hosts)
            .map(|((name, settings), host)| host.start_peer(name, group(), settings))
            .collect();
        let [first, second, third] = &peers[..] else { unreachable!("three peers") };
        for peer in &peers {
            wait_until("the peers hear each other", || {
                peer.rows("peers").iter().filter(|row| row["state"] == "up").count() == 2
            });
        }
        let status = first.report("status")["status"].take();
        assert_eq!(status["transport"], "unicast");
        assert_eq!(status["copies_to"].as_array().map(Vec::len), Some(3), "without this host: {status}");
        assert!(first.rows("peers").iter().all(|row| row["reached_by"] == "unicast"));
        assert_eq!(third.report("status")["status"]["transport"], "multicast");

        let readers = [second.subscribe("t.>"), third.subscribe("t.>")];
        let lossy = format!("{NO_MULTICAST}\nudp dport {PORT} {ONE_IN_TEN} counter name hits drop");
        lan.hosts[1..].iter().for_each(|host| host.fault(&lossy));
        let loads = [("t.a", first), ("t.b", second)].map(|(subject, peer)| peer.publish(subject, 1000, 500));
        loads.into_iter().for_each(Process::finish);
        // A subscriber gets the messages of its own peer too.
        for reader in &readers {
            let all = settled_by_epoch(&tap, reader, |accounts| {
                accounts.values().map(|account| account.delivered).sum::<u64>() == 2000
            });
            let all = all.values().fold(Account::default(), Account::plus);
            assert_eq!((all.lost, all.unverified, all.tail), (0, 0, 0), "{all:?}");
        }
        for (host, peer) in lan.hosts[1..].iter().zip([second, third]) {
            assert!(10 < host.heal(), "a tenth of the copies is lost");
            assert_eq!(peer.counter("inconsistencies"), 0);
        }
        let repaired = |peer: &Peer| -> Option<u64> {
            peer.rows("loss").iter().map(|row| row["repaired"]["count"].as_u64()).sum()
        };
        assert!(Some(0) < repaired(second) && Some(0) < repaired(third), "lost copies are repaired");
        let hears = |peer: &Peer, name: &str| {
            peer.rows("peers").iter().any(|row| row["publisher"] == name && row["multicast_dead"] == false)
        };
        assert!(hears(second, "A.copies") && hears(third, "A.copies") && hears(third, "B.copies"));
        let find = || first.findings().into_iter().find(|finding| finding["check"] == "multicast");
        let finding = wait_until_some(|| "a finding: the third host sends no copies".into(), find);
        let found = finding["found"].as_str().expect("a text");
        assert!(found.starts_with("the heartbeats of C.2 arrive"), "{finding}");
        assert!(finding["fix"].as_str().expect("a text").starts_with("add 10.75.0.1 to 'peers' of these hosts"));
    });
}
