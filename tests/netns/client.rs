//! Programs with published client libraries, the ones in `tests/clients`, on a host of the LAN. `tools/test` installs
//! them.

use super::lan::{Host, Process};
use crate::support::root;
use crate::support::wait::{wait_until, wait_until_some};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A client library, and the protocol that it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    NatsPy,
    NatsNode,
    AsyncNats,
    RedisPy,
    /// The same with the older version of the protocol.
    RedisPy2,
    Ioredis,
    NodeRedis,
}

impl Library {
    pub const NATS: [Library; 3] = [Library::NatsPy, Library::NatsNode, Library::AsyncNats];
    pub const ALL: [Library; 7] = [
        Library::NatsPy,
        Library::NatsNode,
        Library::AsyncNats,
        Library::RedisPy,
        Library::RedisPy2,
        Library::Ioredis,
        Library::NodeRedis,
    ];

    pub fn is_nats(self) -> bool {
        Library::NATS.contains(&self)
    }

    /// Returns the program and its first arguments; without the part before the address.
    fn command(self) -> (PathBuf, Vec<String>) {
        let installed = root().join("target/clients");
        let script = |name: &str| root().join("tests/clients").join(name).display().to_string();
        let python = |name: &str| (installed.join("python/bin/python3"), vec![script(name)]);
        // Node searches modules beside the script, so the scripts are installed beside the modules.
        let node = |name: &str| ("node".into(), vec![installed.join("node").join(name).display().to_string()]);
        match self {
            Library::NatsPy => python("nats_py.py"),
            Library::NatsNode => node("nats_node.mjs"),
            Library::AsyncNats => (installed.join("async-nats/debug/async-nats-client"), Vec::new()),
            Library::RedisPy | Library::RedisPy2 => python("redis_py.py"),
            Library::Ioredis => node("ioredis.mjs"),
            Library::NodeRedis => node("node_redis.mjs"),
        }
    }

    /// Connects a client to the peer on its own host.
    pub fn start(self, host: &Host) -> Client {
        let (program, mut arguments) = self.command();
        let scheme = if self.is_nats() { "nats://127.0.0.1:4222" } else { "redis://127.0.0.1:6379" };
        arguments.push(scheme.to_owned());
        if self == Library::RedisPy2 {
            arguments.push("2".to_owned());
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let process = host.start(&program.display().to_string(), &arguments);
        let client = Client { library: self, process, done: 0 };
        client.wait_for("it connects", |line| line["event"] == "connected");
        client
    }
}

/// A program with a client library.
pub struct Client {
    pub library: Library,
    process: Process,
    /// Number of commands sent to the client program.
    done: usize,
}

impl Client {
    /// Returns the lines that it has printed so far.
    pub fn output(&self) -> Vec<Value> {
        let read = |line: &String| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.process.lines().iter().map(read).collect()
    }

    /// Sends a command to the program, and waits until the program has performed it.
    pub fn act(&mut self, command: Value) {
        self.begin(command);
        self.finish();
    }

    /// Makes it begin with a command.
    pub fn begin(&mut self, command: Value) {
        self.process.write(&command.to_string());
        self.done += 1;
    }

    /// Waits until the program has performed all its commands.
    pub fn finish(&self) {
        let what = format!("{:?} performs its commands", self.library);
        wait_until(&what, || self.count(|line| line.get("done").is_some()) == self.done);
    }

    /// Returns the number of its lines that match.
    pub fn count(&self, is_such: impl Fn(&Value) -> bool) -> usize {
        self.output().iter().filter(|line| is_such(line)).count()
    }

    /// Waits until the program has printed a matching line.
    pub fn wait_for(&self, what: &str, is_such: impl Fn(&Value) -> bool) -> Value {
        let what = || format!("{:?}: {what}; its last output: {:?}", self.library, self.process.lines().last());
        wait_until_some(what, || self.output().into_iter().find(|line| is_such(line)))
    }

    /// Subscribes, and waits until the server has confirmed it.
    pub fn subscribe(&mut self, subject: &str, id: u64) {
        self.act(json!({ "do": "sub", "subject": subject, "id": id }));
        if !self.library.is_nats() {
            self.wait_for("it is subscribed", |line| line["event"] == "subscribed" && line["to"] == subject);
        }
    }

    /// Returns the content of the messages that came for a subscription.
    pub fn messages(&self, id: u64) -> Vec<String> {
        let content = |line: &Value| Some(line["data"].as_str()?.to_owned());
        self.output().iter().filter(|line| line["msg"] == id).filter_map(content).collect()
    }

    /// Waits until `count` messages have come for a subscription.
    pub fn await_messages(&self, id: u64, count: usize) -> Vec<String> {
        let what = || {
            let messages = self.messages(id);
            format!("{:?} gets {count} messages; {} came, the last {:?}", self.library, messages.len(), messages.last())
        };
        wait_until_some(what, || Some(self.messages(id)).filter(|messages| count <= messages.len()))
    }

    /// Sends a request. Returns its answer or the reason why there is none.
    pub fn request(&mut self, subject: &str, data: &str) -> Result<String, String> {
        let before = self.count(|line| line.get("answer").is_some());
        self.act(json!({ "do": "req", "subject": subject, "data": data, "timeout": 20 }));
        let answers: Vec<Value> = self.output().into_iter().filter(|line| line.get("answer").is_some()).collect();
        let answer = &answers[before];
        match answer["answer"].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(answer["why"].as_str().unwrap_or("?").to_owned()),
        }
    }
}
