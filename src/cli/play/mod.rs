//! `play`: publishes the messages of a recording, or shows what the recording lacks.

pub mod args;
mod losses;
mod recording_file;
mod remap;

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use self::args::{PartPosition, PlayOptions, PlaySpeed};
use self::recording_file::{RecordingFile, invalid_topic};
use super::connect;
use super::recording::ChannelKind;
use super::recording::annotation::Annotation;
use super::recording::reader::{RecordedChannel, RecordedMessage};
use crate::bus::Bus;
use crate::clock::Clock;
use crate::message::{MESSAGE_BYTES_MAX, Message};
use crate::subject::Subject;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::{Output, json, note, pluralize};
use crate::terminal::peer;
use crate::terminal::progress::Progress;
use crate::time::Instant;

/// Minimum pause before which the messages so far are sent, without waiting for more to fill a datagram.
const FLUSH_PAUSE: Duration = Duration::from_millis(1);

/// The summary in JSON.
#[derive(Default, Serialize)]
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
    let mut file = RecordingFile::open(&options.file)?;
    if options.losses {
        return losses::run(&mut file, options, out);
    }
    // The index of the file, if it has one, is checked before a peer starts.
    if options.subjects.is_empty() {
        file.check_topics()?;
    }
    let bus = connect::bus(&options.bus, "play")?;
    let interrupt = Interrupt::watch()?;
    let start = Clock::now().instant;
    let progress = Progress::new(Some(file.bytes()), start);
    let mut player = Player { options, bus: &bus, interrupt: &interrupt, progress, summary: PlayJson::default() };
    let result = loop {
        match player.play(&mut file) {
            Ok(PlayEnd::File) if options.repeat && !interrupt.is_raised() && 0 < player.summary.messages => {
                file.rewind()?;
            }
            result => break result,
        }
    };
    let Player { progress, mut summary, .. } = player;
    progress.clear();
    let end = result?;
    peer::flush(&bus)?;
    summary.seconds = Clock::now().instant.since(start).as_secs_f64();
    (summary.damaged, summary.truncated) = (file.damaged, file.is_truncated);
    let is_complete = !summary.truncated && summary.damaged == 0 && summary.skipped == 0;
    if options.json {
        out.line(json(&summary))?;
    } else {
        note(format_args!("played {} of {}", pluralize(summary.messages, "message"), options.file.display()));
    }
    Ok(if is_complete && (end == PlayEnd::File || options.repeat) { Exit::Done } else { Exit::Failed })
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
    /// Publishes the messages of a file, from its present position to its end.
    fn play(&mut self, file: &mut RecordingFile<'_>) -> Result<PlayEnd, CommandFailure> {
        let mut clock = PlayClock::default();
        let mut annotation: Option<Annotation> = None;
        while let Some(message) = file.next_message()? {
            if self.interrupt.is_raised() {
                return Ok(PlayEnd::Signal);
            }
            let first = *clock.first.get_or_insert(message.log_time);
            let channel = file.channel(&message);
            let (subject, epoch) = match channel {
                RecordedChannel::Notice(ChannelKind::Annotation) => {
                    annotation = serde_json::from_slice(file.data(&message)).ok();
                    continue;
                }
                RecordedChannel::Notice(_) => continue,
                RecordedChannel::Invalid { .. } if !self.options.subjects.is_empty() => continue,
                RecordedChannel::Invalid { topic, error } => return Err(invalid_topic(topic, error)),
                RecordedChannel::Message { subject, epoch } => (subject, epoch),
            };
            let annotation = annotation.take().filter(|annotation| {
                (annotation.subject.as_str(), &annotation.epoch) == (subject.as_str(), epoch)
                    && annotation.sequence == message.sequence
            });
            let position = self.options.position_of(message.log_time, first);
            // The recorder's times never decrease; those of other programs may.
            if position == PartPosition::After && channel.is_recorded() {
                return Ok(PlayEnd::File);
            }
            if position != PartPosition::Within || !self.options.selects(subject) {
                continue;
            }
            let subject = remap::remap(&self.options.remap, subject).map_err(|error| {
                CommandFailure::new(Exit::Usage, format!("--remap of {}: {error}", subject.as_str()))
                    .fix("give a --remap to a shorter subject")
            })?;
            if !self.await_turn(&mut clock, message.log_time)? {
                return Ok(PlayEnd::Signal);
            }
            self.publish(file, &message, subject, annotation)?;
        }
        Ok(PlayEnd::File)
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
        file: &RecordingFile<'_>,
        recorded: &RecordedMessage,
        subject: Subject,
        annotation: Option<Annotation>,
    ) -> Result<(), CommandFailure> {
        let data = file.data(recorded);
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
        self.progress.show(Clock::now().instant, file.position(), || pluralize(messages, "message"));
        Ok(())
    }
}
