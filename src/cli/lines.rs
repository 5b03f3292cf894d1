//! Lines of standard input of which each is to be done: several are on their way at a time, each is told as soon as it is done, and who waits for
//! one can be interrupted.

use super::exit::{CommandFailure, Exit};
use super::interrupt::Interrupt;
use super::output::Output;
use super::publish::next_line;
use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use std::collections::VecDeque;
use std::io;
use std::thread;
use std::time::Duration;

/// Lines that are begun before the first one is done.
const IN_FLIGHT_MAX: usize = 256;
/// How often one looks whether to end while no line comes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Lines that are read ahead, at most.
const READ_AHEAD_MAX: usize = 64;

/// Why a line is not done.
#[derive(Debug)]
pub enum LineFailure {
    /// It cannot be used, or is refused; those before it are done.
    Line(CommandFailure),
    /// Nothing further can be done.
    Fatal(CommandFailure),
}

/// Begins and ends what is to be done for each line, and prints what came of it. After a line that cannot be used no more is read; what was read
/// before is ended, unless it is refused too. `report` hears at the end, however it comes, how many lines were done.
///
/// # Errors
/// The first line that is refused, with its number; whatever ends all.
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
    let mut waiting: VecDeque<(u64, T)> = VecDeque::new();
    let mut run = || -> Result<(), CommandFailure> {
        let (input, mut line) = (LineReader::start()?, 0);
        let mut is_over = false;
        loop {
            is_over |= refused.is_some() || interrupt.is_raised();
            if !is_over {
                let wait = if waiting.is_empty() { POLL_INTERVAL } else { Duration::ZERO };
                match input.next(wait)? {
                    InputRead::Line(bytes) => {
                        line += 1;
                        match begin(bytes) {
                            Ok(begun) => waiting.push_back((line, begun)),
                            Err(LineFailure::Line(failure)) => refused = Some((line, failure)),
                            Err(LineFailure::Fatal(failure)) => return Err(failure),
                        }
                        if waiting.len() < IN_FLIGHT_MAX {
                            continue;
                        }
                    }
                    InputRead::Nothing if waiting.is_empty() => out.flush()?,
                    InputRead::Nothing => {}
                    InputRead::End => is_over = true,
                }
            }
            match waiting.pop_front().map(|(line, begun)| (line, end(begun))) {
                None if is_over => return Ok(()),
                None => {}
                Some((_, Ok(done))) => {
                    count += 1;
                    print(done, out)?;
                }
                // Those behind it may have been taken.
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

/// What comes next.
#[derive(Debug)]
enum InputRead {
    /// A line without its end.
    Line(Bytes),
    /// Nothing yet.
    Nothing,
    /// There is no further line.
    End,
}

/// The lines, read beside what is done with them.
#[derive(Debug)]
struct LineReader(Receiver<Result<Bytes, CommandFailure>>);

impl LineReader {
    /// Reads them from now on.
    ///
    /// # Errors
    /// The system has no thread for it.
    fn start() -> io::Result<LineReader> {
        let (sender, receiver) = bounded(READ_AHEAD_MAX);
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
        Ok(LineReader(receiver))
    }

    /// The next one, if it comes in time.
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
