//! A process of the bench, seen from inside: it reads its job from standard input, does it, and answers on standard
//! output. When standard input ends, the process ends too: nobody waits for it any more.

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

/// The channel to the parent process: commands to this process, reports from it.
pub struct ControlChannel<'a> {
    commands: Receiver<ProcessCommand>,
    out: &'a mut Output,
}

impl ControlChannel<'_> {
    /// Sends a report.
    ///
    /// # Errors
    /// Nobody reads it.
    pub fn report(&mut self, report: &ProcessReport) -> Result<(), CommandFailure> {
        self.out.line(json(report))?;
        self.out.flush()?;
        Ok(())
    }

    /// Returns the next command, if it is there.
    pub fn try_receive(&self) -> Option<ProcessCommand> {
        self.commands.try_recv().ok()
    }

    /// Returns the next command, waiting at most `timeout`.
    pub fn receive_timeout(&self, timeout: Duration) -> Option<ProcessCommand> {
        self.commands.recv_timeout(timeout).ok()
    }

    /// Waits for a command.
    pub fn wait(&self) -> ProcessCommand {
        // The thread that reads the commands ends with the process alone.
        self.commands.recv().unwrap_or(ProcessCommand::Stop)
    }
}

/// Directories that are removed when the process ends, however it does.
static DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn locked() -> MutexGuard<'static, Vec<PathBuf>> {
    DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a directory for this user alone, which is removed if the process ends before it has done its job.
///
/// # Errors
/// The directory cannot be made.
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

/// Registers a directory of another process for removal, if this process ends before it has done its job.
pub fn remove_at_end(directory: &Path) {
    locked().push(directory.to_owned());
}

/// Runs `bench role`.
///
/// # Errors
/// Nobody reads its reports.
pub fn run(out: &mut Output) -> Result<Exit, CommandFailure> {
    let mut first = String::new();
    io::stdin().read_line(&mut first)?;
    let job: Job = serde_json::from_str(&first).map_err(|error| {
        CommandFailure::new(Exit::Usage, format!("no job on standard input: {error}"))
            .fix("'seqcast bench' starts this by itself; see 'seqcast bench --help'")
    })?;
    // Ctrl-C in a terminal reaches all processes there; the one that the user started ends the others.
    Interrupt::watch()?;
    // The parent process sends one command at a time; further ones would wait in the pipe.
    let (sender, commands) = bounded(1024);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(command) => drop(sender.send(command)),
                Err(_) => break,
            }
        }
        // The parent process is gone, for whatever reason.
        let mut directories = locked();
        directories.drain(..).for_each(|directory| drop(std::fs::remove_dir_all(directory)));
        // The lock is held until the end, so no other directory is created.
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

/// Returns the processor time of this process, in nanoseconds, and its memory in bytes.
pub fn resource_usage() -> (u64, u64) {
    (host::cpu_ns(), host::rss_bytes(std::process::id()))
}
