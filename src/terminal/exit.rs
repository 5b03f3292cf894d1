//! The end of a command: the exit codes, and the failure that carries one together with its text for people.

use std::fmt;
use std::io;
use std::process::ExitCode;

use serde_json::json;

use super::output::note;

/// The exit codes of the `seqcast` command; the numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command did its work.
    Done = 0,
    /// The command tried and failed.
    Failed = 1,
    /// The arguments make no sense.
    Usage = 2,
    /// The configuration is wrong or cannot be read.
    Configuration = 3,
    /// The local peer, the network, or any responder cannot be reached.
    Unreachable = 4,
    /// The time given with `--wait` expired first.
    TimedOut = 27,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Reason why a command ends early: the exit code, the event, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandFailure {
    /// The exit code.
    pub exit: Exit,
    /// Description of the event; empty if there is nothing to report.
    pub text: String,
    /// Remedy, if one is known.
    pub fix: Option<String>,
}

impl CommandFailure {
    /// Returns a failure with this exit code and text.
    pub fn new(exit: Exit, text: impl fmt::Display) -> CommandFailure {
        CommandFailure { exit, text: text.to_string(), fix: None }
    }

    /// Returns the failure of a command that the user ends before it has a result. There is nothing to report.
    pub fn interrupted() -> CommandFailure {
        CommandFailure::new(Exit::Failed, "")
    }

    /// Returns a failure with the text of an error of the peer: the problem, then the remedy after the first `; `.
    pub fn of_peer(exit: Exit, error: impl fmt::Display) -> CommandFailure {
        let text = error.to_string();
        match text.split_once("; ") {
            Some((problem, remedy)) => CommandFailure::new(exit, problem).fix(remedy),
            None => CommandFailure::new(exit, text),
        }
    }

    /// Adds a further remedy behind those that are known.
    #[must_use]
    pub fn or_fix(self, fix: &str) -> CommandFailure {
        let fix = match &self.fix {
            Some(known) => format!("{known}; {fix}"),
            None => fix.to_owned(),
        };
        self.fix(fix)
    }

    /// Reports the failure on standard error: as one JSON object if `json`, otherwise for people. A failure without a
    /// text has nothing to report.
    pub fn report(&self, json: bool) {
        match (self.text.is_empty(), json) {
            (true, _) => {}
            (false, true) => note(json!({ "error": self.text, "fix": self.fix, "exit": self.exit as u8 })),
            (false, false) => note(format_args!("seqcast: {self}")),
        }
    }

    /// Returns the same failure with a remedy.
    pub fn fix(self, fix: impl fmt::Display) -> CommandFailure {
        CommandFailure { fix: Some(fix.to_string()), ..self }
    }
}

impl From<io::Error> for CommandFailure {
    /// Converts an error on standard output or standard input. It is no error that the reader of a pipe has left: it
    /// needs no more output.
    fn from(error: io::Error) -> CommandFailure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CommandFailure::new(Exit::Done, ""),
            io::ErrorKind::StorageFull => CommandFailure::new(Exit::Failed, error).fix("make room on the disk"),
            _ => CommandFailure::new(Exit::Failed, error),
        }
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.fix {
            Some(fix) => write!(f, "\n  fix: {fix}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_pipe_is_no_error() {
        let closed = CommandFailure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((closed.exit, closed.text.as_str()), (Exit::Done, ""));
        assert_eq!(CommandFailure::from(io::Error::other("disk full")).exit, Exit::Failed);
    }

    #[test]
    fn peer_error_is_divided_into_problem_and_remedy() {
        let failure = CommandFailure::of_peer(Exit::Failed, "eth0 is down; switch it on; or use eth1");
        assert_eq!(failure, CommandFailure::new(Exit::Failed, "eth0 is down").fix("switch it on; or use eth1"));
        assert_eq!(CommandFailure::of_peer(Exit::Failed, "no room").fix, None);
    }

    #[test]
    fn failure_text_ends_with_the_remedy() {
        let failure = CommandFailure::new(Exit::Unreachable, "no peer").fix("start one: seqcast peer");
        assert_eq!(failure.to_string(), "no peer\n  fix: start one: seqcast peer");
    }
}
