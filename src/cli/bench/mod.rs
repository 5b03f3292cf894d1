//! `bench`: what the bus carries, and how fast, beside what the kernel carries without it.
//!
//! Every program of a run (sender, receivers, daemons) is a process of its own: this one starts itself again with
//! `bench role`, tells it what to do and hears what came of it (`job`), and ends it whatever happens (`child`). What
//! the library did is judged by the payloads, which say which message they are (`payload`), not by its own word.

pub mod args;
mod child;
mod fanout;
mod flow;
mod host;
mod job;
mod latencies;
mod latency;
mod loss;
mod meter;
mod payload;
mod raw;
mod report;
mod role;
mod stage;
mod subjects;
mod throughput;

use super::exit::{Exit, Failure};
use super::output::Output;
use args::{BenchOptions, BenchWhat};

/// Runs `bench`.
///
/// # Errors
/// A value is wrong, or a process fails.
pub fn run(options: &BenchOptions, out: &mut Output) -> Result<Exit, Failure> {
    match &options.what {
        BenchWhat::Throughput(options) => throughput::run(options, out),
        BenchWhat::Latency(options) => latency::run(options, out),
        BenchWhat::Fanout(options) => fanout::run(options, out),
        BenchWhat::Subjects(options) => subjects::run(options, out),
        BenchWhat::Loss(options) => loss::run(options, out),
        BenchWhat::Role => role::run(out),
    }
}
