//! Wrong arguments as failures of the command: the problem and the remedy that the parser of the arguments knows.

use std::error::Error;
use std::ffi::OsStr;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{note, output_error};

/// Returns whether the words contain `--json` as an option. The words need not make sense otherwise: their error is
/// then a JSON object, too.
pub fn is_json<Word: AsRef<OsStr>>(words: &[Word]) -> bool {
    words.iter().map(AsRef::as_ref).take_while(|word| *word != "--").any(|word| word == "--json")
}

/// Prints the help or the version if the arguments ask for it.
///
/// # Errors
/// Returns the failure for wrong arguments, and that of standard output.
pub fn respond(error: &clap::Error, json: bool) -> Result<Exit, CommandFailure> {
    match error.kind() {
        _ if !error.use_stderr() => {
            error.print().map_err(output_error)?;
            Ok(Exit::Done)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Err(incomplete(error, json)),
        _ => Err(failure(error)),
    }
}

/// Returns the failure of a command that lacks its arguments. For people, the help of the command stands before it.
fn incomplete(error: &clap::Error, json: bool) -> CommandFailure {
    if !json {
        note(error.render());
    }
    CommandFailure::new(Exit::Usage, "the command is incomplete").fix("add what its help lists; --help prints it")
}

fn failure(error: &clap::Error) -> CommandFailure {
    let text = error.render().to_string();
    let problem = text.split("\n\n").next().unwrap_or_default();
    let problem = one_line(problem.strip_prefix("error: ").unwrap_or(problem));
    // A value may contain the separator, too.
    let reason = error.source().map(|reason| one_line(&reason.to_string())).unwrap_or_default();
    match reason.split_once("; ") {
        Some((_, fix)) if error.kind() == ErrorKind::ValueValidation => {
            let problem = problem.strip_suffix(fix).and_then(|text| text.strip_suffix("; ")).unwrap_or(&problem);
            CommandFailure::new(Exit::Usage, problem).fix(fix)
        }
        _ => CommandFailure::new(Exit::Usage, problem).fix(remedy(error)),
    }
}

/// Returns the suggestions of the parser, then the usage of the command.
fn remedy(error: &clap::Error) -> String {
    let suggested = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let mut remedies: Vec<String> =
        suggested.into_iter().filter_map(|kind| error.get(kind)).filter_map(alternatives).collect();
    if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested) {
        remedies.extend(tips.iter().map(|tip| one_line(&tip.to_string())));
    }
    match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => {
            remedies.push(one_line(&usage.to_string()).replacen("Usage:", "usage:", 1));
        }
        _ if remedies.is_empty() => remedies.push("add --help to see the arguments of this command".to_owned()),
        _ => {}
    }
    remedies.join("; ")
}

/// Returns the similar names as a remedy: `use 'sub'`, `use 'sub' or 'pub'`.
fn alternatives(similar: &ContextValue) -> Option<String> {
    let names = match similar {
        ContextValue::String(name) => std::slice::from_ref(name),
        ContextValue::Strings(names) => names,
        _ => return None,
    };
    let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    (!names.is_empty()).then(|| format!("use {}", names.join(" or ")))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::args;
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn wrong_arguments_have_a_problem_and_a_remedy() {
        for (line, problem, remedy) in [
            (
                "sub a --cuont 1",
                "unexpected argument '--cuont' found",
                "use '--count'; usage: seqcast sub --count <N> <PATTERN>...",
            ),
            ("pubb a b", "unrecognized subcommand 'pubb'", "use 'sub' or 'pub'; usage: seqcast [OPTIONS] <COMMAND>"),
            (
                "sub",
                "the following required arguments were not provided: <PATTERN>...",
                "usage: seqcast sub <PATTERN>...",
            ),
            (
                "completion bsh",
                "invalid value 'bsh' for '<SHELL>' [possible values: bash, elvish, fish, powershell, zsh]",
                "use 'bash'",
            ),
            (
                "sub a --count x",
                "invalid value 'x' for '--count <N>': invalid digit found in string",
                "add --help to see the arguments of this command",
            ),
            (
                "sub a --wait ;_;",
                "invalid value ';_;' for '--wait <TIME>': expected number at 0",
                "a time looks like 2s or 500ms",
            ),
        ] {
            let words = std::iter::once("seqcast").chain(line.split(' ')).map(OsString::from);
            let failure = respond(&args::parse(words).unwrap_err(), true).unwrap_err();
            assert_eq!(failure, CommandFailure::new(Exit::Usage, problem).fix(remedy), "{line}");
        }
    }

    #[test]
    fn json_is_an_option_before_the_operands_alone() {
        for (line, expected) in [("sub a --json", true), ("pub a -- --json", false), ("sub a --jsn", false)] {
            assert_eq!(is_json(&line.split(' ').collect::<Vec<_>>()), expected, "{line}");
        }
    }
}
