//! Every key: its name, type, default, bounds and meaning, each in this one place.

use super::choice::{
    CIPHER, Cipher, DELIVERY, HTTP_PUBLISH, HttpPublish, LOG_FORMAT, LOG_LEVEL, LogFormat, LogLevel, ON_OFF, ORIGIN,
    ORIGIN_CHECK, OriginCheck, OriginProof, SECURITY, SLOW_CLIENT, Security, SlowClient, YES_NO,
};
use super::error::ValueSource;
use super::events::{DataDirFormat, EventTypesFormat, RetentionFormat, ServerIdFormat};
use super::host_defaults::HostDefaults;
use super::interface::InterfaceSpec;
use super::links::{HubAddress, HubsFormat, LinkPatternsFormat, SiteFormat, StreamNameFormat};
use super::listeners::{AccountsFormat, ListenAddressFormat, TlsFiles, TlsFilesFormat, TlsFirst, TlsFirstFormat};
use super::local_socket::{SharedMemoryFormat, SocketGroupFormat, SocketModeFormat};
use super::network::{DatagramSize, DatagramSizeFormat, GroupFormat, InterfaceFormat, PeerNameFormat, PeersFormat};
use super::origins::OriginsFormat;
use super::path::{FilePathFormat, SocketPathFormat};
use super::quantity::{DurationFormat, HistoryCountFormat, NumberFormat, PaceFormat, SizeFormat};
use super::rules::{HistoryOverride, HistoryRulesFormat};
use super::spelling::nearest;
use super::stream_store::{StreamStoreFormat, StreamStoreLocation};
use super::streams::StreamsFormat;
use super::value_error::ValueError;
use super::value_format::ValueFormat;
use crate::event::model::ServerId;
use crate::event::store::retention::Retention;
use crate::event::stream::store::StreamSettings;
use crate::link::site_name::SiteName;
use crate::listener::access::Account;
use crate::message::{DeliveryMode, MESSAGE_BYTES_MAX, PeerName};
use crate::proto::pace::Pace;
use crate::subject::event_type::TypePattern;
use crate::subject::pattern_set::PatternSet;
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

/// R11: a publisher may evict a subject only after every receiver had time to notice that something is missing.
const PUB_WINDOW_TIME_REASON: &str = "evicting a subject earlier could hide a loss (seed 002 requires 10 sec)";

const HISTORY_COUNT: HistoryCountFormat = HistoryCountFormat { max: 100_000_000 };
const HISTORY_SUBJECT_SIZE: SizeFormat = SizeFormat { min: KB, max: 2 * GB };
const HISTORY_TIME: DurationFormat =
    DurationFormat { min: ms(1_000), max: Duration::from_secs(365 * 86_400), reason: "" };
const HISTORY_RULES: HistoryRulesFormat<HistoryCountFormat, SizeFormat, DurationFormat> =
    HistoryRulesFormat { count: HISTORY_COUNT, size: HISTORY_SUBJECT_SIZE, time: HISTORY_TIME };

/// Description of a key.
pub struct Key {
    /// Name as in the file, with hyphens.
    pub name: &'static str,
    /// Purpose of the key.
    pub meaning: &'static str,
    /// Default value, as text.
    pub default: &'static str,
    /// Returns the allowed values.
    pub range: fn() -> String,
    /// A value other than the default.
    pub example: &'static str,
    pub(super) put: fn(&mut Config, &str, &HostDefaults) -> Result<(), ValueError>,
    pub(super) value: fn(&Config) -> String,
    pub(super) is_equal: fn(&Config, &Config) -> bool,
    /// Sets the value of the first configuration to that of the second.
    pub(super) copy: fn(&mut Config, &Config),
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
            put: |config, text, defaults| {
                config.$field = $kind.parse(text, defaults)?;
                Ok(())
            },
            value: |config| $kind.show(&config.$field),
            is_equal: |a, b| a.$field == b.$field,
            copy: |to, from| to.$field.clone_from(&from.$field),
            is_list: || $kind.is_list(),
        }),+];

        /// The checked configuration of a peer. Every field is a key of the same name; [`KEYS`] has their bounds.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Config {
            $($(#[doc = $doc])+ pub $field: $ty,)+
            /// Source of each value, in the order of [`KEYS`].
            pub(super) sources: Vec<ValueSource>,
        }

        impl Config {
            /// Returns the configuration in which every key has its default.
            pub fn defaults(defaults: &HostDefaults) -> Config {
                Config {
                    $($field: $kind.parse($default, defaults).expect("the default of a key is a value of it"),)+
                    sources: vec![ValueSource::Default; KEYS.len()],
                }
            }
        }
    };
}

keys! {
    /// The name of the peer, for people. On a host with a realm it is the name of the certificate.
    "name" name: PeerName = "auto", PeerNameFormat, "A.test";
    /// Admission of other peers. With `realm` or `pki` datagrams are sealed, and only members of the realm of that mode
    /// that `seqcast init` or `seqcast join` has made are admitted. With `open` any peer on the network is. `auto` is
    /// the mode of the host's realm. If it has none, `auto` is `open` on the loopback interface; elsewhere the peer does not
    /// start.
    "security" security: Security = "auto", SECURITY, "open";
    /// Cipher of the datagrams that a keyed peer sends. `auto` takes the one that is faster on the processor.
    "cipher" cipher: Cipher = "auto", CIPHER, "aes-256-gcm";
    /// Proof, for other members of the realm, that this peer has published a message. With `group` it is the key of the
    /// group, so another member could forge it. With `signed` a keyed peer also signs what it publishes, every 20 ms.
    "origin" origin: OriginProof = "group", ORIGIN, "signed";
    /// Treatment of messages of other peers that sign what they publish. `report` delivers them at once, and reports those
    /// that turn out to be forged. `hold` delivers them once their signature is verified, usually within 20 ms.
    "origin-check" origin_check: OriginCheck = "report", ORIGIN_CHECK, "hold";
    /// The file to which a keyed peer appends the secrets of the datagrams that it sends and receives, for `decode
    /// --keys`. Whoever reads the file can read the messages of these epochs.
    "key-log" key_log: Option<PathBuf> = "none", FilePathFormat, "seqcast-keys.log";
    /// The multicast address of the group, IPv4 or IPv6.
    "group" group: IpAddr = "239.255.83.67", GroupFormat, "239.1.2.3";
    /// The UDP port of the group; also the number of the group in every datagram.
    "port" port: u16 = "7500", NumberFormat { min: 1, max: 65_535 }, "7501";
    /// The interface on which the group is joined. `lo` stays on this host.
    "interface" interface: InterfaceSpec = "lo", InterfaceFormat, "auto";
    /// The UDP port of this peer's unicast socket; 0 takes any free one.
    "inbox-port" inbox_port: u16 = "0", NumberFormat { min: 0, max: 65_535 }, "7601";
    /// Maximum number of routers that a multicast datagram may pass, plus one; 1 stays on the LAN, 0 on the host.
    "ttl" ttl: u8 = "1", NumberFormat { min: 0, max: 255 }, "4";
    /// Hosts to which everything is sent by unicast instead of by multicast, for a network without multicast. One peer
    /// of each host gets it. Every host needs the others in its list; its own address is skipped.
    "peers" peers: Vec<IpAddr> = "none", PeersFormat, "10.0.0.7, 10.0.0.8";
    /// True if the peer announces its group to peers of other groups on the LAN, at most once a minute, and reports
    /// those that it hears. So a wrong group or port on one host is noticed.
    "beacon" beacon: bool = "on", ON_OFF, "off";
    /// True if the peer answers `doctor --with` of other hosts, which tests the path to this one. Answers are never
    /// longer than what they answer, and go to proven addresses only.
    "path-tests" path_tests: bool = "on", ON_OFF, "off";
    /// The Unix socket through which local programs reach the peer.
    "socket" socket: PathBuf = "auto", SocketPathFormat, "/run/seqcast/seqcast.sock";
    /// Mode of the Unix socket: the users that may connect.
    "socket-mode" socket_mode: u32 = "0660", SocketModeFormat, "0600";
    /// Group of the Unix socket; `none` leaves it to the system, which takes the main group of the peer's user.
    "socket-group" socket_group: Option<String> = "none", SocketGroupFormat, "seqcast";
    /// Maximum interval between heartbeats. A peer is silent after 3.5 times the interval that it announces.
    "heartbeat" heartbeat: Duration = "1 sec", DurationFormat { min: ms(100), max: ms(60_000), reason: "" }, "500 ms";
    /// Time for which a missing datagram is requested, while its publisher is live, before its loss is reported. Up to
    /// 5 ms nothing is requested: the datagram may only be late.
    "reliability" reliability: Duration = "2 sec", DurationFormat { min: ms(1), max: ms(60_000), reason: "" }, "500 ms";
    /// Default delivery of subscriptions that do not select one: `repair` waits for missing messages, `live` delivers
    /// later ones at once.
    "delivery" delivery: DeliveryMode = "repair", DELIVERY, "live";
    /// Bytes of sent datagrams that are buffered for retransmission.
    "resend-size" resend_size: usize = "64 mb", SizeFormat { min: 64 * KB, max: 2 * GB }, "256 mb";
    /// Time for which a sent datagram is buffered; its contents are remembered ten times as long.
    "resend-time" resend_time: Duration = "30 sec", DurationFormat { min: ms(1_000), max: DAY, reason: "" }, "60 sec";
    /// Bytes a second for retransmissions, or a quarter of the other sent bytes if that is more.
    "resend-rate" resend_rate: usize = "8 mb", SizeFormat { min: 64 * KB, max: 2 * GB }, "32 mb";
    /// Publish rate: `auto` as fast as the receivers can accept, `off` as fast as the system accepts. A size limits
    /// `auto` to that number of bytes a second.
    "pace" pace: Pace = "auto", PaceFormat { rate: SizeFormat { min: 64 * KB, max: 100 * GB } }, "50 mb";
    /// Minimum rate in bytes a second: a slower receiver is excluded from flow control.
    "pace-floor" pace_floor: usize = "1 mb", SizeFormat { min: 0, max: 100 * GB }, "10 mb";
    /// True if messages that no program on another peer subscribes to are suppressed: they stay at this peer. Then the
    /// history holds only sent messages. Set it alike on all peers.
    "interest" interest: bool = "off", ON_OFF, "on";
    /// Number of messages of each subject that are retained for polls and late joiners; 0 retains none.
    "history-count" history_count: usize = "1000", HISTORY_COUNT, "10";
    /// Bytes of retained messages of each subject.
    "history-subject-size" history_subject_size: usize = "1 mb", HISTORY_SUBJECT_SIZE, "64 kb";
    /// Retention time of a message.
    "history-time" history_time: Duration = "1 hour", HISTORY_TIME, "5 min";
    /// Other history limits for some subjects. The first rule whose pattern matches applies.
    "history-rules" history_rules: Vec<HistoryOverride> = "none", HISTORY_RULES, "plant.> count 10 time 5 min";
    /// Bytes of all retained messages together.
    "history-size" history_size: usize = "64 mb", SizeFormat { min: 64 * KB, max: 2 * GB }, "256 mb";
    /// Time for which the peer polls for work before it sleeps until an event wakes it. Polling lowers the latency,
    /// and takes up to a whole processor.
    "busy-poll" busy_poll: Duration = "0 sec", DurationFormat { min: ms(0), max: DAY, reason: "" }, "100 us";
    /// Maximum time that a stopping peer stays, while others still request its messages.
    "linger" linger: Duration = "2 sec", DurationFormat { min: ms(0), max: ms(60_000), reason: "" }, "500 ms";
    /// Time after which a silent peer expires.
    "forget" forget: Duration = "60 sec", DurationFormat { min: ms(1_000), max: DAY, reason: "" }, "5 min";
    /// The size beyond which the window of published subjects rotates, once its time has passed too.
    "pub-window-size" pub_window_size: usize = "4 mb", SizeFormat { min: KB, max: 2 * GB }, "10 mb";
    /// Minimum time that an idle published subject stays in the window.
    "pub-window-time" pub_window_time: Duration =
        "10 sec", DurationFormat { min: ms(10_000), max: DAY, reason: PUB_WINDOW_TIME_REASON }, "60 sec";
    /// The hard limit of the window of published subjects; beyond it new subjects are not numbered one by one.
    "pub-window-max" pub_window_max: usize = "64 mb", SizeFormat { min: KB, max: 2 * GB }, "128 mb";
    /// The size beyond which the window of subscribed subjects rotates, once its time has passed too.
    "sub-window-size" sub_window_size: usize = "4 mb", SizeFormat { min: KB, max: 2 * GB }, "10 mb";
    /// Minimum time that an idle subscribed subject stays in the window.
    "sub-window-time" sub_window_time: Duration =
        "10 sec", DurationFormat { min: ms(1_000), max: DAY, reason: "" }, "60 sec";
    /// The hard limit of the window of subscribed subjects; beyond it new subjects are not tracked one by one.
    "sub-window-max" sub_window_max: usize = "64 mb", SizeFormat { min: KB, max: 2 * GB }, "128 mb";
    /// Maximum size of a published message: payload, headers and reply subject together.
    "message-size" message_size: usize = "8 mb", SizeFormat { min: 1, max: MESSAGE_BYTES_MAX }, "1 mb";
    /// Maximum size of a sent datagram; `auto` is the payload that the MTU of the interface carries, at most 8972
    /// bytes, or 32600 if it carries 65000, as loopback does.
    "datagram-size" datagram_size: DatagramSize =
        "auto", DatagramSizeFormat { size: SizeFormat { min: 576, max: 65_507 } }, "1400 bytes";
    /// The wanted receive buffer of each socket; the system may grant less, and then a warning names the remedy.
    "receive-buffer" receive_buffer: usize = "4 mb", SizeFormat { min: 4 * KB, max: GB }, "16 mb";
    /// The wanted send buffer of each socket.
    "send-buffer" send_buffer: usize = "1 mb", SizeFormat { min: 4 * KB, max: GB }, "4 mb";
    /// Bytes of messages that wait for an earlier datagram, over all publishers; beyond it the oldest gap is settled.
    "hold-size" hold_size: usize = "64 mb", SizeFormat { min: 64 * KB, max: 2 * GB }, "128 mb";
    /// Bytes of incomplete large messages, for each publisher.
    "reassembly-size" reassembly_size: usize = "64 mb", SizeFormat { min: 64 * KB, max: 2 * GB }, "128 mb";
    /// Maximum number of tracked ranges of missing datagrams, for each publisher; beyond it the oldest is settled.
    "gaps-max" gaps_max: usize = "8192", NumberFormat { min: 16, max: 1_048_576 }, "1024";
    /// Maximum number of tracked other peers.
    "peers-max" peers_max: usize = "1024", NumberFormat { min: 1, max: 65_536 }, "64";
    /// Maximum number of distinct subscriptions of programs on other peers: of all peers together, and a quarter of
    /// that for the peers at one IP address. A peer beyond it counts as not known.
    "interest-max" interest_max: usize = "1000000", NumberFormat { min: 1, max: 100_000_000 }, "50000";
    /// Maximum number of attached local programs.
    "client-max" client_max: usize = "256", NumberFormat { min: 1, max: 65_536 }, "16";
    /// Bytes queued for a local program that does not read; beyond it that program loses messages, and gets a report.
    "client-queue-size" client_queue_size: usize = "16 mb", SizeFormat { min: 64 * KB, max: 2 * GB }, "64 mb";
    /// Number of messages queued for a local program that does not read.
    "client-queue-count" client_queue_count: usize = "1000000", NumberFormat { min: 1, max: 100_000_000 }, "1000";
    /// Bytes of the memory that the peer shares with each attached local program, for the messages of both directions;
    /// `off`: messages use the socket.
    "shared-memory" shared_memory: Option<usize> =
        "1 mb", SharedMemoryFormat { size: SizeFormat { min: 64 * KB, max: 16 * MB } }, "off";
    /// Maximum bytes of the memory that the peer shares with all connected local programs together; further ones use
    /// the socket.
    "shared-memory-max" shared_memory_max: usize = "256 mb", SizeFormat { min: 64 * KB, max: 2 * GB }, "64 mb";
    /// Maximum number of subscriptions of all local programs together.
    "subscriptions-max" subscriptions_max: usize = "1000000", NumberFormat { min: 1, max: 100_000_000 }, "200000";
    /// Maximum number of subscriptions of one local program.
    "client-subscriptions-max" client_subscriptions_max: usize =
        "100000", NumberFormat { min: 1, max: 100_000_000 }, "1000";
    /// Number of subjects whose matching subscriptions are cached.
    "match-cache" match_cache: usize = "65536", NumberFormat { min: 1, max: 100_000_000 }, "1000";
    /// The number with which the ids of events registered at this peer begin; each peer of a LAN needs a different
    /// one.
    "server-id" server_id: Option<ServerId> = "auto", ServerIdFormat, "7";
    /// Data directory of the peer, with the journal of events. It is created when the first event is registered or
    /// requested.
    "data-dir" data_dir: PathBuf = "auto", DataDirFormat, "/var/lib/seqcast";
    /// Retention of events in the journal: `all` of them forever, or rules. An event belongs to the first rule whose
    /// pattern matches. The limits of a rule apply to all its events together.
    "event-retention" event_retention: Retention = "all", RetentionFormat, "plant/* count 1000 time 30 days";
    /// Types of other peers' events that are stored here too: as they arrive, and missed ones from the journal of the
    /// peer that registered them. So this peer can answer queries for them. `*` is all types.
    "event-follow" event_follow: Vec<TypePattern> = "none", EventTypesFormat, "plant/* ; line/?/alarm";
    /// Name of this LAN among the sites that a cluster joins; every gateway of the LAN has the same.
    "site" site: Option<SiteName> = "none", SiteFormat, "plant1";
    /// Servers of the NATS cluster that joins this site with others. A peer with this key is a gateway of its LAN.
    "link" link: Vec<HubAddress> = "none", HubsFormat, "nats://hub1:4222, nats://hub2:4222";
    /// File with the credentials for the cluster: a `.creds` file of NATS, the seed of a user's nkey, or a line
    /// `user NAME password WORD`.
    "link-credentials" link_credentials: Option<PathBuf> = "none", FilePathFormat, "link.creds";
    /// File with the authorities of the cluster's certificates. Connections are then always encrypted. Without it the
    /// authorities of the system count.
    "link-tls-ca" link_tls_ca: Option<PathBuf> = "none", FilePathFormat, "hub-ca.pem";
    /// Subjects whose messages leave this site: at most once, and every loss is counted.
    "link-live" link_live: PatternSet = "none", LinkPatternsFormat, "plant.> ; line.*.alarm";
    /// Subjects whose messages leave this site and outlast an outage: the cluster stores them in its stream (JetStream).
    "link-durable" link_durable: PatternSet = "none", LinkPatternsFormat, "orders.>";
    /// Name of the cluster's stream with the durable messages of all sites. A gateway that exports makes it if there is
    /// none, and adds its subjects.
    "link-stream" link_stream: String = "SEQCAST", StreamNameFormat, "PLANTS";
    /// Time for which a new stream keeps messages. Sites that are away for longer miss them, and report that.
    "link-stream-time" link_stream_time: Duration =
        "7 days", DurationFormat { min: ms(1_000), max: Duration::from_secs(1000 * 86_400), reason: "" }, "1 day";
    /// Maximum size of a new stream. It removes the oldest messages first; sites that have not read them report that.
    "link-stream-size" link_stream_size: usize = "1 gb", SizeFormat { min: MB, max: 1024 * GB }, "20 gb";
    /// Number of servers of the cluster that keep a copy of a new stream.
    "link-stream-copies" link_stream_copies: usize = "1", NumberFormat { min: 1, max: 5 }, "3";
    /// Bytes of the durable messages that wait at a gateway until the cluster has stored them. Further ones are lost,
    /// and reported.
    "link-spool-size" link_spool_size: usize = "256 mb", SizeFormat { min: MB, max: 64 * GB }, "2 gb";
    /// Maximum rate in bytes per second at which a gateway delivers durable messages to its LAN, so that live messages
    /// have room while it catches up.
    "link-rate" link_rate: usize = "32 mb", SizeFormat { min: 64 * KB, max: 100 * GB }, "4 mb";
    /// Subjects whose messages this site takes from others.
    "link-import" link_import: PatternSet = "none", LinkPatternsFormat, "hq.>";
    /// Subjects whose messages this site takes from clients of the cluster in a realm, as far as `link-import` names them.
    /// Such messages have no signature.
    "link-import-clients" link_import_clients: PatternSet = "none", LinkPatternsFormat, "erp.>";
    /// Subjects on which clients of the cluster answer the requests of this site.
    "link-services" link_services: PatternSet = "none", LinkPatternsFormat, "erp.>";
    /// Types of events that followers in other sites may store. Events that an outage has delayed come later.
    "link-events" link_events: Vec<TypePattern> = "none", EventTypesFormat, "plant/* ; line/?/alarm";
    /// Types of events of other sites that followers in this site (`event-follow`) may store.
    "link-events-import" link_events_import: Vec<TypePattern> = "none", EventTypesFormat, "hq/*";
    /// Address for NATS clients: `off`, `on` (127.0.0.1:4222), a port, an address, or both.
    "nats" nats: Option<SocketAddr> = "off", ListenAddressFormat { port: 4222 }, "on";
    /// True if the NATS listener may listen beyond this host without accounts, so that anyone who reaches it can use
    /// it.
    "nats-open" nats_open: bool = "no", YES_NO, "yes";
    /// Certificates and key for encrypted connections of NATS clients; encryption is required, unless `optional`
    /// follows. With `verify` and a file of authorities, clients must present a certificate of these.
    "nats-tls" nats_tls: Option<TlsFiles> = "none", TlsFilesFormat, "cert.pem key.pem";
    /// Order of the TLS handshake and INFO for NATS clients: `no` sends INFO first, unencrypted; `yes` waits for the
    /// handshake; `auto` waits for a short time, and then sends INFO.
    "nats-tls-first" nats_tls_first: TlsFirst = "no", TlsFirstFormat, "auto";
    /// True if every message carries headers with its metadata, for clients that support headers: publisher, seq, and
    /// the loss before it. For some clients only: the word `headers` in their account.
    "nats-headers" nats_headers: bool = "no", YES_NO, "yes";
    /// Address for NATS clients over WebSocket, such as browsers: `off`, `on` (127.0.0.1:9222), a port, an address, or both.
    "nats-ws" nats_ws: Option<SocketAddr> = "off", ListenAddressFormat { port: 9222 }, "on";
    /// True if the listener for WebSockets of NATS may listen beyond this host without accounts, so that anyone who
    /// reaches it can use it.
    "nats-ws-open" nats_ws_open: bool = "no", YES_NO, "yes";
    /// Certificates and key for encrypted WebSockets of NATS clients (`wss`); encryption is required, unless `optional`
    /// follows. With `verify` and a file of authorities, clients must present a certificate of these.
    "nats-ws-tls" nats_ws_tls: Option<TlsFiles> = "none", TlsFilesFormat, "cert.pem key.pem";
    /// The origins of sites whose pages may open WebSockets of NATS. Programs that are no browsers send no origin.
    "nats-ws-origins" nats_ws_origins: Vec<String> = "none", OriginsFormat, "https://panel.example http://10.0.0.9:3000";
    /// Address for Redis clients: `off`, `on` (127.0.0.1:6379), a port, an address, or both.
    "redis" redis: Option<SocketAddr> = "off", ListenAddressFormat { port: 6379 }, "on";
    /// True if the Redis listener may listen beyond this host without accounts, so that anyone who reaches it can use
    /// it.
    "redis-open" redis_open: bool = "no", YES_NO, "yes";
    /// Certificates and key for encrypted connections of Redis clients; encryption is required, unless `optional`
    /// follows. With `verify` and a file of authorities, clients must present a certificate of these.
    "redis-tls" redis_tls: Option<TlsFiles> = "none", TlsFilesFormat, "cert.pem key.pem";
    /// Address for clients of Hat Event Server: `off`, `on` (127.0.0.1:23012), a port, an address, or both.
    "hat" hat: Option<SocketAddr> = "off", ListenAddressFormat { port: 23012 }, "on";
    /// True if the Hat listener may listen beyond this host without accounts, so that anyone who reaches it can use
    /// it.
    "hat-open" hat_open: bool = "no", YES_NO, "yes";
    /// Certificates and key for encrypted connections of Hat clients; encryption is required, unless `optional`
    /// follows. With `verify` and a file of authorities, clients must present a certificate of these.
    "hat-tls" hat_tls: Option<TlsFiles> = "none", TlsFilesFormat, "cert.pem key.pem";
    /// True if events report that the Hat listener opens, and that its clients connect and disconnect, as Hat Event
    /// Server does.
    "hat-events" hat_events: bool = "yes", YES_NO, "no";
    /// Address for Rendezvous clients: `off`, `on` (127.0.0.1:7500), a port, an address, or both. Their service is the
    /// `port` of the group, and their network its address.
    "rv" rv: Option<SocketAddr> = "off", ListenAddressFormat { port: 7500 }, "on";
    /// True if the Rendezvous listener admits any client, beyond this host and despite `accounts`, since the protocol has
    /// no login. Without it, `accounts` admit clients by the names in their certificates.
    "rv-open" rv_open: bool = "no", YES_NO, "yes";
    /// Certificates and key for encrypted connections of Rendezvous clients; encryption is required, unless `optional`
    /// follows. With `verify` and a file of authorities, clients must present a certificate of these.
    "rv-tls" rv_tls: Option<TlsFiles> = "none", TlsFilesFormat, "cert.pem key.pem";
    /// Address for clients of FutoIn event streams (FTN18), by HTTP or WebSocket: `off`, `on` (127.0.0.1:8181), a
    /// port, an address, or both.
    "ftn18" ftn18: Option<SocketAddr> = "off", ListenAddressFormat { port: 8181 }, "on";
    /// True if the FTN18 listener may listen beyond this host without accounts, so that anyone who reaches it can use
    /// it.
    "ftn18-open" ftn18_open: bool = "no", YES_NO, "yes";
    /// Certificates and key for encrypted connections of FTN18 clients; encryption is required, unless `optional`
    /// follows. With `verify` and a file of authorities, clients must present a certificate of these.
    "ftn18-tls" ftn18_tls: Option<TlsFiles> = "none", TlsFilesFormat, "cert.pem key.pem";
    /// True if connections to the FTN18 listener from beyond this host count as secure, since a proxy before it
    /// encrypts. Events are added over secure channels only.
    "ftn18-trusted" ftn18_trusted: bool = "no", YES_NO, "yes";
    /// Address of the web server with the bus for scripts and browsers, a page about the peer, its health and its
    /// metrics: `off`, `on` (127.0.0.1:7580), a port, an address, or both.
    "http" http: Option<SocketAddr> = "off", ListenAddressFormat { port: 7580 }, "on";
    /// True if the web server may listen beyond this host without accounts, so that anyone who reaches it can read the
    /// reports of the peer, and messages.
    "http-open" http_open: bool = "no", YES_NO, "yes";
    /// Clients that may publish by HTTP, as far as their account permits: `auto` those with an account or a certificate,
    /// and those of this host if no accounts are configured; `yes` also all others, and the page; `no` nobody.
    "http-publish" http_publish: HttpPublish = "auto", HTTP_PUBLISH, "yes";
    /// The origins of other sites whose pages may use the bus by HTTP: `/pub`, `/sub` and `/req`.
    "http-origins" http_origins: Vec<String> = "none", OriginsFormat, "https://panel.example http://10.0.0.9:3000";
    /// Certificates and key for encrypted connections to the web server; encryption is required, unless `optional`
    /// follows. With `verify` and a file of authorities, clients must present a certificate of these.
    "http-tls" http_tls: Option<TlsFiles> = "none", TlsFilesFormat, "cert.pem key.pem";
    /// The event streams of the FTN18 listener. Each has a name, patterns of event types if it contains more than the
    /// events added to it, and its retention for consumers that do not accept. The first one is the default of paths
    /// that name none.
    "streams" streams: Vec<StreamSettings> = "main", StreamsFormat, "main ; plant line/?/ALARM time 7 days size 1 gb";
    /// Storage of streams: `auto` is `streams.db` in `data-dir`. It can be another SQLite file, which may be an
    /// application's own, or a PostgreSQL database, which several peers can share.
    "stream-store" stream_store: StreamStoreLocation = "auto", StreamStoreFormat, "postgres://seqcast:s3cret@db.example/plant";
    /// Maximum time that an event waits for others before it is pushed to a consumer with unaccepted groups.
    "stream-delay" stream_delay: Duration =
        "10 ms", DurationFormat { min: Duration::ZERO, max: Duration::from_secs(60), reason: "" }, "50 ms";
    /// Maximum number of groups of events that are pushed to a consumer and not accepted yet.
    "stream-groups" stream_groups: usize = "4", NumberFormat { min: 1, max: 64 }, "1";
    /// The accounts of the listeners: users with passwords, tokens, nkeys, names in client certificates. Without accounts
    /// every client may connect.
    "accounts" accounts: Vec<Account> = "none", AccountsFormat, "user alice password s3cret";
    /// Maximum number of clients of all listeners together.
    "listener-client-max" listener_client_max: usize = "65536", NumberFormat { min: 1, max: 1_048_576 }, "1000";
    /// Maximum number of unauthenticated clients among these.
    "listener-unauthenticated-max" listener_unauthenticated_max: usize = "1024", NumberFormat { min: 1, max: 65_536 }, "64";
    /// Maximum time of a TLS handshake of a client of the NATS, Redis, Hat or Rendezvous listener, if the client must
    /// encrypt or has begun to; and of the opening of a WebSocket.
    "tls-timeout" tls_timeout: Duration =
        "2 sec", DurationFormat { min: ms(100), max: ms(60_000), reason: "" }, "500 ms";
    /// Bytes that the clients of all listeners hold together: incomplete input and queued output. Beyond it the client
    /// that holds most is closed.
    "listener-memory" listener_memory: usize = "1 gb", SizeFormat { min: MB, max: 1024 * GB }, "256 mb";
    /// Treatment of a slow client of a listener: `tell` drops messages and reports their number, `close` closes its
    /// connection, as NATS and Redis servers do.
    "slow-client" slow_client: SlowClient = "tell", SLOW_CLIENT, "close";
    /// Maximum number of subjects named in one advisory of loss; the others are counted.
    "advisory-subjects" advisory_subjects: usize = "64", NumberFormat { min: 1, max: 1024 }, "16";
    /// True if other peers get the reports of this one (`show --at`, `ping`, `trace`).
    "remote-reports" remote_reports: bool = "yes", YES_NO, "no";
    /// Lowest severity of logged events.
    "log-level" log_level: LogLevel = "info", LOG_LEVEL, "debug";
    /// Text for people, or one JSON object a line.
    "log-format" log_format: LogFormat = "text", LOG_FORMAT, "json";
    /// The file to which log lines are appended; `none` is standard error. SIGHUP reopens the file.
    "log-file" log_file: Option<PathBuf> = "none", FilePathFormat, "seqcast.log";
}

/// Keys whose values may contain secrets. An error about such a value contains neither the value nor the flag that set
/// it.
pub(super) const SECRET_KEYS: [&str; 2] = ["accounts", "stream-store"];

/// Returns the index of a key in `KEYS`; underscores count as hyphens.
pub(super) fn find_key(name: &str) -> Option<usize> {
    let name = name.replace('_', "-");
    KEYS.iter().position(|key| key.name == name)
}

/// Renamed keys: the old name and the new one.
const RENAMED: [(&str, &str); 4] = [
    ("mode", "security"),
    ("door-client-max", "listener-client-max"),
    ("door-memory", "listener-memory"),
    ("door-stranger-max", "listener-unauthenticated-max"),
];

/// Returns the suggestion for an unknown key.
pub(super) fn suggest_key(name: &str) -> Option<String> {
    let name = name.replace('_', "-").to_ascii_lowercase();
    if let Some((_, new)) = RENAMED.iter().find(|(old, _)| *old == name) {
        return Some(format!("it was renamed: write {new}"));
    }
    Some(match nearest(&name, KEYS.iter().map(|key| key.name)) {
        Some(near) => format!("did you mean {near}?"),
        None => "'seqcast config show' lists the keys".to_owned(),
    })
}
