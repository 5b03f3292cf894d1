//! Event streams of a peer over loopback: `cargo bench --bench streams [-- add|poll|push|filters|limits] [--events
//! n]`. The files are in the system's directory for temporary files.
//!
//! | what | is measured |
//! |---|---|
//! | `add` | addEvent over one WebSocket with many pending calls, each answered when it is durable |
//! | `poll` | pollEvents over one WebSocket, in groups of 1,000, each accepted by the next |
//! | `push` | groups to ten reliable consumers that answer them: waiting events, and those added meanwhile |
//! | `filters` | a hundred consumers that want different types out of `--events`, a million unless said otherwise |
//! | `limits` | the retained events of a stream with a limit while a consumer is idle |
//!
//! `-- beside SCRIPT` does the first three with the published implementation, too, which the script starts;
//! `tools/stream-reference` installs and names it. It gets a twentieth of the events, since it is that much slower,
//! and the same client.

mod client;
mod load;
mod server;
#[path = "../../tests/support/websocket.rs"]
mod websocket;

use client::Client;
use hdrhistogram::Histogram;
use seqcast::clock::Clock;
use seqcast::time::Instant;
use server::{Server, processor_time};
use std::env;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Number of events of the first three parts.
const EVENTS: u64 = 200_000;
/// Divisor of that number for the published implementation.
const REFERENCE_SHARE: u64 = 20;
/// Maximum number of pending calls.
const WINDOW: usize = 512;
const CONSUMERS: u64 = 10;
const ROUNDS: usize = 3;

fn now() -> Instant {
    Clock::now().instant
}

/// Returns the parameters of addEvent: some 100 bytes of data.
fn event(kind: &str, number: u64) -> String {
    let account = number % 9_973;
    format!(
        "{{\"type\":\"{kind}\",\"data\":{{\"account\":\"A{account:06}\",\"amount\":\"10.00\",\"currency\":\"EUR\",\"number\":{number},\
         \"text\":\"a payment like many others\"}}}}"
    )
}

/// Resources that a part of a run took.
struct ResourceUse {
    events: u64,
    time: Duration,
    server: Duration,
    client: Duration,
}

impl ResourceUse {
    /// Measures `work`, which returns the number of events.
    fn of(server: &Server, work: impl FnOnce() -> u64) -> ResourceUse {
        let (begun, before, own) = (now(), server.processor_time(), processor_time("self"));
        let events = work();
        let time = now().since(begun);
        ResourceUse { events, time, server: server.processor_time() - before, client: processor_time("self") - own }
    }

    fn rate(&self) -> f64 {
        self.events as f64 / self.time.as_secs_f64()
    }

    fn print(&self, server: &Server, what: &str, more: &str) {
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / self.events as f64;
        let (rate, name) = (self.rate(), server.name);
        let (of_server, of_client) = (micros(self.server), micros(self.client));
        println!(
            "{what:<22} {name:<10} {rate:9.0} events/s  processor {of_server:6.2} us an event, client {of_client:.2}{more}"
        );
    }
}

fn percentiles(times: &Histogram<u64>) -> String {
    let at = |quantile| times.value_at_quantile(quantile) as f64 / 1e6;
    format!("  p50 {:.2} ms  p99 {:.2} ms  max {:.2} ms", at(0.5), at(0.99), times.max() as f64 / 1e6)
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Adds, polls and pushes; returns the medians of the rates, by kind of operation.
fn measure(server: &Server, parts: &[String], events: u64) -> Vec<(&'static str, f64)> {
    let has = |part: &str| parts.is_empty() || parts.iter().any(|word| word == part);
    let mut rates: Vec<(&'static str, f64)> = Vec::new();
    let mut client = Client::connect(server);
    // Events that it does not accept are retained, so that all parts have the same events.
    client.register("keeper");
    client.add(events / 10, WINDOW, |number| event("WARM_UP", number));
    let mut add = Vec::new();
    let mut total = events / 10;
    for _ in 0..if has("add") { ROUNDS } else { 1 } {
        let mut times = None;
        let took = ResourceUse::of(server, || {
            times = Some(client.add(events, WINDOW, |number| event("PAYMENT", number)));
            events
        });
        took.print(server, "add", &percentiles(&times.expect("it was done")));
        add.push(took.rate());
        total += events;
    }
    rates.push(("add", median(add)));
    if has("poll") {
        let rate = |round: usize| {
            let component = format!("poll{round}");
            client.register(&component);
            let (mut after, mut times) = (0, Histogram::<u64>::new(3).expect("three digits"));
            let took = ResourceUse::of(server, || {
                loop {
                    let begun = now();
                    let Some(group) = client.poll(server, &component, after) else { return after };
                    times.record(now().since(begun).as_nanos() as u64).expect("a histogram that grows");
                    assert_eq!((group.first, group.count), (after + 1, group.last - after), "events are missing");
                    after = group.last;
                }
            });
            assert_eq!(took.events, total, "all events are polled");
            took.print(server, "poll", &percentiles(&times));
            took.rate()
        };
        rates.push(("poll", median((0..ROUNDS).map(rate).collect())));
    }
    if has("push") {
        // The published implementation may end when a client with pushed events leaves, so these clients stay.
        let (waiting, _clients) = push(server, "push, what waits", total, 0);
        rates.push(("push, what waits", waiting));
        rates.push(("push, what is added", push(server, "push, what is added", total, events).0));
    }
    rates
}

/// Pushes waiting events to consumers, or events added meanwhile; then the consumers begin behind the waiting ones.
fn push(server: &Server, what: &str, total: u64, added: u64) -> (f64, Vec<(Client, String)>) {
    let mut clients: Vec<(Client, String)> = (0..CONSUMERS)
        .map(|number| (Client::connect(server), format!("{}{number}", if added == 0 { "wait" } else { "live" })))
        .collect();
    for (client, component) in &mut clients {
        client.register(component);
        // A consumer that accepts the earlier events by a poll is pushed only new ones.
        if 0 < added {
            assert!(client.poll(server, component, total).is_none(), "nothing is behind the last event");
        }
    }
    let from = if added == 0 { 0 } else { total };
    let took = ResourceUse::of(server, || {
        thread::scope(|scope| {
            for (client, component) in &mut clients {
                scope.spawn(|| {
                    client.ready(component, "null");
                    let mut last = from;
                    while last < total + added {
                        let group = client.receive();
                        assert_eq!((group.first, group.count), (last + 1, group.last - last), "events are missing");
                        last = group.last;
                    }
                });
            }
            if 0 < added {
                Client::connect(server).add(added, WINDOW, |number| event("PAYMENT", number));
            }
        });
        CONSUMERS * (total + added - from)
    });
    took.print(server, what, "");
    (took.rate(), clients)
}

fn main() {
    let mut parts: Vec<String> = Vec::new();
    let (mut events, mut script) = (None, None);
    let mut words = env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        match word.as_str() {
            "--events" => {
                let number = words.next().and_then(|word| word.parse::<u64>().ok());
                events = Some(number.expect("--events needs a number").max(10 * REFERENCE_SHARE));
            }
            "beside" => script = Some(PathBuf::from(words.next().expect("beside needs the script of the server"))),
            "add" | "poll" | "push" | "filters" | "limits" => parts.push(word),
            word => panic!("{word:?} is none of add, poll, push, filters, limits, --events n, beside SCRIPT"),
        }
    }
    let is_wanted = |names: &[&str]| parts.is_empty() || parts.iter().any(|part| names.contains(&part.as_str()));
    if is_wanted(&["add", "poll", "push"]) {
        let events = events.unwrap_or(EVENTS);
        let found = measure(&Server::peer(&[]), &parts, events);
        let beside =
            script.as_ref().map(|script| measure(&Server::reference(script), &parts, events / REFERENCE_SHARE));
        for (at, (what, rate)) in found.iter().enumerate() {
            match beside.as_ref().map(|beside| beside[at].1) {
                Some(other) => {
                    println!("{what:<22} median {rate:.0} events/s, reference {other:.0}: {:.1}x", rate / other)
                }
                None => println!("{what:<22} median {rate:.0} events/s"),
            }
        }
    }
    // The reference has nothing to compare these with.
    if script.is_none() && is_wanted(&["filters"]) {
        load::filters(events.unwrap_or(1_000_000));
    }
    if script.is_none() && is_wanted(&["limits"]) {
        load::limits(events.unwrap_or(EVENTS));
    }
}
