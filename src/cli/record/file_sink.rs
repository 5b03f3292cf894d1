//! A file that is written from its beginning to its end through a large buffer, and whose size others can read.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are collected before they go to the file. A chunk is larger and goes there directly.
const BUFFER_BYTES: usize = 1 << 18;

/// The file of a recording. It can report its position, as the writer of MCAP needs it, and cannot seek elsewhere.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    buffer: Vec<u8>,
    position: FilePosition,
}

/// Number of bytes written to a [`FileSink`]; it can be read while the writer of MCAP owns the sink.
#[derive(Clone, Debug, Default)]
pub struct FilePosition(Arc<AtomicU64>);

impl FilePosition {
    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl FileSink {
    /// Writes to an empty file.
    pub fn new(file: File) -> FileSink {
        FileSink { file, buffer: Vec::with_capacity(BUFFER_BYTES), position: FilePosition::default() }
    }

    /// Returns the position, which follows later writes.
    pub fn position(&self) -> FilePosition {
        self.position.clone()
    }

    /// Discards everything after the first `bytes` bytes, and appends `end`.
    ///
    /// # Errors
    /// The file cannot be shortened or written.
    pub fn replace_end(&mut self, bytes: u64, end: &[u8]) -> io::Result<()> {
        self.buffer.clear();
        self.file.set_len(bytes)?;
        self.file.seek(SeekFrom::Start(bytes))?;
        self.file.write_all(end)?;
        self.position.0.store(bytes + end.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Write for FileSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if BUFFER_BYTES < self.buffer.len() + bytes.len() {
            self.flush()?;
        }
        match bytes.len() < BUFFER_BYTES {
            true => self.buffer.extend_from_slice(bytes),
            false => self.file.write_all(bytes)?,
        }
        self.position.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl Seek for FileSink {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match to {
            SeekFrom::Current(0) => Ok(self.position.bytes()),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
