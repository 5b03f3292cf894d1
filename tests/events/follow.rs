//! Events of one peer in the journal of another (`event-follow`), and one peer of a LAN for each number of a server.

use crate::support::command::{Place, RunningCommand};
use crate::support::events::{add, finds, found, rows};
use crate::support::exit_code::{CONFIGURATION, DONE, FAILED};
use crate::support::wait::{wait_until, wait_until_some};
use std::thread;

fn kill(mut peer: RunningCommand) {
    peer.signal("KILL");
    peer.ended();
}

#[test]
fn followed_events_are_stored_including_missed_ones() {
    let (origin, place) = (Place::new(), Place::new());
    let port = format!("--port={}", origin.port());
    let begin = || origin.peer(&["--set", "server-id=7"]);
    let follow = || place.peer(&[&port, "--set", "server-id=8", "--set", "event-follow=plant/* ; line/?"]);
    // These are added before any peer follows, and they are more than one page holds.
    let server = begin();
    add(&origin, "plant/1", 1..=5000);
    let mut expected = rows("plant/1", 1..=5000);
    let follower = follow();
    finds(&place, &expected);
    // These come live, but not those of other types.
    add(&origin, "plant/1", 5001..=5100);
    add(&origin, "other", 5101..=5110);
    add(&origin, "line/3", 5111..=5120);
    expected.extend([rows("plant/1", 5001..=5100), rows("line/3", 5111..=5120)].concat());
    finds(&place, &expected);
    let status = place.run(&["show", "status"]).exits(DONE).stdout;
    let row = status.lines().last().expect("a table of those that are followed");
    assert!(row.trim_start().starts_with("7 | ") && row.ends_with(" |    5120 | live"), "{status}");
    // These are added while the follower is away, and after the server began anew.
    kill(follower);
    add(&origin, "plant/1", 5121..=5130);
    kill(server);
    let server = begin();
    add(&origin, "plant/1", 5131..=5140);
    let follower = follow();
    expected.extend(rows("plant/1", 5121..=5140));
    finds(&place, &expected);
    // The other server is gone: this peer answers for it.
    place.run(&["event", "add", "mine", "1"]).exits(DONE);
    kill(server);
    kill(follower);
    let _follower = follow();
    expected.push("8/1/1 mine 1".to_owned());
    finds(&place, &expected);
    let status = place.run(&["show", "status"]).exits(DONE).stdout;
    assert!(status.ends_with("              7 | -    |    5140 | unreachable\n"), "{status}");
    let found = place.run(&["event", "query", "--server", "7", "--after", "7/5138/1", "--json"]).exits(DONE);
    assert_eq!(found.stdout.lines().count(), 2);
}

/// A server with a drawn id restarts before any peer follows it. Its followers then get the events that it had
/// registered before.
#[test]
fn returning_server_is_followed_again() {
    let (origin, place) = (Place::new(), Place::new());
    let port = format!("--port={}", origin.port());
    let server = origin.peer(&[]);
    add(&origin, "x/1", 1..=1);
    kill(server);
    let _server = origin.peer(&[]);
    let _follower = place.peer(&[&port, "--set", "event-follow=*"]);
    wait_until("the event is found", || found(&place).len() == 1);
}

/// Two servers follow each other and register events at the same time, while one of them restarts.
#[test]
fn mutual_followers_converge() {
    let (here, there) = (Place::new(), Place::new());
    let port = format!("--port={}", here.port());
    let begin_here = || here.peer(&["--set", "server-id=7", "--set", "event-follow=*"]);
    let _there = there.peer(&[&port, "--set", "server-id=8", "--set", "event-follow=*"]);
    let mut peer = begin_here();
    thread::scope(|scope| {
        scope.spawn(|| (1..=5).for_each(|round| add(&there, "n", 100 * round..=100 * round + 99)));
        for round in 1..=3 {
            add(&here, "n", 1000 * round..=1000 * round + 99);
            peer.signal("KILL");
            peer.ended();
            peer = begin_here();
        }
    });
    let sorted = |place: &Place| {
        let mut found = found(place);
        found.sort();
        found
    };
    let what = || format!("800 events on both sides; {} here, {} there", found(&here).len(), found(&there).len());
    let all = wait_until_some(what, || {
        let (here, there) = (sorted(&here), sorted(&there));
        Some(here).filter(|here| *here == there && here.len() == 800)
    });
    assert!(all.is_sorted_by(|one, next| one < next), "each once");
}

#[test]
fn duplicate_server_id_is_refused() {
    let (first, second) = (Place::new(), Place::new());
    let port = format!("--port={}", first.port());
    let _first = first.peer(&["--set", "server-id=7", "--set", "name=first"]);
    add(&first, "a", 1..=3);
    let peer = second.peer(&[&port, "--set", "server-id=7"]);
    let refused = second.run(&["event", "add", "a"]).exits(FAILED);
    refused.reports(&[
        "the peer first (",
        "on the host 127.0.0.1 registers events of server 7 too",
        "set another server-id",
        "start this one again",
    ]);
    peer.await_report("the peer first (");
    // Its former events can be found, and the other peer continues.
    assert_eq!(found(&second), [""; 0]);
    add(&first, "a", 4..=5);
    assert_eq!(found(&first), rows("a", 1..=5));
    kill(peer);
    let _peer = second.peer(&[&port, "--set", "server-id=8"]);
    add(&second, "a", 1..=1);
    assert_eq!(found(&second), ["8/1/1 a 1"]);
}

#[test]
fn invalid_followed_types_are_refused_with_the_remedy() {
    let place = Place::new();
    for (value, part) in [("a/*/b", "'*'"), ("a b", "256 patterns")] {
        let outcome = place.run(&["peer", "--set", &format!("event-follow={value}")]);
        outcome.exits(CONFIGURATION).reports(&["event-follow", part, "plant/? ; line/*"]);
    }
}
