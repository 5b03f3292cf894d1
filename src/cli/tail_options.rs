//! The options of commands that print events as they come.

use std::time::Duration;

use clap::Args;

use crate::clock::Clock;
use crate::terminal::value;
use crate::time::Instant;

/// End and form of the output.
#[derive(Args, Clone, Debug)]
pub struct TailOptions {
    /// End after this number of events, with exit code 0.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// End after this time, with exit code 27.
    #[arg(long, value_name = "TIME", value_parser = value::wait)]
    pub wait: Option<Duration>,
    /// Print JSON Lines.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

impl TailOptions {
    /// Returns the time at which the command ends, if it begins now.
    pub fn deadline(&self) -> Option<Instant> {
        self.wait.map(|wait| Clock::now().instant + wait)
    }
}
