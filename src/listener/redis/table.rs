//! The commands there are, and what is said about those there are not.

use super::parser::Command;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Auth,
    ClientGetname,
    ClientInfo,
    ClientKill,
    ClientList,
    ClientNumber,
    ClientReply,
    ClientSetinfo,
    ClientSetname,
    ClientSwitch,
    CommandAll,
    CommandCount,
    CommandDocs,
    CommandGetkeys,
    CommandInfo,
    CommandList,
    ConfigGet,
    ConfigSet,
    Container,
    Echo,
    Flush,
    Hello,
    Help,
    Info,
    Monitor,
    Ping,
    Psubscribe,
    Publish,
    PubsubChannels,
    PubsubNumpat,
    PubsubNumsub,
    Punsubscribe,
    Quit,
    Reset,
    Select,
    Ssubscribe,
    Subscribe,
    Sunsubscribe,
    Unsubscribe,
}

/// A command.
#[derive(Debug)]
pub(super) struct Entry {
    /// In small letters; that of a subcommand with its command and `|` in front.
    pub(super) name: &'static str,
    /// Its arguments, its name included; at least so many if this is negative.
    pub(super) arity: i64,
    pub(super) id: Id,
    /// Its group, as `COMMAND INFO` names it.
    pub(super) category: &'static str,
}

const fn entry(name: &'static str, arity: i64, id: Id, category: &'static str) -> Entry {
    Entry { name, arity, id, category }
}

/// The commands; those with subcommands are followed by them.
pub(super) static ENTRIES: [Entry; 49] = [
    entry("auth", -2, Id::Auth, "@connection"),
    entry("client", -2, Id::Container, "@connection"),
    entry("client|getname", 2, Id::ClientGetname, "@connection"),
    entry("client|help", 2, Id::Help, "@connection"),
    entry("client|id", 2, Id::ClientNumber, "@connection"),
    entry("client|info", 2, Id::ClientInfo, "@connection"),
    entry("client|kill", -3, Id::ClientKill, "@connection"),
    entry("client|list", -2, Id::ClientList, "@connection"),
    entry("client|no-evict", 3, Id::ClientSwitch, "@connection"),
    entry("client|no-touch", 3, Id::ClientSwitch, "@connection"),
    entry("client|reply", 3, Id::ClientReply, "@connection"),
    entry("client|setinfo", 4, Id::ClientSetinfo, "@connection"),
    entry("client|setname", 3, Id::ClientSetname, "@connection"),
    entry("command", -1, Id::CommandAll, "@connection"),
    entry("command|count", 2, Id::CommandCount, "@connection"),
    entry("command|docs", -2, Id::CommandDocs, "@connection"),
    entry("command|getkeys", -3, Id::CommandGetkeys, "@connection"),
    entry("command|help", 2, Id::Help, "@connection"),
    entry("command|info", -2, Id::CommandInfo, "@connection"),
    entry("command|list", -2, Id::CommandList, "@connection"),
    entry("config", -2, Id::Container, "@admin"),
    entry("config|get", -3, Id::ConfigGet, "@admin"),
    entry("config|help", 2, Id::Help, "@admin"),
    entry("config|set", -4, Id::ConfigSet, "@admin"),
    entry("echo", 2, Id::Echo, "@connection"),
    entry("flushall", -1, Id::Flush, "@keyspace"),
    entry("flushdb", -1, Id::Flush, "@keyspace"),
    entry("hello", -1, Id::Hello, "@connection"),
    entry("info", -1, Id::Info, "@dangerous"),
    entry("monitor", 1, Id::Monitor, "@admin"),
    entry("ping", -1, Id::Ping, "@connection"),
    entry("psubscribe", -2, Id::Psubscribe, "@pubsub"),
    entry("publish", 3, Id::Publish, "@pubsub"),
    entry("pubsub", -2, Id::Container, "@pubsub"),
    entry("pubsub|channels", -2, Id::PubsubChannels, "@pubsub"),
    entry("pubsub|help", 2, Id::Help, "@pubsub"),
    entry("pubsub|numpat", 2, Id::PubsubNumpat, "@pubsub"),
    entry("pubsub|numsub", -2, Id::PubsubNumsub, "@pubsub"),
    entry("pubsub|shardchannels", -2, Id::PubsubChannels, "@pubsub"),
    entry("pubsub|shardnumsub", -2, Id::PubsubNumsub, "@pubsub"),
    entry("punsubscribe", -1, Id::Punsubscribe, "@pubsub"),
    entry("quit", -1, Id::Quit, "@connection"),
    entry("reset", 1, Id::Reset, "@connection"),
    entry("select", 2, Id::Select, "@connection"),
    entry("spublish", 3, Id::Publish, "@pubsub"),
    entry("ssubscribe", -2, Id::Ssubscribe, "@pubsub"),
    entry("subscribe", -2, Id::Subscribe, "@pubsub"),
    entry("sunsubscribe", -1, Id::Sunsubscribe, "@pubsub"),
    entry("unsubscribe", -1, Id::Unsubscribe, "@pubsub"),
];

impl Entry {
    /// Whether it is part of a command.
    pub(super) fn is_sub(&self) -> bool {
        self.name.contains('|')
    }

    /// Whether clients may use it that have not proven who they are.
    pub(super) fn is_for_strangers(&self) -> bool {
        matches!(self.id, Id::Auth | Id::Hello | Id::Quit | Id::Reset)
    }

    /// Whether a client of RESP2 may use it while it has subscriptions.
    pub(super) fn is_for_subscribers(&self) -> bool {
        use Id::{Ping, Psubscribe, Punsubscribe, Quit, Reset, Ssubscribe, Subscribe, Sunsubscribe, Unsubscribe};
        matches!(
            self.id,
            Ping | Psubscribe | Punsubscribe | Quit | Reset | Ssubscribe | Subscribe | Sunsubscribe | Unsubscribe
        )
    }

    /// Returns the error that is due if the command has too few arguments or too many, or lacks its subcommand.
    pub(super) fn check_arity(&self, command: &Command<'_>) -> Result<(), Vec<u8>> {
        let wanted = usize::try_from(self.arity.unsigned_abs()).unwrap_or(usize::MAX);
        let fits = if self.arity < 0 { wanted <= command.len() } else { wanted == command.len() };
        if fits && self.id != Id::Container { Ok(()) } else { Err(wrong_number(self.name)) }
    }
}

/// A command by its name; subcommands have a `|` in it.
pub(super) fn named(name: &[u8]) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
}

/// Returns the entry of a command or of its subcommand, whatever its arguments, or the error that is due if there is none.
pub(super) fn find(command: &Command<'_>) -> Result<&'static Entry, Vec<u8>> {
    let entry = named(command.arg(0)).filter(|entry| !entry.is_sub()).ok_or_else(|| unknown(command))?;
    let has_subs = matches!(entry.id, Id::Container | Id::CommandAll);
    match has_subs && 1 < command.len() {
        true => sub(entry, command.arg(1)),
        false => Ok(entry),
    }
}

fn sub(of: &Entry, name: &[u8]) -> Result<&'static Entry, Vec<u8>> {
    let full = [of.name.as_bytes(), b"|", name].concat();
    named(&full).ok_or_else(|| {
        let name = &name[..name.len().min(TEXT_BYTES)];
        let (before, behind) = (b"ERR unknown subcommand '", of.name.to_ascii_uppercase());
        [before, name, b"'. Try ", behind.as_bytes(), b" HELP."].concat()
    })
}

/// The error for a command with too few arguments or too many.
pub(super) fn wrong_number(name: &str) -> Vec<u8> {
    format!("ERR wrong number of arguments for '{name}' command").into_bytes()
}

/// As much of a name or of arguments is repeated in an error.
const TEXT_BYTES: usize = 128;

fn unknown(command: &Command<'_>) -> Vec<u8> {
    let name = command.arg(0);
    let mut args = Vec::new();
    for arg in command.args(1) {
        if TEXT_BYTES <= args.len() {
            break;
        }
        let cut = arg.len().min(TEXT_BYTES - args.len());
        args.extend_from_slice(b"'");
        args.extend_from_slice(&arg[..cut]);
        args.extend_from_slice(b"' ");
    }
    let name = &name[..name.len().min(TEXT_BYTES)];
    [b"ERR unknown command '", name, b"', with args beginning with: ", &args].concat()
}
