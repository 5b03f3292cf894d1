//! The arguments of `log`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::daemon::log_levels::LogDirective;
use crate::terminal::value;

/// Below `seqcast log --help`.
pub const LOG_HELP: &str = "\
Examples:
  seqcast log level
  seqcast log level core=debug --for 5m";

/// Below `seqcast log level --help`.
const LEVEL_HELP: &str = "\
Examples:
  seqcast log level                                 prints the levels
  seqcast log level debug --for 5m                  logs more of everything for five minutes
  seqcast log level core=debug --for 5m             logs more about other peers and losses
  seqcast log level listeners=error                 keeps this level until the peer ends

Levels are error, warn, info, debug and trace. Without a level the command prints the levels in use and the targets, \
with what each of them logs. A target without a level of its own has the level of 'all'; LEVEL without TARGET sets that one. After the time of --for the \
previous level applies again. The configuration file stays as it is.";

/// `seqcast log`.
#[derive(Args, Clone, Debug)]
pub struct LogOptions {
    /// The command.
    #[command(subcommand)]
    pub what: LogCommand,
}

/// The commands of `seqcast log`.
#[derive(Clone, Debug, Subcommand)]
pub enum LogCommand {
    /// Print the levels of the running peer's log, or set one.
    #[command(after_help = LEVEL_HELP)]
    Level(LogLevelOptions),
}

impl LogCommand {
    /// Returns the option that names the socket of the peer.
    pub fn socket(&mut self) -> &mut Option<PathBuf> {
        match self {
            LogCommand::Level(options) => &mut options.socket,
        }
    }
}

/// `seqcast log level`.
#[derive(Args, Clone, Debug)]
pub struct LogLevelOptions {
    /// The level to set, of everything or of a target.
    #[arg(value_name = "[TARGET=]LEVEL")]
    pub directive: Option<LogDirective>,
    /// Time after which the previous level applies again, such as 5m.
    #[arg(long = "for", value_name = "TIME", value_parser = value::wait, requires = "directive")]
    pub time: Option<Duration>,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The Unix socket of the local peer (or SEQCAST_SOCKET).
    #[arg(long, value_name = "PATH", help_heading = "Peer")]
    pub socket: Option<PathBuf>,
}
