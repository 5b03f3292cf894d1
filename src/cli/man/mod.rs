//! `man`: the manual pages, one for each verb, made from the same definitions as `--help`.

pub mod args;

use std::fs;
use std::io;

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use self::args::ManOptions;
use super::args::CommandLine;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{note, pluralize};

/// Writes a page for the program and for each of its verbs.
///
/// # Errors
/// A page cannot be written.
pub fn run(options: &ManOptions) -> Result<Exit, CommandFailure> {
    let mut program = without_help_verb(CommandLine::command());
    // Gives each verb its full name.
    program.build();
    let mut commands = vec![&program];
    let mut pages = 0;
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().filter(|below| !below.is_hide_set()));
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        let path = options.directory.join(format!("{name}.1"));
        page(command).and_then(|page| fs::write(&path, page)).map_err(|error| {
            CommandFailure::new(Exit::Failed, format!("{} cannot be written: {error}", path.display()))
                .fix("name a directory that exists, that you may write to, and that has room")
        })?;
        pages += 1;
    }
    note(format_args!("wrote {} to {}", pluralize(pages, "page"), options.directory.display()));
    Ok(Exit::Done)
}

/// Removes the verb `help` everywhere, which has no page: `--help` does the same.
fn without_help_verb(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help_verb)
}

/// Returns the page of a command. It has no date, so that the same version makes the same pages.
fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let mut page = format!(".TH {name} 1 \"\" \"seqcast {}\" seqcast\n", env!("CARGO_PKG_VERSION")).into_bytes();
    let man = Man::new(command.clone());
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(help) = command.get_after_help() {
        examples(&help.to_string()).to_writer(&mut page)?;
    }
    Ok(page)
}

/// Returns the text below a verb's help as a section. Indented lines, such as commands, stay as they are.
fn examples(text: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]);
    let (mut is_verbatim, mut is_paragraph_begun) = (false, true);
    for line in text.lines().skip_while(|line| *line == "Examples:") {
        let is_indented = line.starts_with(' ');
        if is_indented != is_verbatim {
            roff.control(if is_indented { "nf" } else { "fi" }, []);
            is_verbatim = is_indented;
        } else if !is_indented && !is_paragraph_begun && !line.is_empty() {
            roff.control("br", []);
        }
        is_paragraph_begun = line.is_empty();
        match line {
            "" => roff.control("PP", []),
            _ => roff.text([roman(line)]),
        };
    }
    if is_verbatim {
        roff.control("fi", []);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_keep_their_lines_in_pages() {
        let page = examples("Examples:\n  seqcast a  does this\n  seqcast b\n\nProse.\nMore - prose.").render();
        let expected =
            ".SH EXAMPLES\n.nf\n  seqcast a  does this\n  seqcast b\n.fi\n.PP\nProse.\n.br\nMore \\- prose.\n";
        assert!(page.ends_with(expected), "{page:?}");
    }
}
