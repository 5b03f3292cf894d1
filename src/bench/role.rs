//! A process of the bench, seen from inside: it reads its job from standard input, does it, and reports on standard
//! output. When standard input ends, the process ends too, since the parent process is gone.

use std::io;

use super::control_channel::ControlChannel;
use super::job::{Job, ProcessReport};
use super::{flow, raw};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::Output;

/// Runs `bench role`.
///
/// # Errors
/// The parent process no longer reads its reports.
pub fn run(out: &mut Output) -> Result<Exit, CommandFailure> {
    let mut first = String::new();
    io::stdin().read_line(&mut first)?;
    let job: Job = serde_json::from_str(&first).map_err(|error| {
        CommandFailure::new(Exit::Usage, format!("no job on standard input: {error}"))
            .fix("'seqcast bench' starts this process itself; see 'seqcast bench --help'")
    })?;
    // Ctrl-C in a terminal reaches all processes there; the one that the user started ends the others.
    Interrupt::watch()?;
    let mut channel = ControlChannel::open(out);
    let done = match &job {
        Job::RawSend(job) => raw::throughput::send(job, &mut channel),
        Job::RawReceive(job) => raw::throughput::receive(job, &mut channel),
        Job::RawPing(job) => raw::ping::ping(job, &mut channel),
        Job::RawPong(job) => raw::ping::pong(job, &mut channel),
        Job::Ping(job) => flow::ping::ping(job, &mut channel),
        Job::Pong(job) => flow::ping::pong(job, &mut channel),
        Job::Publish(job) => flow::publish::run(job, &mut channel),
        Job::Subscribe(job) => flow::subscribe::run(job, &mut channel),
        Job::Daemon(job) => flow::peer::serve(job, &mut channel),
    };
    let Err(failure) = done else { return Ok(Exit::Done) };
    let CommandFailure { exit, text, fix } = failure;
    channel.report(&ProcessReport::Failed { exit: exit as u8, text, fix })?;
    Ok(exit)
}
