//! `bench`: the rates and latencies of the bus, compared with those of the kernel without it.
//!
//! Every program of a run (sender, receivers, daemons) is a process of its own. This one starts itself again with
//! `bench role`, sends the job and receives the reports (`job`), and ends the process in any case (`child`). The
//! checks rely on the payloads, which contain the number of their message (`payload`), not on the library's own
//! reports.

pub mod args;
mod child;
mod control_channel;
mod daemon;
mod fanout;
mod flow;
pub mod help;
pub mod host;
mod job;
mod latencies;
mod latency;
mod loss;
mod meter;
mod payload;
mod raw;
mod report;
mod role;
mod round_trip;
mod size;
mod subjects;
mod temporary_directory;
mod temporary_realm;
mod testbed;
mod throughput;

use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::Output;
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
