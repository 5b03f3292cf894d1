//! `pub`: messages from the argument, from lines or from files, at a pace.

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::args::PublishOptions;
use super::connect;
use super::header;
use super::line_reader::{InputRead, LineReader, MESSAGE_LINE_BYTES_MAX, POLL_INTERVAL};
use super::message_input::{JSON_LINE_BYTES_MAX, json_line, subject_line};
use super::pacer::{RatePacer, Template};
use super::receivers::{KnownReceivers, LonePeerAdvice};
use crate::bus::Bus;
use crate::clock::Clock;
use crate::message::{Headers, MESSAGE_BYTES_MAX, Message};
use crate::subject::{SUBJECT_BYTES_MAX, Subject};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::json;
use crate::terminal::output::{Output, note, pluralize};
use crate::terminal::peer;
use crate::terminal::progress::Progress;

/// The published messages in JSON.
#[derive(Serialize)]
struct PublishJson<'a> {
    /// `None` if each line names its own.
    subject: Option<&'a str>,
    messages: u64,
    bytes: u64,
    seconds: f64,
    /// `None` if unknown.
    receivers: Option<u64>,
}

/// Runs `pub`.
///
/// # Errors
/// The input cannot be read, the peer cannot be reached, or a message cannot be published.
pub fn run(options: &PublishOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let (mut source, total) = MessageSource::open(options)?;
    let bus = match total == Some(1) && options.files.is_empty() {
        true => connect::bus_for_message(&options.bus, "pub")?,
        false => connect::bus(&options.bus, "pub")?,
    };
    source.read_files(&bus)?;
    let interrupt = Interrupt::watch()?;
    let start = Clock::now().instant;
    let (mut messages, mut bytes) = (0, 0);
    let published = publish_all(options, &bus, &mut source, total, &interrupt, |payload_bytes| {
        messages += 1;
        bytes += payload_bytes as u64;
    });
    // The messages before a refused one leave the peer, and are reported.
    let flushed = peer::flush(&bus);
    if flushed.is_ok() && (published.is_ok() || 0 < messages) {
        let seconds = Clock::now().instant.since(start).as_secs_f64();
        let subject = options.subject.as_ref().map(|subject| subject.as_str());
        let summary = PublishJson { subject, messages, bytes, seconds, receivers: None };
        report(options, &bus, summary, source.skipped(), out)?;
    }
    published.and(flushed)?;
    Ok(if interrupt.is_raised() { Exit::Failed } else { Exit::Done })
}

/// Reports the published messages with their known receivers, and the number of skipped lines.
fn report(
    options: &PublishOptions,
    bus: &Bus,
    summary: PublishJson<'_>,
    skipped: u64,
    out: &mut Output,
) -> io::Result<()> {
    let subject = options.subject.as_ref();
    // The messages are published, whatever the peer knows.
    let receivers = KnownReceivers::of(bus, subject).ok().filter(|_| 0 < summary.messages);
    let count = receivers.as_ref().and_then(|receivers| receivers.count);
    if options.json {
        out.line(json(&PublishJson { receivers: count, ..summary }))?;
    } else {
        let on = subject.map_or(String::new(), |subject| format!(" on {subject}"));
        let known = match count {
            None => String::new(),
            Some(0) => "; no known subscriber".to_owned(),
            Some(count) => format!("; {}", pluralize(count, "known subscriber")),
        };
        let skipped = match skipped {
            0 => String::new(),
            skipped => format!("; skipped {} of other types", pluralize(skipped, "line")),
        };
        let (messages, bytes) = (pluralize(summary.messages, "message"), pluralize(summary.bytes, "byte"));
        note(format_args!("published {messages}{on} ({bytes}){known}{skipped}"));
    }
    if receivers.is_some_and(|receivers| receivers.is_nobody_there)
        && let Ok(advice) = LonePeerAdvice::of(bus)
    {
        let here = subject.map_or(String::new(), |subject| format!(" to {subject}"));
        note(format_args!(
            "nobody is there: the peer knows no other peer, and no program here subscribes{here}; {advice}"
        ));
    }
    Ok(())
}

/// Publishes the messages of `source`, at most `total`, until the user interrupts it. Calls `on_published` for each,
/// with the bytes of its payload.
fn publish_all(
    options: &PublishOptions,
    bus: &Bus,
    source: &mut MessageSource,
    total: Option<u64>,
    interrupt: &Interrupt,
    mut on_published: impl FnMut(usize),
) -> Result<(), CommandFailure> {
    let start = Clock::now().instant;
    let pacer = RatePacer::new(options.rate, start);
    let mut progress = Progress::new(total, start);
    let mut messages = 0;
    while total.is_none_or(|total| messages < total) && !interrupt.is_raised() {
        let Some(message) = source.next(messages + 1, interrupt)? else { break };
        let payload_bytes = message.payload.len();
        if !peer::publish(bus, message, interrupt).map_err(|failure| source.locate(failure))? {
            break;
        }
        messages += 1;
        on_published(payload_bytes);
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
    progress.clear();
    Ok(())
}

/// The fields that the arguments give to every message, beside subject and payload.
struct MessageFields {
    reply: Option<Subject>,
    headers: Headers,
}

impl MessageFields {
    fn message(&self, subject: &Subject, payload: Bytes) -> Message {
        self.fill(Message::new(subject.clone(), payload))
    }

    fn fill(&self, message: Message) -> Message {
        Message { reply: self.reply.clone(), headers: self.headers.clone(), ..message }
    }
}

/// Source of the messages.
enum MessageSource {
    /// One payload repeatedly, with its number in it.
    Template(MessageFields, Subject, Template),
    /// Each of these payloads in turn, repeatedly.
    Payloads(MessageFields, Subject, Vec<Bytes>),
    /// The contents of these files, before [`MessageSource::read_files`].
    Files(MessageFields, Subject, Vec<PayloadFile>),
    /// The lines of standard input.
    Lines {
        reader: LineReader,
        format: LineFormat,
        /// Number of the last line.
        line: u64,
        /// Number of lines that are no messages.
        skipped: u64,
    },
}

/// Form of a message in a line.
enum LineFormat {
    /// The line is the payload.
    Payload(MessageFields, Subject),
    /// `SUBJECT PAYLOAD`.
    Subject(MessageFields),
    /// A JSON object.
    Json,
}

impl MessageSource {
    /// Returns the source that the options select, and the number of its messages, if it is known.
    fn open(options: &PublishOptions) -> Result<(MessageSource, Option<u64>), CommandFailure> {
        let fields = MessageFields { reply: options.reply.clone(), headers: header::headers(&options.headers) };
        let Some(subject) = options.subject.clone() else {
            let format = if options.json_lines { LineFormat::Json } else { LineFormat::Subject(fields) };
            return Ok((MessageSource::lines(format)?, options.count));
        };
        if let Some(payload) = &options.payload {
            let template = Template::new(payload.as_bytes());
            return Ok((MessageSource::Template(fields, subject, template), Some(options.count.unwrap_or(1))));
        }
        if let Some(payload) = &options.rvmsg {
            return Ok((
                MessageSource::Payloads(fields, subject, vec![payload.clone()]),
                Some(options.count.unwrap_or(1)),
            ));
        }
        if !options.files.is_empty() {
            let files = options.files.iter().map(|path| PayloadFile::check(path));
            let files = files.collect::<Result<Vec<PayloadFile>, CommandFailure>>()?;
            let total = options.count.unwrap_or(files.len() as u64);
            return Ok((MessageSource::Files(fields, subject, files), Some(total)));
        }
        if !options.lines && io::stdin().is_terminal() {
            return Err(CommandFailure::new(Exit::Usage, "there is nothing to publish")
                .fix("give the payload as an argument, --file FILE, or --lines to type each message as a line"));
        }
        Ok((MessageSource::lines(LineFormat::Payload(fields, subject))?, options.count))
    }

    fn lines(format: LineFormat) -> io::Result<MessageSource> {
        let line_bytes_max = match format {
            LineFormat::Json => JSON_LINE_BYTES_MAX,
            LineFormat::Subject(_) => SUBJECT_BYTES_MAX + MESSAGE_LINE_BYTES_MAX,
            LineFormat::Payload(..) => MESSAGE_LINE_BYTES_MAX,
        };
        Ok(MessageSource::Lines { reader: LineReader::open(line_bytes_max)?, format, line: 0, skipped: 0 })
    }

    /// Reads the files, if the messages come from files: into memory that the bus lends, from which the peer
    /// reads large payloads.
    fn read_files(&mut self, bus: &Bus) -> Result<(), CommandFailure> {
        if let MessageSource::Files(fields, subject, files) = self {
            let payloads = files.iter().map(|file| file.read(bus)).collect::<Result<Vec<Bytes>, CommandFailure>>()?;
            let fields = MessageFields { reply: fields.reply.take(), headers: std::mem::take(&mut fields.headers) };
            *self = MessageSource::Payloads(fields, subject.clone(), payloads);
        }
        Ok(())
    }

    /// Returns message `count`; `None` at the end of the input, or if the user ends the command.
    fn next(&mut self, count: u64, interrupt: &Interrupt) -> Result<Option<Message>, CommandFailure> {
        let (reader, format, line, skipped) = match self {
            MessageSource::Template(fields, subject, template) => {
                return Ok(Some(fields.message(subject, template.payload(count))));
            }
            MessageSource::Payloads(fields, subject, files) => {
                let turn = (count - 1) % files.len() as u64;
                let payload = files[usize::try_from(turn).expect("below the number of files")].clone();
                return Ok(Some(fields.message(subject, payload)));
            }
            MessageSource::Files(..) => unreachable!("the files are read before the first message"),
            MessageSource::Lines { reader, format, line, skipped } => (reader, format, line, skipped),
        };
        while !interrupt.is_raised() {
            let bytes = match reader.next(POLL_INTERVAL)? {
                InputRead::Line(bytes) => bytes,
                InputRead::Nothing => continue,
                InputRead::End => return Ok(None),
            };
            *line += 1;
            let message = match format {
                LineFormat::Payload(fields, subject) => return Ok(Some(fields.message(subject, bytes))),
                _ if bytes.trim_ascii().is_empty() => continue,
                LineFormat::Subject(fields) => subject_line(&bytes).map(|message| Some(fields.fill(message))),
                LineFormat::Json => json_line(&bytes),
            };
            match message {
                Ok(Some(message)) => return Ok(Some(message)),
                Ok(None) => *skipped += 1,
                Err(error) => return Err(self.locate(CommandFailure::new(Exit::Failed, error))),
            }
        }
        Ok(None)
    }

    /// Adds to a failure the line that caused it, if there are lines.
    fn locate(&self, failure: CommandFailure) -> CommandFailure {
        let line = match self {
            MessageSource::Lines { line, .. } if failure.exit == Exit::Failed => *line,
            _ => return failure,
        };
        let failure = CommandFailure { text: format!("line {line}: {}", failure.text), ..failure };
        failure.fix(match line {
            1 => "correct the line and start again; nothing is published".to_owned(),
            _ => format!(
                "correct the line and continue there, such as with 'tail -n +{line} FILE'; the lines before it are \
                 published"
            ),
        })
    }

    /// Returns the number of lines that were no messages.
    fn skipped(&self) -> u64 {
        match self {
            MessageSource::Lines { skipped, .. } => *skipped,
            MessageSource::Template(..) | MessageSource::Payloads(..) | MessageSource::Files(..) => 0,
        }
    }
}

/// A file whose content is the payload of a message; `-` is standard input.
struct PayloadFile(PathBuf);

impl PayloadFile {
    /// Checks that a file can be read. Pipes are not opened, since that would disturb their writers.
    fn check(path: &Path) -> Result<PayloadFile, CommandFailure> {
        let file = PayloadFile(path.to_owned());
        if !file.is_stdin() {
            let open = |metadata: Metadata| if metadata.is_file() { File::open(path).map(drop) } else { Ok(()) };
            path.metadata().and_then(open).map_err(|error| read_failure(path, &error))?;
        }
        Ok(file)
    }

    fn is_stdin(&self) -> bool {
        self.0 == Path::new("-")
    }

    /// Reads the content, at most [`FILE_BYTES_MAX`] bytes. A regular file is read into lent memory directly.
    fn read(&self, bus: &Bus) -> Result<Bytes, CommandFailure> {
        let opened = match self.is_stdin() {
            true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
            false => File::open(&self.0),
        };
        opened.and_then(|file| read_lent(file, bus)).map_err(|error| read_failure(&self.0, &error))
    }
}

/// Reads a file into lent memory, or into ordinary memory if no message can hold it.
fn read_lent(mut file: File, bus: &Bus) -> io::Result<Bytes> {
    let metadata = file.metadata()?;
    let expected = if metadata.is_file() { usize::try_from(metadata.len()).unwrap_or(usize::MAX) } else { 0 };
    let mut bytes = Vec::new();
    if let Some(mut buffer) = bus.loan(expected).ok().filter(|_| 0 < expected) {
        let filled = fill(&mut file, &mut buffer)?;
        file.take(FILE_BYTES_MAX - filled as u64).read_to_end(&mut bytes)?;
        if filled == expected && bytes.is_empty() {
            return Ok(buffer.into_payload());
        }
        // The file has changed meanwhile, or part of standard input was read before.
        bytes.splice(..0, buffer[..filled].iter().copied());
    } else {
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    }
    match bus.loan(bytes.len()) {
        Ok(mut buffer) if buffer.is_shared() => {
            buffer.copy_from_slice(&bytes);
            Ok(buffer.into_payload())
        }
        _ => Ok(bytes.into()),
    }
}

/// Reads until `buffer` is full or the file ends. Returns the number of bytes read.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Returns a file's content; `-` is standard input.
pub(super) fn read(path: &Path) -> Result<Bytes, CommandFailure> {
    let mut bytes = Vec::new();
    let read = match path == Path::new("-") {
        true => io::stdin().lock().take(FILE_BYTES_MAX).read_to_end(&mut bytes),
        false => File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)),
    };
    match read {
        Ok(_) => Ok(bytes.into()),
        Err(error) => Err(read_failure(path, &error)),
    }
}

fn read_failure(path: &Path, error: &io::Error) -> CommandFailure {
    CommandFailure::new(Exit::Failed, format!("{} cannot be read: {error}", path.display()))
        .fix("name a readable file, or - for standard input")
}

/// Refuses content that is larger than any message may be; the rest of it was not read.
pub(super) fn check_size(bytes: &Bytes) -> Result<(), CommandFailure> {
    if bytes.len() <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    let text = format!("the input has more than {MESSAGE_BYTES_MAX} bytes, above every message-size");
    Err(CommandFailure::new(Exit::Usage, text).fix("give less input, or split it"))
}

/// Size limit of a file: the largest message, plus one byte, plus two bytes for a line's end.
const FILE_BYTES_MAX: u64 = MESSAGE_BYTES_MAX as u64 + 3;
