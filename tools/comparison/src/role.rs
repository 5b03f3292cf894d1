//! The two processes of a measurement.

use crate::content;
use crate::systems::{System, publisher, subscriber};
use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of messages between two looks at the clock.
const CLOCK_INTERVAL: u64 = 64;
/// Time in which a new subscription becomes known to the publisher's side.
const SETTLING_TIME: Duration = Duration::from_secs(1);
/// Time without a message after which a subscriber takes the stream for ended.
const SILENCE: Duration = Duration::from_secs(1);
/// Time in which a process must end once its input has ended, after [`SILENCE`].
const END_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Args)]
pub struct RoleArgs {
    system: System,
    /// Where the system is reached
    endpoint: String,
    /// Bytes of a payload
    size: usize,
    /// Publishing time
    secs: f64,
}

/// Publishes for the given time and prints the number of messages.
pub fn publish(args: &RoleArgs) -> Result<()> {
    let mut publisher = publisher(args.system, &args.endpoint, args.size)?;
    std::thread::sleep(SETTLING_TIME);
    let mut payload = vec![0; args.size];
    let (begin, publishing_time) = (Instant::now(), Duration::from_secs_f64(args.secs));
    let mut sent = 0;
    while sent % CLOCK_INTERVAL != 0 || begin.elapsed() < publishing_time {
        content::fill(&mut payload, sent);
        publisher.publish(&payload)?;
        sent += 1;
    }
    publisher.finish()?;
    println!("{}", json!({ "sent": sent }));
    std::io::stdout().flush()?;
    // Some systems lose what waits when the program ends.
    wait_for_end_of_input();
    Ok(())
}

/// Receives until the input has ended and nothing more comes. Prints `ready` once it is subscribed, and what came.
pub fn subscribe(args: &RoleArgs) -> Result<()> {
    let mut subscriber = subscriber(args.system, &args.endpoint)?;
    println!("ready");
    let is_ending = Arc::new(AtomicBool::new(false));
    let ending = is_ending.clone();
    std::thread::spawn(move || {
        wait_for_end_of_input();
        ending.store(true, Ordering::Relaxed);
    });
    let mut arrivals = Arrivals::new(Duration::from_secs_f64(args.secs / 10.0));
    let mut heard_at = Instant::now();
    while !is_ending.load(Ordering::Relaxed) || heard_at.elapsed() < SILENCE {
        let before = arrivals.count;
        subscriber.receive(&mut |payload| arrivals.count(payload))?;
        if before != arrivals.count {
            heard_at = Instant::now();
            arrivals.last_at = heard_at;
        }
    }
    println!("{}", arrivals.report());
    Ok(())
}

/// Messages that a subscriber received. Rates count from a tenth of the run to the last message.
struct Arrivals {
    start_up: Duration,
    count: u64,
    wrong: u64,
    next: u64,
    first_at: Option<Instant>,
    /// The number of messages, and the time, from which the rate counts.
    rate_from: Option<(u64, Instant)>,
    last_at: Instant,
}

impl Arrivals {
    fn new(start_up: Duration) -> Arrivals {
        let last_at = Instant::now();
        Arrivals { start_up, count: 0, wrong: 0, next: 0, first_at: None, rate_from: None, last_at }
    }

    fn count(&mut self, payload: &[u8]) {
        match content::read(payload) {
            Some(number) if self.next <= number => self.next = number + 1,
            _ => self.wrong += 1,
        }
        if self.rate_from.is_none() && self.count.is_multiple_of(CLOCK_INTERVAL) {
            let now = Instant::now();
            if self.start_up <= now - *self.first_at.get_or_insert(now) {
                self.rate_from = Some((self.count, now));
            }
        }
        self.count += 1;
    }

    fn report(&self) -> Value {
        let rate = self.rate_from.map(|(count, at)| (self.count - count) as f64 / (self.last_at - at).as_secs_f64());
        json!({ "received": self.count, "wrong": self.wrong, "per_s": rate.filter(|rate| rate.is_finite()) })
    }
}

fn wait_for_end_of_input() {
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            break;
        }
    }
}

/// A process with a role. It ends when this is dropped.
pub struct Role {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Role {
    /// Starts this program again with a role.
    pub fn start(role: &str, arguments: &[&str]) -> Result<Role> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(role).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("this program cannot start itself")?;
        let output = child.stdout.take().context("a role has an output")?;
        Ok(Role { child, output: BufReader::new(output) })
    }

    /// Returns the next line of its output.
    pub fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    /// Returns the next line of its output, which is JSON.
    pub fn read_json(&mut self) -> Result<Value> {
        let line = self.read_line()?;
        serde_json::from_str(&line).with_context(|| format!("a role ended without a result: {line:?}"))
    }

    /// Ends its input and returns its result.
    pub fn finish(&mut self) -> Result<Value> {
        drop(self.child.stdin.take());
        self.read_json()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // A process that ends by itself removes its files; a stuck one is killed.
        drop(self.child.stdin.take());
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
