//! Clients of the listeners beside the servers that they were made for, with the same client program in the same run:
//! `cargo bench --bench listeners [-- nats|redis|rv [throughput|latency]] [--messages n] [--runs n]`. Takes about
//! a minute.
//!
//! The program publishes many messages of 64 bytes in a write, enough to keep any server busy. It counts received
//! bytes, since all messages are alike. Publisher and subscriber are processes of their own. Each run takes the
//! servers in turn; the output is the median of the runs and the ratio to the server of the protocol.
//!
//! No server of Rendezvous can be installed, so `rv` measures the peer alone, unless `--at` names another one.
//!
//! `-- idle` measures the memory that idle clients and subscriptions take, and the cost of matching among them. `--
//! slow` measures the effect of a client that does not read on others. Both measure the peer alone, through the NATS
//! listener. `-- idle rv` measures the memory of 1,000 Rendezvous clients with 100 listens each.
//!
//! `--at NAME=PUBLISHER'S ADDRESS,SUBSCRIBER'S ADDRESS` names a running server. `--publisher-via` and
//! `--subscriber-via` name a command that starts the client programs, such as `nsenter -n -t 123`.

mod client;
mod load;
mod rv;
mod server;

use client::{Protocol, play};
use seqcast::clock::Clock;
use seqcast::time::Instant;
use server::Server;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

/// The payload of a message, in bytes.
const PAYLOAD: usize = 64;
/// Messages in one write.
const BATCH: usize = 1000;
/// Timeout of everything that succeeds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of requests at the start whose time is not counted.
const WARM_UP: usize = 1000;

type Outcome<T> = Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["role", role, protocol, address, count] => play(role, protocol, address, count),
        ["idle"] => load::idle(),
        ["idle", "rv"] => load::idle_rv(),
        ["slow"] => load::slow(),
        _ => compare(&words),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("listeners: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn now() -> Instant {
    Clock::now().instant
}

/// The comparison to run.
struct Job {
    protocols: Vec<Protocol>,
    kinds: Vec<&'static str>,
    messages: usize,
    requests: usize,
    runs: usize,
    /// Running servers to measure, in place of new ones.
    at: Vec<ServerAddresses>,
    via: [Vec<String>; 2],
}

/// Addresses of a server for its clients.
#[derive(Clone)]
struct ServerAddresses {
    name: String,
    /// Address for the client that publishes.
    sender: String,
    /// Address for the client that subscribes.
    receiver: String,
}

fn read_job(words: &[&str]) -> Outcome<Job> {
    let mut job = Job {
        protocols: Vec::new(),
        kinds: Vec::new(),
        messages: 2_000_000,
        requests: 20_000,
        runs: 3,
        at: Vec::new(),
        via: [Vec::new(), Vec::new()],
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: &str| text.parse::<usize>().map_err(|_| format!("{text:?} is no number"));
        match *word {
            "throughput" => job.kinds.push("throughput"),
            "latency" => job.kinds.push("latency"),
            "--messages" => job.messages = number(value()?)?.next_multiple_of(BATCH),
            "--requests" => job.requests = number(value()?)?.max(1),
            "--runs" => job.runs = number(value()?)?.max(1),
            "--publisher-via" => job.via[0] = value()?.split_whitespace().map(str::to_owned).collect(),
            "--subscriber-via" => job.via[1] = value()?.split_whitespace().map(str::to_owned).collect(),
            "--at" => {
                let text = value()?;
                let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once(',')?)));
                let (name, (publish, subscribe)) = parts.ok_or(format!("{text:?} is not NAME=ADDRESS,ADDRESS"))?;
                job.at.push(ServerAddresses {
                    name: name.to_owned(),
                    sender: publish.to_owned(),
                    receiver: subscribe.to_owned(),
                });
            }
            word => job.protocols.push(Protocol::parse(word)?),
        }
    }
    if job.protocols.is_empty() {
        job.protocols = vec![Protocol::Nats, Protocol::Redis];
    }
    if job.kinds.is_empty() {
        job.kinds = vec!["throughput", "latency"];
    }
    Ok(job)
}

fn compare(words: &[&str]) -> Outcome<()> {
    let job = read_job(words)?;
    for protocol in job.protocols.clone() {
        let mut servers = Vec::new();
        let mut at = job.at.clone();
        if at.is_empty() {
            for server in Server::foreign(protocol)?.into_iter().chain([Server::peer(protocol, &[])?]) {
                let address = &server.address;
                at.push(ServerAddresses {
                    name: server.name.clone(),
                    sender: address.clone(),
                    receiver: address.clone(),
                });
                servers.push(server);
            }
        }
        for kind in &job.kinds {
            let mut figures: Vec<Vec<(f64, f64)>> = vec![Vec::new(); at.len()];
            for _ in 0..job.runs {
                for (figures, at) in figures.iter_mut().zip(&at) {
                    figures.push(measure(&job, kind, protocol, at)?);
                }
            }
            let medians: Vec<(f64, f64)> = figures.into_iter().map(median).collect();
            for (ServerAddresses { name, .. }, (first, second)) in at.iter().zip(&medians) {
                let ratio = first / medians[0].0;
                match *kind {
                    "throughput" => println!(
                        "{} {kind} {name:<14} {:>10.0} msg/s  {ratio:.2}x{}",
                        protocol.name(),
                        first,
                        if *second < 1.0 {
                            format!("  VOID: {:.4} of the messages came", second)
                        } else {
                            String::new()
                        }
                    ),
                    _ => println!(
                        "{} {kind}    {name:<14} p50 {first:.1} us  p99 {second:.1} us  p50 {ratio:.2}x",
                        protocol.name()
                    ),
                }
            }
        }
    }
    Ok(())
}

/// Returns the median by the first figure.
fn median(mut figures: Vec<(f64, f64)>) -> (f64, f64) {
    figures.sort_by(|a, b| a.0.total_cmp(&b.0));
    figures[figures.len() / 2]
}

/// Returns messages a second and the share that arrived, or the median and the 99th percentile of the latency.
fn measure(job: &Job, kind: &str, protocol: Protocol, at: &ServerAddresses) -> Outcome<(f64, f64)> {
    let (roles, count) = match kind {
        "throughput" => (["publish", "subscribe"], job.messages),
        _ => (["request", "answer"], job.requests),
    };
    let mut receiver = Role::start(&job.via[1], roles[1], protocol, &at.receiver, count)?;
    receiver.line()?;
    // On a LAN the other servers learn of the subscription first.
    thread::sleep(Duration::from_millis(200));
    let mut sender = Role::start(&job.via[0], roles[0], protocol, &at.sender, count)?;
    thread::sleep(Duration::from_millis(200));
    sender.go()?;
    let line = if kind == "throughput" { receiver.line()? } else { sender.line()? };
    let mut numbers = line.split_whitespace().map(|word| word.parse::<f64>().unwrap_or(f64::NAN));
    let (first, second) = (numbers.next().unwrap_or(f64::NAN), numbers.next().unwrap_or(f64::NAN));
    Ok(match kind {
        "throughput" => (first / second, first / count as f64),
        _ => (first, second),
    })
}

/// A child that plays a role.
struct Role {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Role {
    fn start(via: &[String], role: &str, protocol: Protocol, address: &str, count: usize) -> Outcome<Role> {
        let own = env::current_exe().map_err(|error| error.to_string())?;
        let mut command = match via.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(own);
                command
            }
            None => Command::new(own),
        };
        command.args(["role", role, protocol.name(), address, &count.to_string()]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{role} does not start: {error}"))?;
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Role { child, out })
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        match self.out.read_line(&mut line) {
            Ok(1..) => Ok(line),
            _ => Err("a client ended before it had a result".to_owned()),
        }
    }

    fn go(&mut self) -> Outcome<()> {
        let input = self.child.stdin.as_mut().expect("it is piped");
        input.write_all(b"go\n").map_err(|error| error.to_string())
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
