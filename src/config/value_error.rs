//! Reasons why a text is no value of its key, with suggestions.

use super::interface::InterfaceSpecError;
use super::peers::PeerListError;
use super::spelling::nearest;
use crate::event::stream::name::StreamNameError;
use crate::link::site_name::SiteNameError;
use crate::listener::nkey::NkeyError;
use crate::listener::permissions::PATTERNS_MAX;
use crate::message::NameError;
use crate::subject::SubjectError;
use crate::subject::event_type::TypeError;
use std::fmt;
use std::net::IpAddr;

/// Reason why a text is no value of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueError {
    /// The text is empty.
    Empty,
    /// The text is, or once was, no UTF-8: it contains U+FFFD, the replacement character for such bytes.
    Encoding,
    /// Not a size: the text before the unit is no number.
    SizeNumber,
    /// Not a size: the unit is unknown.
    SizeUnit(String),
    /// Neither `auto` nor `off` nor a size.
    Pace,
    /// A duration without a unit.
    DurationUnit(String),
    /// Not a duration; holds the reason of `humantime`.
    Duration(String),
    /// Not a whole number.
    Number,
    /// A number beyond what the machine can count.
    Overflow,
    /// Below the minimum.
    BelowMin {
        /// The minimum.
        min: String,
        /// Reason for the minimum, if it is not obvious.
        reason: &'static str,
    },
    /// Above the maximum.
    AboveMax {
        /// The maximum.
        max: String,
        /// Reason for the maximum, if it is not obvious.
        reason: &'static str,
    },
    /// None of the allowed words.
    NotOneOf(&'static [&'static str]),
    /// Not a peer name.
    PeerName(NameError),
    /// Not an IP address.
    Address,
    /// An IP address outside 224.0.0.0/4 and ff00::/8.
    NotMulticast(IpAddr),
    /// Not the name of an interface, an address or a network.
    Interface(InterfaceSpecError),
    /// Not a list of hosts.
    PeerList(PeerListError),
    /// A path too long for a Unix socket.
    SocketPath {
        /// Length of the path in bytes.
        bytes: usize,
    },
    /// A character that no path can contain.
    PathNul,
    /// Not a mode of the Unix socket.
    SocketMode,
    /// Not the name of a group.
    SocketGroup,
    /// Neither a path nor the address of a PostgreSQL database.
    StreamStore,
    /// A history of one message.
    OneMessage,
    /// Not a rule of the history.
    Rule(RuleError),
    /// Not a rule of the journal of events.
    Retention(RuleError),
    /// Not a list of streams; holds the reason.
    Streams(StreamSettingsError),
    /// A list in which a `;` has no white space beside it.
    JoinedParts,
    /// Not a pattern of event types.
    EventType(TypeError),
    /// Not a list of type patterns.
    EventTypes,
    /// Not a listen address.
    ListenAddress {
        /// The usual port.
        port: u16,
    },
    /// Not an account.
    Account(AccountError),
    /// Not two files.
    TlsFiles,
    /// Not a list of origins.
    Origins,
    /// Not the name of a site.
    Site(SiteNameError),
    /// Not a list of the servers of a cluster.
    Hubs,
    /// A list of servers of which some are encrypted.
    MixedHubs,
    /// Not the name of a stream of the cluster.
    StreamName,
    /// Not a pattern of subjects.
    LinkPattern(SubjectError),
    /// Not a list of patterns of subjects.
    LinkPatterns,
    /// A pattern of the system's own subjects, which stay on the LAN.
    SystemPattern(String),
}

/// Maximum length of the path of a Unix socket, in bytes: `sun_path` has 108 bytes, the last one is 0.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::Empty => write!(f, "the value is missing"),
            ValueError::Encoding => write!(f, "not UTF-8"),
            ValueError::SizeNumber => write!(f, "a size starts with a number"),
            ValueError::SizeUnit(unit) => write!(f, "{unit:?} is no unit of size"),
            ValueError::Pace => write!(f, "neither auto nor off nor a size"),
            ValueError::DurationUnit(_) => write!(f, "a time needs a unit"),
            ValueError::Duration(reason) => write!(f, "not a time: {reason}"),
            ValueError::Number => write!(f, "not a whole number"),
            ValueError::Overflow => write!(f, "the number is too large"),
            ValueError::BelowMin { min, reason } => {
                write!(f, "less than {min}, the least allowed{}", reason_suffix(reason))
            }
            ValueError::AboveMax { max, reason } => {
                write!(f, "more than {max}, the most allowed{}", reason_suffix(reason))
            }
            ValueError::NotOneOf(words) => write!(f, "must be one of {}", words.join(", ")),
            ValueError::PeerName(error) => error.fmt(f),
            ValueError::Address => write!(f, "not an IP address"),
            ValueError::NotMulticast(address) => write!(f, "{address} is not a multicast address"),
            ValueError::Interface(error) => error.fmt(f),
            ValueError::PeerList(error) => error.fmt(f),
            ValueError::SocketPath { bytes } => {
                write!(f, "the path of a Unix socket has at most {SOCKET_PATH_BYTES_MAX} bytes, this one has {bytes}")
            }
            ValueError::PathNul => write!(f, "a path cannot contain the character 0"),
            ValueError::SocketMode => write!(f, "not an octal mode with which the peer can use its own socket"),
            ValueError::SocketGroup => write!(f, "the name of a group has no spaces and no colon"),
            ValueError::StreamStore => {
                write!(f, "neither a path nor the address of a PostgreSQL database")
            }
            ValueError::OneMessage => write!(
                f,
                "one message is too few: a poll names the predecessor of the requested message, and both must be retained"
            ),
            ValueError::Rule(error) | ValueError::Retention(error) => error.fmt(f),
            ValueError::Streams(error) => error.fmt(f),
            ValueError::JoinedParts => write!(f, "a ; separates two parts of a list only with a space on both sides"),
            ValueError::EventType(error) => error.fmt(f),
            ValueError::EventTypes => {
                write!(f, "not a list of 1 to {RULES_MAX} patterns of event types, separated by ;")
            }
            ValueError::ListenAddress { .. } => write!(f, "not a listen address"),
            ValueError::Account(error) => error.fmt(f),
            ValueError::TlsFiles => write!(
                f,
                "two files are required, the certificates and the key, and then nothing, optional, or verify and a third file"
            ),
            ValueError::Origins => write!(f, "not a list of origins, or more than {ORIGINS_MAX} of them"),
            ValueError::Site(error) => error.fmt(f),
            ValueError::Hubs => write!(f, "not a list of 1 to {HUBS_MAX} servers of a cluster"),
            ValueError::MixedHubs => f.write_str("some addresses are encrypted (tls://), others are not"),
            ValueError::StreamName => write!(f, "not 1 to {STREAM_NAME_BYTES_MAX} letters, digits, '_' and '-'"),
            ValueError::LinkPattern(error) => error.fmt(f),
            ValueError::LinkPatterns => {
                write!(f, "not a list of 1 to {LINK_PATTERNS_MAX} patterns of subjects, separated by ;")
            }
            ValueError::SystemPattern(pattern) => {
                write!(f, "subjects that begin with _ or $ stay on the LAN, so {pattern} cannot cross a link")
            }
        }
    }
}

fn reason_suffix(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

impl ValueError {
    /// Returns the replacement to suggest, if there is one.
    pub fn suggestion(&self, text: &str) -> Option<String> {
        match self {
            ValueError::SizeNumber | ValueError::SizeUnit(_) => {
                Some("write a number of bytes, or a number with kb, mb or gb, such as 10 mb".into())
            }
            ValueError::Pace => Some(match nearest(text, ["auto", "off"].into_iter()) {
                Some(word) => format!("did you mean {word}?"),
                None => "write auto, off, or a maximum rate a second, such as 50 mb".into(),
            }),
            ValueError::DurationUnit(number) => Some(format!("write {number} sec or {number} ms")),
            ValueError::Duration(_) => Some("write a number with a unit, such as 250 ms, 60 sec or 5 min".into()),
            ValueError::NotOneOf(words) => {
                nearest(text, words.iter().copied()).map(|word| format!("did you mean {word}?"))
            }
            ValueError::NotMulticast(IpAddr::V4(_)) => Some("use 224.0.0.0 to 239.255.255.255".into()),
            ValueError::Address => Some("write an address such as 239.255.83.67 or ff15::5343".into()),
            ValueError::NotMulticast(IpAddr::V6(_)) => Some("use an address that starts with ff".into()),
            ValueError::OneMessage => Some("write 2 or more, or 0 to retain none".into()),
            ValueError::Rule(error) => error.suggestion(),
            ValueError::Retention(_) => Some("write rules such as plant/* count 1000 size 10 mb time 30 days".into()),
            ValueError::Streams(error) => error.suggestion(),
            ValueError::JoinedParts => Some("write ' ; ' between two parts, or a YAML list".into()),
            ValueError::EventType(_) | ValueError::EventTypes => Some("write patterns such as plant/? ; line/*".into()),
            ValueError::Account(error) => error.suggestion(),
            ValueError::ListenAddress { port } => Some(format!("write on, off, {port}, 192.0.2.7 or 192.0.2.7:{port}")),
            ValueError::PeerList(error) => Some(error.suggestion()),
            ValueError::SocketMode => Some("write 0600, 0660 or 0666".into()),
            ValueError::SocketGroup => Some("write a group such as seqcast, or none".into()),
            ValueError::TlsFiles => {
                Some("write CERTIFICATES.pem KEY.pem, or CERTIFICATES.pem KEY.pem verify CA.pem".into())
            }
            ValueError::Origins => {
                Some("write origins without a path, such as https://panel.example http://10.0.0.9:3000".into())
            }
            ValueError::Site(_) => Some("write a name such as plant1".into()),
            ValueError::Hubs => {
                Some("write addresses such as nats://hub1:4222, nats://hub2:4222; user and password belong into link-credentials".into())
            }
            ValueError::MixedHubs => Some("write all of them with tls://, or all of them with nats://".into()),
            ValueError::StreamName => Some("write a name such as SEQCAST".into()),
            ValueError::LinkPattern(_) | ValueError::LinkPatterns | ValueError::SystemPattern(_) => {
                Some("write patterns such as plant.> ; orders.*".into())
            }
            ValueError::Interface(_) => Some("write eth0, 192.0.2.7, 192.0.2.0/24, lo or auto".into()),
            _ => None,
        }
    }
}

/// Maximum number of origins. Each request of a page is compared with all of them.
pub(super) const ORIGINS_MAX: usize = 32;

/// Maximum number of servers of a cluster that are listed. The client learns of the others.
pub(super) const HUBS_MAX: usize = 16;
/// Maximum length of the name of a stream in bytes.
pub(super) const STREAM_NAME_BYTES_MAX: usize = 32;
/// Maximum number of patterns in each direction.
pub(super) const LINK_PATTERNS_MAX: usize = 256;

/// Maximum number of rules. Each subject that is seen for the first time is compared with all of them.
pub(super) const RULES_MAX: usize = 256;

/// Words that begin a bound of a rule.
pub(super) const RULE_PARTS: [&str; 3] = ["count", "size", "time"];

/// Reason why a text is no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleError {
    /// Nothing between two `;`.
    Empty,
    /// The pattern is invalid; holds the reason.
    Pattern(String),
    /// A pattern without bounds.
    Nothing,
    /// A word where `count`, `size` or `time` should be.
    UnknownPart(String),
    /// A repeated bound.
    Twice(&'static str),
    /// An invalid value of a bound.
    Part(&'static str, Box<ValueError>),
    /// Too many rules.
    TooMany,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleError::Empty => write!(f, "a rule is missing"),
            RuleError::Pattern(reason) => write!(f, "a rule begins with a pattern: {reason}"),
            RuleError::Nothing => write!(f, "the rule has no limit"),
            RuleError::UnknownPart(word) => write!(f, "{word:?} is none of {}", RULE_PARTS.join(", ")),
            RuleError::Twice(part) => write!(f, "{part} is repeated in a rule"),
            RuleError::Part(part, error) => write!(f, "{part}: {error}"),
            RuleError::TooMany => write!(f, "more than {RULES_MAX} rules"),
        }
    }
}

impl RuleError {
    /// Returns the replacement to suggest, if there is one.
    pub(super) fn suggestion(&self) -> Option<String> {
        match self {
            RuleError::UnknownPart(word) => {
                nearest(word, RULE_PARTS.into_iter()).map(|part| format!("did you mean {part}?"))
            }
            RuleError::Part(_, error) => error.suggestion(""),
            RuleError::TooMany => return Some("join rules by patterns with * and >".into()),
            _ => None,
        }
        .or_else(|| Some("write a rule such as plant.> count 10 size 64 kb time 5 min".into()))
    }
}

/// Maximum number of accounts; more would need a directory of users instead of a list.
pub(super) const ACCOUNTS_MAX: usize = 1024;

/// Reason why a text is no account. It never contains a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccountError {
    /// Nothing between two `;`.
    Empty,
    /// The text begins with none of `user`, `token`, `nkey`, `certificate`, and may be a secret; holds the intended
    /// word, if it can be guessed.
    UnknownKind(Option<&'static str>),
    /// The words after the kind have the wrong form; holds the right one, without the options.
    Form(&'static str),
    /// A pattern behind `publish` or `subscribe` is none.
    Pattern {
        /// The word before the patterns.
        list: &'static str,
        /// Number of the pattern, from 1.
        number: usize,
        /// Reason why it is no pattern.
        error: SubjectError,
    },
    /// More patterns behind this word than allowed.
    TooManyPatterns(&'static str),
    /// Not the public half of a user's key pair.
    Nkey(NkeyError),
    /// The same user, token or key for the second time; holds the user's name or the key, which are no secrets.
    Twice(Option<String>),
    /// Too many of them.
    TooMany,
}

/// Written form of each kind of account, without its options.
pub(super) const ACCOUNT_FORMS: [(&str, &str); 4] = [
    ("user", "user NAME password WORD"),
    ("token", "token WORD"),
    ("nkey", "nkey UKEY"),
    ("certificate", "certificate NAME"),
];
/// Options that may follow each kind of account, in any order.
pub(super) const ACCOUNT_OPTIONS: &str = "[headers] [publish PATTERNS] [subscribe PATTERNS]";

impl fmt::Display for AccountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccountError::Empty => write!(f, "an account is missing"),
            AccountError::UnknownKind(_) => write!(f, "an account begins with user, token, nkey or certificate"),
            AccountError::Form(form) => write!(f, "an account of this kind is written: {form} {ACCOUNT_OPTIONS}"),
            AccountError::Pattern { list, number, error } => write!(f, "pattern {number} behind {list}: {error}"),
            AccountError::TooManyPatterns(list) => write!(f, "more than {PATTERNS_MAX} patterns behind {list}"),
            AccountError::Nkey(error) => error.fmt(f),
            AccountError::Twice(Some(account)) => write!(f, "{account} is repeated"),
            AccountError::Twice(None) => write!(f, "this token is repeated"),
            AccountError::TooMany => write!(f, "more than {ACCOUNTS_MAX} accounts"),
        }
    }
}

impl AccountError {
    /// Returns the replacement to suggest.
    pub(super) fn suggestion(&self) -> Option<String> {
        match self {
            AccountError::UnknownKind(Some(kind)) => Some(format!("did you mean {kind}?")),
            AccountError::UnknownKind(None) => Some("write user alice password s3cret".into()),
            AccountError::Nkey(_) => Some("write the public key of a user: U and 55 capital letters and digits".into()),
            AccountError::Twice(_) => Some("remove one of the two".into()),
            AccountError::TooMany => Some("share accounts among users".into()),
            AccountError::Pattern { list, .. } => {
                Some(format!("write {list} plant.>,log.* without spaces between the patterns, or {list} none"))
            }
            AccountError::TooManyPatterns(_) => Some("join patterns by * and >".into()),
            AccountError::Empty | AccountError::Form(_) => None,
        }
    }
}

/// Maximum number of streams. Every event is compared with each of them.
pub(super) const STREAMS_MAX: usize = 64;
/// Words that begin a limit of a stream.
pub(super) const STREAM_PARTS: [&str; 3] = ["time", "size", "policy"];
/// Reason why a text is no stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamSettingsError {
    /// Nothing between two `;`.
    Empty,
    /// The name is invalid.
    Name(StreamNameError),
    /// A word that is neither a pattern nor a limit.
    UnknownPart(String),
    /// A repeated stream or limit; holds its description.
    Twice(String),
    /// An invalid value of a limit.
    Part(&'static str, Box<ValueError>),
    /// `policy block` without a size, or with a time, which would have no effect.
    IneffectiveBlock,
    /// Too many streams.
    TooMany,
}

impl fmt::Display for StreamSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamSettingsError::Empty => write!(f, "a stream is missing"),
            StreamSettingsError::Name(error) => error.fmt(f),
            StreamSettingsError::UnknownPart(word) => {
                write!(
                    f,
                    "{word:?} is no pattern of event types, which has a /, and none of {}",
                    STREAM_PARTS.join(", ")
                )
            }
            StreamSettingsError::Twice(what) => write!(f, "{what} is repeated"),
            StreamSettingsError::Part(part, error) => write!(f, "{part}: {error}"),
            StreamSettingsError::IneffectiveBlock => {
                write!(f, "policy block needs a size and admits no time: it removes no event, whatever its age")
            }
            StreamSettingsError::TooMany => write!(f, "more than {STREAMS_MAX} streams"),
        }
    }
}

impl StreamSettingsError {
    /// Returns the replacement to suggest.
    pub(super) fn suggestion(&self) -> Option<String> {
        match self {
            StreamSettingsError::UnknownPart(word) => {
                nearest(word, STREAM_PARTS.into_iter()).map(|part| format!("did you mean {part}?"))
            }
            StreamSettingsError::Part("policy", _) => Some("write policy lapse or policy block".into()),
            StreamSettingsError::Part(_, error) => error.suggestion(""),
            StreamSettingsError::IneffectiveBlock => Some("write a stream such as plant size 1 gb policy block".into()),
            _ => None,
        }
        .or_else(|| Some("write a stream such as plant line/?/ALARM time 7 days size 1 gb".into()))
    }
}
