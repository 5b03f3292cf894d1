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
mod subjects;
mod testbed;
mod throughput;

use super::exit::{CommandFailure, Exit};
use super::output::Output;
use args::{BenchCommand, BenchOptions};

/// Runs `bench`.
///
/// # Errors
/// A value is wrong, or a process fails.
pub fn run(options: &BenchOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    match &options.what {
        BenchCommand::Throughput(options) => throughput::run(options, out),
        BenchCommand::Latency(options) => latency::run(options, out),
        BenchCommand::Fanout(options) => fanout::run(options, out),
        BenchCommand::Subjects(options) => subjects::run(options, out),
        BenchCommand::Loss(options) => loss::run(options, out),
        BenchCommand::Role => role::run(out),
    }
}
