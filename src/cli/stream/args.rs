//! The arguments of `stream` and `consumer`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::help;
use crate::bus::ResetPosition;
use crate::cli::bus_options::BusOptions;
use crate::cli::tail_options::TailOptions;
use crate::config::StreamStoreLocation;
use crate::event::stream::name::{Component, Consumer, StreamId, StreamName, StreamType, UserName};
use crate::storage::streams::archive::ArchiveBackend;
use crate::terminal::value;

/// `seqcast stream`.
#[derive(Args, Clone, Debug)]
pub struct StreamOptions {
    /// The command.
    #[command(subcommand)]
    pub what: StreamCommand,
}

/// The commands of `seqcast stream`.
#[derive(Clone, Debug, Subcommand)]
pub enum StreamCommand {
    /// Add an event to a stream, and print its id when it is stored.
    #[command(after_help = help::STREAM_ADD)]
    Add(StreamAddOptions),
    /// Print the events that a consumer has not accepted.
    #[command(after_help = help::STREAM_POLL)]
    Poll(StreamPollOptions),
    /// Print the events of a stream as they arrive.
    #[command(after_help = help::STREAM_TAIL)]
    Tail(StreamTailOptions),
    /// Show the streams of the peer.
    #[command(after_help = help::STREAM_LIST)]
    List(ListOptions),
    /// Copy events to an archive, each once and durably, and accept them only then.
    #[command(after_help = help::STREAM_ARCHIVE)]
    Archive(ArchiveOptions),
}

impl StreamCommand {
    /// Returns the options of the bus.
    pub fn bus(&mut self) -> &mut BusOptions {
        match self {
            StreamCommand::Add(options) => &mut options.bus,
            StreamCommand::Poll(options) => &mut options.bus,
            StreamCommand::Tail(options) => &mut options.bus,
            StreamCommand::List(options) => &mut options.bus,
            StreamCommand::Archive(options) => &mut options.bus,
        }
    }
}

/// `seqcast consumer`.
#[derive(Args, Clone, Debug)]
pub struct ConsumerOptions {
    /// The command.
    #[command(subcommand)]
    pub what: ConsumerCommand,
}

/// The commands of `seqcast consumer`.
#[derive(Clone, Debug, Subcommand)]
pub enum ConsumerCommand {
    /// Register a consumer, or resume one that has lapsed.
    #[command(after_help = help::CONSUMER_ADD)]
    Add(RegistrationOptions),
    /// Show the consumers, each with its position and its lag.
    #[command(after_help = help::CONSUMER_LIST)]
    List(ListOptions),
    /// Set a consumer to another position.
    #[command(after_help = help::CONSUMER_RESET)]
    Reset(ResetOptions),
    /// Remove a consumer: the peer no longer retains events for it.
    #[command(after_help = help::CONSUMER_REMOVE)]
    Remove(RegistrationOptions),
}

impl ConsumerCommand {
    /// Returns the options of the bus.
    pub fn bus(&mut self) -> &mut BusOptions {
        match self {
            ConsumerCommand::Add(options) | ConsumerCommand::Remove(options) => &mut options.bus,
            ConsumerCommand::List(options) => &mut options.bus,
            ConsumerCommand::Reset(options) => &mut options.bus,
        }
    }
}

/// Owner and stream of a consumer.
#[derive(Args, Clone, Debug)]
pub struct ConsumerScope {
    /// The user that owns the consumer; FTN18 clients send it in the field sec.
    #[arg(long, value_name = "USER", default_value = "local")]
    pub user: UserName,
    /// The stream (default: the first one of the peer).
    #[arg(long, value_name = "STREAM")]
    pub stream: Option<StreamName>,
}

impl ConsumerScope {
    /// Returns the consumer of this component.
    pub fn consumer(&self, component: &Component) -> Consumer {
        Consumer { user: self.user.clone(), component: component.clone() }
    }
}

/// `seqcast stream add`.
#[derive(Args, Clone, Debug)]
pub struct StreamAddOptions {
    /// The type: 1 to 16 of A-Z and _.
    #[arg(value_name = "TYPE")]
    pub kind: StreamType,
    /// The data, a JSON text; without it standard input.
    pub data: Option<String>,
    /// The stream (default: the first one of the peer).
    #[arg(long, value_name = "STREAM")]
    pub stream: Option<StreamName>,
    /// Take the data from this file; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data", "lines"])]
    pub file: Option<PathBuf>,
    /// Read standard input: each line is the data of an event.
    #[arg(long, conflicts_with = "data")]
    pub lines: bool,
    /// Print a line of JSON for each event.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast stream poll`.
#[derive(Args, Clone, Debug)]
pub struct StreamPollOptions {
    /// The component of the consumer; LIVE needs no registration.
    pub component: Component,
    /// Owner and stream of the consumer.
    #[command(flatten)]
    pub scope: ConsumerScope,
    /// Only events of this type; may be repeated. The consumer accepts the others.
    #[arg(long, value_name = "TYPE")]
    pub want: Vec<StreamType>,
    /// First accept all events up to this id.
    #[arg(long, value_name = "ID")]
    pub last: Option<StreamId>,
    /// Maximum number of events.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub limit: u32,
    /// Accept the printed events once they are printed.
    #[arg(long)]
    pub accept: bool,
    /// Print a line of JSON for each event.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast stream tail`.
#[derive(Args, Clone, Debug)]
pub struct StreamTailOptions {
    /// The stream (default: the first one of the peer).
    #[arg(long, value_name = "STREAM")]
    pub stream: Option<StreamName>,
    /// Begin with the event of this id, or the first retained one after it (default: only new events).
    #[arg(long, value_name = "ID")]
    pub from: Option<StreamId>,
    /// Only events of this type; may be repeated.
    #[arg(long, value_name = "TYPE")]
    pub want: Vec<StreamType>,
    /// Time that the peer may be away before the command gives up.
    #[arg(long, value_name = "TIME", value_parser = value::wait, default_value = "10s")]
    pub patience: Duration,
    /// End and form of the output.
    #[command(flatten)]
    pub tail: TailOptions,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast stream archive`.
#[derive(Args, Clone, Debug)]
pub struct ArchiveOptions {
    /// The archive: a file of SQLite (.db, .sqlite, .sqlite3) or of JSON Lines (.jsonl, .ndjson), or a database:
    /// postgres://USER:PASSWORD@HOST/DATABASE.
    #[arg(long, value_name = "ARCHIVE")]
    pub to: PathBuf,
    /// The format of the archive, if its name does not show it.
    #[arg(long, value_enum)]
    pub format: Option<ArchiveFormat>,
    /// The component of the consumer; it registers itself.
    #[arg(long, value_name = "COMPONENT", default_value = "archive")]
    pub component: Component,
    /// Owner and stream of the consumer.
    #[command(flatten)]
    pub scope: ConsumerScope,
    /// End once all events of the stream at the start are archived; with exit code 1 if events are missing.
    #[arg(long)]
    pub once: bool,
    /// Time that the peer may be away before the command gives up.
    #[arg(long, value_name = "TIME", value_parser = value::wait, default_value = "10s")]
    pub patience: Duration,
    /// Print a JSON object at the end.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// Format of an archive file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ArchiveFormat {
    /// A SQLite file.
    Sqlite,
    /// A file in which each line is a JSON object.
    Lines,
}

impl ArchiveOptions {
    /// Returns the address of the database, if the archive is in one.
    fn url(&self) -> Option<&str> {
        self.to.to_str().filter(|to| to.starts_with("postgres://") || to.starts_with("postgresql://"))
    }

    /// Returns the location of the archive, without any password.
    pub fn location(&self) -> String {
        match self.url() {
            Some(url) => StreamStoreLocation::Postgres(url.to_owned()).to_string(),
            None => self.to.display().to_string(),
        }
    }

    /// Returns the storage backend of the archive, if it is known.
    pub fn format(&self) -> Option<ArchiveBackend> {
        if self.url().is_some() {
            return self.format.is_none().then_some(ArchiveBackend::Postgres);
        }
        let extension = self.to.extension().and_then(|extension| extension.to_str());
        match (self.format, extension) {
            (Some(ArchiveFormat::Sqlite), _) | (None, Some("db" | "sqlite" | "sqlite3")) => {
                Some(ArchiveBackend::Sqlite)
            }
            (Some(ArchiveFormat::Lines), _) | (None, Some("jsonl" | "ndjson")) => Some(ArchiveBackend::Lines),
            (None, _) => None,
        }
    }
}

/// `seqcast stream list` and `seqcast consumer list`.
#[derive(Args, Clone, Debug)]
pub struct ListOptions {
    /// Only this stream.
    #[arg(long, value_name = "STREAM")]
    pub stream: Option<StreamName>,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast consumer add` and `seqcast consumer remove`.
#[derive(Args, Clone, Debug)]
pub struct RegistrationOptions {
    /// The component of the consumer: 1 to 16 of A-Z, a-z, 0-9 and _.
    pub component: Component,
    /// Owner and stream of the consumer.
    #[command(flatten)]
    pub scope: ConsumerScope,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast consumer reset`.
#[derive(Args, Clone, Debug)]
pub struct ResetOptions {
    /// The component of the consumer.
    pub component: Component,
    /// The new position: after the event of this id, at the oldest retained event, or after the newest one.
    #[arg(long, value_name = "ID|start|end", value_parser = reset_position)]
    pub to: ResetPosition,
    /// Owner and stream of the consumer.
    #[command(flatten)]
    pub scope: ConsumerScope,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

fn reset_position(text: &str) -> Result<ResetPosition, String> {
    match text {
        "start" => Ok(ResetPosition::Start),
        "end" => Ok(ResetPosition::End),
        id => id.parse().map(ResetPosition::After).map_err(|error| format!("{error}; or start, or end")),
    }
}
