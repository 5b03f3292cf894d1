//! `bench fanout`: one publisher, several subscribers, and the sum of their rates.

use super::args::FanoutOptions;
use super::throughput;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::Output;

/// Runs `bench fanout`.
///
/// # Errors
/// A value is wrong, or a process fails.
pub fn run(options: &FanoutOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    throughput::run_to("fanout", &options.throughput, options.subscribers, out)
}
