//! Archives of events. An archive is a file, or a part of a database, with all events of one stream of one peer after a
//! start position. It has each event once, in their order, and records gaps.

mod lines;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use super::error::{StreamFault, StreamStorageError};
use crate::event::model::ServerId;
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::{StreamId, StreamName};
use crate::event::timestamp::Timestamp;
use std::io;
use std::path::Path;

/// The stream of an archive. Ids of events are unique within a stream of one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveSource {
    /// The server of the peer.
    pub server: ServerId,
    /// The stream.
    pub stream: StreamName,
}

/// Events that are permanently missing from an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveGap {
    /// The first id.
    pub first: StreamId,
    /// The last id.
    pub last: StreamId,
    /// Number of missing events, if known.
    pub count: Option<u64>,
    /// Time at which the gap was detected.
    pub detected: Timestamp,
}

/// Storage backend of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveBackend {
    /// A SQLite file.
    Sqlite,
    /// A file in which each line is a JSON object.
    Lines,
    /// A PostgreSQL database.
    Postgres,
}

/// An archive. Only one program writes to it at a time.
pub trait ArchiveStore {
    /// Returns the id up to which the archive holds the stream or records a gap.
    fn last(&self) -> StreamId;

    /// Stores events after the last one, all or none of them. They survive a crash of the host once this function
    /// returns.
    ///
    /// # Errors
    /// None of the events is stored.
    fn store(&mut self, events: &[StreamEvent]) -> Result<(), StreamStorageError>;

    /// Records that events after the last one are missing.
    ///
    /// # Errors
    /// The gap is not recorded.
    fn store_gap(&mut self, gap: ArchiveGap) -> Result<(), StreamStorageError>;

    /// Returns the number of archived events from `first` on.
    ///
    /// # Errors
    /// The archive cannot be read.
    fn count_from(&mut self, first: StreamId) -> Result<u64, StreamStorageError>;
}

/// Opens an archive of the stream, at a path or at the address of a database. A missing archive is created and begins
/// after `after`.
///
/// # Errors
/// The path is not an archive of this stream, or the archive is damaged, or the system refuses to open it, or this
/// build lacks its backend. The archive is then unchanged.
pub fn open(
    path: &Path,
    backend: ArchiveBackend,
    source: &ArchiveSource,
    after: StreamId,
) -> Result<Box<dyn ArchiveStore>, StreamStorageError> {
    let error_of = |fault| StreamStorageError { location: path.display().to_string(), fault };
    match backend {
        #[cfg(feature = "sqlite")]
        ArchiveBackend::Sqlite => Ok(Box::new(sqlite::SqliteArchive::open(path, source, after).map_err(error_of)?)),
        #[cfg(not(feature = "sqlite"))]
        ArchiveBackend::Sqlite => Err(StreamStorageError::unsupported(path.display().to_string(), "sqlite")),
        #[cfg(not(feature = "postgres"))]
        ArchiveBackend::Postgres => Err(StreamStorageError::unsupported("postgres".into(), "postgres")),
        #[cfg(feature = "postgres")]
        ArchiveBackend::Postgres => {
            Ok(Box::new(postgres::PostgresArchive::open(path.to_str().unwrap_or_default(), source, after)?))
        }
        ArchiveBackend::Lines => Ok(Box::new(lines::LinesArchive::open(path, source, after).map_err(error_of)?)),
    }
}

/// Returns the fault of an archive that belongs to another stream.
fn foreign_archive(server: u64, stream: &str) -> StreamFault {
    StreamFault::Foreign(format!("an archive of the stream {stream} of the server {server}"))
}

impl From<io::Error> for StreamFault {
    fn from(error: io::Error) -> StreamFault {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                StreamFault::Full(error.to_string())
            }
            _ => StreamFault::Unreachable(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::model::{EventId, Json};
    use crate::wait::wait_until_some;
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

    const BACKENDS: &[ArchiveBackend] = &[
        #[cfg(feature = "sqlite")]
        ArchiveBackend::Sqlite,
        ArchiveBackend::Lines,
    ];

    /// An unused path, in a directory that is deleted on drop.
    struct TestDirectory(PathBuf);

    impl TestDirectory {
        fn new(name: &str) -> TestDirectory {
            let dir = std::env::temp_dir().join(format!("seqcast-archive-{}-{name}", std::process::id()));
            drop(fs::remove_dir_all(&dir));
            fs::create_dir(&dir).unwrap();
            TestDirectory(dir)
        }

        fn path(&self) -> PathBuf {
            self.0.join("archive")
        }
    }

    impl Drop for TestDirectory {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn id(number: u64) -> StreamId {
        StreamId::from_number(number).unwrap()
    }

    fn source() -> ArchiveSource {
        ArchiveSource { server: ServerId(7), stream: "main".parse().unwrap() }
    }

    fn events(numbers: std::ops::RangeInclusive<u64>) -> Vec<StreamEvent> {
        let event = |number: u64| StreamEvent {
            id: id(number),
            kind: "A".parse().unwrap(),
            data: Json::from_bytes(format!("{{\n\"n\":{number}.50}}").into()).unwrap(),
            time: Timestamp::MIN,
            origin: EventId { server: ServerId(7), session: number, instance: 1 },
        };
        numbers.map(event).collect()
    }

    /// Opens an archive, and retries while it is locked. Other tests start programs, whose fork holds the files that
    /// are closed here, with their locks, until the exec.
    fn open(
        path: &Path,
        backend: ArchiveBackend,
        source: &ArchiveSource,
        after: StreamId,
    ) -> Result<Box<dyn ArchiveStore>, StreamStorageError> {
        let opened = || match super::open(path, backend, source, after) {
            Err(error) if error.fault == StreamFault::Busy => None,
            done => Some(done),
        };
        wait_until_some(|| "the archive is free".to_owned(), opened)
    }

    fn gap(first: u64, last: u64) -> ArchiveGap {
        ArchiveGap { first: id(first), last: id(last), count: Some(last - first), detected: Timestamp::MIN }
    }

    #[test]
    fn reopened_archive_continues_where_it_ended() {
        for backend in BACKENDS.iter().copied() {
            let directory = TestDirectory::new(&format!("goes-{backend:?}"));
            let opened = || open(&directory.path(), backend, &source(), id(4)).unwrap();
            let mut target = opened();
            assert_eq!(target.last(), id(4));
            target.store(&events(5..=9)).unwrap();
            assert_eq!((target.last(), target.count_from(id(7)).unwrap()), (id(9), 3));
            drop(target);
            let mut target = opened();
            assert_eq!(target.last(), id(9));
            target.store_gap(gap(10, 20)).unwrap();
            drop(target);
            let mut target = opened();
            assert_eq!(target.last(), id(20));
            target.store(&events(21..=22)).unwrap();
            assert_eq!((target.last(), target.count_from(id(1)).unwrap()), (id(22), 7));
        }
    }

    #[test]
    fn archive_of_another_stream_is_refused_unchanged() {
        for backend in BACKENDS.iter().copied() {
            let directory = TestDirectory::new(&format!("other-{backend:?}"));
            open(&directory.path(), backend, &source(), StreamId::START).unwrap().store(&events(1..=2)).unwrap();
            for foreign_archive in [
                ArchiveSource { server: ServerId(8), ..source() },
                ArchiveSource { stream: "plant".parse().unwrap(), ..source() },
            ] {
                let Err(error) = open(&directory.path(), backend, &foreign_archive, StreamId::START) else {
                    panic!("it is another's")
                };
                assert!(matches!(error.fault, StreamFault::Foreign(_)), "{error}");
            }
            let letter = "a letter, and longer than any header of a file that is ours\n".repeat(9);
            for letter in [&letter[..], &letter[..40]] {
                fs::write(directory.path(), letter).unwrap();
                assert!(open(&directory.path(), backend, &source(), StreamId::START).is_err());
                assert_eq!(fs::read_to_string(directory.path()).unwrap(), letter);
            }
        }
    }

    /// Whatever part of the last line a crash has left, events stored before remain, and a torn event is stored again.
    #[test]
    fn torn_last_line_is_cut_off() {
        let directory = TestDirectory::new("torn");
        let opened = || open(&directory.path(), ArchiveBackend::Lines, &source(), StreamId::START).unwrap();
        opened().store(&events(1..=2)).unwrap();
        let before = fs::read(directory.path()).unwrap();
        opened().store(&events(3..=3)).unwrap();
        let whole = fs::read(directory.path()).unwrap();
        for length in 0..=whole.len() {
            fs::write(directory.path(), &whole[..length]).unwrap();
            let mut target = opened();
            let lines = whole[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
            assert_eq!(target.last(), id(lines.saturating_sub(1)), "{length}");
            if before.len() <= length && lines == 3 {
                target.store(&events(3..=3)).unwrap();
                drop(target);
                assert_eq!(fs::read(directory.path()).unwrap(), whole);
            }
        }
    }

    /// Opening a pipe would block for ever.
    #[test]
    fn pipe_is_refused_as_an_archive() {
        let directory = TestDirectory::new("pipe");
        assert!(Command::new("mkfifo").arg(directory.path()).status().unwrap().success());
        for backend in BACKENDS.iter().copied() {
            let refused = open(&directory.path(), backend, &source(), StreamId::START).map(drop).unwrap_err();
            assert_eq!(refused.fault, StreamFault::Foreign("no regular file".into()));
        }
    }

    #[test]
    fn second_writer_is_refused() {
        for backend in BACKENDS.iter().copied() {
            let directory = TestDirectory::new(&format!("two-{backend:?}"));
            let mut first = open(&directory.path(), backend, &source(), StreamId::START).unwrap();
            match super::open(&directory.path(), backend, &source(), StreamId::START) {
                Err(error) => assert_eq!(error.fault, StreamFault::Busy),
                Ok(mut second) => {
                    second.store(&events(1..=1)).unwrap();
                    assert_eq!(first.store(&events(1..=1)).map_err(|error| error.fault), Err(StreamFault::Busy));
                }
            }
        }
    }
}
