//! The processes of the bench, seen from the one that the user started. A process ends when its value is dropped. It
//! also ends by itself when its standard input ends, so it never survives this process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use serde::Serialize;

use super::job::{Job, PingReport, ProcessCommand, ProcessReport, ReadyReport, ReceiveReport, SendReport};
use crate::clock::Clock;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::json;

/// Time limit for a process to start, to subscribe (to a million subjects), and to discover the others.
pub const START_TIME: Duration = Duration::from_secs(180);
/// Time limit for a process beyond the time that its job takes.
pub const GRACE_TIME: Duration = Duration::from_secs(60);
/// Interval between checks whether the user ends the command.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for a process to end by itself.
const END_TIME: Duration = Duration::from_secs(3);
/// Interval between checks whether it has ended.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Start parameters of the processes of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The program.
    pub program: &'a Path,
    /// The shell command that starts it, if there is one between.
    pub via: Option<&'a str>,
}

/// A process.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// True if it has nothing more to do.
    is_done: bool,
}

impl Process {
    /// Starts a process and gives it its job.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(launch: Launch<'_>, job: &Job) -> Result<Process, CommandFailure> {
        let mut command = match launch.via {
            None => Command::new(launch.program),
            Some(via) => {
                // The shell splits the words of the command, and replaces itself with it.
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(format!("exec {via} \"$0\" \"$@\"")).arg(launch.program);
                shell
            }
        };
        command.args(["bench", "role"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            CommandFailure::new(Exit::Failed, format!("cannot start {}: {error}", launch.program.display()))
        })?;
        let stdout = child.stdout.take().expect("standard output is a pipe");
        // Further lines wait in the pipe.
        let (sender, lines) = bounded(1024);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut process = Process { name: job.name(), child, stdin, lines, is_done: false };
        process.write(job);
        Ok(process)
    }

    /// Returns the id of the process, or of the command that started it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command to the process.
    pub fn send(&mut self, command: ProcessCommand) {
        self.is_done |= command == ProcessCommand::Stop;
        self.write(&command);
    }

    fn write(&mut self, line: &impl Serialize) {
        // A process that has ended already shows as the end of its reports, with the reason.
        if let Some(stdin) = &mut self.stdin
            && writeln!(stdin, "{}", json(line)).and_then(|()| stdin.flush()).is_err()
        {
            self.stdin = None;
        }
    }

    /// Returns the next report of the process.
    ///
    /// # Errors
    /// The process fails, has ended, or does not answer in time, or the user ends the command.
    pub fn next_report(&mut self, interrupt: &Interrupt, timeout: Duration) -> Result<ProcessReport, CommandFailure> {
        let deadline = Clock::now().instant + timeout;
        loop {
            if interrupt.is_raised() {
                return Err(CommandFailure::new(Exit::Failed, "interrupted"));
            }
            match self.lines.recv_timeout(CHECK_INTERVAL) {
                Ok(line) => return self.parse_report(&line),
                Err(RecvTimeoutError::Disconnected) => return Err(self.exit_failure()),
                Err(RecvTimeoutError::Timeout) if Clock::now().instant < deadline => {}
                Err(RecvTimeoutError::Timeout) => {
                    let text = format!("the {} does not answer within {timeout:?}", self.name);
                    return Err(CommandFailure::new(Exit::Failed, text).fix("is its host overloaded or stopped?"));
                }
            }
        }
    }

    fn parse_report(&self, line: &str) -> Result<ProcessReport, CommandFailure> {
        let report = serde_json::from_str(line).map_err(|error| {
            let text = format!("the {} sent an invalid report ({error}): {line}", self.name);
            CommandFailure::new(Exit::Failed, text).fix("is it the same version of seqcast on both sides?")
        })?;
        match report {
            ProcessReport::Failed { exit, text, fix } => {
                let exit = [Exit::Configuration, Exit::Unreachable].into_iter().find(|known| *known as u8 == exit);
                let text = format!("the {} cannot continue: {text}", self.name);
                Err(CommandFailure { exit: exit.unwrap_or(Exit::Failed), text, fix })
            }
            report => Ok(report),
        }
    }

    fn exit_failure(&mut self) -> CommandFailure {
        let how = match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        CommandFailure::new(Exit::Failed, format!("the {} ended: {how}", self.name))
            .fix("see its output above; does the command given with --publisher-via or --subscriber-via work?")
    }

    /// Waits until the process can begin; `Err` inside holds the reason why it never can.
    ///
    /// # Errors
    /// The same as of [`Process::next_report`].
    pub fn ready(&mut self, interrupt: &Interrupt) -> Result<Result<ReadyReport, String>, CommandFailure> {
        match self.next_report(interrupt, START_TIME)? {
            ProcessReport::Ready(ready) => Ok(Ok(ready)),
            ProcessReport::Unsupported { why } => Ok(Err(why)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Waits until everything is sent, which takes about `span`.
    ///
    /// # Errors
    /// The same as of [`Process::next_report`].
    pub fn sent(&mut self, interrupt: &Interrupt, span: Duration) -> Result<SendReport, CommandFailure> {
        match self.next_report(interrupt, span + GRACE_TIME)? {
            ProcessReport::Sent(sent) => Ok(sent),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Waits until everything is received.
    ///
    /// # Errors
    /// The same as of [`Process::next_report`].
    pub fn received(&mut self, interrupt: &Interrupt) -> Result<ReceiveReport, CommandFailure> {
        match self.next_report(interrupt, GRACE_TIME)? {
            ProcessReport::Received(received) => {
                self.is_done = true;
                Ok(*received)
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Waits until the process has measured for about `span`.
    ///
    /// # Errors
    /// The same as of [`Process::next_report`].
    pub fn pinged(&mut self, interrupt: &Interrupt, span: Duration) -> Result<PingReport, CommandFailure> {
        match self.next_report(interrupt, span + GRACE_TIME)? {
            ProcessReport::Pinged(pinged) => Ok(pinged),
            other => Err(self.unexpected(&other)),
        }
    }

    fn unexpected(&self, report: &ProcessReport) -> CommandFailure {
        CommandFailure::new(Exit::Failed, format!("the {} sent an unexpected report: {}", self.name, json(report)))
    }
}

impl Process {
    /// Waits a limited time until the process has ended; returns whether it has.
    fn has_ended(&mut self) -> bool {
        let deadline = Clock::now().instant + END_TIME;
        while Clock::now().instant < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            std::thread::sleep(END_CHECK_INTERVAL);
        }
        false
    }
}

impl Drop for Process {
    /// A process that has done its job ends by itself, any other when its standard input does. If it still runs then,
    /// it is killed.
    fn drop(&mut self) {
        if self.is_done && self.has_ended() {
            return;
        }
        self.stdin = None;
        if !self.has_ended() {
            // A process that has ended meanwhile cannot be killed, which has the same result.
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}
