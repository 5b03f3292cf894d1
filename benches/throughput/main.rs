//! Messages a second, from one publisher to one subscriber over loopback multicast, beside what the kernel allows in
//! the same run: `cargo bench --bench throughput [-- [--json] [--secs n] [driven | threads | attached]]`.
//! Takes about 25 seconds.
//!
//! - *raw*: one message in each datagram, with bare `sendmmsg` and `recvmmsg`: the figure to compare with. The others are
//!   the same with full datagrams, counted in messages: the best that packing could reach.
//! - *driven*: the library with [`Embedded`](seqcast::bus::Embedded) peers, driven by the threads that publish and read.
//! - *threads*: the library with [`Bus::embed`](seqcast::bus::Bus::embed), each peer in a thread of its own.
//! - *attached*: programs that publish and read through the Unix sockets of their peers, as those of daemons.
//!
//! A publisher is not held up by its subscribers, so one that is faster than a subscriber causes loss; the bench shows how
//! much, as the library reports it, and fails if that does not add up to what was published.

mod library;
mod raw;

use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

/// The payload of a message, in bytes.
const MESSAGE_BYTES: usize = 64;
/// The largest datagram on an Ethernet, in bytes of UDP payload.
const ETHERNET_BYTES: usize = 1472;
/// The largest datagram that peers send by themselves on loopback.
const AUTO_BYTES: usize = 8972;

struct Options {
    json: bool,
    span: Duration,
    /// Only this row, beside the raw ones.
    only: Option<String>,
}

impl Options {
    fn parse() -> Result<Options, String> {
        let mut options = Options { json: false, span: Duration::from_secs(2), only: None };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bench" => {}
                "--json" => options.json = true,
                "--secs" => {
                    let secs = args.next().and_then(|text| text.parse().ok()).filter(|secs| (1..=60).contains(secs));
                    options.span = Duration::from_secs(secs.ok_or("--secs takes a number from 1 to 60")?);
                }
                "driven" | "threads" | "attached" => options.only = Some(arg),
                other => {
                    return Err(format!(
                        "unknown argument {other:?}; there are --json, --secs <1..60>, driven, threads, attached"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// One line of the result, in messages, and in datagrams where it says so.
struct Row {
    name: &'static str,
    datagram_bytes: usize,
    published: u64,
    received: u64,
    /// Processor time of the whole program, both sides and their system calls: not changed by what else runs.
    processor: Duration,
    /// Of the library: what it says of the messages that did not arrive.
    account: Option<library::Outcome>,
}

impl Row {
    fn raw(name: &'static str, bytes: usize, span: Duration) -> Result<Row, String> {
        let before = processor_time();
        let outcome = raw::run(bytes, span).map_err(|error| format!("{name}: {error}"))?;
        let messages = (bytes / MESSAGE_BYTES) as u64;
        let (published, received) = (outcome.sent * messages, outcome.received * messages);
        let processor = processor_time() - before;
        Ok(Row { name, datagram_bytes: bytes, published, received, processor, account: None })
    }

    fn library(
        name: &'static str,
        bytes: usize,
        span: Duration,
        run: fn(usize, usize, Duration) -> Result<library::Outcome, String>,
    ) -> Result<Row, String> {
        let before = processor_time();
        let outcome = run(MESSAGE_BYTES, bytes, span).map_err(|error| format!("{name}: {error}"))?;
        let (published, received) = (outcome.published, outcome.received);
        let processor = processor_time() - before;
        Ok(Row { name, datagram_bytes: bytes, published, received, processor, account: Some(outcome) })
    }

    /// Whether every published message was received, or accounted for.
    fn adds_up(&self) -> bool {
        let Some(account) = &self.account else { return true };
        self.published == self.received + account.lost + account.unverified + account.dropped
    }

    /// Nanoseconds of processor time for each message published, sent and received.
    fn nanos_each(&self) -> f64 {
        self.processor.as_nanos() as f64 / self.published.max(1) as f64
    }

    fn json(&self, span: Duration, raw: &Row) -> Value {
        let mut row = json!({
            "name": self.name,
            "datagram_bytes": self.datagram_bytes,
            "published_per_s": self.published as f64 / span.as_secs_f64(),
            "received_per_s": self.received as f64 / span.as_secs_f64(),
            "processor_ns_per_message": self.nanos_each(),
            "received_to_raw": self.received as f64 / raw.received as f64,
        });
        if let Some(account) = &self.account {
            row["lost"] = account.lost.into();
            row["unverified"] = account.unverified.into();
            row["dropped"] = account.dropped.into();
            row["kernel_drops"] = account.kernel_drops.into();
        }
        row
    }

    fn line(&self, span: Duration, raw: &Row) -> String {
        let [published, received] = [self.published, self.received].map(|count| count as f64 / span.as_secs_f64());
        let cell = |of: fn(&library::Outcome) -> u64| {
            self.account.as_ref().map_or(String::new(), |account| of(account).to_string())
        };
        format!(
            "{:<8} | {:>8} | {published:>10.0} | {received:>10.0} | {:>6.2} | {:>7.0} | {:>9} | {:>10} | {:>9} | {:>8}",
            self.name,
            self.datagram_bytes,
            self.received as f64 / raw.received as f64,
            self.nanos_each(),
            cell(|account| account.lost),
            cell(|account| account.unverified),
            cell(|account| account.dropped),
            cell(|account| account.kernel_drops),
        )
    }
}

fn run(options: &Options) -> Result<(), String> {
    let span = options.span;
    let mut rows = vec![
        Row::raw("raw", MESSAGE_BYTES, span)?,
        Row::raw("raw full", ETHERNET_BYTES, span)?,
        Row::raw("raw full", AUTO_BYTES, span)?,
    ];
    let wanted = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    if wanted("driven") {
        rows.push(Row::library("driven", ETHERNET_BYTES, span, library::driven)?);
        rows.push(Row::library("driven", AUTO_BYTES, span, library::driven)?);
    }
    if wanted("threads") {
        rows.push(Row::library("threads", ETHERNET_BYTES, span, library::threaded)?);
    }
    if wanted("attached") {
        rows.push(Row::library("attached", ETHERNET_BYTES, span, library::attached)?);
    }
    if options.json {
        let rows: Vec<Value> = rows.iter().map(|row| row.json(span, &rows[0])).collect();
        println!("{}", json!({ "message_bytes": MESSAGE_BYTES, "secs": span.as_secs_f64(), "rows": rows }));
    } else {
        println!(
            "{MESSAGE_BYTES}-byte messages a second, 1 publisher to 1 subscriber, loopback multicast, {span:?} each"
        );
        println!(
            "         | datagram |  published |   received | to raw |  cpu ns |      lost | unverified |   dropped |   kernel"
        );
        println!(
            "---------+----------+------------+------------+--------+---------+-----------+------------+-----------+---------"
        );
        rows.iter().for_each(|row| println!("{}", row.line(span, &rows[0])));
        println!(
            "cpu ns: processor time of both sides for each message published; lost, unverified, dropped: messages in"
        );
        println!("all, as the library reports them; kernel: datagrams dropped");
    }
    match rows.iter().find(|row| !row.adds_up()) {
        None => Ok(()),
        Some(row) => Err(format!("{} with {}-byte datagrams does not add up", row.name, row.datagram_bytes)),
    }
}

/// Processor time that all threads of this program have used.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec`, which outlives the call.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(outcome, 0, "every Linux has this clock");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn main() -> ExitCode {
    match Options::parse().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("throughput: {error}");
            ExitCode::FAILURE
        }
    }
}
