//! The arguments of `order`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::help;
use crate::cli::bus_options::BusOptions;
use crate::cli::tail_options::TailOptions;
use crate::event::order::name::{Object, WorkerName};
use crate::storage::order::REDIS_PREFIX;
use crate::subject::event_type::EventType;
use crate::terminal::value;

/// `seqcast order`.
#[derive(Args, Clone, Debug)]
pub struct OrderOptions {
    /// The command.
    #[command(subcommand)]
    pub what: OrderCommand,
}

/// The commands of `seqcast order`.
#[derive(Clone, Debug, Subcommand)]
pub enum OrderCommand {
    /// Queue events of an object with its new state, all or nothing.
    #[command(after_help = help::ORDER_PUSH)]
    Push(PushOptions),
    /// Run a worker: it sends queued events onto the bus, the events of each object in one order.
    #[command(after_help = help::ORDER_WORK)]
    Work(WorkOptions),
    /// Print the events of each object in their order, each once, and report those that cannot be recovered.
    #[command(after_help = help::ORDER_TAIL)]
    Tail(OrderTailOptions),
    /// Show the shared state: its generation, workers and objects.
    #[command(after_help = help::ORDER_SHOW)]
    Show(OrderShowOptions),
}

impl OrderCommand {
    /// Returns the options of the bus, if the command uses one.
    pub fn bus(&mut self) -> Option<&mut BusOptions> {
        match self {
            OrderCommand::Work(options) => Some(&mut options.bus),
            OrderCommand::Tail(options) => Some(&mut options.bus),
            OrderCommand::Push(_) | OrderCommand::Show(_) => None,
        }
    }
}

/// Location of the shared state.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Store")]
pub struct StoreOptions {
    /// A Redis server, such as redis://user:password@host:6379/0 (rediss:// encrypts), or a file that processes of this
    /// host share (default: the value of SEQCAST_ORDER_STORE, else order.db in the data directory).
    #[arg(long, value_name = "STORE", env = "SEQCAST_ORDER_STORE", hide_env_values = true, hide_env = true)]
    pub store: Option<String>,
    /// The prefix of the keys in Redis.
    #[arg(long, value_name = "TEXT", default_value = REDIS_PREFIX)]
    pub prefix: String,
    /// Time that the store may be away before the command gives up.
    #[arg(long, value_name = "TIME", value_parser = value::wait, default_value = "10s")]
    pub patience: Duration,
}

/// `seqcast order push`.
#[derive(Args, Clone, Debug)]
pub struct PushOptions {
    /// The object that the events relate to, such as work:1.
    #[arg(value_parser = object)]
    pub object: Object,
    /// The main event, and then its subevents, in their order.
    #[arg(required = true)]
    pub events: Vec<String>,
    /// The new state of the object.
    #[arg(long, value_name = "TEXT", required_unless_present = "state_file")]
    pub state: Option<String>,
    /// Take the state from this file; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "state")]
    pub state_file: Option<PathBuf>,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Location of the shared state.
    #[command(flatten)]
    pub store: StoreOptions,
}

/// `seqcast order work`.
#[derive(Args, Clone, Debug)]
pub struct WorkOptions {
    /// The worker's name: the same after a restart, and different from that of every other worker.
    #[arg(value_name = "NAME", value_parser = worker_name)]
    pub worker: WorkerName,
    /// The prefix of the events' types; the object is the last subtype.
    #[arg(long = "type", value_name = "TYPE", default_value = "order")]
    pub event_type: EventType,
    /// Register each event in the journal of the peer before it counts as sent, so that consumers find it there later.
    #[arg(long)]
    pub journal: bool,
    /// Time without a renewal after which other workers take this worker's object over; equal for all workers of a
    /// store.
    #[arg(long, value_name = "TIME", value_parser = value::wait, default_value = "10s")]
    pub lease: Duration,
    /// End after this number of events, with exit code 0.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Print each event that is sent as a line of JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Location of the shared state.
    #[command(flatten)]
    pub store: StoreOptions,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast order tail`.
#[derive(Args, Clone, Debug)]
pub struct OrderTailOptions {
    /// Only events of these objects.
    #[arg(value_parser = object)]
    pub objects: Vec<Object>,
    /// The prefix of the events' types.
    #[arg(long = "type", value_name = "TYPE", default_value = "order")]
    pub event_type: EventType,
    /// Time to wait for a missing event.
    #[arg(long, value_name = "TIME", value_parser = value::wait, default_value = "5s")]
    pub patience: Duration,
    /// End and form of the output.
    #[command(flatten)]
    pub tail: TailOptions,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast order show`.
#[derive(Args, Clone, Debug)]
pub struct OrderShowOptions {
    /// Objects to show in addition to those that workers own and those that have queued events.
    #[arg(value_parser = object)]
    pub objects: Vec<Object>,
    /// Maximum number of queued objects.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Location of the shared state.
    #[command(flatten)]
    pub store: StoreOptions,
}

fn object(text: &str) -> Result<Object, String> {
    Object::new(text).map_err(|error| error.to_string())
}

fn worker_name(text: &str) -> Result<WorkerName, String> {
    WorkerName::new(text).map_err(|error| error.to_string())
}
