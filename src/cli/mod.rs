//! The command line: arguments to a command, the commands themselves, exit codes.
//!
//! Parsing ([`args`]) is pure; a command then queries the system itself. Data goes to standard output, everything else
//! to standard error.

pub mod args;
pub mod bus_options;
pub mod config;
pub mod connect;
pub mod console;
pub mod console_line;
pub mod debug;
pub mod decode;
pub mod demo;
pub mod doctor;
pub mod event;
pub mod events;
#[cfg(feature = "sim")]
pub mod fuzz;
pub mod group_reports;
pub mod header;
pub mod help;
pub mod history;
pub mod line_reader;
pub mod lines;
pub mod log;
pub mod loss_text;
pub mod man;
pub mod message_input;
pub mod order;
pub mod pacer;
pub mod peer;
pub mod ping;
pub mod play;
pub mod poll;
pub mod publish;
pub mod realm;
pub mod receivers;
pub mod record;
pub mod recording;
pub mod reload;
pub mod reply;
pub mod request;
pub mod rvmsg;
pub mod show;
pub mod stream;
mod subject_position;
pub mod subjects;
pub mod subscribe;
pub mod tail_options;
pub mod top;
pub mod trace;
pub mod usage;

use std::ffi::OsString;
use std::path::Path;

use clap::CommandFactory;

use args::{Command, CommandLine, ConfigCommand, ConsoleOptions, Verb};
use bus_options::PeerOptions;
use show::args::{LinkCommand, LinkOptions};

use crate::bench;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{self, Output};

/// Runs the command with these arguments, the program's name first, and reports failures.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let words: Vec<OsString> = arguments.into_iter().collect();
    let json = usage::is_json(&words);
    let arguments = match args::parse(words) {
        Ok(arguments) => arguments,
        Err(error) => return exit_code(usage::respond(&error, json), json),
    };
    let mut out = Output::new(arguments.no_color || output::is_colour_refused());
    let result = execute(&arguments.verb, &mut out);
    let flushed = out.flush();
    exit_code(result.and_then(|exit| flushed.map(|()| exit).map_err(CommandFailure::from)), json)
}

/// Reports a failure and returns the exit code.
fn exit_code(result: Result<Exit, CommandFailure>, json: bool) -> Exit {
    result.unwrap_or_else(|failure| {
        failure.report(json);
        failure.exit
    })
}

fn execute(verb: &Verb, out: &mut Output) -> Result<Exit, CommandFailure> {
    match verb {
        Verb::Peer(options) => peer::run(options),
        Verb::Common(command) => execute_common(command, out),
        Verb::Console(options) => run_console(options, out),
        Verb::Play(options) => play::run(options, out),
        Verb::Record(options) => record::run(options, out),
        Verb::Init(options) => realm::run_init(options, out),
        Verb::Join(options) => realm::run_join(options, out),
        Verb::Realm(options) => realm::run(&options.what, out),
        Verb::Demo(options) => demo::run(options, out),
        Verb::Bench(options) => bench::run(options, out),
        Verb::Top(options) => top::run(options, out),
        Verb::Decode(options) => decode::run(options, out),
        Verb::Doctor(options) => doctor::run(options, out),
        Verb::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut CommandLine::command(), "seqcast", &mut script);
            out.bytes(&script)?;
            Ok(Exit::Done)
        }
        Verb::Man(options) => man::run(options),
    }
}

fn execute_common(command: &Command, out: &mut Output) -> Result<Exit, CommandFailure> {
    match command {
        Command::Publish(options) => publish::run(options, out),
        Command::Subscribe(options) => subscribe::run(options, out),
        Command::Request(options) => request::run(options, out),
        Command::Reply(options) => reply::run(options, out),
        Command::Poll(options) => poll::run(options, out),
        Command::Event(options) => events::run(&options.what, out),
        Command::Order(options) => order::run(&options.what, out),
        Command::Stream(options) => stream::run(&options.what, out),
        Command::Consumer(options) => stream::run_consumer(&options.what, out),
        Command::Show(options) => show::run(options, out),
        Command::Health(options) => show::run_health(options, out),
        Command::Link(LinkOptions { what: LinkCommand::Status(options) }) => show::run_link_status(options, out),
        Command::Ping(options) => ping::run(options, out),
        Command::Trace(options) => trace::run(options, out),
        Command::Subjects(options) => subjects::run(options, out),
        Command::Debug(options) => debug::run(options, out),
        Command::Log(options) => log::run(options, out),
        Command::Config(options) => match &options.what {
            ConfigCommand::Check(file) => config::check(file, out),
            ConfigCommand::Show(file) => config::show(file, out),
            ConfigCommand::Reload(options) => reload::run(options, out),
        },
        Command::Version { json } => version(*json, out),
    }
}

fn version(json: bool, out: &mut Output) -> Result<Exit, CommandFailure> {
    let version = env!("CARGO_PKG_VERSION");
    match json {
        true => out.line(serde_json::json!({
            "name": "seqcast",
            "version": version,
            "wire": crate::wire::VERSION,
            "local_protocol": crate::listener::frame::VERSION,
        }))?,
        false => out.line(format_args!("seqcast {version}"))?,
    }
    Ok(Exit::Done)
}

fn run_console(options: &ConsoleOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let peer = PeerOptions { socket: options.socket.clone(), ..PeerOptions::default() };
    let socket = connect::socket(&peer)?;
    let prompt = |number| match crate::terminal::peer::attach_for_requests(&socket, "console") {
        Ok(bus) => console::prompt(bus.info().peer.as_str(), &bus.info().epoch.to_string(), number),
        Err(_) => console::prompt("no peer", "", number),
    };
    console::run(prompt, |mut command| {
        socket_for(&mut command, &socket);
        let exit = execute_common(&command, out)?;
        out.flush()?;
        Ok(exit)
    })
}

/// Sets the socket of a command typed at a console to that of the console's peer, unless the command names another.
fn socket_for(command: &mut Command, socket: &Path) {
    let socket_option = match command {
        Command::Publish(options) => &mut options.bus.peer.socket,
        Command::Subscribe(options) => &mut options.bus.peer.socket,
        Command::Request(options) => &mut options.bus.peer.socket,
        Command::Reply(options) => &mut options.bus.peer.socket,
        Command::Poll(options) => &mut options.bus.peer.socket,
        Command::Event(options) => &mut options.what.bus().peer.socket,
        Command::Stream(options) => &mut options.what.bus().peer.socket,
        Command::Consumer(options) => &mut options.what.bus().peer.socket,
        Command::Order(options) => match options.what.bus() {
            Some(bus) => &mut bus.peer.socket,
            None => return,
        },
        Command::Show(options) => &mut options.socket,
        Command::Health(options) => &mut options.socket,
        Command::Link(LinkOptions { what: LinkCommand::Status(options) }) => &mut options.socket,
        Command::Ping(options) => &mut options.socket,
        Command::Trace(options) => &mut options.socket,
        Command::Subjects(options) => &mut options.socket,
        Command::Debug(options) => options.what.socket(),
        Command::Log(options) => options.what.socket(),
        Command::Config(options) => match &mut options.what {
            ConfigCommand::Reload(options) => &mut options.socket,
            ConfigCommand::Check(_) | ConfigCommand::Show(_) => return,
        },
        Command::Version { .. } => return,
    };
    socket_option.get_or_insert_with(|| socket.to_path_buf());
}
