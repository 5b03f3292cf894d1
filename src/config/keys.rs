//! Every key: its name, type, default, bounds and meaning, each in this one place.

use super::events::{DataDirFormat, EventTypesFormat, RetentionFormat, ServerIdFormat};
use super::host_defaults::HostDefaults;
use super::listeners::{AccountsFormat, ListenAddressFormat, TlsFiles, TlsFilesFormat};
use super::place::{StreamStoreFormat, StreamStoreLocation};
use super::rules::{HistoryOverride, HistoryRulesFormat};
use super::streams::StreamsFormat;
use super::value::*;
use crate::daemon::interface::Spec;
use crate::event::model::ServerId;
use crate::event::store::retention::Retention;
use crate::event::stream::store::StreamSettings;
use crate::listener::access::Account;
use crate::message::{DeliveryMode, MESSAGE_BYTES_MAX, PeerName};
use crate::proto::pace::Pace;
use crate::subject::event_type::TypePattern;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

const KB: usize = 1024;
const MB: usize = 1024 * KB;
const GB: usize = 1024 * MB;
const DAY: Duration = Duration::from_secs(86_400);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// R11: the publisher may only forget a subject after everybody had the time to notice that something is missing.
const PUB_WINDOW_TIME_WHY: &str =
    "a subject that is forgotten earlier could hide a loss (10 sec is what seed 002 asks for)";

const HISTORY_COUNT: HistoryCountFormat = HistoryCountFormat { max: 100_000_000 };
const HISTORY_SUBJECT_SIZE: SizeFormat = SizeFormat { min: KB, max: 2 * GB };
const HISTORY_TIME: DurationFormat = DurationFormat { min: ms(1_000), max: Duration::from_secs(365 * 86_400), why: "" };
const HISTORY_RULES: HistoryRulesFormat<HistoryCountFormat, SizeFormat, DurationFormat> =
    HistoryRulesFormat { count: HISTORY_COUNT, size: HISTORY_SUBJECT_SIZE, time: HISTORY_TIME };

/// What there is to know about a key.
pub struct Key {
    /// As it stands in the file, with hyphens.
    pub name: &'static str,
    /// What it is for.
    pub meaning: &'static str,
    /// The default, as it would be written.
    pub default: &'static str,
    /// What is allowed.
    pub range: fn() -> String,
    /// A value other than the default.
    pub example: &'static str,
    pub(super) put: fn(&mut Config, &str, &HostDefaults) -> Result<(), ValueError>,
    pub(super) value: fn(&Config) -> String,
    pub(super) is_list: fn() -> bool,
}

macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $name:literal $field:ident: $ty:ty = $default:literal, $kind:expr, $example:literal;)+) => {
        /// Every key, in the order of the documentation.
        pub const KEYS: &[Key] = &[$(Key {
            name: $name,
            meaning: concat!($($doc),+).trim_ascii(),
            default: $default,
            range: || $kind.range(),
            example: $example,
            put: |config, text, here| {
                config.$field = $kind.parse(text, here)?;
                Ok(())
            },
            value: |config| $kind.show(&config.$field),
            is_list: || $kind.is_list(),
        }),+];

        /// The checked configuration of a peer. Every field is a key of the same name; [`KEYS`] has their bounds.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Config {
            $($(#[doc = $doc])+ pub $field: $ty,)+
            /// Where each value comes from, in the order of [`KEYS`].
            pub(super) sources: Vec<super::ValueSource>,
        }

        impl Config {
            /// Nothing said: every key at its default.
            pub fn defaults(here: &HostDefaults) -> Config {
                Config {
                    $($field: $kind.parse($default, here).expect("the default of a key is a value of it"),)+
                    sources: vec![super::ValueSource::Default; KEYS.len()],
                }
            }
        }
    };
}

keys! {
    /// The name of the peer, for people.
    "name" name: PeerName = "auto", PeerNameFormat, "A.test";
    /// Who may take part. Only `open` is there: anyone on the network, with a check against damage, none against forgery.
    "mode" mode: Mode = "open", MODE, "open";
    /// The multicast address of the group, IPv4 or IPv6.
    "group" group: IpAddr = "239.255.83.67", GroupFormat, "239.1.2.3";
    /// The UDP port of the group; also the number of the group in every datagram.
    "port" port: u16 = "7500", NumberFormat { min: 1, max: 65_535 }, "7501";
    /// The interface on which the group is joined. `lo` stays on this host.
    "interface" interface: Spec = "lo", InterfaceFormat, "auto";
    /// The UDP port on which other peers reach this one directly; 0 takes any free one.
    "inbox-port" inbox_port: u16 = "0", NumberFormat { min: 0, max: 65_535 }, "7601";
    /// How many routers a multicast datagram may pass, plus one; 1 stays on the LAN, 0 on the host.
    "ttl" ttl: u8 = "1", NumberFormat { min: 0, max: 255 }, "4";
    /// The Unix socket through which local programs reach the peer.
    "socket" socket: PathBuf = "auto", SocketPathFormat, "/run/seqcast/seqcast.sock";
    /// The longest interval between heartbeats. A peer is silent after 3.5 times the interval that it announces.
    "heartbeat" heartbeat: Duration = "1 sec", DurationFormat { min: ms(100), max: ms(60_000), why: "" }, "500 ms";
    /// How long a missing datagram is asked for, while its publisher is heard, before its loss is told. Up to 5 ms
    /// nothing is asked for: it may only come late.
    "reliability" reliability: Duration = "2 sec", DurationFormat { min: ms(1), max: ms(60_000), why: "" }, "500 ms";
    /// What subscriptions get that do not say it themselves: `repair` waits for what is missing, `live` goes on.
    "delivery" delivery: DeliveryMode = "repair", DELIVERY, "live";
    /// Bytes of datagrams sent that are kept, so that others can ask for them again.
    "resend-size" resend_size: usize = "64 mb", SizeFormat { min: 64 * KB, max: 2 * GB }, "256 mb";
    /// How long a datagram sent is kept; what it held is remembered ten times as long.
    "resend-time" resend_time: Duration = "30 sec", DurationFormat { min: ms(1_000), max: DAY, why: "" }, "60 sec";
    /// Bytes a second that resends may take, or a quarter of what is sent anyway if that is more.
    "resend-rate" resend_rate: usize = "8 mb", SizeFormat { min: 64 * KB, max: 2 * GB }, "32 mb";
    /// How fast to publish: `auto` as fast as the receivers can take it, `off` as fast as the system takes it, or like `auto`
    /// and at most so many bytes a second.
    "pace" pace: Pace = "auto", PaceFormat { rate: SizeFormat { min: 64 * KB, max: 100 * GB } }, "50 mb";
    /// Bytes a second below which no receiver slows this peer down: it is left behind.
    "pace-floor" pace_floor: usize = "1 mb", SizeFormat { min: 0, max: 100 * GB }, "10 mb";
    /// Whether messages that no program on another peer subscribes to stay at this one: `on` spares the LAN what nobody wants.
    /// Then the history holds only what was sent. Set it alike on all peers.
    "interest" interest: bool = "off", ON_OFF, "on";
    /// How many messages of each subject are kept for polls and late joiners; 0 keeps none.
    "history-count" history_count: usize = "1000", HISTORY_COUNT, "10";
    /// Bytes of messages of each subject that are kept.
    "history-subject-size" history_subject_size: usize = "1 mb", HISTORY_SUBJECT_SIZE, "64 kb";
    /// How long a message is kept.
    "history-time" history_time: Duration = "1 hour", HISTORY_TIME, "5 min";
    /// Other bounds of that for some subjects. The first rule whose pattern matches holds.
    "history-rules" history_rules: Vec<HistoryOverride> = "none", HISTORY_RULES, "plant.> count 10 time 5 min";
    /// Bytes of all messages that are kept together.
    "history-size" history_size: usize = "64 mb", SizeFormat { min: 64 * KB, max: 2 * GB }, "256 mb";
    /// How long the peer looks for something to do before it sleeps until something comes: it is there sooner then, and takes
    /// up to a whole processor for it.
    "busy-poll" busy_poll: Duration = "0 sec", DurationFormat { min: ms(0), max: DAY, why: "" }, "100 us";
    /// How long a peer that is asked to stop stays at most, while others still ask for what they miss of it.
    "linger" linger: Duration = "2 sec", DurationFormat { min: ms(0), max: ms(60_000), why: "" }, "500 ms";
    /// How long a peer that fell silent is remembered before it is given up.
    "forget" forget: Duration = "60 sec", DurationFormat { min: ms(1_000), max: DAY, why: "" }, "5 min";
    /// The size beyond which the window of published subjects rotates, once its time has passed too.
    "pub-window-size" pub_window_size: usize = "4 mb", SizeFormat { min: KB, max: 2 * GB }, "10 mb";
    /// The least time that an idle published subject stays in the window.
    "pub-window-time" pub_window_time: Duration =
        "10 sec", DurationFormat { min: ms(10_000), max: DAY, why: PUB_WINDOW_TIME_WHY }, "60 sec";
    /// The hard limit of the window of published subjects; beyond it new subjects are not numbered one by one.
    "pub-window-max" pub_window_max: usize = "64 mb", SizeFormat { min: KB, max: 2 * GB }, "128 mb";
    /// The size beyond which the window of subscribed subjects rotates, once its time has passed too.
    "sub-window-size" sub_window_size: usize = "4 mb", SizeFormat { min: KB, max: 2 * GB }, "10 mb";
    /// The least time that an idle subscribed subject stays in the window.
    "sub-window-time" sub_window_time: Duration = "10 sec", DurationFormat { min: ms(1_000), max: DAY, why: "" }, "60 sec";
    /// The hard limit of the window of subscribed subjects; beyond it new subjects are not followed one by one.
    "sub-window-max" sub_window_max: usize = "64 mb", SizeFormat { min: KB, max: 2 * GB }, "128 mb";
    /// The largest message that can be published: payload, headers and reply subject together.
    "message-size" message_size: usize = "8 mb", SizeFormat { min: 1, max: MESSAGE_BYTES_MAX }, "1 mb";
    /// The largest datagram that is sent; `auto` is what the MTU of the interface carries, at most 8972 bytes.
    "datagram-size" datagram_size: DatagramSize =
        "auto", DatagramSizeFormat { size: SizeFormat { min: 576, max: 65_507 } }, "1400 bytes";
    /// The wanted receive buffer of each socket; the system may grant less, and then a warning names the remedy.
    "receive-buffer" receive_buffer: usize = "4 mb", SizeFormat { min: 4 * KB, max: GB }, "16 mb";
    /// The wanted send buffer of each socket.
    "send-buffer" send_buffer: usize = "1 mb", SizeFormat { min: 4 * KB, max: GB }, "4 mb";
    /// Bytes of messages that wait for an earlier datagram, over all publishers; beyond it the oldest gap is settled.
    "hold-size" hold_size: usize = "64 mb", SizeFormat { min: 64 * KB, max: 2 * GB }, "128 mb";
    /// Bytes of large messages that are still incomplete, for each publisher.
    "reassembly-size" reassembly_size: usize = "64 mb", SizeFormat { min: 64 * KB, max: 2 * GB }, "128 mb";
    /// Ranges of missing datagrams that are followed, for each publisher; beyond it the oldest is settled.
    "gaps-max" gaps_max: usize = "8192", NumberFormat { min: 16, max: 1_048_576 }, "1024";
    /// Other peers that are followed.
    "peers-max" peers_max: usize = "1024", NumberFormat { min: 1, max: 65_536 }, "64";
    /// What programs on other peers subscribe to, as many different things of all peers together, and a quarter of that of the
    /// peers at one IP address; a peer beyond it counts as not known.
    "interest-max" interest_max: usize = "1000000", NumberFormat { min: 1, max: 100_000_000 }, "50000";
    /// Local programs attached at one time.
    "client-max" client_max: usize = "256", NumberFormat { min: 1, max: 65_536 }, "16";
    /// Bytes that wait for a local program that does not read; beyond it that program loses messages, and is told.
    "client-queue-size" client_queue_size: usize = "16 mb", SizeFormat { min: 64 * KB, max: 2 * GB }, "64 mb";
    /// Messages that wait for a local program that does not read.
    "client-queue-count" client_queue_count: usize = "1000000", NumberFormat { min: 1, max: 100_000_000 }, "1000";
    /// Subscriptions of all local programs together.
    "subscriptions-max" subscriptions_max: usize = "1000000", NumberFormat { min: 1, max: 100_000_000 }, "200000";
    /// Subscriptions of one local program.
    "client-subscriptions-max" client_subscriptions_max: usize =
        "100000", NumberFormat { min: 1, max: 100_000_000 }, "1000";
    /// Subjects whose matching subscriptions are remembered.
    "match-cache" match_cache: usize = "65536", NumberFormat { min: 1, max: 100_000_000 }, "1000";
    /// The number that the ids of events registered at this peer begin with; each peer of a LAN needs one of its own.
    "server-id" server_id: Option<ServerId> = "auto", ServerIdFormat, "7";
    /// The directory of what the peer keeps: the journal of events. It is made when the first event is registered or asked for.
    "data-dir" data_dir: PathBuf = "auto", DataDirFormat, "/var/lib/seqcast";
    /// How long events are kept in the journal: `all` of them for ever, or rules. An event belongs to the first rule whose pattern
    /// matches; what is said there limits all events that belong to it together.
    "event-retention" event_retention: Retention = "all", RetentionFormat, "plant/* count 1000 time 30 days";
    /// Types of events of other peers that are stored here too: as they come, and what was missed from the journal of the peer that
    /// registered them. So this peer can answer for those. `*` is all types.
    "event-follow" event_follow: Vec<TypePattern> = "none", EventTypesFormat, "plant/* ; line/?/alarm";
    /// Where NATS clients connect: `off`, `on` (127.0.0.1:4222), a port, an address, or both.
    "nats" nats: Option<SocketAddr> = "off", ListenAddressFormat { port: 4222 }, "on";
    /// Whether the NATS listener may listen beyond this host without accounts, so that anyone who reaches it can use it.
    "nats-open" nats_open: bool = "no", YES_NO, "yes";
    /// Certificates and key with which NATS clients connect encrypted; they must, unless `optional` stands behind them.
    "nats-tls" nats_tls: Option<TlsFiles> = "none", TlsFilesFormat, "cert.pem key.pem";
    /// Whether every message carries headers with what the bus knows about it, for clients that take headers: publisher,
    /// seq, what was lost before it. For some clients only: the word `headers` in their account.
    "nats-headers" nats_headers: bool = "no", YES_NO, "yes";
    /// Where Redis clients connect: `off`, `on` (127.0.0.1:6379), a port, an address, or both.
    "redis" redis: Option<SocketAddr> = "off", ListenAddressFormat { port: 6379 }, "on";
    /// Whether the Redis listener may listen beyond this host without accounts, so that anyone who reaches it can use it.
    "redis-open" redis_open: bool = "no", YES_NO, "yes";
    /// Certificates and key with which Redis clients connect encrypted; they must, unless `optional` stands behind them.
    "redis-tls" redis_tls: Option<TlsFiles> = "none", TlsFilesFormat, "cert.pem key.pem";
    /// Where clients of Hat Event Server connect: `off`, `on` (127.0.0.1:23012), a port, an address, or both.
    "hat" hat: Option<SocketAddr> = "off", ListenAddressFormat { port: 23012 }, "on";
    /// Whether the Hat listener may listen beyond this host without accounts, so that anyone who reaches it can use it.
    "hat-open" hat_open: bool = "no", YES_NO, "yes";
    /// Certificates and key with which Hat clients connect encrypted; they must, unless `optional` stands behind them.
    "hat-tls" hat_tls: Option<TlsFiles> = "none", TlsFilesFormat, "cert.pem key.pem";
    /// Whether events tell that the Hat listener opens, and that clients of it come and go, as Hat Event Server does.
    "hat-events" hat_events: bool = "yes", YES_NO, "no";
    /// Where clients of FutoIn event streams (FTN18) connect, by HTTP or WebSocket: `off`, `on` (127.0.0.1:8181), a port, an address, or both.
    "ftn18" ftn18: Option<SocketAddr> = "off", ListenAddressFormat { port: 8181 }, "on";
    /// Whether the FTN18 listener may listen beyond this host without accounts, so that anyone who reaches it can use it.
    "ftn18-open" ftn18_open: bool = "no", YES_NO, "yes";
    /// Certificates and key with which FTN18 clients connect encrypted; they must, unless `optional` stands behind them.
    "ftn18-tls" ftn18_tls: Option<TlsFiles> = "none", TlsFilesFormat, "cert.pem key.pem";
    /// Whether what comes to the FTN18 listener from beyond this host counts as secure, since something before it encrypts: events are added over
    /// secure channels only.
    "ftn18-trusted" ftn18_trusted: bool = "no", YES_NO, "yes";
    /// The event streams that the FTN18 listener serves: of each its name, patterns of event types if more stands in it than what is added to it,
    /// and how much is kept for consumers that do not accept it. The first one is meant where a path names none.
    "streams" streams: Vec<StreamSettings> = "main", StreamsFormat, "main ; plant line/?/ALARM time 7 days size 1 gb policy block";
    /// Where streams are stored: `auto` in `streams.db` in `data-dir`, in another SQLite file, which may be an application's own, or in a PostgreSQL
    /// database, which several peers can share.
    "stream-store" stream_store: StreamStoreLocation = "auto", StreamStoreFormat, "postgres://seqcast:s3cret@db.example/plant";
    /// How long an event waits for others at most before it is pushed to a consumer that has groups to accept.
    "stream-delay" stream_delay: Duration = "10 ms", DurationFormat { min: Duration::ZERO, max: Duration::from_secs(60), why: "" }, "50 ms";
    /// Groups of events that are pushed to a consumer and not accepted yet, at most.
    "stream-groups" stream_groups: usize = "4", NumberFormat { min: 1, max: 64 }, "1";
    /// Who may use the listeners: users with passwords, tokens, nkeys. Without any, everyone may.
    "accounts" accounts: Vec<Account> = "none", AccountsFormat, "user alice password s3cret";
    /// Clients of all listeners together.
    "listener-client-max" listener_client_max: usize = "65536", NumberFormat { min: 1, max: 1_048_576 }, "1000";
    /// Of these, clients that have not said yet who they are.
    "listener-unauthenticated-max" listener_unauthenticated_max: usize = "1024", NumberFormat { min: 1, max: 65_536 }, "64";
    /// Bytes that the clients of all listeners hold together: what they have sent and not ended, and what waits to be written to them.
    /// Beyond it the client that holds most is closed.
    "listener-memory" listener_memory: usize = "1 gb", SizeFormat { min: MB, max: 1024 * GB }, "256 mb";
    /// What becomes of a client of a listener that does not read fast enough: `tell` drops messages and tells it how many,
    /// `close` closes its connection, as NATS and Redis servers do.
    "slow-client" slow_client: SlowClient = "tell", SLOW_CLIENT, "close";
    /// Subjects named in one advisory of loss; the others are counted.
    "advisory-subjects" advisory_subjects: usize = "64", NumberFormat { min: 1, max: 1024 }, "16";
    /// The least severe events that are logged.
    "log-level" log_level: LogLevel = "info", LOG_LEVEL, "debug";
    /// Text for people, or one JSON object a line.
    "log-format" log_format: LogFormat = "text", LOG_FORMAT, "json";
    /// The file that log lines are appended to; SIGHUP has it opened anew.
    "log-file" log_file: Option<PathBuf> = "none", FilePathFormat, "seqcast.log";
}
