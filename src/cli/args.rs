//! The arguments of `seqcast` as typed: parsing is pure and touches neither files, environment nor network.
//!
//! `help.rs` contains the examples below the help of each verb that has no folder of its own; `bus_options.rs` contains
//! the options of the bus.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use super::bus_options::{BusOptions, PeerOptions};
use super::debug::args::{DEBUG_HELP, DebugOptions};
use super::decode::args::DecodeOptions;
use super::demo::args::DemoOptions;
use super::doctor::args::{DOCTOR_HELP, DoctorOptions};
use super::events::args::EventOptions;
use super::header::{self, HeaderField};
use super::log::args::{LOG_HELP, LogOptions};
use super::man::args::ManOptions;
use super::order::args::OrderOptions;
use super::ping::args::PingOptions;
use super::play::args::{PLAY_HELP, PlayOptions};
use super::realm::args::{INIT_HELP, InitOptions, JOIN_HELP, JoinOptions, REALM_HELP, RealmOptions};
use super::record::args::{RECORD_HELP, RecordOptions};
use super::reload::args::{RELOAD_HELP, ReloadOptions};
use super::rvmsg::{self, PayloadFormat};
use super::show::args::{HEALTH_HELP, HealthOptions, LINK_HELP, LinkOptions, ShowOptions};
use super::stream::args::{ConsumerOptions, StreamOptions};
use super::subjects::args::SubjectListOptions;
use super::top::args::TopOptions;
use super::trace::args::TraceOptions;
use super::{help, history};
use crate::bench::args::BenchOptions;
use crate::bus::Selection;
use crate::message::{PeerRef, Queue};
use crate::subject::{Pattern, Subject};
use crate::terminal::value::{self, Rate};

/// A brokerless message bus for a LAN whose subscribers know exactly what they missed.
#[derive(Clone, Debug, Parser)]
#[command(name = "seqcast", version, after_help = help::MAIN, max_term_width = 110)]
pub struct CommandLine {
    /// The command.
    #[command(subcommand)]
    pub verb: Verb,
    /// Print without colour (as NO_COLOR in the environment does).
    #[arg(long, global = true, help_heading = "Output")]
    pub no_color: bool,
}

/// The commands of `seqcast`.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Run the peer of this host: the daemon that programs attach to.
    #[command(after_help = help::PEER)]
    Peer(DaemonOptions),
    /// A command that the console has, too.
    #[command(flatten)]
    Common(Command),
    /// Type the same commands at a prompt, abbreviated if you like.
    #[command(after_help = help::CONSOLE)]
    Console(ConsoleOptions),
    /// Record messages and losses to a file.
    #[command(after_help = RECORD_HELP)]
    Record(RecordOptions),
    /// Publish a recording again, or show what it lacks.
    #[command(after_help = PLAY_HELP)]
    Play(PlayOptions),
    /// Watch loss happen and be reported exactly.
    #[command(after_help = help::DEMO)]
    Demo(DemoOptions),
    /// Find out why messages do not arrive: each reason with its consequence and its remedy.
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorOptions),
    /// Measure rates and latencies of the bus, and compare them with those of the kernel.
    #[command(after_help = crate::bench::help::BENCH)]
    Bench(BenchOptions),
    /// Watch peers, subjects, losses, clients and listeners live.
    #[command(after_help = super::top::args::HELP)]
    Top(TopOptions),
    /// Print the datagrams of a packet capture, as peers decode them.
    #[command(after_help = super::decode::args::HELP)]
    Decode(DecodeOptions),
    /// Make a realm, and the keys of this host in it.
    #[command(after_help = INIT_HELP)]
    Init(InitOptions),
    /// Make this host a member of a realm, or install its certificate.
    #[command(after_help = JOIN_HELP)]
    Join(JoinOptions),
    /// Show the realm of this host, and admit other hosts to it.
    #[command(after_help = REALM_HELP)]
    Realm(RealmOptions),
    /// Print the completion script for a shell.
    #[command(after_help = help::COMPLETION)]
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages, one for each verb.
    #[command(after_help = super::man::args::HELP)]
    Man(ManOptions),
}

/// The commands that both the shell and the console know.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Publish messages.
    #[command(name = "pub", after_help = help::PUB)]
    Publish(PublishOptions),
    /// Subscribe and print the messages that arrive, and known losses.
    #[command(name = "sub", after_help = help::SUB)]
    Subscribe(SubOptions),
    /// Send a request and print the replies.
    #[command(name = "req", after_help = help::REQ)]
    Request(ReqOptions),
    /// Answer requests.
    #[command(after_help = help::REPLY)]
    Reply(ReplyOptions),
    /// Poll a publisher's history of a subject: recover the retained events, then receive new ones.
    #[command(after_help = help::POLL)]
    Poll(PollOptions),
    /// Register events, find them again, and receive them.
    #[command(after_help = super::events::help::EVENT)]
    Event(EventOptions),
    /// One order for the events of each object, though several producers make them.
    #[command(after_help = super::order::help::ORDER)]
    Order(OrderOptions),
    /// Event streams: add events, poll and follow them.
    #[command(after_help = super::stream::help::STREAM)]
    Stream(StreamOptions),
    /// The registered consumers of event streams: their progress, and their positions.
    #[command(after_help = super::stream::help::CONSUMER)]
    Consumer(ConsumerOptions),
    /// Show reports of the local peer: losses, peers, subscriptions, numbers, counters.
    #[command(after_help = help::SHOW)]
    Show(ShowOptions),
    /// Check that the local peer works: its host and its network, as far as it notices.
    #[command(after_help = HEALTH_HELP)]
    Health(HealthOptions),
    /// Show whether the link of the local peer to other sites works.
    #[command(after_help = LINK_HELP)]
    Link(LinkOptions),
    /// Measure the round trip to another peer, and the difference of the clocks.
    #[command(after_help = super::ping::args::HELP)]
    Ping(PingOptions),
    /// Show how far each peer of the LAN has received a subject.
    #[command(after_help = super::trace::args::HELP)]
    Trace(TraceOptions),
    /// Show subjects with their rates: those received here, or all that peers publish.
    #[command(after_help = super::subjects::args::HELP)]
    Subjects(SubjectListOptions),
    /// Collect what a maintainer needs to know about the local peer and its host.
    #[command(after_help = DEBUG_HELP)]
    Debug(DebugOptions),
    /// Show or set the levels of the local peer's log.
    #[command(after_help = LOG_HELP)]
    Log(LogOptions),
    /// Check a configuration, show its effective values, or let the peer read it again.
    #[command(after_help = help::CONFIG)]
    Config(ConfigOptions),
    /// Print the version.
    #[command(after_help = help::VERSION)]
    Version {
        /// Print a JSON object.
        #[arg(long, help_heading = "Output")]
        json: bool,
    },
}

/// A line of the console: the same commands, any unique beginning of their names.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "seqcast",
    no_binary_name = true,
    infer_subcommands = true,
    help_template = "{subcommands}\n\n{after-help}",
    after_help = help::CONSOLE_LINE
)]
struct ConsoleLine {
    #[command(subcommand)]
    verb: ConsoleVerb,
}

/// The commands of the console.
#[derive(Clone, Debug, Subcommand)]
pub enum ConsoleVerb {
    /// A command that the shell has, too.
    #[command(flatten)]
    Common(Box<Command>),
    /// Leave the console.
    #[command(alias = "exit")]
    Quit,
}

/// `seqcast peer`.
#[derive(Args, Clone, Debug)]
pub struct DaemonOptions {
    /// Options of the peer.
    #[command(flatten)]
    pub peer: PeerOptions,
    /// Accept NATS clients at 127.0.0.1:4222, or at this port, address, or ADDRESS:PORT.
    #[arg(long, help_heading = "Listeners", value_name = "WHERE", num_args = 0..=1, default_missing_value = "on")]
    pub nats: Option<String>,
    /// Accept NATS clients over WebSocket at 127.0.0.1:9222, or at this port, address, or ADDRESS:PORT.
    #[arg(long, help_heading = "Listeners", value_name = "WHERE", num_args = 0..=1, default_missing_value = "on")]
    pub nats_ws: Option<String>,
    /// Accept Redis clients at 127.0.0.1:6379, or at this port, address, or ADDRESS:PORT.
    #[arg(long, help_heading = "Listeners", value_name = "WHERE", num_args = 0..=1, default_missing_value = "on")]
    pub redis: Option<String>,
    /// Accept clients of Hat Event Server at 127.0.0.1:23012, or at this port, address, or ADDRESS:PORT.
    #[arg(long, help_heading = "Listeners", value_name = "WHERE", num_args = 0..=1, default_missing_value = "on")]
    pub hat: Option<String>,
    /// Accept Rendezvous clients at 127.0.0.1:7500, or at this port, address, or ADDRESS:PORT.
    #[arg(long, help_heading = "Listeners", value_name = "WHERE", num_args = 0..=1, default_missing_value = "on")]
    pub rv: Option<String>,
    /// Accept clients of FutoIn event streams at 127.0.0.1:8181, or at this port, address, or ADDRESS:PORT.
    #[arg(long, help_heading = "Listeners", value_name = "WHERE", num_args = 0..=1, default_missing_value = "on")]
    pub ftn18: Option<String>,
    /// Serve the bus, a page, health and metrics by HTTP at 127.0.0.1:7580, or at this port, address, or ADDRESS:PORT.
    #[arg(long, help_heading = "Listeners", value_name = "WHERE", num_args = 0..=1, default_missing_value = "on")]
    pub http: Option<String>,
    /// Time to poll for work before sleeping, such as 100us; it lowers the latency and uses a processor.
    #[arg(long, help_heading = "Peer", value_name = "TIME")]
    pub busy_poll: Option<String>,
    /// Lowest severity to log: error, warn, info, debug or trace.
    #[arg(long, help_heading = "Log", value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Format of the log: text or json.
    #[arg(long, help_heading = "Log", value_name = "FORMAT")]
    pub log_format: Option<String>,
}

/// `seqcast pub`.
#[derive(Args, Clone, Debug)]
pub struct PublishOptions {
    /// The subject, such as demo.hello.
    #[arg(required_unless_present_any = ["subject_lines", "json_lines"])]
    pub subject: Option<Subject>,
    /// The message; {{count}} in it becomes 1, 2, 3 … Without it each line of standard input is a message.
    #[arg(allow_hyphen_values = true, conflicts_with_all = ["lines", "files"])]
    pub payload: Option<OsString>,
    /// Publish a message of Rendezvous with these fields, such as 'price=21.5, count:u32=7, note="as ordered"'.
    #[arg(long, value_name = "FIELDS", value_parser = rvmsg::payload)]
    #[arg(conflicts_with_all = ["payload", "lines", "subject_lines", "json_lines", "files"])]
    pub rvmsg: Option<Bytes>,
    /// Publish each line of standard input as a message, also from a terminal.
    #[arg(long, conflicts_with = "files")]
    pub lines: bool,
    /// Publish each line of standard input, SUBJECT PAYLOAD, as a message.
    #[arg(long, conflicts_with_all = ["subject", "lines", "files"])]
    pub subject_lines: bool,
    /// Publish each line of standard input as a message: a JSON object with the fields that 'sub --json' prints.
    #[arg(long, conflicts_with_all = ["subject", "lines", "subject_lines", "files", "headers", "reply"])]
    pub json_lines: bool,
    /// Publish each file as a message; - is standard input.
    #[arg(long = "file", value_name = "FILE", num_args = 1..)]
    pub files: Vec<PathBuf>,
    /// Number of messages to publish: the payload or the files repeatedly, or at most this number of lines.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Messages to publish per second, such as 20000/s.
    #[arg(long, value_name = "N/s", value_parser = value::rate)]
    pub rate: Option<Rate>,
    /// A header field; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "KEY:VALUE", value_parser = header::field)]
    pub headers: Vec<HeaderField>,
    /// The subject for replies.
    #[arg(long, value_name = "SUBJECT")]
    pub reply: Option<Subject>,
    /// Print a JSON object at the end.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast sub`.
#[derive(Args, Clone, Debug)]
pub struct SubOptions {
    /// The patterns: * matches one token, > all the rest.
    #[arg(required = true, value_name = "PATTERN")]
    pub patterns: Vec<Pattern>,
    /// First print retained messages of all publishers: a number of each subject, those up to an age, or all.
    #[arg(long, value_name = "N|TIME|all", value_parser = history::selection)]
    pub history: Option<Selection>,
    /// Ask every known publisher where the subscription begins; end with exit code 1 if one does not answer.
    #[arg(long)]
    pub confirm: bool,
    /// End after this number of messages, with exit code 0.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// End after this time, with exit code 27.
    #[arg(long, value_name = "TIME", value_parser = value::wait)]
    pub wait: Option<Duration>,
    /// Time that the peer may be away, such as 1m, before the command gives up; without it the command ends with its
    /// peer.
    #[arg(long, value_name = "TIME", value_parser = value::wait, conflicts_with = "embed")]
    pub patience: Option<Duration>,
    /// Print later messages at once while one is missing, with the number of missing ones.
    #[arg(long, conflicts_with = "repair")]
    pub live: bool,
    /// Request missing messages again, and delay later ones of their subject (default: the key delivery).
    #[arg(long)]
    pub repair: bool,
    /// Join this queue group: each message goes to one of its members on the LAN.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["live", "history", "confirm"])]
    pub queue: Option<Queue>,
    /// Print the payload alone, as it is, and a line feed; losses go to standard error.
    #[arg(long, help_heading = "Output", conflicts_with_all = ["json", "timestamp", "headers"])]
    pub raw: bool,
    /// Form of payloads; with --json, rvmsg adds the field "rvmsg" to messages of Rendezvous.
    #[arg(long, help_heading = "Output", value_enum, default_value_t, conflicts_with = "raw")]
    pub format: PayloadFormat,
    /// Print JSON Lines.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print the time of arrival (UTC) before each line; with --json it is always in the field "received".
    #[arg(long, help_heading = "Output")]
    pub timestamp: bool,
    /// Print publisher, number, reply subject and header fields below each message.
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    pub headers: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast req`.
#[derive(Args, Clone, Debug)]
pub struct ReqOptions {
    /// The subject of the request: a responder subscribes to it.
    pub subject: Subject,
    /// The request.
    #[arg(allow_hyphen_values = true, default_value = "")]
    pub payload: OsString,
    /// End after this time, with exit code 27 if fewer than --replies arrived.
    #[arg(long, value_name = "TIME", value_parser = value::wait, default_value = "2s")]
    pub wait: Duration,
    /// Publish the request once a client subscribes to the subject; --wait includes the time until then.
    #[arg(long)]
    pub patient: bool,
    /// Number of replies to wait for.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub replies: u64,
    /// A header field; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "KEY:VALUE", value_parser = header::field)]
    pub headers: Vec<HeaderField>,
    /// Print the payload of each reply alone, as it is, and a line feed.
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    pub raw: bool,
    /// Print JSON Lines.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast reply`.
#[derive(Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("answer").required(true).args(["payload", "echo", "command"])))]
pub struct ReplyOptions {
    /// The pattern of the requests: * matches one token, > all the rest.
    #[arg(value_name = "PATTERN")]
    pub pattern: Pattern,
    /// The answer; {{count}} in it becomes 1, 2, 3 …
    #[arg(allow_hyphen_values = true)]
    pub payload: Option<OsString>,
    /// Answer with the payload of the request.
    #[arg(long)]
    pub echo: bool,
    /// Answer with the output of this shell command; it reads the request and finds SEQCAST_SUBJECT in its
    /// environment.
    #[arg(long)]
    pub command: Option<OsString>,
    /// Join this queue group: each request goes to one of its members on the LAN.
    #[arg(long, value_name = "NAME")]
    pub queue: Option<Queue>,
    /// End after this number of answers, with exit code 0.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// End after this time, with exit code 27.
    #[arg(long, value_name = "TIME", value_parser = value::wait)]
    pub wait: Option<Duration>,
    /// Time that the peer may be away, such as 1m, before the command gives up; without it the command ends with its
    /// peer.
    #[arg(long, value_name = "TIME", value_parser = value::wait, conflicts_with = "embed")]
    pub patience: Option<Duration>,
    /// Print each request as a line of JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast poll`.
#[derive(Args, Clone, Debug)]
pub struct PollOptions {
    /// The publisher: its name, such as B.test, or its epoch in 16 hexadecimal digits.
    pub peer: PeerRef,
    /// The subject.
    pub subject: Subject,
    /// The offset of the last event that you have; without it all retained events come first.
    #[arg(long, value_name = "N")]
    pub offset: Option<u32>,
    /// End after this number of events, with exit code 0.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Poll until Ctrl-C, --count or --wait ends the command; also while the publisher is away.
    #[arg(long)]
    pub follow: bool,
    /// With --follow: time to wait when nothing is new.
    #[arg(long, value_name = "TIME", value_parser = value::wait, default_value = "500ms", requires = "follow")]
    pub interval: Duration,
    /// With --follow: end after this time, with exit code 27.
    #[arg(long, value_name = "TIME", value_parser = value::wait, requires = "follow")]
    pub wait: Option<Duration>,
    /// Time to wait for an answer.
    #[arg(long, value_name = "TIME", value_parser = value::wait, default_value = "2s")]
    pub timeout: Duration,
    /// Print the payload alone, as it is, and a line feed.
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    pub raw: bool,
    /// Print JSON Lines.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast config`.
#[derive(Args, Clone, Debug)]
pub struct ConfigOptions {
    /// The command.
    #[command(subcommand)]
    pub what: ConfigCommand,
}

/// The commands of `seqcast config`.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Read a configuration and report every error in it; changes nothing.
    #[command(after_help = help::CONFIG_CHECK)]
    Check(ConfigFile),
    /// Print the effective value of every key, and its source.
    #[command(after_help = help::CONFIG_SHOW)]
    Show(ConfigFile),
    /// Let the running peer read its configuration again.
    #[command(after_help = RELOAD_HELP)]
    Reload(ReloadOptions),
}

/// The configuration to read.
#[derive(Args, Clone, Debug)]
pub struct ConfigFile {
    /// The file (default: the one that SEQCAST_CONFIG names).
    pub file: Option<PathBuf>,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `seqcast console`.
#[derive(Args, Clone, Debug)]
pub struct ConsoleOptions {
    /// The Unix socket of the local peer (or SEQCAST_SOCKET).
    #[arg(long, value_name = "PATH", help_heading = "Peer")]
    pub socket: Option<PathBuf>,
}

/// Reads the arguments of the command, the program's name first.
///
/// # Errors
/// The arguments are wrong, or request help.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<CommandLine, clap::Error> {
    CommandLine::try_parse_from(arguments)
}

/// Reads the words of a line typed at the console.
///
/// # Errors
/// The same as of [`parse`].
pub fn parse_line(words: &[String]) -> Result<ConsoleVerb, clap::Error> {
    let command = ConsoleLine::command().mut_subcommands(|command| command.infer_subcommands(true));
    let matches = command.try_get_matches_from(words)?;
    ConsoleLine::from_arg_matches(&matches).map(|line| line.verb)
}

/// Returns the commands of the console, each with the commands that may follow it; for completion.
pub fn console_verbs() -> Vec<(String, Vec<String>)> {
    let names = |command: &clap::Command| command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    ConsoleLine::command().get_subcommands().map(|verb| (verb.get_name().to_owned(), names(verb))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::show::args::ShowReport;
    use super::*;
    use clap::error::ErrorKind;

    #[test]
    fn commands_are_well_formed() {
        CommandLine::command().debug_assert();
        ConsoleLine::command().debug_assert();
    }

    #[test]
    fn every_command_has_its_own_help() {
        for (verb, start) in [
            ("peer", "Run the peer of this host"),
            ("pub", "Publish messages"),
            ("sub", "Subscribe and print"),
            ("req", "Send a request"),
            ("reply", "Answer requests"),
            ("poll", "Poll a publisher's history"),
            ("event", "Register events"),
            ("order", "One order for the events"),
            ("stream", "Event streams"),
            ("consumer", "The registered consumers"),
            ("show", "Show reports of the local peer"),
            ("config", "Check a configuration"),
            ("console", "Type the same commands"),
            ("record", "Record messages"),
            ("play", "Publish a recording"),
            ("demo", "Watch loss happen"),
            ("bench", "Measure rates and latencies"),
            ("doctor", "Find out why messages do not arrive"),
            ("init", "Make a realm"),
            ("join", "Make this host a member"),
            ("realm", "Show the realm of this host"),
            ("completion", "Print the completion"),
            ("man", "Write the manual pages"),
        ] {
            let help = parse(["seqcast", verb, "--help"].map(OsString::from)).unwrap_err();
            assert_eq!(help.kind(), ErrorKind::DisplayHelp);
            let text = help.to_string();
            assert!(text.starts_with(start), "{text}");
            assert!(!text.contains("flattened") && !text.contains("Which bus to use"), "{text}");
        }
    }

    #[test]
    fn every_command_has_examples() {
        let mut commands = vec![("seqcast".to_owned(), CommandLine::command())];
        while let Some((path, command)) = commands.pop() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let first = help.split_once('\n').map_or("", |(_, examples)| examples.trim_start());
            assert!(help.starts_with("Examples") && first.starts_with(&path), "{path} has no example: {help:?}");
            let below = command.get_subcommands().filter(|below| !below.is_hide_set());
            commands.extend(below.map(|below| (format!("{path} {}", below.get_name()), below.clone())));
        }
    }

    #[test]
    fn unique_prefixes_work_in_the_console_only() {
        for line in ["show loss", "sho los", "sh lo", "show lo -v"] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let verb = parse_line(&words).unwrap();
            let ConsoleVerb::Common(command) = verb else { panic!("{line}: {verb:?}") };
            let Command::Show(show) = *command else { panic!("{line}: {command:?}") };
            assert_eq!(
                show.what,
                ShowReport::Loss { verbose: line.ends_with("-v"), outbound: false, by_subject: false },
                "{line}"
            );
        }
        for (line, kind) in [
            ("show s", ErrorKind::InvalidSubcommand),
            ("re a.b", ErrorKind::InvalidSubcommand),
            ("peer", ErrorKind::InvalidSubcommand),
            ("show", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("help", ErrorKind::DisplayHelp),
            ("pub a..b x", ErrorKind::ValueValidation),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(parse_line(&words).unwrap_err().kind(), kind, "{line}");
        }
        assert!(matches!(parse_line(&["q".to_owned()]), Ok(ConsoleVerb::Quit)));
        assert!(parse(["seqcast", "sho", "loss"].map(OsString::from)).is_err());
    }

    #[test]
    fn payloads_may_look_like_options() {
        let arguments = parse(["seqcast", "pub", "a.b", "-5"].map(OsString::from)).unwrap();
        let Verb::Common(Command::Publish(options)) = arguments.verb else { panic!("{arguments:?}") };
        assert_eq!(options.payload, Some(OsString::from("-5")));
    }
}
