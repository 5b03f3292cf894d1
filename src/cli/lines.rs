//! Processes each line of standard input. Several lines are in flight at a time, and the result of each is printed as
//! soon as it is there. The user can interrupt the wait for a line.

use super::line_reader::{InputRead, LineReader, MESSAGE_LINE_BYTES_MAX, POLL_INTERVAL};
use crate::clock::Clock;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::Output;
use crate::terminal::progress::Progress;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// Maximum number of lines in flight.
const IN_FLIGHT_MAX: usize = 256;

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
    // On a terminal the results show the progress.
    let mut progress = (!io::stdout().is_terminal()).then(|| Progress::new(None, Clock::now().instant));
    let mut run = || -> Result<(), CommandFailure> {
        let (mut input, mut line) = (LineReader::open(MESSAGE_LINE_BYTES_MAX)?, 0);
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
                    if let Some(progress) = &mut progress {
                        progress.show(Clock::now().instant, count, || format!("{count} lines done"));
                    }
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
    drop(progress);
    report(count);
    ended?;
    if let Some((line, failure)) = refused {
        return Err(CommandFailure { text: format!("line {line}: {}", failure.text), ..failure });
    }
    Ok(if interrupt.is_raised() { Exit::Failed } else { Exit::Done })
}
