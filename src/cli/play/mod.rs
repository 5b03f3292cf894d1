//! `play`: publishes the messages of a recording, or shows what the recording lacks.

pub mod args;
mod losses;
mod remap;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use self::args::{PlayOptions, PlaySpeed};
use super::connect;
use super::recording::ChannelKind;
use super::recording::annotation::Annotation;
use super::recording::reader::{FileDamage, RecordedChannel, RecordedMessage, RecordingEvent, RecordingReader};
use crate::bus::Bus;
use crate::clock::Clock;
use crate::message::{MESSAGE_BYTES_MAX, Message};
use crate::subject::Subject;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::{EscapedText, Output, json, note, pluralize};
use crate::terminal::peer;
use crate::terminal::progress::Progress;
use crate::time::Instant;

/// Number of damaged parts that are shown.
const DAMAGE_REPORTS_MAX: u64 = 10;
/// Time between two messages from which on those before are sent without waiting for more.
const FLUSH_PAUSE: Duration = Duration::from_millis(1);

/// The summary in JSON.
#[derive(Serialize)]
struct PlayJson {
    messages: u64,
    bytes: u64,
    /// Number of messages that were not published: too large for the bus.
    skipped: u64,
    /// Number of damaged parts of the file.
    damaged: u64,
    truncated: bool,
    seconds: f64,
}

/// Runs `play`.
///
/// # Errors
/// The file is no recording, or a topic in it is no subject; the peer cannot be reached, or ends.
pub fn run(options: &PlayOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    if options.losses {
        return losses::run(options, out);
    }
    // The file is checked before a peer is started, as far as its index goes.
    let mut reader = open(&options.file)?;
    for channel in reader.channels().values() {
        if let (RecordedChannel::Invalid { topic, error }, []) = (channel, &options.subjects[..]) {
            return Err(invalid_topic(topic, error));
        }
    }
    let bus = connect::bus(&options.bus, "play")?;
    let interrupt = Interrupt::watch()?;
    let start = Clock::now().instant;
    let summary = PlayJson { messages: 0, bytes: 0, skipped: 0, damaged: 0, truncated: false, seconds: 0.0 };
    let progress = Progress::new(Some(reader.bytes()), start);
    let mut player = Player { options, bus: &bus, interrupt: &interrupt, progress, summary };
    let result = loop {
        match player.play(&mut reader) {
            Ok(PlayEnd::File) if options.repeat && !interrupt.is_raised() && 0 < player.summary.messages => {
                reader = open(&options.file)?;
            }
            result => break result,
        }
    };
    let Player { progress, mut summary, .. } = player;
    progress.clear();
    let end = result?;
    peer::flush(&bus)?;
    summary.seconds = Clock::now().instant.since(start).as_secs_f64();
    let is_whole = !summary.truncated && summary.damaged == 0;
    if options.json {
        out.line(json(&summary))?;
    } else {
        note(format_args!("played {} of {}", pluralize(summary.messages, "message"), options.file.display()));
    }
    Ok(if is_whole && (end == PlayEnd::File || options.repeat) { Exit::Done } else { Exit::Failed })
}

/// A recording on the disk.
type FileReader = RecordingReader<File>;

/// Opens a recording.
fn open(path: &Path) -> Result<FileReader, CommandFailure> {
    let failure = |error| read_failure(path, &error);
    let file = File::open(path).map_err(failure)?;
    let bytes = file.metadata().map_err(failure)?.len();
    let reader = RecordingReader::open(file, bytes).map_err(failure)?;
    reader.ok_or_else(|| {
        CommandFailure::new(Exit::Failed, format!("{} is no recording: it does not begin as MCAP does", path.display()))
            .fix("name a file that 'seqcast record' or another writer of MCAP has written")
    })
}

fn read_failure(path: &Path, error: &std::io::Error) -> CommandFailure {
    CommandFailure::new(Exit::Failed, format!("{} cannot be read: {error}", path.display()))
        .fix("name a file that can be read")
}

/// Reports a damaged part of a file, of which `before` were found before.
fn report_damage(path: &Path, damage: &FileDamage, before: u64) {
    if before < DAMAGE_REPORTS_MAX {
        note(format_args!("! {}: {}", path.display(), EscapedText(damage.to_string().as_bytes())));
    } else if before == DAMAGE_REPORTS_MAX {
        note(format_args!("! {}: further damage is counted and not shown", path.display()));
    }
}

/// Reports that a file ends early.
fn report_truncation(path: &Path, offset: u64) {
    note(format_args!("! {} ends early: its last complete part ends at byte {offset}", path.display()));
}

/// Reason for the end of playing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlayEnd {
    /// The end of the file, or the time of `--until`.
    File,
    /// A signal came.
    Signal,
}

/// Publishes the messages of a file.
struct Player<'a> {
    options: &'a PlayOptions,
    bus: &'a Bus,
    interrupt: &'a Interrupt,
    progress: Progress,
    summary: PlayJson,
}

/// Times of a recording that is being played.
#[derive(Debug, Default)]
struct PlayClock {
    /// Time of the first message of the file.
    first: Option<u64>,
    /// Recorded time of the first published message, and the time at which it was published.
    origin: Option<(u64, Instant)>,
}

impl Player<'_> {
    fn play(&mut self, reader: &mut FileReader) -> Result<PlayEnd, CommandFailure> {
        let path = &self.options.file;
        let mut clock = PlayClock::default();
        let mut annotation: Option<Annotation> = None;
        loop {
            if self.interrupt.is_raised() {
                return Ok(PlayEnd::Signal);
            }
            let message = match reader.next_event().map_err(|error| read_failure(path, &error))? {
                RecordingEvent::Message(message) => message,
                RecordingEvent::Damage(damage) => {
                    report_damage(path, &damage, self.summary.damaged);
                    self.summary.damaged += 1;
                    continue;
                }
                RecordingEvent::End => return Ok(PlayEnd::File),
                RecordingEvent::Truncated(offset) => {
                    report_truncation(path, offset);
                    self.summary.truncated = true;
                    return Ok(PlayEnd::File);
                }
            };
            let first = *clock.first.get_or_insert(message.log_time);
            let channel = reader.channel(&message);
            // The recorder's times never decrease; those of other programs may.
            let is_sorted = channel.is_recorded();
            let subject = match channel {
                RecordedChannel::Notice(ChannelKind::Annotation) => {
                    annotation = serde_json::from_slice(reader.data(&message)).ok();
                    continue;
                }
                RecordedChannel::Notice(_) => continue,
                RecordedChannel::Invalid { .. } if !self.options.subjects.is_empty() => continue,
                RecordedChannel::Invalid { topic, error } => return Err(invalid_topic(topic, error)),
                RecordedChannel::Message { subject, epoch } => {
                    let describes = |a: &Annotation| {
                        a.subject == subject.as_str() && a.epoch == *epoch && a.sequence == message.sequence
                    };
                    annotation = annotation.take().filter(describes);
                    subject
                }
            };
            let is_early = self.options.from.is_some_and(|from| message.log_time < from.nanos(first));
            let is_late = self.options.until.is_some_and(|until| until.nanos(first) <= message.log_time);
            if is_late && is_sorted {
                return Ok(PlayEnd::File);
            }
            let patterns = &self.options.subjects;
            let is_wanted = patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(subject));
            let annotation = annotation.take();
            if is_early || is_late || !is_wanted {
                continue;
            }
            let subject = remap::remap(&self.options.remap, subject).map_err(|error| {
                CommandFailure::new(Exit::Usage, format!("--remap of {}: {error}", subject.as_str()))
            })?;
            if !self.await_turn(&mut clock, message.log_time)? {
                return Ok(PlayEnd::Signal);
            }
            self.publish(reader, &message, subject, annotation)?;
        }
    }

    /// Waits until a message with this recorded time is due. Returns false if a signal came first.
    fn await_turn(&mut self, clock: &mut PlayClock, log_time: u64) -> Result<bool, CommandFailure> {
        let PlaySpeed::Factor(factor) = self.options.rate else { return Ok(true) };
        let now = Clock::now().instant;
        let (first, start) = *clock.origin.get_or_insert((log_time, now));
        let span = Duration::from_nanos(log_time.saturating_sub(first)).as_secs_f64() / factor;
        let due = Duration::try_from_secs_f64(span).unwrap_or(Duration::MAX);
        let wait = due.saturating_sub(now.since(start));
        if FLUSH_PAUSE <= wait {
            peer::flush(self.bus)?;
            self.interrupt.sleep(wait);
        }
        Ok(!self.interrupt.is_raised())
    }

    fn publish(
        &mut self,
        reader: &FileReader,
        recorded: &RecordedMessage,
        subject: Subject,
        annotation: Option<Annotation>,
    ) -> Result<(), CommandFailure> {
        let data = reader.data(recorded);
        let annotation = annotation.unwrap_or_default();
        let mut message = Message::new(subject, Bytes::copy_from_slice(data));
        message.headers = annotation.message_headers();
        message.reply = annotation.reply.and_then(|reply| reply.parse().ok());
        if MESSAGE_BYTES_MAX < message.body_bytes() {
            note(format_args!(
                "! not published: {} on {}, above every message-size",
                pluralize(message.body_bytes() as u64, "byte"),
                message.subject.as_str()
            ));
            self.summary.skipped += 1;
            return Ok(());
        }
        if !peer::publish(self.bus, message, self.interrupt)? {
            return Ok(());
        }
        self.summary.messages += 1;
        self.summary.bytes += data.len() as u64;
        let messages = self.summary.messages;
        self.progress.show(Clock::now().instant, reader.position(), || pluralize(messages, "message"));
        Ok(())
    }
}

fn invalid_topic(topic: &str, error: &crate::subject::SubjectError) -> CommandFailure {
    let topic = EscapedText(topic.as_bytes());
    CommandFailure::new(Exit::Failed, format!("topic '{topic}' is no subject: {error}"))
        .fix("play the other topics alone with --subjects, such as --subjects '>'")
}
