//! The lines that `join` and `realm sign` take: from the command line or from standard input, without echo.

use std::io::{self, BufRead, IsTerminal, Read};
use std::os::fd::AsFd;

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::security::realm::{SETUP_LINE_BYTES_MAX, SetupLine, SetupLineKind};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::note;

/// Maximum number of bytes read from standard input; a line may be broken into several.
const INPUT_BYTES_MAX: usize = 2 * SETUP_LINE_BYTES_MAX;

/// Returns the line in the words of an argument, or on standard input if the argument is `-`. `what` names the line for
/// people.
///
/// # Errors
/// The text is no such line, or standard input cannot be read.
pub fn setup_line(words: &[String], what: &str) -> Result<SetupLine, CommandFailure> {
    let text = match words {
        [word] if word == "-" => read_input(what)?,
        words => Zeroizing::new(words.join(" ")),
    };
    let line = SetupLine::parse(&text).map_err(|error| CommandFailure::of_peer(Exit::Usage, error))?;
    if line.kind() == SetupLineKind::Join && words != ["-"] {
        note("warning: other users of this host may have seen the join line, and the shell may have stored it");
        note("  fix: next time use 'seqcast join -', which reads the line from standard input");
    }
    Ok(line)
}

fn read_input(what: &str) -> Result<Zeroizing<String>, CommandFailure> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Ok(read_text(&mut stdin.lock(), false)?);
    }
    note(format_args!("paste {what}, then press Enter; it is not shown:"));
    let _echo = EchoPause::new()?;
    let read = || read_text(&mut io::stdin().lock(), true);
    match Interrupt::watch()?.wait_for(read)? {
        Some(text) => Ok(text?),
        None => Err(CommandFailure::interrupted()),
    }
}

/// Reads a line, or everything, but at most [`INPUT_BYTES_MAX`].
fn read_text(input: &mut impl BufRead, is_one_line: bool) -> io::Result<Zeroizing<String>> {
    // A list that grows would leave copies of a secret behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(INPUT_BYTES_MAX));
    let mut limited = input.take(INPUT_BYTES_MAX as u64);
    match is_one_line {
        true => limited.read_until(b'\n', &mut bytes)?,
        false => limited.read_to_end(&mut bytes)?,
    };
    Ok(Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Time in which the terminal does not show what is typed. It ends with the value.
struct EchoPause(Termios);

impl EchoPause {
    fn new() -> io::Result<EchoPause> {
        let before = tcgetattr(io::stdin().as_fd())?;
        let mut silent = before.clone();
        silent.local_flags.remove(LocalFlags::ECHO);
        silent.local_flags.insert(LocalFlags::ECHONL);
        tcsetattr(io::stdin().as_fd(), SetArg::TCSAFLUSH, &silent)?;
        Ok(EchoPause(before))
    }
}

impl Drop for EchoPause {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(io::stdin().as_fd(), SetArg::TCSAFLUSH, &self.0) {
            note(format_args!("the terminal may not show what is typed ({error}); run: stty echo"));
        }
    }
}
