//! Lines of standard input, read beside what is done with them: who waits for one can be interrupted, and do something else meanwhile.

use super::exit::Failure;
use super::publish::next_line;
use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use std::io;
use std::thread;
use std::time::Duration;

/// Lines that are read ahead, at most.
const AHEAD: usize = 64;

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// A line without its end.
    Line(Bytes),
    /// Nothing yet.
    Nothing,
    /// There is no further line.
    End,
}

/// The lines.
#[derive(Debug)]
pub struct Lines(Receiver<Result<Bytes, Failure>>);

impl Lines {
    /// Reads them from now on.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start() -> io::Result<Lines> {
        let (sender, receiver) = bounded(AHEAD);
        // It ends with the program, if not before: nobody can be woken who reads standard input.
        thread::Builder::new().name("stdin".into()).spawn(move || {
            let mut input = io::stdin().lock();
            while let Some(line) = next_line(&mut input).transpose() {
                let is_last = line.is_err();
                if sender.send(line).is_err() || is_last {
                    return;
                }
            }
        })?;
        Ok(Lines(receiver))
    }

    /// The next one, if it comes in time.
    ///
    /// # Errors
    /// Standard input cannot be read.
    pub fn next(&self, wait: Duration) -> Result<Next, Failure> {
        match self.0.recv_timeout(wait) {
            Ok(line) => Ok(Next::Line(line?)),
            Err(RecvTimeoutError::Timeout) => Ok(Next::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(Next::End),
        }
    }
}
