//! `top` while datagrams are lost: its numbers are those of `show`, and of the messages that were sent.

use super::lan::{Lan, in_namespaces};
use super::{DATA, group, wait_until};

#[test]
fn top_shows_the_numbers_of_the_reports() {
    in_namespaces("netns::top::top_shows_the_numbers_of_the_reports", || {
        let lan = Lan::new(2);
        let settings = ["reliability=2 sec"];
        let publisher = lan.hosts[0].start_peer("A.top", group(), &settings);
        let receiver = lan.hosts[1].start_peer("B.top", group(), &settings);
        let subscription = receiver.subscribe("top.>");
        lan.hosts[1].fault(&format!("{DATA} numgen random mod 20 0 counter name hits drop"));
        publisher.publish("top.a", 5_000, 5_000).finish();
        wait_until("everything is delivered", || subscription.lines().len() == 5_000);
        assert!(0 < lan.hosts[1].heal(), "the fault has hit");

        let text = receiver.run(&["top", "--once", "--interval", "10ms"]);
        let row = |start: &str| -> Vec<String> {
            let line =
                text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start} in {text}"));
            line.split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        let after = |view: &str| text.split(&format!("\n{view}\n")).nth(1).expect("the view is there").to_owned();
        let loss = receiver.rows("loss")[0].clone();
        let losses = after("loss");
        let cells: Vec<&str> =
            losses.lines().find(|line| line.starts_with("A.top")).unwrap().split('|').map(str::trim).collect();
        assert_eq!(cells[1], "0", "nothing was lost: {text}");
        assert_eq!(cells[2], loss["repaired"]["count"].to_string());
        assert_ne!(cells[2], "0", "the fault has lost datagrams that were repaired: {text}");
        assert_eq!(cells[3], loss["datagrams"]["pending"].to_string());
        assert_eq!(row("top.a")[4], "5000");
        // The other host shows the same numbers, which it asks for.
        let there = publisher.run(&["top", "--once", "--interval", "10ms"]);
        let lan_view = there.split("\nlan\n").nth(1).expect("the view is there");
        let reported: Vec<&str> =
            lan_view.lines().find(|line| line.starts_with("B.top")).unwrap().split('|').map(str::trim).collect();
        assert_eq!((reported[5], reported[6], reported[7]), ("0", cells[2], cells[3]), "{there}");
        let peer = receiver.rows("peers")[0].clone();
        let peers = after("peers");
        let cells: Vec<&str> =
            peers.lines().find(|line| line.starts_with("A.top")).unwrap().split('|').map(str::trim).collect();
        assert_eq!((cells[2], cells[5]), ("up", peer["lost"].to_string().as_str()));
    });
}
