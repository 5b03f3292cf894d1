//! Peers on loopback, each test in a group of its own.

use super::TempDir;
pub use super::wait::PATIENCE;
use super::wait::wait_until;
use seqcast::bus::{Bus, Notice, Options, Subscription};
use seqcast::clock::random_u64;
use seqcast::config::Config;
use seqcast::message::{Delivery, Message};

/// Returns a configuration on loopback with a random group and port, so that concurrent tests do not meet.
pub fn config(name: &str) -> Config {
    let bits = random_u64().to_be_bytes();
    let mut config = Config::default();
    config.name = name.parse().expect("a test's name is a peer name");
    config.group = [239, 255, bits[0], bits[1].max(1)].into();
    config.port = 20_000 + u16::from_be_bytes([bits[2], bits[3]]) % 10_000;
    config.interface = "lo".parse().expect("the loopback interface");
    // The tests must not use the journal of the user that runs them. Nothing is created there unless a test wants
    // events.
    config.data_dir = std::env::temp_dir().join(format!("seqcast-test-{:016x}", random_u64()));
    config
}

/// Returns [`config`] with a socket in a directory that is removed with the test.
pub fn config_with_socket(name: &str) -> (Config, TempDir) {
    let directory = TempDir::new();
    let mut config = config(name);
    config.socket = directory.path().join("peer.sock");
    config.data_dir = directory.path().join("state");
    (config, directory)
}

/// Returns two configurations of one group, `one` and `two`, each with a socket.
pub fn two_configs() -> (Config, Config, TempDir) {
    let (one, directory) = config_with_socket("one");
    let mut two = one.clone();
    two.name = "two".parse().unwrap();
    two.socket = directory.path().join("two.sock");
    (one, two, directory)
}

/// Starts a peer in a thread, with its Unix socket.
pub fn serve(config: &Config) -> Bus {
    Bus::embed_with(config, &Options { serve: true, ..Options::default() }).expect("a peer on loopback")
}

/// Returns a message of text.
pub fn message(subject: &str, payload: &str) -> Message {
    Message::new(subject.parse().expect("a test's subject"), payload.to_owned())
}

/// Waits until `a` knows `b`.
pub fn wait_for(a: &Bus, b: &Bus) {
    let epoch = b.info().epoch.to_string();
    wait_until("the peers meet", || {
        let peers = a.show("peers").expect("the peer answers");
        peers["rows"].as_array().expect("rows").iter().any(|row| row["epoch"] == epoch && row["state"] == "up")
    });
}

/// Returns the next `count` messages; nothing else may come.
pub fn messages(subscription: &Subscription, count: usize) -> Vec<Delivery> {
    let next = |_| match subscription.recv_timeout(PATIENCE).expect("a message in time") {
        Notice::Message(delivery) => delivery,
        other => panic!("no message: {other:?}"),
    };
    (0..count).map(next).collect()
}
