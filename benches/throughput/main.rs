//! Messages a second, from one publisher to one subscriber over loopback multicast, beside what the kernel allows in
//! the same run: `cargo bench --bench throughput [-- --json] [--secs n]`.
//!
//! - *raw 64*: 64-byte datagrams, one message each, with bare `sendmmsg` and `recvmmsg`. The figure to compare with.
//! - *raw full*: the same with datagrams of 1,472 bytes; what packing many messages into a datagram could reach at best,
//!   in messages of 64 bytes.

mod raw;

use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// The payload of a message, in bytes.
const MESSAGE_BYTES: usize = 64;
/// The largest datagram on an Ethernet, in bytes of UDP payload.
const DATAGRAM_BYTES: usize = 1472;

struct Options {
    json: bool,
    span: Duration,
}

impl Options {
    fn parse() -> Result<Options, String> {
        let mut options = Options { json: false, span: Duration::from_secs(2) };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bench" => {}
                "--json" => options.json = true,
                "--secs" => {
                    let secs = args.next().and_then(|text| text.parse().ok()).filter(|secs| (1..=60).contains(secs));
                    options.span = Duration::from_secs(secs.ok_or("--secs takes a number from 1 to 60")?);
                }
                other => return Err(format!("unknown argument {other:?}; there are --json and --secs <1..60>")),
            }
        }
        Ok(options)
    }
}

/// One line of the result.
struct Row {
    name: &'static str,
    /// 64-byte messages a second.
    sent: f64,
    received: f64,
}

fn raw_row(name: &'static str, bytes: usize, span: Duration) -> Result<Row, String> {
    let outcome = raw::run(bytes, span).map_err(|error| format!("{name}: {error}"))?;
    let messages = (bytes / MESSAGE_BYTES) as f64 / span.as_secs_f64();
    Ok(Row { name, sent: outcome.sent as f64 * messages, received: outcome.received as f64 * messages })
}

fn run(options: &Options) -> Result<(), String> {
    let rows = [raw_row("raw 64", MESSAGE_BYTES, options.span)?, raw_row("raw full", DATAGRAM_BYTES, options.span)?];
    if options.json {
        let rows: serde_json::Map<_, _> = rows
            .iter()
            .map(|row| (row.name.to_owned(), json!({"sent_per_s": row.sent, "received_per_s": row.received})))
            .collect();
        println!("{}", serde_json::Value::Object(rows));
        return Ok(());
    }
    println!("64-byte messages a second, 1 publisher to 1 subscriber, loopback multicast");
    println!("         |       sent |   received");
    println!("---------+------------+-----------");
    for row in &rows {
        println!("{:<8} | {:>10.0} | {:>10.0}", row.name, row.sent, row.received);
    }
    Ok(())
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
