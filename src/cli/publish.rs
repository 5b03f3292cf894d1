//! `pub`: messages from the argument, from lines or from files, at a pace.

use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::args::PublishOptions;
use super::connect;
use super::header;
use super::pacer::{RatePacer, Template};
use crate::bus::Bus;
use crate::clock::Clock;
use crate::message::{Headers, MESSAGE_BYTES_MAX, Message};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::json;
use crate::terminal::output::{Output, note, pluralize};
use crate::terminal::peer;
use crate::terminal::progress::Progress;

/// Source of the payloads.
enum PayloadSource {
    /// One payload repeatedly, with its number in it.
    Template(Template),
    /// Each file in turn, repeatedly.
    Files(Vec<Bytes>),
    /// The lines of standard input.
    Lines(io::StdinLock<'static>),
}

/// The published messages in JSON.
#[derive(Serialize)]
struct PublishJson<'a> {
    subject: &'a str,
    messages: u64,
    bytes: u64,
    seconds: f64,
}

/// Runs `pub`.
///
/// # Errors
/// The input cannot be read, the peer cannot be reached, or a message cannot be published.
pub fn run(options: &PublishOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let (mut payloads, total) = payloads(options)?;
    let bus = connect::bus(&options.bus, "pub")?;
    let headers = header::headers(&options.headers);
    let interrupt = Interrupt::watch()?;
    let start = Clock::now().instant;
    let pacer = RatePacer::new(options.rate, start);
    let mut progress = Progress::new(total, start);
    let (mut messages, mut bytes) = (0, 0);
    while total.is_none_or(|total| messages < total) && !interrupt.is_raised() {
        let Some(payload) = payloads.next(messages + 1)? else { break };
        bytes += payload.len() as u64;
        publish(&bus, options, headers.clone(), payload, &interrupt)?;
        messages += 1;
        let now = Clock::now().instant;
        progress.show(now, messages, || {
            let of = total.map_or(String::new(), |total| format!(" of {total}"));
            format!("published {messages}{of} messages, {:.0}/s", pacer.achieved_rate(messages, now))
        });
        let wait = if total == Some(messages) { Duration::ZERO } else { pacer.wait(messages, now) };
        if !wait.is_zero() {
            interrupt.sleep(wait);
        }
    }
    peer::flush(&bus)?;
    progress.clear();
    let subject = options.subject.as_str();
    if options.json {
        let seconds = Clock::now().instant.since(start).as_secs_f64();
        out.line(json(&PublishJson { subject, messages, bytes, seconds }))?;
    } else {
        note(format_args!("published {} on {subject} ({})", pluralize(messages, "message"), pluralize(bytes, "byte")));
    }
    Ok(if interrupt.is_raised() { Exit::Failed } else { Exit::Done })
}

fn publish(
    bus: &Bus,
    options: &PublishOptions,
    headers: Headers,
    payload: Bytes,
    interrupt: &Interrupt,
) -> Result<(), CommandFailure> {
    let mut message = Message::new(options.subject.clone(), payload);
    message.headers = headers;
    message.reply.clone_from(&options.reply);
    peer::publish(bus, message, interrupt)
}

/// Returns the source of the payloads, and the number of messages, if it is known.
fn payloads(options: &PublishOptions) -> Result<(PayloadSource, Option<u64>), CommandFailure> {
    if let Some(payload) = &options.payload {
        return Ok((PayloadSource::Template(Template::new(payload.as_bytes())), Some(options.count.unwrap_or(1))));
    }
    if !options.files.is_empty() {
        let files = options.files.iter().map(|path| read(path)).collect::<Result<Vec<Bytes>, CommandFailure>>()?;
        let total = options.count.unwrap_or(files.len() as u64);
        return Ok((PayloadSource::Files(files), Some(total)));
    }
    if !options.lines && io::stdin().is_terminal() {
        return Err(CommandFailure::new(Exit::Usage, "there is nothing to publish")
            .fix("give the payload as an argument, --file FILE, or --lines to type each message as a line"));
    }
    Ok((PayloadSource::Lines(io::stdin().lock()), options.count))
}

impl PayloadSource {
    /// Returns the payload of message `count`; `None` at the end of the input.
    fn next(&mut self, count: u64) -> Result<Option<Bytes>, CommandFailure> {
        Ok(match self {
            PayloadSource::Template(template) => Some(template.payload(count)),
            PayloadSource::Files(files) => {
                let turn = (count - 1) % files.len() as u64;
                Some(files[usize::try_from(turn).expect("below the number of files")].clone())
            }
            PayloadSource::Lines(input) => next_line(input)?,
        })
    }
}

/// Returns the next line without its line feed (and carriage return before it); `None` at the end. It never reads more
/// than the largest message into memory; the caller refuses such a line like any message that is too large.
pub(super) fn next_line(input: &mut impl BufRead) -> Result<Option<Bytes>, CommandFailure> {
    let mut line = Vec::new();
    if input.take(BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    Ok(Some(line.into()))
}

/// Returns a file's content; `-` is standard input.
pub(super) fn read(path: &Path) -> Result<Bytes, CommandFailure> {
    let mut bytes = Vec::new();
    let read = match path == Path::new("-") {
        true => io::stdin().lock().take(BYTES_MAX).read_to_end(&mut bytes),
        false => File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes)),
    };
    match read {
        Ok(_) => Ok(bytes.into()),
        Err(error) => Err(CommandFailure::new(Exit::Failed, format!("{} cannot be read: {error}", path.display()))
            .fix("name a readable file, or - for standard input")),
    }
}

/// Refuses content that is larger than any message may be; the rest of it was not read.
pub(super) fn check_size(bytes: &Bytes) -> Result<(), CommandFailure> {
    if bytes.len() <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    let text = format!("the input has more than {MESSAGE_BYTES_MAX} bytes, above every message-size");
    Err(CommandFailure::new(Exit::Usage, text).fix("give less input, or split it"))
}

/// Size limit of the largest message, plus one byte, plus two bytes for a line's end.
const BYTES_MAX: u64 = MESSAGE_BYTES_MAX as u64 + 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_or_without_a_line_feed() {
        let mut input: &[u8] = b"one\r\n\ntwo\rthree\n\xff";
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut input).unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, [&b"one"[..], b"", b"two\rthree", b"\xff"]);
    }

    #[test]
    fn endless_line_is_read_up_to_the_limit() {
        let mut input = io::repeat(b'x').take(3 * BYTES_MAX);
        let mut input = io::BufReader::new(&mut input);
        let line = next_line(&mut input).unwrap().unwrap();
        assert!(MESSAGE_BYTES_MAX < line.len() && line.len() as u64 <= BYTES_MAX);
    }
}
