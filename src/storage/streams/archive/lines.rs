//! An archive of lines of JSON. The first line names the stream; each further line is an event or a gap.

use super::super::error::{StreamFault, StreamStorageError};
use super::{ArchiveGap, ArchiveSource, ArchiveStore, foreign_archive};
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::StreamId;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Version of the lines; a file of any other version is refused.
const VERSION: u64 = 1;
/// Bytes read at a time in the search for the last line.
const CHUNK: u64 = 64 << 10;
/// Maximum length of the first line, in bytes.
const HEAD_BYTES_MAX: u64 = 4096;

/// An archive in a file of lines.
#[derive(Debug)]
pub(super) struct LinesArchive {
    file: File,
    path: PathBuf,
    /// Length of all complete lines, in bytes.
    length: u64,
    last: StreamId,
}

#[derive(serde::Serialize)]
struct ArchiveEventLine<'a> {
    r#type: &'static str,
    id: String,
    event_type: &'a str,
    time: String,
    origin: String,
    data: &'a RawValue,
}

impl LinesArchive {
    pub(super) fn open(path: &Path, source: &ArchiveSource, after: StreamId) -> Result<LinesArchive, StreamFault> {
        // Opening a pipe would block until another process writes to it.
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(StreamFault::Foreign("no regular file".into()));
        }
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StreamFault::Busy),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let mut first_line = Vec::new();
        BufReader::new(Read::by_ref(&mut file).take(HEAD_BYTES_MAX)).read_until(b'\n', &mut first_line)?;
        let path = path.to_owned();
        if first_line.last() != Some(&b'\n') {
            return LinesArchive { file, path, length: 0, last: after }.begin(&first_line, source);
        }
        check(&first_line, source)?;
        let length = find_lines_end(&mut file)?;
        let start = find_line_start(&mut file, length - 1)?;
        let mut line = vec![0; usize::try_from(length - start).expect("a line fits the memory")];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut line)?;
        let last = covered_id(&line)
            .ok_or_else(|| StreamFault::Damaged("its last complete line is not of an archive".into()))?;
        if length < file.metadata()?.len() {
            file.set_len(length)?;
            file.sync_all()?;
        }
        Ok(LinesArchive { file, path, length, last })
    }

    /// Writes the first line. `first_line` is the part of a first line that a crash has left in the file.
    fn begin(mut self, first_line: &[u8], source: &ArchiveSource) -> Result<LinesArchive, StreamFault> {
        let line = json!({
            "type": "archive",
            "version": VERSION,
            "stream": source.stream.as_str(),
            "server": source.server.0,
            "after": self.last.to_string(),
        });
        let line = line.to_string();
        if !is_torn(first_line, line.as_bytes()) {
            return Err(StreamFault::Foreign("another kind of file".into()));
        }
        self.write(format!("{line}\n").as_bytes())?;
        // The directory is synchronized, so that it durably contains the name of a new file.
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(self)
    }

    /// Appends complete lines, all or none of them.
    fn write(&mut self, lines: &[u8]) -> Result<(), StreamFault> {
        let mut write = || -> io::Result<()> {
            self.file.set_len(self.length)?;
            self.file.seek(SeekFrom::Start(self.length))?;
            self.file.write_all(lines)?;
            self.file.sync_all()
        };
        if let Err(error) = write() {
            // If truncation fails, the next open of the archive truncates incomplete lines and accepts complete ones.
            drop(self.file.set_len(self.length));
            return Err(error.into());
        }
        self.length += lines.len() as u64;
        Ok(())
    }

    fn error(&self, fault: StreamFault) -> StreamStorageError {
        StreamStorageError { location: self.path.display().to_string(), fault }
    }
}

impl ArchiveStore for LinesArchive {
    fn last(&self) -> StreamId {
        self.last
    }

    fn store(&mut self, events: &[StreamEvent]) -> Result<(), StreamStorageError> {
        let Some(last) = events.last() else { return Ok(()) };
        let mut lines = Vec::new();
        for event in events {
            // In a JSON text a line feed only occurs between tokens, where a blank is equivalent.
            let data = event.data.as_str().replace(['\n', '\r'], " ");
            let line = ArchiveEventLine {
                r#type: "event",
                id: event.id.to_string(),
                event_type: event.kind.as_str(),
                time: event.time.to_string(),
                origin: event.origin.to_string(),
                data: serde_json::from_str(&data).expect("the data of events are checked when they are added"),
            };
            serde_json::to_writer(&mut lines, &line).expect("writing to memory does not fail");
            lines.push(b'\n');
        }
        self.write(&lines).map_err(|fault| self.error(fault))?;
        self.last = last.id;
        Ok(())
    }

    fn store_gap(&mut self, gap: ArchiveGap) -> Result<(), StreamStorageError> {
        let ArchiveGap { first, last, count, detected } = gap;
        let line = json!({
            "type": "gap",
            "first": first.to_string(),
            "last": last.to_string(),
            "count": count,
            "noticed": detected.to_string(),
        });
        self.write(format!("{line}\n").as_bytes()).map_err(|fault| self.error(fault))?;
        self.last = last;
        Ok(())
    }

    fn count_from(&mut self, first: StreamId) -> Result<u64, StreamStorageError> {
        let mut count = || -> io::Result<u64> {
            self.file.seek(SeekFrom::Start(0))?;
            let (mut reader, mut line, mut count) = (BufReader::new(&self.file), Vec::new(), 0);
            while 0 < reader.read_until(b'\n', &mut line)? {
                let value: Value = serde_json::from_slice(&line).unwrap_or_default();
                count += u64::from(value["type"] == "event" && parse_id(&value["id"]).is_some_and(|id| first <= id));
                line.clear();
            }
            Ok(count)
        };
        count().map_err(|error| self.error(error.into()))
    }
}

/// Returns whether `first_line` can be the torn beginning of `line`, whatever its start position.
fn is_torn(first_line: &[u8], line: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"{\"after\":\"";
    let rest = |text: &[u8]| {
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        text[digits..].to_vec()
    };
    match first_line.strip_prefix(BEGINNING) {
        None => BEGINNING.starts_with(first_line),
        Some(first_line) => rest(&line[BEGINNING.len()..]).starts_with(&rest(first_line)),
    }
}

/// Checks that the first line names an archive of this stream.
fn check(first_line: &[u8], source: &ArchiveSource) -> Result<(), StreamFault> {
    let first_line: Value = serde_json::from_slice(first_line).unwrap_or_default();
    let (Some(stream), Some(server)) = (first_line["stream"].as_str(), first_line["server"].as_u64()) else {
        return Err(StreamFault::Foreign("another kind of file".into()));
    };
    match first_line["version"].as_u64() {
        _ if first_line["type"] != "archive" => Err(StreamFault::Foreign("another kind of file".into())),
        Some(VERSION) if stream == source.stream.as_str() && server == u64::from(source.server.0) => Ok(()),
        Some(VERSION) => Err(foreign_archive(server, stream)),
        found => {
            let found = found.and_then(|found| i64::try_from(found).ok()).unwrap_or(-1);
            Err(StreamFault::Version { found, supported: VERSION.cast_signed() })
        }
    }
}

fn parse_id(value: &Value) -> Option<StreamId> {
    match value.as_str()? {
        "0" => Some(StreamId::START),
        text => text.parse().ok(),
    }
}

/// Returns the id up to which an archive with this last line has events or gaps.
fn covered_id(line: &[u8]) -> Option<StreamId> {
    let line: Value = serde_json::from_slice(line).ok()?;
    match line["type"].as_str()? {
        "event" => parse_id(&line["id"]),
        "gap" => parse_id(&line["last"]),
        "archive" => parse_id(&line["after"]),
        _ => None,
    }
}

/// Returns the offset of the end of the last complete line, which must exist.
fn find_lines_end(file: &mut File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    find_line_start(file, length)
}

/// Returns the offset of the line that contains the byte before `end`.
fn find_line_start(file: &mut File, end: u64) -> io::Result<u64> {
    let mut end = end;
    let mut chunk = Vec::new();
    while 0 < end {
        let start = end.saturating_sub(CHUNK);
        chunk.resize(usize::try_from(end - start).expect("a small number"), 0);
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut chunk)?;
        if let Some(index) = chunk.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + index as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}
