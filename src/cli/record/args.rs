//! The arguments of `record`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::bus_options::BusOptions;
use crate::subject::Pattern;
use crate::terminal::value;

/// Below `seqcast record --help`.
pub const RECORD_HELP: &str = "\
Examples:
  seqcast record 'plant.>' -o plant.mcap
  seqcast record '>' -o run.mcap --for 10m
  seqcast record '>' -o /var/log/bus.mcap --split '1 gb' --keep 10     the last 10 files
  seqcast record 'a.>' 'b.*' -o ab.mcap --count 1000 --embed           needs no local peer

The file has the format MCAP, which Foxglove and the tools of ROS open: a subject is a topic. Losses on the bus are \
recorded too, and so are messages that this command had to drop. Ctrl-C ends the recording and prints a summary. \
'seqcast play' publishes a recording again.";

/// Minimum of `--split`: below it, the index of a file would be larger than its messages.
pub const SPLIT_BYTES_MIN: u64 = 64 << 10;

/// `seqcast record`.
#[derive(Args, Clone, Debug)]
pub struct RecordOptions {
    /// The patterns: * matches one token, > all the rest.
    #[arg(required = true, value_name = "PATTERN")]
    pub patterns: Vec<Pattern>,
    /// The file; with --split each file has a number before its extension.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace the file, or with --split all numbered files of this name, if they exist.
    #[arg(long)]
    pub force: bool,
    /// Begin the next file when one has this size, such as '1 gb'.
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    pub split: Option<u64>,
    /// Keep this number of files, and remove the oldest one when another begins.
    #[arg(long, value_name = "N", requires = "split", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
    /// Maximum size of all files: with --split the oldest one is removed, else the recording ends with exit code 1.
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    pub disk_quota: Option<u64>,
    /// Maximum size of messages that wait for the disk; further messages are dropped and counted.
    #[arg(long, value_name = "SIZE", value_parser = value::size, default_value = "64 mb")]
    pub max_memory: u64,
    /// Message encoding that viewers read, such as protobuf; without it, json if the first payload is an object.
    #[arg(long, value_name = "NAME")]
    pub encoding: Option<String>,
    /// End after this number of messages, with exit code 0.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// End after this time, with exit code 0.
    #[arg(long = "for", value_name = "TIME", value_parser = value::wait, conflicts_with = "wait")]
    pub duration: Option<Duration>,
    /// End after this time, with exit code 27.
    #[arg(long, value_name = "TIME", value_parser = value::wait)]
    pub wait: Option<Duration>,
    /// Record later messages at once while one is missing.
    #[arg(long, conflicts_with = "repair")]
    pub live: bool,
    /// Request missing messages again, and delay later ones of their subject (default: the key delivery).
    #[arg(long)]
    pub repair: bool,
    /// Print a JSON object at the end.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}
