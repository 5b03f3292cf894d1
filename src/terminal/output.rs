//! Standard output and standard error: buffering, closed pipes, colour, text that is safe on a terminal.

use std::fmt::{self, Write as _};
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;

/// Standard output, buffered and locked for one command.
#[derive(Debug)]
pub struct Output {
    stdout: BufWriter<StdoutLock<'static>>,
    colour: bool,
}

impl Output {
    /// Takes standard output. There is colour only on a terminal, and never if `plain`.
    pub fn new(plain: bool) -> Output {
        let stdout = io::stdout().lock();
        let colour = !plain && stdout.is_terminal();
        Output { stdout: BufWriter::new(stdout), colour }
    }

    /// Writes a line.
    ///
    /// # Errors
    /// Returns the error of standard output; a closed pipe is one.
    pub fn line(&mut self, line: impl fmt::Display) -> io::Result<()> {
        writeln!(self.stdout, "{line}").map_err(output_error)
    }

    /// Writes a line that reports a loss: red if `lost`, otherwise yellow, where there is colour.
    ///
    /// # Errors
    /// The same as of [`Output::line`].
    pub fn alarm(&mut self, line: impl fmt::Display, lost: bool) -> io::Result<()> {
        match (self.colour, lost) {
            (false, _) => writeln!(self.stdout, "{line}"),
            (true, true) => writeln!(self.stdout, "\x1b[31m{line}\x1b[0m"),
            (true, false) => writeln!(self.stdout, "\x1b[33m{line}\x1b[0m"),
        }
        .map_err(output_error)
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// The same as of [`Output::line`].
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stdout.write_all(bytes).map_err(output_error)
    }

    /// Passes everything written so far to the system.
    ///
    /// # Errors
    /// The same as of [`Output::line`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush().map_err(output_error)
    }

    /// Returns whether the reader of a pipe has left, so that nothing written here will ever be read.
    pub fn is_closed(&self) -> bool {
        let stdout = self.stdout.get_ref().as_fd();
        let mut fds = [PollFd::new(stdout, PollFlags::empty())];
        matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
            && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR))
    }
}

/// Returns an error of standard output with a text that names its place.
pub fn output_error(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output cannot be written: {error}"))
}

/// Writes a line to standard error; ignores a failure, as there is no other place to report it.
pub fn note(text: impl fmt::Display) {
    drop(writeln!(io::stderr(), "{text}"));
}

/// Returns whether the environment asks for no colour (no-color.org: set and not empty).
pub fn is_colour_refused() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Bytes as text that cannot harm a terminal: control characters and invalid UTF-8 are escaped, the rest stays.
#[derive(Clone, Copy, Debug)]
pub struct EscapedText<'a>(pub &'a [u8]);

impl fmt::Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\t' => f.write_char('\t')?,
                    c if c.is_control() => write!(f, "{}", c.escape_default())?,
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Returns a value as one line of JSON.
pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("maps have text keys and writing to a string does not fail")
}

/// Returns a number with its noun: `1 message`, `2 messages`.
pub fn pluralize(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Returns a number of bytes for people: `812 bytes`, `3.4 KiB`, `4 MiB`.
pub fn byte_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let Some(exponent) = bytes.checked_ilog2().map(|bits| (bits / 10).min(4)).filter(|exponent| 0 < *exponent) else {
        return pluralize(bytes, "byte");
    };
    let (unit, name) = (1u64 << (10 * exponent), UNITS[exponent as usize - 1]);
    match bytes % unit {
        0 => format!("{} {name}", bytes / unit),
        _ => format!("{:.1} {name}", bytes as f64 / unit as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let cases: [(&[u8], &str); 4] = [
            (b"hi there", "hi there"),
            (b"\x1b[31mred\x1b[0m\r\n", "\\u{1b}[31mred\\u{1b}[0m\\r\\n"),
            (b"caf\xc3\xa9 \xff\xfe", "café \\xff\\xfe"),
            ("\u{9b}2J".as_bytes(), "\\u{9b}2J"),
        ];
        for (bytes, text) in cases {
            assert_eq!(EscapedText(bytes).to_string(), text);
        }
    }

    #[test]
    fn sizes_are_shown_for_people() {
        let sizes = [0, 1, 1023, 1024, 3500, 3 << 20, 5 << 40, u64::MAX].map(byte_text);
        let texts = ["0 bytes", "1 byte", "1023 bytes", "1 KiB", "3.4 KiB", "3 MiB", "5 TiB", "16777216.0 TiB"];
        assert_eq!(sizes, texts);
    }

    #[test]
    fn counts_have_singular_or_plural_nouns() {
        assert_eq!([pluralize(1, "message"), pluralize(0, "message")], ["1 message", "0 messages"]);
    }
}
