//! Processes each line of standard input. Several lines are in flight at a time, and the result of each is printed as
//! soon as it is there. The user can interrupt the wait for a line.

use super::publish::next_line;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::Output;
use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use std::collections::VecDeque;
use std::io;
use std::thread;
use std::time::Duration;

/// Maximum number of lines in flight.
const IN_FLIGHT_MAX: usize = 256;
/// Interval between checks whether to end, while no line comes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of lines that are read ahead.
const READ_AHEAD_MAX: usize = 64;

/// Reason why a line is not done.
#[derive(Debug)]
pub enum LineFailure {
    /// The line cannot be used, or is refused; the lines before it are done.
    Line(CommandFailure),
    /// No further line can be processed.
    Fatal(CommandFailure),
}

/// Calls `begin` and later `end` for each line, and prints the result. After a refused line it reads no more, but still
/// ends the lines in flight. At the end `report` receives the number of completed lines, in case of a failure too.
///
/// # Errors
/// Returns the first line that is refused, with its number, or the failure that ends all work.
pub fn process_lines<T, D>(
    mut begin: impl FnMut(Bytes) -> Result<T, LineFailure>,
    mut end: impl FnMut(T) -> Result<D, LineFailure>,
    mut print: impl FnMut(D, &mut Output) -> io::Result<()>,
    report: impl FnOnce(u64),
    out: &mut Output,
) -> Result<Exit, CommandFailure> {
    let interrupt = Interrupt::watch()?;
    let mut refused: Option<(u64, CommandFailure)> = None;
    let mut count = 0;
    let mut in_flight: VecDeque<(u64, T)> = VecDeque::new();
    let mut run = || -> Result<(), CommandFailure> {
        let (input, mut line) = (LineReader::start()?, 0);
        let mut is_over = false;
        loop {
            is_over |= refused.is_some() || interrupt.is_raised();
            if !is_over {
                let wait = if in_flight.is_empty() { POLL_INTERVAL } else { Duration::ZERO };
                match input.next(wait)? {
                    InputRead::Line(bytes) => {
                        line += 1;
                        match begin(bytes) {
                            Ok(pending) => in_flight.push_back((line, pending)),
                            Err(LineFailure::Line(failure)) => refused = Some((line, failure)),
                            Err(LineFailure::Fatal(failure)) => return Err(failure),
                        }
                        if in_flight.len() < IN_FLIGHT_MAX {
                            continue;
                        }
                    }
                    InputRead::Nothing if in_flight.is_empty() => out.flush()?,
                    InputRead::Nothing => {}
                    InputRead::End => is_over = true,
                }
            }
            match in_flight.pop_front().map(|(line, pending)| (line, end(pending))) {
                None if is_over => return Ok(()),
                None => {}
                Some((_, Ok(done))) => {
                    count += 1;
                    print(done, out)?;
                }
                // The lines behind it may have been accepted.
                Some((line, Err(LineFailure::Line(failure)))) => {
                    refused = refused.take().filter(|(first, _)| *first < line).or(Some((line, failure)));
                }
                Some((_, Err(LineFailure::Fatal(failure)))) => return Err(failure),
            }
        }
    };
    let ended = run().and_then(|()| Ok(out.flush()?));
    report(count);
    ended?;
    if let Some((line, failure)) = refused {
        return Err(CommandFailure { text: format!("line {line}: {}", failure.text), ..failure });
    }
    Ok(if interrupt.is_raised() { Exit::Failed } else { Exit::Done })
}

/// Result of reading the next line.
#[derive(Debug)]
enum InputRead {
    /// A line without its end.
    Line(Bytes),
    /// No line yet.
    Nothing,
    /// There is no further line.
    End,
}

/// The lines, which a thread of its own reads.
#[derive(Debug)]
struct LineReader(Receiver<Result<Bytes, CommandFailure>>);

impl LineReader {
    /// Starts to read the lines.
    ///
    /// # Errors
    /// The system cannot start a thread.
    fn start() -> io::Result<LineReader> {
        let (sender, receiver) = bounded(READ_AHEAD_MAX);
        // The thread may end only with the program: a blocked read of standard input cannot be woken.
        thread::Builder::new().name("stdin".into()).spawn(move || {
            let mut input = io::stdin().lock();
            while let Some(line) = next_line(&mut input).transpose() {
                let is_last = line.is_err();
                if sender.send(line).is_err() || is_last {
                    return;
                }
            }
        })?;
        Ok(LineReader(receiver))
    }

    /// Returns the next line, if it comes in time.
    ///
    /// # Errors
    /// Standard input cannot be read.
    fn next(&self, wait: Duration) -> Result<InputRead, CommandFailure> {
        match self.0.recv_timeout(wait) {
            Ok(line) => Ok(InputRead::Line(line?)),
            Err(RecvTimeoutError::Timeout) => Ok(InputRead::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(InputRead::End),
        }
    }
}
