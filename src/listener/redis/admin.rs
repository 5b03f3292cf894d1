//! Commands about commands and about the configuration, answered from constant tables.

use super::command::RedisCommand;
use super::command_table::{CommandEntry, CommandId, ENTRIES, find_entry};
use super::reply::ReplyWriter;
use crate::subject::glob::Glob;

/// Options that `CONFIG GET` returns, because load generators and libraries read them at their start.
const CONFIG: [(&str, &str); 5] =
    [("appendonly", "no"), ("databases", "16"), ("maxmemory", "0"), ("save", ""), ("timeout", "0")];

/// Answers a command that depends only on its arguments.
pub(super) fn run(id: CommandId, command: RedisCommand<'_>, reply: &mut ReplyWriter<'_>) {
    let all = || ENTRIES.iter().filter(|entry| !entry.is_sub());
    match id {
        CommandId::CommandAll => {
            reply.array(all().count());
            all().for_each(|entry| describe(entry, reply));
        }
        CommandId::CommandCount => reply.integer(all().count() as u64),
        // The map is empty, because the manual of Redis describes the commands.
        CommandId::CommandDocs => reply.map(0),
        CommandId::CommandInfo if command.len() == 2 => run(CommandId::CommandAll, command, reply),
        CommandId::CommandInfo => {
            reply.array(command.len() - 2);
            for name in command.args(2) {
                match find_entry(name) {
                    Some(entry) => describe(entry, reply),
                    None => reply.null(),
                }
            }
        }
        CommandId::CommandList => list(command, all(), reply),
        CommandId::CommandGetkeys if find_entry(command.arg(2)).is_none() => {
            reply.error("ERR Invalid command specified")
        }
        CommandId::CommandGetkeys => reply.error("ERR The command has no key arguments"),
        CommandId::ConfigGet => config_get(command, reply),
        CommandId::ConfigSet => {
            let name = &command.arg(2)[..command.arg(2).len().min(128)];
            reply.error([b"ERR Unknown option or number of arguments for CONFIG SET - '", name, b"'"].concat());
        }
        _ => help(command, reply),
    }
}

/// Writes a command with the ten fields of `COMMAND INFO`; no command has keys.
fn describe(entry: &CommandEntry, reply: &mut ReplyWriter<'_>) {
    reply.array(10);
    reply.bulk(entry.name.as_bytes());
    reply.negative(entry.arity);
    let is_pubsub = entry.category == "@pubsub";
    reply.set(1 + usize::from(is_pubsub));
    reply.simple("fast");
    if is_pubsub {
        reply.simple("pubsub");
    }
    for _ in 0..3 {
        reply.integer(0);
    }
    reply.set(1);
    reply.simple(entry.category);
    for _ in 0..3 {
        reply.array(0);
    }
}

fn list<'a>(command: RedisCommand<'_>, all: impl Iterator<Item = &'a CommandEntry>, reply: &mut ReplyWriter<'_>) {
    let is = |at, word: &[u8]| command.arg(at).eq_ignore_ascii_case(word);
    let matching: Vec<_> = match command.len() {
        2 => all.collect(),
        5 if is(2, b"FILTERBY") && is(3, b"PATTERN") => match Glob::new(&command.arg(4).to_ascii_lowercase()) {
            Ok(glob) => all.filter(|entry| glob.matches(entry.name.as_bytes())).collect(),
            Err(error) => return reply.error(format!("ERR {error}")),
        },
        5 if is(2, b"FILTERBY") && is(3, b"ACLCAT") => {
            all.filter(|entry| entry.category.as_bytes()[1..].eq_ignore_ascii_case(command.arg(4))).collect()
        }
        5 if is(2, b"FILTERBY") && is(3, b"MODULE") => Vec::new(),
        _ => return reply.error("ERR syntax error"),
    };
    reply.array(matching.len());
    matching.iter().for_each(|entry| reply.bulk(entry.name.as_bytes()));
}

fn config_get(command: RedisCommand<'_>, reply: &mut ReplyWriter<'_>) {
    let globs: Vec<Glob> =
        command.args(2).filter_map(|text| Glob::new(&text.to_ascii_lowercase()).ok()).take(CONFIG_GLOBS_MAX).collect();
    let is_wanted = |name: &str| globs.iter().any(|glob| glob.matches(name.as_bytes()));
    let found: Vec<_> = CONFIG.iter().filter(|(name, _)| is_wanted(name)).collect();
    reply.map(found.len());
    for (name, value) in found {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

/// Maximum number of patterns of a `CONFIG GET` that are evaluated; further ones are ignored.
const CONFIG_GLOBS_MAX: usize = 64;

/// Writes the subcommands of a command.
fn help(command: RedisCommand<'_>, reply: &mut ReplyWriter<'_>) {
    let name = command.arg(0).to_ascii_lowercase();
    let is_subcommand = |entry: &&CommandEntry| {
        entry.name.as_bytes().strip_prefix(&name[..]).is_some_and(|rest| rest.starts_with(b"|"))
    };
    let subcommands: Vec<_> = ENTRIES.iter().filter(is_subcommand).collect();
    reply.array(1 + subcommands.len());
    let name = String::from_utf8_lossy(&name).to_ascii_uppercase();
    reply.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for entry in subcommands {
        reply.simple(&entry.name[name.len() + 1..].to_ascii_uppercase());
    }
}
