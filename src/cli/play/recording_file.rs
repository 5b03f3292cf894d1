//! A recording on the disk, and the reports of what cannot be read in it.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::cli::recording::reader::{FileDamage, RecordedChannel, RecordedMessage, RecordingEvent, RecordingReader};
use crate::subject::SubjectError;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{EscapedText, note};

/// Maximum number of damaged parts that are shown.
const DAMAGE_REPORTS_MAX: u64 = 10;

/// A recording, open for reading.
#[derive(Debug)]
pub struct RecordingFile<'a> {
    path: &'a Path,
    reader: RecordingReader<File>,
    /// Number of damaged parts that were found.
    pub damaged: u64,
    /// True if the file ends early.
    pub is_truncated: bool,
    /// True once the file is read again: its damage is known.
    is_known: bool,
}

impl<'a> RecordingFile<'a> {
    /// Opens a recording.
    ///
    /// # Errors
    /// The file cannot be read, or is no recording.
    pub fn open(path: &'a Path) -> Result<RecordingFile<'a>, CommandFailure> {
        let reader = open(path)?;
        Ok(RecordingFile { path, reader, damaged: 0, is_truncated: false, is_known: false })
    }

    /// Begins again with the first message. Damage is neither reported nor counted again.
    ///
    /// # Errors
    /// The file cannot be read, or is no longer a recording.
    pub fn rewind(&mut self) -> Result<(), CommandFailure> {
        self.reader = open(self.path)?;
        self.is_known = true;
        Ok(())
    }

    /// Returns the next message; `None` at the end. Damaged parts are reported and skipped.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_message(&mut self) -> Result<Option<RecordedMessage>, CommandFailure> {
        loop {
            match self.reader.next_event().map_err(|error| read_failure(self.path, &error))? {
                RecordingEvent::Message(message) => return Ok(Some(message)),
                RecordingEvent::End => return Ok(None),
                RecordingEvent::Damage(damage) => self.report_damage(&damage),
                RecordingEvent::Truncated(offset) => {
                    self.report_truncation(offset);
                    return Ok(None);
                }
            }
        }
    }

    /// Returns the channel of a message.
    pub fn channel(&self, message: &RecordedMessage) -> &RecordedChannel {
        self.reader.channel(message)
    }

    /// Returns the content of the message that was read last.
    pub fn data(&self, message: &RecordedMessage) -> &[u8] {
        self.reader.data(message)
    }

    /// Returns the number of bytes read so far, of [`RecordingFile::bytes`].
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    /// Returns the size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.reader.bytes()
    }

    /// Refuses a file whose index has a topic that is no subject.
    ///
    /// # Errors
    /// There is such a topic.
    pub fn check_topics(&self) -> Result<(), CommandFailure> {
        self.reader.channels().values().try_for_each(|channel| match channel {
            RecordedChannel::Invalid { topic, error } => Err(invalid_topic(topic, error)),
            RecordedChannel::Message { .. } | RecordedChannel::Notice(_) => Ok(()),
        })
    }

    fn report_damage(&mut self, damage: &FileDamage) {
        if self.is_known {
            return;
        }
        let path = self.path.display();
        if self.damaged < DAMAGE_REPORTS_MAX {
            note(format_args!("! {path}: {}", EscapedText(damage.to_string().as_bytes())));
        } else if self.damaged == DAMAGE_REPORTS_MAX {
            note(format_args!("! {path}: further damage is counted and not shown"));
        }
        self.damaged += 1;
    }

    fn report_truncation(&mut self, offset: u64) {
        if !self.is_known {
            note(format_args!("! {} ends early: its last complete part ends at byte {offset}", self.path.display()));
            self.is_truncated = true;
        }
    }
}

/// Returns the failure for a topic that is no subject.
pub fn invalid_topic(topic: &str, error: &SubjectError) -> CommandFailure {
    let topic = EscapedText(topic.as_bytes());
    CommandFailure::new(Exit::Failed, format!("topic '{topic}' is no subject: {error}"))
        .fix("play the other topics alone with --subjects, such as --subjects '>'")
}

fn open(path: &Path) -> Result<RecordingReader<File>, CommandFailure> {
    let failure = |error| read_failure(path, &error);
    let file = File::open(path).map_err(failure)?;
    let bytes = file.metadata().map_err(failure)?.len();
    let reader = RecordingReader::open(file, bytes).map_err(failure)?;
    reader.ok_or_else(|| {
        CommandFailure::new(Exit::Failed, format!("{} is no recording: it does not begin as MCAP does", path.display()))
            .fix("name a file that 'seqcast record' or another writer of MCAP has written")
    })
}

fn read_failure(path: &Path, error: &io::Error) -> CommandFailure {
    CommandFailure::new(Exit::Failed, format!("{} cannot be read: {error}", path.display()))
        .fix("name a file that can be read")
}
