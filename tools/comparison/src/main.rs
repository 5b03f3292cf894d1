//! Rates of seqcast beside those of other messaging systems: one publisher to one subscriber on this host, each a
//! process, with the published library of each system. `tools/compare` builds and runs it.

mod content;
mod measurement;
mod role;
mod server;
mod systems;
mod table;

use anyhow::Result;
use clap::{Parser, Subcommand};
use measurement::MeasurementArgs;
use role::RoleArgs;

#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Measures seqcast and other systems in turn, and prints a table
    Measure(MeasurementArgs),
    /// Publishes as fast as the system allows, then prints the number of messages
    #[command(hide = true)]
    Publish(RoleArgs),
    /// Receives until nothing more comes, then prints what came
    #[command(hide = true)]
    Subscribe(RoleArgs),
    /// Runs the media driver of Aeron until its input ends
    #[command(hide = true)]
    AeronDriver {
        /// Directory that its clients share with it
        directory: String,
        /// Bytes of the largest datagram
        mtu: usize,
    },
}

fn main() -> Result<()> {
    match Args::parse().job {
        Job::Measure(args) => measurement::run(&args),
        Job::Publish(args) => role::publish(&args),
        Job::Subscribe(args) => role::subscribe(&args),
        Job::AeronDriver { directory, mtu } => systems::aeron::run_driver(&directory, mtu),
    }
}
