//! The console: a line editor with history and completion over the same commands, or lines from a pipe.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{FileHistory, History};
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};

use super::args::{self, Command, ConsoleVerb};
use super::console_line::split_words;
use super::line_reader::input_error;
use super::usage;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::note;

/// Reads lines until the end of the input or `quit`, and has each command executed. It reports a failure on standard
/// error and continues; it ends with the exit code of the last command that failed.
///
/// # Errors
/// Standard input or standard output fail.
pub fn run(
    mut prompt: impl FnMut(usize) -> String,
    mut execute: impl FnMut(Command) -> Result<Exit, CommandFailure>,
) -> Result<Exit, CommandFailure> {
    let mut session = ConsoleSession { execute: &mut execute, exit: Exit::Done };
    if !io::stdin().is_terminal() {
        for line in io::stdin().lines() {
            if !session.line(&line.map_err(input_error)?)? {
                break;
            }
        }
        return Ok(session.exit);
    }
    let mut editor = Editor::<CommandCompleter, FileHistory>::new().map_err(editor_failure)?;
    editor.set_helper(Some(CommandCompleter { verbs: args::console_verbs() }));
    let history = history_file();
    if let Some(path) = &history {
        // The first console of a user has no history yet.
        if path.exists()
            && let Err(error) = editor.load_history(path)
        {
            note(format_args!("seqcast: the history in {} cannot be read: {error}", path.display()));
        }
    }
    loop {
        match editor.readline(&prompt(editor.history().len() + 1)) {
            Ok(line) => {
                if !line.trim().is_empty() {
                    editor.add_history_entry(line.as_str()).map_err(editor_failure)?;
                }
                if !session.line(&line)? {
                    break;
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(editor_failure(error)),
        }
    }
    if let Some(path) = &history {
        let saved = path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(ReadlineError::Io);
        if let Err(error) = saved.and_then(|()| editor.save_history(path)) {
            note(format_args!("seqcast: the history cannot be stored in {}: {error}", path.display()));
        }
    }
    Ok(session.exit)
}

/// Returns the prompt, as in seed 002: `A.test[EPOCH]@host[N]> `.
pub fn prompt(name: &str, epoch: &str, number: usize) -> String {
    let host = nix::unistd::gethostname().unwrap_or_else(|_| OsString::from("localhost"));
    let host = host.to_string_lossy();
    format!("{name}[{epoch}]@{}[{number}]> ", host.split('.').next().unwrap_or(&host))
}

/// Returns the path of the history; `None` if there is neither XDG_STATE_HOME nor a home directory.
fn history_file() -> Option<PathBuf> {
    let directory = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = directory("XDG_STATE_HOME").or_else(|| Some(directory("HOME")?.join(".local/state")))?;
    Some(state.join("seqcast/history"))
}

fn editor_failure(error: ReadlineError) -> CommandFailure {
    CommandFailure::new(Exit::Failed, format!("the terminal cannot be used: {error}"))
}

struct ConsoleSession<'a> {
    execute: &'a mut dyn FnMut(Command) -> Result<Exit, CommandFailure>,
    exit: Exit,
}

impl ConsoleSession<'_> {
    /// Executes a line; returns `false` if the console ends.
    fn line(&mut self, line: &str) -> Result<bool, CommandFailure> {
        let words = match split_words(line) {
            Ok(words) => words,
            Err(error) => {
                CommandFailure::new(Exit::Usage, error).report(false);
                self.exit = Exit::Usage;
                return Ok(true);
            }
        };
        if words.is_empty() {
            return Ok(true);
        }
        let json = usage::is_json(&words);
        match args::parse_line(&words) {
            Ok(ConsoleVerb::Quit) => return Ok(false),
            Ok(ConsoleVerb::Common(command)) => match self.execute(*command) {
                Ok(Exit::Done) => {}
                Ok(exit) => self.exit = exit,
                // Standard output is closed, so further results would be lost.
                Err(failure) if failure.exit == Exit::Done => return Err(failure),
                Err(failure) => {
                    failure.report(json);
                    self.exit = failure.exit;
                }
            },
            Err(error) => match usage::respond(&error, json) {
                Ok(_) => {}
                Err(failure) if failure.exit == Exit::Done => return Err(failure),
                Err(failure) => {
                    failure.report(json);
                    self.exit = failure.exit;
                }
            },
        }
        Ok(true)
    }

    /// Executes a command. Meanwhile a signal concerns the command, not the console.
    fn execute(&mut self, command: Command) -> Result<Exit, CommandFailure> {
        let interrupt = Interrupt::watch()?;
        let ended = (self.execute)(command);
        interrupt.release();
        ended
    }
}

/// Completes the names of commands.
struct CommandCompleter {
    /// Each command with what may follow it.
    verbs: Vec<(String, Vec<String>)>,
}

impl Completer for CommandCompleter {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(candidates(&self.verbs, &line[..at]))
    }
}

impl Hinter for CommandCompleter {
    type Hint = String;
}

impl Highlighter for CommandCompleter {}
impl Validator for CommandCompleter {}
impl Helper for CommandCompleter {}

/// Returns the completions of the last word of `line`, and the position where that word starts.
fn candidates(verbs: &[(String, Vec<String>)], line: &str) -> (usize, Vec<String>) {
    let start = line.rfind(' ').map_or(0, |space| space + 1);
    let (before, prefix) = line.split_at(start);
    let matching = |names: &mut dyn Iterator<Item = &String>| -> Vec<String> {
        names.filter(|name| name.starts_with(prefix)).map(|name| format!("{name} ")).collect()
    };
    let mut before = before.split_whitespace();
    match (before.next(), before.next()) {
        (None, _) => (start, matching(&mut verbs.iter().map(|(verb, _)| verb))),
        (Some(verb), None) => {
            let mut matches = verbs.iter().filter(|(name, _)| name.starts_with(verb));
            match (matches.next(), matches.next()) {
                (Some((_, following)), None) => (start, matching(&mut following.iter())),
                _ => (start, Vec::new()),
            }
        }
        _ => (start, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_has_the_format_of_the_seed() {
        let prompt = prompt("A.test", "00000000deadbeef", 545);
        assert!(prompt.starts_with("A.test[00000000deadbeef]@") && prompt.ends_with("[545]> "), "{prompt}");
    }

    #[test]
    fn commands_are_completed() {
        let verbs = args::console_verbs();
        let check = |line: &str, start, expected: &[&str]| {
            assert_eq!(
                candidates(&verbs, line),
                (start, expected.iter().map(|s| (*s).to_owned()).collect()),
                "{line:?}"
            );
        };
        check("sh", 0, &["show "]);
        check("re", 0, &["req ", "reply "]);
        check("show lo", 5, &["loss "]);
        check("sho s", 4, &["status ", "skew ", "subs ", "seqno "]);
        check("r s", 2, &[]);
        check("show loss x", 10, &[]);
    }
}
