//! A process of the bench, seen from inside: it reads its job from standard input, does it, and answers on standard
//! output. When standard input ends, so does the process: nobody waits for it any more.

use std::io::{self, BufRead};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};

use super::host;
use super::job::{Job, ProcessCommand, ProcessReport};
use super::{flow, raw};
use crate::cli::event::json;
use crate::cli::exit::{CommandFailure, Exit};
use crate::cli::interrupt::Interrupt;
use crate::cli::output::Output;
use crate::daemon::clock::random_u64;

/// The other end of the line: words to this process, answers from it.
pub struct ControlChannel<'a> {
    commands: Receiver<ProcessCommand>,
    out: &'a mut Output,
}

impl ControlChannel<'_> {
    /// Answers.
    ///
    /// # Errors
    /// Nobody reads it.
    pub fn report(&mut self, report: &ProcessReport) -> Result<(), CommandFailure> {
        self.out.line(json(report))?;
        self.out.flush()?;
        Ok(())
    }

    /// The next word, if it is there.
    pub fn try_receive(&self) -> Option<ProcessCommand> {
        self.commands.try_recv().ok()
    }

    /// The next word, waiting for at most `timeout`.
    pub fn receive_timeout(&self, timeout: Duration) -> Option<ProcessCommand> {
        self.commands.recv_timeout(timeout).ok()
    }

    /// Waits for a word.
    pub fn wait(&self) -> ProcessCommand {
        // The thread that reads them ends with the process alone.
        self.commands.recv().unwrap_or(ProcessCommand::Stop)
    }
}

/// Directories that go when the process ends, however it does.
static DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn locked() -> MutexGuard<'static, Vec<PathBuf>> {
    DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a directory for this user alone, which is removed if the process ends before it has done its job.
///
/// # Errors
/// It cannot be made.
pub fn temporary_directory() -> Result<PathBuf, CommandFailure> {
    let directory = std::env::temp_dir().join(format!("seqcast-bench-{:016x}", random_u64()));
    let mut directories = locked();
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .map_err(|error| CommandFailure::new(Exit::Failed, format!("cannot make {}: {error}", directory.display())))?;
    directories.push(directory.clone());
    Ok(directory)
}

/// Has a directory of another process removed if this one ends before it has done its job.
pub fn remove_at_end(directory: &Path) {
    locked().push(directory.to_owned());
}

/// Runs `bench role`.
///
/// # Errors
/// Nobody reads what it answers.
pub fn run(out: &mut Output) -> Result<Exit, CommandFailure> {
    let mut first = String::new();
    io::stdin().read_line(&mut first)?;
    let job: Job = serde_json::from_str(&first).map_err(|error| {
        CommandFailure::new(Exit::Usage, format!("no job on standard input: {error}"))
            .fix("'seqcast bench' starts this by itself; see 'seqcast bench --help'")
    })?;
    // Ctrl-C in a terminal goes to all processes there; the one that the user started ends the others.
    Interrupt::watch()?;
    // Whoever gives the job says a word at a time; further ones would wait in the pipe.
    let (sender, commands) = bounded(1024);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(command) => drop(sender.send(command)),
                Err(_) => break,
            }
        }
        // Whoever gave the job is gone, in whatever way.
        let mut directories = locked();
        directories.drain(..).for_each(|directory| drop(std::fs::remove_dir_all(directory)));
        // The lock is held until the end: no other directory comes into being.
        std::process::exit(Exit::Failed as i32);
    });
    let mut line = ControlChannel { commands, out };
    let done = match &job {
        Job::RawSend(job) => raw::throughput::send(job, &mut line),
        Job::RawReceive(job) => raw::throughput::receive(job, &mut line),
        Job::RawPing(job) => raw::ping::ping(job, &mut line),
        Job::RawPong(job) => raw::ping::pong(job, &mut line),
        Job::Ping(job) => flow::ping::ping(job, &mut line),
        Job::Pong(job) => flow::ping::pong(job, &mut line),
        Job::Publish(job) => flow::publish::run(job, &mut line),
        Job::Subscribe(job) => flow::subscribe::run(job, &mut line),
        Job::Daemon(job) => flow::peer::serve(job, &mut line),
    };
    let Err(failure) = done else { return Ok(Exit::Done) };
    let CommandFailure { exit, text, fix } = failure;
    line.report(&ProcessReport::Failed { exit: exit as u8, text, fix })?;
    Ok(exit)
}

/// Processor time of this process, in nanoseconds, and its memory in bytes.
pub fn resource_usage() -> (u64, u64) {
    (host::cpu_ns(), host::rss_bytes(std::process::id()))
}
