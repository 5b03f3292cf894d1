//! The log file: it counts and reports lines lost on a full disk, and it can be reopened.

use crate::config::LogFormat;
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// A file to which lines are appended. A line that cannot be written is counted, and reported before the next line that
/// can.
#[derive(Debug)]
pub(super) struct LogFile<F = File> {
    path: PathBuf,
    format: LogFormat,
    file: F,
    /// Number of lines lost since the last written line.
    lost: u64,
    /// True if the file ends within a line.
    is_torn: bool,
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl LogFile {
    /// Opens the file, or creates it.
    pub(super) fn open(path: &Path, format: LogFormat) -> io::Result<LogFile> {
        Ok(LogFile { path: path.to_owned(), format, file: open(path)?, lost: 0, is_torn: false })
    }

    /// Continues in the file that now has the name, after the previous one was moved or removed.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        self.is_torn = false;
        Ok(())
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl<F: Write> LogFile<F> {
    /// Appends a line. Returns whether all of it is written; its final newline can follow later.
    fn append(&mut self, line: &[u8]) -> bool {
        let mut rest = line;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(count @ 1..) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
            self.is_torn = !rest.is_empty();
        }
        rest.len() <= 1
    }

    /// Ends a truncated line, and reports the number of lost lines. Returns whether both are done.
    fn write_lost_notice(&mut self) -> bool {
        if self.is_torn {
            self.append(b"\n");
        }
        if !self.is_torn && 0 < self.lost && self.append(notice(self.format, self.lost).as_bytes()) {
            self.lost = 0;
        }
        !self.is_torn && self.lost == 0
    }
}

fn notice(format: LogFormat, lines: u64) -> String {
    let mut now = String::new();
    if SystemTime.format_time(&mut Writer::new(&mut now)).is_err() {
        now = "?".into();
    }
    let message = "log lines lost: the file could not be written";
    match format {
        LogFormat::Text => format!("{now}  WARN {message} lines={lines}\n"),
        LogFormat::Json => {
            format!("{}\n", json!({ "timestamp": now, "level": "WARN", "message": message, "lines": lines }))
        }
    }
}

impl<F: Write> Write for LogFile<F> {
    /// Accepts one line and never fails: the caller cannot do anything about a full disk.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !(self.write_lost_notice() && self.append(line)) {
            self.lost += 1;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for `room` more bytes.
    #[derive(Default)]
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.bytes.extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn file(format: LogFormat) -> LogFile<Disk> {
        LogFile { path: "x".into(), format, file: Disk::default(), lost: 0, is_torn: false }
    }

    #[test]
    fn lines_lost_on_full_disk_are_counted() {
        let mut log = file(LogFormat::Text);
        log.file.room = 9;
        for line in ["first\n", "second\n", "third\n"] {
            assert_eq!(log.write(line.as_bytes()).unwrap(), line.len());
        }
        log.file.room = 1000;
        for line in ["fourth\n", "fifth\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        let text = String::from_utf8(log.file.bytes).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert_eq!((lines[0], lines[1], lines[3], lines[4]), ("first", "sec", "fourth", "fifth"));
        assert!(lines[2].ends_with("  WARN log lines lost: the file could not be written lines=2"), "{text}");
    }

    #[test]
    fn every_line_is_written_or_counted() {
        for room in 0..200 {
            let mut log = file(LogFormat::Json);
            log.file.room = room;
            for index in 0..4 {
                log.write_all(format!("{{\"index\":{index}}}\n").as_bytes()).unwrap();
            }
            log.file.room = 1000;
            log.write_all(b"{\"index\":4}\n").unwrap();
            let text = String::from_utf8(log.file.bytes).unwrap();
            let whole = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            let whole: Vec<_> = whole.collect();
            let written = whole.iter().filter(|line| line["index"].is_u64()).count() as u64;
            let lost: u64 = whole.iter().filter_map(|line| line["lines"].as_u64()).sum();
            assert_eq!(written + lost, 5, "room for {room}: {text}");
            assert_eq!(whole.last().unwrap()["index"], 4);
            assert!(whole.iter().all(|line| line["lines"].is_null() || line["timestamp"].is_string()));
        }
    }
}
