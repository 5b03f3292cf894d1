//! Arguments of `seqcast demo`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::terminal::value::{self, Rate};

/// `seqcast demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoOptions {
    /// The demonstration.
    #[arg(value_enum)]
    pub what: DemoScenario,
    /// The share of the datagrams that each receiver drops.
    #[arg(long, value_name = "PERCENT", value_parser = value::percent, default_value = "5%")]
    pub drop: f64,
    /// Time for which each receiver requests missing datagrams; up to 5ms it requests nothing.
    #[arg(long, value_name = "TIME", value_parser = value::wait, default_value = "2s")]
    pub reliability: Duration,
    /// Number of messages to publish.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Messages to publish per second, such as 20000/s.
    #[arg(long, value_name = "N/s", value_parser = value::rate, default_value = "20000/s")]
    pub rate: Rate,
    /// Decides which datagrams are dropped; the same seed drops the same ones.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// The demonstrations of `seqcast demo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoScenario {
    /// Three peers on loopback multicast, two of which lose datagrams.
    Loss,
}
