//! Table of the supported commands, and the errors for unsupported ones.

use super::command::RedisCommand;

/// Action of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandId {
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
pub(super) struct CommandEntry {
    /// Name in lowercase; a subcommand has its command and `|` as a prefix.
    pub(super) name: &'static str,
    /// Number of arguments including the name; a negative value means at least its absolute value.
    pub(super) arity: i64,
    pub(super) id: CommandId,
    /// Command group, as in `COMMAND INFO`.
    pub(super) category: &'static str,
}

const fn entry(name: &'static str, arity: i64, id: CommandId, category: &'static str) -> CommandEntry {
    CommandEntry { name, arity, id, category }
}

/// The commands; each is followed by its subcommands.
pub(super) static ENTRIES: [CommandEntry; 49] = [
    entry("auth", -2, CommandId::Auth, "@connection"),
    entry("client", -2, CommandId::Container, "@connection"),
    entry("client|getname", 2, CommandId::ClientGetname, "@connection"),
    entry("client|help", 2, CommandId::Help, "@connection"),
    entry("client|id", 2, CommandId::ClientNumber, "@connection"),
    entry("client|info", 2, CommandId::ClientInfo, "@connection"),
    entry("client|kill", -3, CommandId::ClientKill, "@connection"),
    entry("client|list", -2, CommandId::ClientList, "@connection"),
    entry("client|no-evict", 3, CommandId::ClientSwitch, "@connection"),
    entry("client|no-touch", 3, CommandId::ClientSwitch, "@connection"),
    entry("client|reply", 3, CommandId::ClientReply, "@connection"),
    entry("client|setinfo", 4, CommandId::ClientSetinfo, "@connection"),
    entry("client|setname", 3, CommandId::ClientSetname, "@connection"),
    entry("command", -1, CommandId::CommandAll, "@connection"),
    entry("command|count", 2, CommandId::CommandCount, "@connection"),
    entry("command|docs", -2, CommandId::CommandDocs, "@connection"),
    entry("command|getkeys", -3, CommandId::CommandGetkeys, "@connection"),
    entry("command|help", 2, CommandId::Help, "@connection"),
    entry("command|info", -2, CommandId::CommandInfo, "@connection"),
    entry("command|list", -2, CommandId::CommandList, "@connection"),
    entry("config", -2, CommandId::Container, "@admin"),
    entry("config|get", -3, CommandId::ConfigGet, "@admin"),
    entry("config|help", 2, CommandId::Help, "@admin"),
    entry("config|set", -4, CommandId::ConfigSet, "@admin"),
    entry("echo", 2, CommandId::Echo, "@connection"),
    entry("flushall", -1, CommandId::Flush, "@keyspace"),
    entry("flushdb", -1, CommandId::Flush, "@keyspace"),
    entry("hello", -1, CommandId::Hello, "@connection"),
    entry("info", -1, CommandId::Info, "@dangerous"),
    entry("monitor", 1, CommandId::Monitor, "@admin"),
    entry("ping", -1, CommandId::Ping, "@connection"),
    entry("psubscribe", -2, CommandId::Psubscribe, "@pubsub"),
    entry("publish", 3, CommandId::Publish, "@pubsub"),
    entry("pubsub", -2, CommandId::Container, "@pubsub"),
    entry("pubsub|channels", -2, CommandId::PubsubChannels, "@pubsub"),
    entry("pubsub|help", 2, CommandId::Help, "@pubsub"),
    entry("pubsub|numpat", 2, CommandId::PubsubNumpat, "@pubsub"),
    entry("pubsub|numsub", -2, CommandId::PubsubNumsub, "@pubsub"),
    entry("pubsub|shardchannels", -2, CommandId::PubsubChannels, "@pubsub"),
    entry("pubsub|shardnumsub", -2, CommandId::PubsubNumsub, "@pubsub"),
    entry("punsubscribe", -1, CommandId::Punsubscribe, "@pubsub"),
    entry("quit", -1, CommandId::Quit, "@connection"),
    entry("reset", 1, CommandId::Reset, "@connection"),
    entry("select", 2, CommandId::Select, "@connection"),
    entry("spublish", 3, CommandId::Publish, "@pubsub"),
    entry("ssubscribe", -2, CommandId::Ssubscribe, "@pubsub"),
    entry("subscribe", -2, CommandId::Subscribe, "@pubsub"),
    entry("sunsubscribe", -1, CommandId::Sunsubscribe, "@pubsub"),
    entry("unsubscribe", -1, CommandId::Unsubscribe, "@pubsub"),
];

impl CommandEntry {
    /// Returns whether the entry is a subcommand.
    pub(super) fn is_sub(&self) -> bool {
        self.name.contains('|')
    }

    /// Returns whether unauthenticated clients may use the command.
    pub(super) fn is_allowed_unauthenticated(&self) -> bool {
        matches!(self.id, CommandId::Auth | CommandId::Hello | CommandId::Quit | CommandId::Reset)
    }

    /// Returns whether a RESP2 client may use the command while it has subscriptions.
    pub(super) fn is_for_subscribers(&self) -> bool {
        use CommandId::{
            Ping, Psubscribe, Punsubscribe, Quit, Reset, Ssubscribe, Subscribe, Sunsubscribe, Unsubscribe,
        };
        matches!(
            self.id,
            Ping | Psubscribe | Punsubscribe | Quit | Reset | Ssubscribe | Subscribe | Sunsubscribe | Unsubscribe
        )
    }

    /// Returns the error reply if the number of arguments is wrong or the subcommand is missing.
    pub(super) fn check_arity(&self, command: &RedisCommand<'_>) -> Result<(), Vec<u8>> {
        let wanted = usize::try_from(self.arity.unsigned_abs()).unwrap_or(usize::MAX);
        let fits = if self.arity < 0 { wanted <= command.len() } else { wanted == command.len() };
        if fits && self.id != CommandId::Container { Ok(()) } else { Err(wrong_number(self.name)) }
    }
}

/// Returns a command by its name; the name of a subcommand contains a `|`.
pub(super) fn find_entry(name: &[u8]) -> Option<&'static CommandEntry> {
    ENTRIES.iter().find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
}

/// Returns the entry of a command or subcommand without checking its arguments, or the error reply if none exists.
pub(super) fn find(command: &RedisCommand<'_>) -> Result<&'static CommandEntry, Vec<u8>> {
    let entry = find_entry(command.arg(0)).filter(|entry| !entry.is_sub()).ok_or_else(|| unknown_command(command))?;
    let has_subs = matches!(entry.id, CommandId::Container | CommandId::CommandAll);
    match has_subs && 1 < command.len() {
        true => find_subcommand(entry, command.arg(1)),
        false => Ok(entry),
    }
}

fn find_subcommand(command: &CommandEntry, name: &[u8]) -> Result<&'static CommandEntry, Vec<u8>> {
    let full = [command.name.as_bytes(), b"|", name].concat();
    find_entry(&full).ok_or_else(|| {
        let name = &name[..name.len().min(TEXT_BYTES)];
        let (before, after) = (b"ERR unknown subcommand '", command.name.to_ascii_uppercase());
        [before, name, b"'. Try ", after.as_bytes(), b" HELP."].concat()
    })
}

/// Returns the error reply for a wrong number of arguments.
pub(super) fn wrong_number(name: &str) -> Vec<u8> {
    format!("ERR wrong number of arguments for '{name}' command").into_bytes()
}

/// Maximum number of bytes of a name or of arguments that an error quotes.
const TEXT_BYTES: usize = 128;

fn unknown_command(command: &RedisCommand<'_>) -> Vec<u8> {
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
