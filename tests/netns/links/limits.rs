//! The limits of the cluster's stream, which an administrator changes, and fills with messages that no site imports.
//!
//! The nodes learn of new limits at different times. If a limit holds at that time, some copies of the stream take a
//! message and others do not (nats-server 2.9). So limits change while there is room, and then the stream is filled.

use super::cluster::Node;
use crate::support::command::now;
use crate::support::wait::{let_time_pass, wait_until, wait_until_some};
use serde_json::{Value, json};
use std::time::Duration;

/// Name of the stream.
const STREAM: &str = "SEQCAST";
/// Subject on which the administrator gets the answers.
const ANSWERS: &str = "_INBOX.limits";
/// Subject of the messages that fill the stream.
const FILLING: &str = "filling";
/// Number of these that are sent at a time.
const BATCH: u64 = 250;
/// Number of messages for which a stream with a limit has room at first.
const ROOM: u64 = 3_000;
/// Number of messages from the sites that stay in a stream that discards the oldest ones, at most.
const NEWEST: u64 = 300;
/// Maximum time for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(4);
/// Maximum time for which the sites may be behind.
const READ_TIME: Duration = Duration::from_secs(60);
/// Time after which all nodes know new limits.
const SPREAD_TIME: Duration = Duration::from_secs(1);

/// Lets the stream take nothing new.
pub fn fill(nodes: &[Node]) {
    limit(nodes, "new", stored(nodes) + ROOM);
    wait_until("the stream is full", || {
        send_filling(nodes);
        is_full(nodes)
    });
}

/// Gives the stream a limit beyond which it discards its oldest messages. Those that all sites have read, up to a
/// number that `read_to` returns, go before, and the sites have read what the stream has. Returns false if they stay too
/// far behind.
pub fn prepare_discard(nodes: &[Node], read_to: impl Fn() -> u64) -> bool {
    let begun = now();
    let in_time = || now().since(begun) < READ_TIME;
    while in_time() {
        request(nodes, "PURGE", |_| json!({ "seq": read_to() }));
        if stored(nodes) < ROOM / 2 {
            limit(nodes, "old", ROOM);
            let last = number(nodes, "last_seq");
            while in_time() && read_to() < last {
                let_time_pass(Duration::from_millis(100), "the sites read on");
            }
            if last <= read_to() {
                return true;
            }
            break;
        }
        let_time_pass(SPREAD_TIME, "the sites read on");
    }
    restore(nodes);
    false
}

/// Lets the stream discard all messages of the sites but the newest ones.
pub fn discard(nodes: &[Node]) {
    (0..ROOM - NEWEST).step_by(BATCH as usize).for_each(|_| send_filling(nodes));
    wait_until("the stream discards its oldest messages", || is_full(nodes));
}

/// Makes room in the stream, and removes the limits that gateways have not given it.
pub fn restore(nodes: &[Node]) {
    request(nodes, "PURGE", |_| json!({ "filter": FILLING }));
    request(nodes, "UPDATE", |config| {
        (config["discard"], config["max_msgs"]) = ("old".into(), (-1).into());
        config.take()
    });
}

/// Gives the stream a maximum number of messages, and a way to handle further ones: `old` or `new`.
fn limit(nodes: &[Node], discard: &str, messages_max: u64) {
    request(nodes, "UPDATE", |config| {
        (config["discard"], config["max_msgs"]) = (discard.into(), messages_max.into());
        let subjects = config["subjects"].as_array_mut().expect("the subjects of the stream");
        if !subjects.contains(&FILLING.into()) {
            subjects.push(FILLING.into());
        }
        config.take()
    });
    let_time_pass(SPREAD_TIME, "each node learns of the limit before it holds");
}

fn send_filling(nodes: &[Node]) {
    let mut client = nodes[0].connect();
    client.send(format!("PUB {FILLING} 0\r\n\r\n").repeat(BATCH as usize));
    client.settle();
}

/// Returns the number of messages in the stream.
fn stored(nodes: &[Node]) -> u64 {
    number(nodes, "messages")
}

/// Returns a number of the stream's state.
fn number(nodes: &[Node], field: &str) -> u64 {
    let info = wait_until_some(|| "the stream answers".into(), || ask(&nodes[0], "INFO", ""));
    info["state"][field].as_u64().expect("a number")
}

fn is_full(nodes: &[Node]) -> bool {
    ask(&nodes[0], "INFO", "").is_some_and(|info| info["state"]["messages"] == info["config"]["max_msgs"])
}

/// Sends a request that depends on the settings of the stream, until the cluster has done it.
fn request(nodes: &[Node], verb: &str, of: impl Fn(&mut Value) -> Value) {
    wait_until(&format!("the cluster does this to the stream: {verb}"), || {
        nodes.iter().any(|node| {
            let Some(mut info) = ask(node, "INFO", "") else { return false };
            ask(node, verb, &of(&mut info["config"]).to_string()).is_some()
        })
    });
}

/// Sends a request about the stream. Returns the answer, or `None` if the cluster does not do it now.
fn ask(node: &Node, verb: &str, payload: &str) -> Option<Value> {
    let mut client = node.connect();
    client.subscribe(ANSWERS, 1);
    let length = payload.len();
    client.send(format!("PUB $JS.API.STREAM.{verb}.{STREAM} {ANSWERS} {length}\r\n{payload}\r\n"));
    let (_, answer) = client.message_within(ANSWER_TIME)?;
    let answer: Value = serde_json::from_slice(&answer).ok()?;
    answer["error"].is_null().then_some(answer)
}
