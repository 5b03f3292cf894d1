//! Opens the journal: the directory, the server number, the file, its threads.

use crate::clock::random_u64;
use crate::event::model::{EventId, ServerId};
use crate::event::sequencer::EventSequencer;
use crate::event::store::Journal;
use crate::event::store::retention::Retention;
use crate::storage::journal::error::{JournalOpenError, StoreError};
use crate::storage::journal::reader::JournalReader;
use crate::storage::journal::sqlite::SqliteJournal;
use crate::storage::journal::writer::JournalWriter;
use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// File name of the journal in the data directory.
const JOURNAL_FILE: &str = "events.db";
/// Mode of a new data directory.
const DIRECTORY_MODE: u32 = 0o700;
/// Smallest drawn server number; smaller ones are reserved for configuration.
const DRAWN_MIN: u32 = 1 << 16;

/// Reason why there is no journal. Nothing was changed or deleted.
#[derive(Debug)]
pub enum EventsError {
    /// The journal cannot be used.
    Open(JournalOpenError),
    /// The journal cannot be read.
    Read(StoreError),
    /// The system refuses an operation.
    System {
        /// The operation.
        step: &'static str,
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl fmt::Display for EventsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventsError::Open(error) => error.fmt(f),
            EventsError::Read(error) => error.fmt(f),
            EventsError::System { step, path, error } => {
                write!(f, "cannot {step} {}: {error}; set data-dir to a place that this user may write", path.display())
            }
        }
    }
}

impl std::error::Error for EventsError {}

/// An open journal.
#[derive(Debug)]
pub(super) struct JournalHandle {
    /// The server whose events are registered here.
    pub(super) server: ServerId,
    /// Path of the file.
    pub(super) path: PathBuf,
    /// For each server, the last event stored when the journal was opened, or the start of its last session.
    pub(super) last_events: Vec<EventId>,
    /// Dropped before the writer, which then leaves a single file behind.
    pub(super) reader: Arc<JournalReader>,
    pub(super) writer: Arc<JournalWriter>,
}

impl JournalHandle {
    /// Returns whether the directory contains a journal.
    pub(super) fn exists(directory: &Path) -> bool {
        directory.join(JOURNAL_FILE).exists()
    }

    /// Opens the journal in the directory, or creates it; `server` is the configured number.
    pub(super) fn open(
        directory: &Path,
        server: Option<ServerId>,
        retention: &Retention,
    ) -> Result<JournalHandle, EventsError> {
        let system = |step, path: &Path| {
            let path = path.to_owned();
            move |error| EventsError::System { step, path, error }
        };
        let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory);
        made.map_err(system("make the directory", directory))?;
        let path = directory.join(JOURNAL_FILE);
        let is_new = !JournalHandle::exists(directory);
        let mut journal = SqliteJournal::open(&path).map_err(EventsError::Open)?;
        let server = match server {
            Some(server) => server,
            None => journal.drawn_server(draw_server_id()).map_err(EventsError::Read)?,
        };
        let last = journal.last_session(server).map_err(EventsError::Read)?;
        let last_events = journal.last_events().map_err(EventsError::Read)?;
        let reader = SqliteJournal::reader(&path).map_err(EventsError::Open)?;
        let reader = JournalReader::start(reader).map_err(system("start a thread for", &path))?;
        let sequencer = EventSequencer::new(server, last.session, last.timestamp);
        let writer = JournalWriter::start_retaining(journal, sequencer, retention.clone())
            .map_err(system("start a thread for", &path))?;
        let what = if is_new { "new journal of events made" } else { "journal of events opened" };
        tracing::info!(%server, session = last.session, path = %path.display(), "{what}");
        Ok(JournalHandle { server, path, last_events, writer: Arc::new(writer), reader: Arc::new(reader) })
    }
}

/// Draws a number that probably no other server has.
fn draw_server_id() -> ServerId {
    ServerId(DRAWN_MIN + (random_u64() % u64::from(u32::MAX - DRAWN_MIN)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn server_keeps_its_drawn_number() {
        let directory = std::env::temp_dir().join(format!("seqcast-{:016x}", random_u64()));
        let open = |server| {
            JournalHandle::open(&directory.join("deep"), server, &Retention::default()).map(|opened| opened.server)
        };
        let drawn = open(None).unwrap();
        assert!(DRAWN_MIN <= drawn.0, "{drawn}");
        assert_eq!(open(None).unwrap(), drawn);
        assert_eq!(open(Some(ServerId(7))).unwrap(), ServerId(7), "a configured number takes precedence");
        assert_eq!(open(None).unwrap(), drawn);
        fs::remove_file(directory.join("deep").join(JOURNAL_FILE)).unwrap();
        assert_ne!(open(None).unwrap(), drawn, "a new file gets a new number");
        fs::remove_dir_all(&directory).unwrap();
        fs::write(&directory, "").unwrap();
        let refused = open(None).unwrap_err().to_string();
        assert!(refused.contains("make the directory") && refused.contains("data-dir"), "{refused}");
        fs::remove_file(&directory).unwrap();
    }
}
