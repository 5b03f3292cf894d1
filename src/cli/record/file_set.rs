//! The files of a recording: their names, when one ends and the next begins, and which are removed.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::mcap_file::McapFile;
use super::notice_queue::{DropEntry, QueuedNotice};
use crate::cli::event::LossLine;
use crate::cli::recording::ChannelKind;
use crate::listener::notice;
use crate::message::Loss;
use crate::terminal::output::pluralize;

/// Names and limits of the files.
#[derive(Clone, Debug)]
pub struct FilePlan {
    /// Name of the file, or with `split` of the files without their numbers.
    pub path: PathBuf,
    /// True if existing files of these names are replaced.
    pub force: bool,
    /// Size in bytes after which the next file begins.
    pub split: Option<u64>,
    /// Maximum number of files.
    pub keep: Option<usize>,
    /// Maximum size of all files in bytes.
    pub quota: Option<u64>,
    /// Message encoding of the channels; `None` if it depends on the payload.
    pub encoding: Option<String>,
    /// Entries of the metadata record.
    pub metadata: BTreeMap<String, String>,
    /// Seed of hashes.
    pub seed: u64,
}

/// Reason for which a recording cannot go on.
#[derive(Debug)]
pub enum RecordingError {
    /// The file exists.
    Exists(PathBuf),
    /// A file cannot be created, written or removed.
    Io(PathBuf, io::Error),
    /// The files have the maximum size.
    Quota(PathBuf),
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordingError::Exists(path) => write!(f, "{} exists", path.display()),
            RecordingError::Io(path, error) => write!(f, "{} cannot be written: {error}", path.display()),
            RecordingError::Quota(path) => write!(f, "the disk quota is used up; {} ends here", path.display()),
        }
    }
}

impl FilePlan {
    /// Returns the name of file `number`, from 1. Without `split` the first one has no number.
    fn path(&self, number: u32) -> PathBuf {
        if self.split.is_none() && number == 1 {
            return self.path.clone();
        }
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let name = match self.path.extension() {
            Some(extension) => format!("{stem}-{number:04}.{}", extension.to_string_lossy()),
            None => format!("{stem}-{number:04}"),
        };
        self.path.with_file_name(name)
    }

    /// Returns the existing files that this recording replaces: with `split` all with a number of at least four digits,
    /// otherwise the file itself alone.
    fn existing(&self) -> io::Result<Vec<PathBuf>> {
        if self.split.is_none() {
            return Ok(self.path.symlink_metadata().is_ok().then(|| self.path.clone()).into_iter().collect());
        }
        let directory = match self.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = self.path.with_file_name(entry?.file_name());
            if self.number_of(&path).is_some() {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }

    /// Returns the number of a file of this recording; `None` if another recording or program uses the name.
    fn number_of(&self, path: &Path) -> Option<u32> {
        let (_, digits) = path.file_stem()?.to_str()?.rsplit_once('-')?;
        let number = digits.parse().ok()?;
        (self.path(number) == path).then_some(number)
    }
}

/// The files of a recording, the last of which is open.
pub struct FileSet {
    plan: FilePlan,
    file: McapFile,
    path: PathBuf,
    /// Number of the open file.
    number: u32,
    /// The complete files that still exist, with their sizes.
    complete: VecDeque<(PathBuf, u64)>,
    /// Sum of these sizes.
    complete_bytes: u64,
    /// Messages in complete chunks.
    messages: u64,
}

/// Result of a recording.
#[derive(Debug)]
pub struct FileSummary {
    /// Messages in complete chunks.
    pub messages: u64,
    /// Bytes of the files that exist.
    pub bytes: u64,
    /// The files that exist.
    pub files: Vec<PathBuf>,
    /// Reason for which the recording ended early.
    pub error: Option<RecordingError>,
}

impl FileSet {
    /// Creates the first file. Existing files of the names of this recording are removed with `force`, else refused.
    ///
    /// # Errors
    /// The file exists or cannot be created.
    pub fn create(plan: FilePlan) -> Result<FileSet, RecordingError> {
        let existing = plan.existing().map_err(|error| RecordingError::Io(plan.path.clone(), error))?;
        for path in existing {
            if !plan.force {
                return Err(RecordingError::Exists(path));
            }
            remove_file(&path)?;
        }
        let path = plan.path(1);
        let file = create_file(&plan, &path)?;
        Ok(FileSet { plan, file, path, number: 1, complete: VecDeque::new(), complete_bytes: 0, messages: 0 })
    }

    /// Returns the name of the open file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes of all files as they would be if the recording ended now.
    pub fn bytes(&self) -> u64 {
        self.complete_bytes + self.file.projected_bytes()
    }

    /// Writes a notice, and begins the next file before it if necessary.
    ///
    /// # Errors
    /// A file cannot be written, or the quota is used up. The notice is not recorded.
    pub fn write(&mut self, notice: &QueuedNotice<'_>) -> Result<(), RecordingError> {
        let bytes = match notice {
            QueuedNotice::Message(message) => message.recorded_bytes(),
            QueuedNotice::Loss(..) | QueuedNotice::Drop(_) => NOTICE_BYTES,
        };
        let is_over = |limit: u64| limit < self.file.projected_bytes() + bytes;
        if self.file.is_full() || (self.file.has_messages() && self.plan.split.is_some_and(is_over)) {
            self.begin_next()?;
        }
        self.keep_quota(bytes)?;
        let written = match notice {
            QueuedNotice::Message(message) => self.file.write_message(message),
            QueuedNotice::Loss(loss, log_time) => {
                self.file.write_notice(ChannelKind::Loss, *log_time, loss_text(loss).as_bytes())
            }
            QueuedNotice::Drop(drop) => {
                self.file.write_notice(ChannelKind::Drop, drop.log_time, drop_text(drop).as_bytes())
            }
        };
        written.map_err(|error| self.failure(error))?;
        if self.file.is_chunk_full() { self.seal() } else { Ok(()) }
    }

    /// Writes the messages that are still in memory to the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn seal(&mut self) -> Result<(), RecordingError> {
        match self.file.seal() {
            Ok(messages) => {
                self.messages += messages;
                Ok(())
            }
            Err(error) => Err(self.failure(error)),
        }
    }

    fn begin_next(&mut self) -> Result<(), RecordingError> {
        self.seal()?;
        self.number += 1;
        let path = self.plan.path(self.number);
        let file = create_file(&self.plan, &path)?;
        let path = std::mem::replace(&mut self.path, path);
        let finished = std::mem::replace(&mut self.file, file).finish();
        // A file without its index is still a file of this recording.
        let bytes = file_bytes(&path);
        self.complete.push_back((path.clone(), bytes));
        self.complete_bytes += bytes;
        finished.map_err(|error| RecordingError::Io(path, error))?;
        while self.plan.keep.is_some_and(|keep| keep <= self.complete.len()) {
            self.remove_oldest()?;
        }
        Ok(())
    }

    /// Makes room for these bytes within the quota.
    fn keep_quota(&mut self, bytes: u64) -> Result<(), RecordingError> {
        let Some(quota) = self.plan.quota else { return Ok(()) };
        while quota < self.bytes() + bytes {
            if self.plan.split.is_none() || self.complete.is_empty() {
                return Err(RecordingError::Quota(self.path.clone()));
            }
            self.remove_oldest()?;
        }
        Ok(())
    }

    fn remove_oldest(&mut self) -> Result<(), RecordingError> {
        let Some((path, bytes)) = self.complete.pop_front() else { return Ok(()) };
        self.complete_bytes -= bytes;
        remove_file(&path)
    }

    fn failure(&self, error: io::Error) -> RecordingError {
        RecordingError::Io(self.path.clone(), error)
    }

    /// Closes the open file. After an error it ends with its last complete chunk.
    pub fn close(mut self, error: Option<RecordingError>) -> FileSummary {
        // A used-up quota is no failure of the file.
        let mut error = match error {
            None | Some(RecordingError::Quota(_)) => self.seal().err().or(error),
            failed => failed,
        };
        let FileSet { file, path, complete, complete_bytes, messages, .. } = self;
        match error {
            None | Some(RecordingError::Quota(_)) => {
                if let Err(failed) = file.finish() {
                    error = Some(RecordingError::Io(path.clone(), failed));
                }
            }
            // The first error is the one to report.
            Some(_) => drop(file.abandon()),
        }
        let bytes = complete_bytes + file_bytes(&path);
        let files = complete.into_iter().map(|(path, _)| path).chain([path]).collect();
        FileSummary { messages, bytes, files, error }
    }
}

/// Bytes of a loss or drop in a file; rounded up.
const NOTICE_BYTES: u64 = 1024;

/// Creates a file, in place of an existing one with `force`.
fn create_file(plan: &FilePlan, path: &Path) -> Result<McapFile, RecordingError> {
    if plan.force {
        remove_file(path)?;
    }
    let create = || -> io::Result<McapFile> {
        let file: File = OpenOptions::new().write(true).create_new(true).open(path)?;
        McapFile::create(file, &plan.metadata, plan.encoding.clone(), plan.seed)
    };
    create().map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => RecordingError::Exists(path.to_owned()),
        _ => RecordingError::Io(path.to_owned(), error),
    })
}

/// Removes a file, unless there is none of this name.
fn remove_file(path: &Path) -> Result<(), RecordingError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RecordingError::Io(path.to_owned(), error)),
        _ => Ok(()),
    }
}

/// Returns the size of a file in bytes; 0 if there is none of this name.
fn file_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Returns a loss in JSON, with the text that `sub` prints.
fn loss_text(loss: &Loss) -> String {
    with_text(&notice::loss_json(loss), &LossLine(loss).to_string())
}

fn drop_text(drop: &DropEntry) -> String {
    let text = format!("! dropped {}: {}", pluralize(drop.count, "message"), drop.place);
    let place = drop.place.as_str();
    serde_json::json!({ "text": text, "type": "dropped", "count": drop.count, "where": place }).to_string()
}

/// Returns an object in JSON with one more field at its beginning, `text`.
fn with_text(object: &str, text: &str) -> String {
    let fields = object.strip_prefix('{').expect("an object");
    format!("{{\"text\":{},{fields}", serde_json::Value::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(path: &str, split: Option<u64>) -> FilePlan {
        FilePlan {
            path: path.into(),
            force: false,
            split,
            keep: None,
            quota: None,
            encoding: None,
            metadata: BTreeMap::new(),
            seed: 1,
        }
    }

    #[test]
    fn files_are_numbered_before_the_extension() {
        let split = plan("logs/run.mcap", Some(1));
        assert_eq!(
            [split.path(1), split.path(2)].map(|p| p.display().to_string()),
            ["logs/run-0001.mcap", "logs/run-0002.mcap"]
        );
        assert_eq!(plan("run", Some(1)).path(10_000), Path::new("run-10000"));
        assert_eq!(plan("run.mcap", None).path(1), Path::new("run.mcap"));
        assert_eq!(plan("run.mcap", None).path(2), Path::new("run-0002.mcap"));
    }

    #[test]
    fn other_recordings_keep_their_files() {
        let split = plan("logs/run.mcap", Some(1));
        let number = |path: &str| split.number_of(Path::new(path));
        assert_eq!((number("logs/run-0001.mcap"), number("logs/run-10000.mcap")), (Some(1), Some(10_000)));
        let others = ["run.mcap", "run-1.mcap", "run-00001.mcap", "run-+001.mcap", "run-0001.txt", "run-a-0001.mcap"];
        for other in others {
            assert_eq!(number(&format!("logs/{other}")), None, "{other}");
        }
    }

    #[test]
    fn losses_carry_their_text() {
        assert_eq!(with_text(r#"{"type":"loss"}"#, "! \"1\""), r#"{"text":"! \"1\"","type":"loss"}"#);
    }
}
