//! The channel between a process of the bench and the one that started it, seen from inside.

use std::io::{self, BufRead};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};

use super::job::{ProcessCommand, ProcessReport};
use super::temporary_directory;
use crate::terminal::exit::CommandFailure;
use crate::terminal::output::{Output, json};

/// The channel to the parent process: commands to this process, reports from it.
pub struct ControlChannel<'a> {
    commands: Receiver<ProcessCommand>,
    out: &'a mut Output,
}

impl<'a> ControlChannel<'a> {
    /// Reads commands from standard input in a thread of its own. The process ends with its standard input: the parent
    /// process is gone then.
    pub fn open(out: &'a mut Output) -> ControlChannel<'a> {
        // The parent process sends one command at a time; further ones would wait in the pipe.
        let (sender, commands) = bounded(1024);
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(command) => drop(sender.send(command)),
                    Err(_) => break,
                }
            }
            temporary_directory::remove_all_and_exit()
        });
        ControlChannel { commands, out }
    }

    /// Sends a report.
    ///
    /// # Errors
    /// The parent process no longer reads it.
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
