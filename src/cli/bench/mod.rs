//! `bench`: the rates and latencies of the bus, compared with those of the kernel without it.
//!
//! Every program of a run (sender, receivers, daemons) is a process of its own. This one starts itself again with
//! `bench role`, sends the job and receives the reports (`job`), and ends the process in any case (`child`). The
//! checks rely on the payloads, which contain the number of their message (`payload`), not on the library's own
//! reports.

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
