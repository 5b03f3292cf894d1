//! The lines of standard input, with a wait for each that can end at any time.

use crate::message::MESSAGE_BYTES_MAX;
use bytes::{Bytes, BytesMut};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;

/// Interval between checks whether to end, while no line comes.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Size limit of a line that is a payload, with its end. A longer one is above the limit of every message, even if it
/// ends with CR LF.
pub const MESSAGE_LINE_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 3;
/// Maximum number of bytes that one read takes.
const READ_BYTES: usize = 64 * 1024;

/// Result of reading the next line.
#[derive(Debug, PartialEq, Eq)]
pub enum InputRead {
    /// A line without its end: LF, or CR LF.
    Line(Bytes),
    /// No line yet.
    Nothing,
    /// There is no further line.
    End,
}

/// A reader of standard input. It reads only while the caller waits for a line, and a read from a terminal returns one
/// line at most. A line that is typed after the command has ended is thus left for the console.
#[derive(Debug)]
pub struct LineReader {
    /// A descriptor without the buffer of `io::stdin`.
    input: File,
    lines: LineBuffer,
    is_ended: bool,
}

impl LineReader {
    /// Creates a reader. A line of more than `line_bytes_max` bytes, with its end, is returned in parts of that size;
    /// callers refuse them.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn open(line_bytes_max: usize) -> io::Result<LineReader> {
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        Ok(LineReader { input, lines: LineBuffer::new(line_bytes_max), is_ended: false })
    }

    /// Returns the next line, if it comes within `wait`. A signal may end the wait early.
    ///
    /// # Errors
    /// Standard input cannot be read.
    pub fn next(&mut self, mut wait: Duration) -> io::Result<InputRead> {
        loop {
            if let Some(line) = self.lines.take_line() {
                return Ok(InputRead::Line(line));
            }
            if self.is_ended {
                return Ok(self.lines.take_rest().map_or(InputRead::End, InputRead::Line));
            }
            if !is_readable(&self.input, wait)? {
                return Ok(InputRead::Nothing);
            }
            // A line that comes byte by byte does not prolong the wait.
            wait = Duration::ZERO;
            let mut bytes = [0; READ_BYTES];
            match self.input.read(&mut bytes) {
                Ok(0) => self.is_ended = true,
                Ok(count) => self.lines.append(&bytes[..count]),
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                    return Ok(InputRead::Nothing);
                }
                Err(error) => return Err(input_error(error)),
            }
        }
    }
}

/// Returns an error of standard input with a text that names its place.
pub fn input_error(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard input cannot be read: {error}"))
}

/// Returns whether a read would not block, once that is so or `wait` is over. A signal ends the wait.
fn is_readable(input: &File, wait: Duration) -> io::Result<bool> {
    let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)) {
        Ok(count) => Ok(0 < count),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Bytes that were read and belong to no returned line yet.
#[derive(Debug)]
struct LineBuffer {
    bytes: BytesMut,
    /// Number of leading bytes without a line feed.
    scanned: usize,
    line_bytes_max: usize,
}

impl LineBuffer {
    fn new(line_bytes_max: usize) -> LineBuffer {
        LineBuffer { bytes: BytesMut::new(), scanned: 0, line_bytes_max }
    }

    fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes the first complete line, or the first part of a line that is too long.
    fn take_line(&mut self) -> Option<Bytes> {
        let found = self.bytes[self.scanned..].iter().position(|byte| *byte == b'\n');
        let end = found.map(|at| self.scanned + at + 1);
        if end.is_none_or(|end| self.line_bytes_max < end) && self.line_bytes_max <= self.bytes.len() {
            self.scanned = 0;
            return Some(self.bytes.split_to(self.line_bytes_max).freeze());
        }
        self.scanned = if end.is_some() { 0 } else { self.bytes.len() };
        let mut line = self.bytes.split_to(end?);
        line.truncate(line.len() - 1);
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        Some(line.freeze())
    }

    /// Removes the last line, which has no end; `None` if there is none.
    fn take_rest(&mut self) -> Option<Bytes> {
        self.scanned = 0;
        Some(self.bytes.split().freeze()).filter(|rest| !rest.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_or_without_a_line_feed() {
        let text = b"one\r\n\ntwo\rthree\n\xff";
        for part_bytes in 1..=text.len() {
            let mut buffer = LineBuffer::new(100);
            let mut lines = Vec::new();
            for part in text.chunks(part_bytes) {
                buffer.append(part);
                lines.extend(std::iter::from_fn(|| buffer.take_line()));
            }
            lines.extend(buffer.take_rest());
            assert_eq!(lines, [&b"one"[..], b"", b"two\rthree", b"\xff"], "in parts of {part_bytes}");
            assert_eq!(buffer.take_rest(), None);
        }
    }

    #[test]
    fn endless_line_is_divided_at_the_limit() {
        let mut buffer = LineBuffer::new(4);
        buffer.append(b"xxx\nyyyyyyyyy\n");
        let lines: Vec<Bytes> = std::iter::from_fn(|| buffer.take_line()).collect();
        assert_eq!(lines, [&b"xxx"[..], b"yyyy", b"yyyy", b"y"]);
        buffer.append(b"zzz");
        assert_eq!(buffer.take_line(), None);
        buffer.append(b"z");
        assert_eq!(buffer.take_line().as_deref(), Some(&b"zzzz"[..]));
    }
}
