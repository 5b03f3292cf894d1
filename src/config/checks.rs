//! Checks of values that depend on each other.

use super::Config;
use super::InterfaceSpec;
use super::choice::Security;
use super::draft::Draft;
use super::error::{ConfigError, ConfigErrorKind, ValueSource};
use super::keys::{KEYS, find_key};
use super::listeners::{TlsClients, TlsFiles, TlsFirst};
use super::quantity::show_size;
use std::net::SocketAddr;

impl Draft {
    /// Checks the effective values together.
    pub(super) fn check(&mut self) {
        self.check_pairs();
        self.check_listener_memory();
        self.check_listeners();
        self.check_tls_first();
        self.check_addresses();
        self.check_peers();
        self.check_link();
    }

    /// Checks that a link has a name for its site, and something to carry.
    fn check_link(&mut self) {
        let keys = ["link", "site", "link-live", "link-durable", "link-import", "link-services", "link-events"];
        let keys = keys.into_iter().chain(["link-events-import"]).map(|key| find_key(key).expect("a key"));
        let link = find_key("link").expect("a key");
        if self.config.link.is_empty() || keys.into_iter().any(|index| self.refused[index]) {
            return;
        }
        if self.config.site.is_none() {
            let reason = "other sites must know whose messages these are";
            self.fail_key(link, ConfigErrorKind::Inapplicable(reason), "write site: NAME, such as plant1".to_owned());
        }
        let clients = find_key("link-import-clients").expect("a key");
        if self.config.security == Security::Open
            && !self.config.link_import_clients.patterns().is_empty()
            && !self.refused[clients]
        {
            let reason = "without a realm all messages of clients are imported";
            self.fail_key(clients, ConfigErrorKind::Inapplicable(reason), "remove the key, or join a realm".to_owned());
        }
        let patterns =
            [&self.config.link_live, &self.config.link_durable, &self.config.link_import, &self.config.link_services];
        let types = [&self.config.link_events, &self.config.link_events_import];
        if patterns.iter().all(|set| set.patterns().is_empty()) && types.iter().all(|types| types.is_empty()) {
            let suggestion =
                "write link-live or link-durable: PATTERNS to export, link-import: PATTERNS to import, or \
                              link-events: TYPES or link-events-import: TYPES for events"
                    .to_owned();
            self.fail_key(link, ConfigErrorKind::Inapplicable("nothing may cross the link"), suggestion);
        }
    }

    /// Checks each value that must not be less than the value of another key.
    fn check_pairs(&mut self) {
        const WINDOW: &str = "the hard limit cannot be below the size at which the window rotates";
        const FITS: &str = "the largest message must fit";
        const PART: &str = "the limit for one cannot be above the limit for all";
        let config = &self.config;
        let pairs = [
            ("pub-window-max", config.pub_window_max, "pub-window-size", config.pub_window_size, WINDOW),
            ("sub-window-max", config.sub_window_max, "sub-window-size", config.sub_window_size, WINDOW),
            ("hold-size", config.hold_size, "message-size", config.message_size, FITS),
            ("reassembly-size", config.reassembly_size, "message-size", config.message_size, FITS),
            ("client-queue-size", config.client_queue_size, "message-size", config.message_size, FITS),
            (
                "subscriptions-max",
                config.subscriptions_max,
                "client-subscriptions-max",
                config.client_subscriptions_max,
                PART,
            ),
        ];
        for (key, value, other, least, reason) in pairs {
            let (upper, lower) = (find_key(key).expect("a key"), find_key(other).expect("a key"));
            if least <= value || self.refused[upper] || self.refused[lower] {
                continue;
            }
            let shown = |index: usize| (KEYS[index].value)(&self.config);
            let suggestion = format!("raise {key} to {}, or lower {other}", shown(lower));
            let conflict = ConfigErrorKind::Conflict { key, value: shown(upper), other, least: shown(lower), reason };
            self.fail_key(self.changeable(upper, lower), conflict, suggestion);
        }
    }

    /// Returns the key at which an error about two keys is reported: the first one, unless it has its default. Then the
    /// user has set the second one.
    fn changeable(&self, first: usize, second: usize) -> usize {
        if self.config.sources[first] == ValueSource::Default { second } else { first }
    }

    /// Reports an error in the effective value of a key.
    fn fail_key(&mut self, index: usize, reason: ConfigErrorKind, suggestion: String) {
        self.errors.push(ConfigError {
            source: self.config.sources[index].clone(),
            key: KEYS[index].name.to_owned(),
            reason,
            suggestion: Some(suggestion),
            excerpt: self.excerpts[index].clone(),
        });
    }

    /// Checks that the maximum memory of one client of a listener fits. The client may hold a full queue, a message of
    /// the same size, and its own incomplete input in a buffer of twice that size.
    fn check_listener_memory(&mut self) {
        const PARTS: usize = 4;
        let config = &self.config;
        let least = config.client_queue_size.saturating_mul(PARTS);
        let (upper, lower) =
            (find_key("listener-memory").expect("a key"), find_key("client-queue-size").expect("a key"));
        let addresses = [config.nats, config.nats_ws, config.redis, config.hat, config.rv];
        let has_listeners = addresses.iter().any(|address| address.is_some());
        if !has_listeners || least <= config.listener_memory || self.refused[upper] || self.refused[lower] {
            return;
        }
        let (value, least) = (show_size(config.listener_memory), show_size(least));
        let suggestion = format!("raise listener-memory to {least}, or lower client-queue-size");
        let reason = "the maximum memory of one client of a listener must fit";
        let conflict = ConfigErrorKind::Conflict {
            key: "listener-memory",
            value,
            other: "four times client-queue-size",
            least,
            reason,
        };
        self.fail_key(self.changeable(upper, lower), conflict, suggestion);
    }

    /// Checks that a listener that other hosts can reach has accounts, requires certificates, or is explicitly open.
    fn check_listeners(&mut self) {
        for (key, listen, is_open) in listeners(&self.config) {
            let index = find_key(key).expect("a key");
            let Some(address) = listen.filter(|_| !is_open && !self.refused[index]) else { continue };
            // Rendezvous clients cannot log in: accounts admit none of them without certificates.
            let (has_login, has_accounts) = (key != "rv", !self.config.accounts.is_empty());
            let suggestion = match has_login {
                true => format!("write accounts: user NAME password WORD, or {key}-open: yes to admit any client"),
                false => format!("write {key}-open: yes to admit any client, or {key}-tls: CERTIFICATES KEY verify CA"),
            };
            if !has_login && has_accounts && address.ip().is_loopback() {
                let reason = "admits no client: its clients cannot log in, and accounts admit no others";
                self.fail_key(index, ConfigErrorKind::Inapplicable(reason), suggestion);
            } else if !address.ip().is_loopback() && (!has_login || !has_accounts) {
                self.fail_key(index, ConfigErrorKind::Unguarded { address }, suggestion);
            }
        }
    }

    /// Checks that the NATS listener encrypts if the TLS handshake comes first, and that no client waits for an INFO that
    /// never comes.
    fn check_tls_first(&mut self) {
        let (index, files) = (find_key("nats-tls-first").expect("a key"), find_key("nats-tls").expect("a key"));
        if self.refused[index] || self.refused[files] {
            return;
        }
        let (reason, suggestion) = match (self.config.nats_tls_first, &self.config.nats_tls) {
            (TlsFirst::Never, _) => return,
            (_, None) => ("no handshake can come first without encryption", "write nats-tls: CERTIFICATES.pem KEY.pem"),
            (TlsFirst::Always, Some(tls)) if tls.clients == TlsClients::Any => (
                "unencrypted clients, which nats-tls admits, would wait for INFO in vain",
                "write nats-tls-first: auto, or remove optional from nats-tls",
            ),
            _ => return,
        };
        self.fail_key(index, ConfigErrorKind::Inapplicable(reason), suggestion.to_owned());
    }

    /// Checks that unicast copies can be sent to the listed peers: they leave by an interface that leads to other hosts,
    /// and like the group they are IPv4 or IPv6.
    fn check_peers(&mut self) {
        self.check_peers_interface();
        let group = self.config.group;
        let other = self.config.peers.iter().find(|address| address.is_ipv4() != group.is_ipv4());
        let (index, group_index) = (find_key("peers").expect("a key"), find_key("group").expect("a key"));
        if let Some(address) = other.copied()
            && !self.refused[group_index]
        {
            let suggestion = "write addresses of the family of the group".to_owned();
            self.fail_key(index, ConfigErrorKind::OtherFamily { address, group }, suggestion);
        }
    }

    fn check_peers_interface(&mut self) {
        let (index, interface) = (find_key("peers").expect("a key"), find_key("interface").expect("a key"));
        let is_loopback = match &self.config.interface {
            InterfaceSpec::Name(name) => name == "lo",
            InterfaceSpec::Address(address) => address.is_loopback(),
            InterfaceSpec::Auto | InterfaceSpec::Subnet(_) => false,
        };
        if is_loopback && !self.config.peers.is_empty() && !self.refused[interface] {
            let suggestion = "write interface: auto, or the name of the interface that leads to these hosts".to_owned();
            let shown = (KEYS[interface].value)(&self.config);
            self.fail_key(index, ConfigErrorKind::PeersOnLoopback { interface: shown }, suggestion);
        }
    }

    /// Checks that no two listeners share an address.
    fn check_addresses(&mut self) {
        let listeners: Vec<_> =
            listeners(&self.config).into_iter().filter_map(|(key, address, _)| Some((key, address?))).collect();
        let overlap = |a: SocketAddr, b: SocketAddr| {
            let is_same = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
            is_same && a.port() == b.port() && a.port() != 0
        };
        for (index, (key, address)) in listeners.iter().enumerate() {
            if let Some((other, other_address)) = listeners[..index].iter().find(|(_, other)| overlap(*other, *address))
            {
                let reason =
                    ConfigErrorKind::AddressConflict { address: *address, other, other_address: *other_address };
                self.fail_key(find_key(key).expect("a key"), reason, "give one of the two another port".to_owned());
            }
        }
    }
}

/// Returns whether the clients of a listener must present certificates.
fn is_certified(tls: &Option<TlsFiles>) -> bool {
    tls.as_ref().is_some_and(|tls| matches!(tls.clients, TlsClients::Certified(_)))
}

/// Returns the key and the address of each listener, and whether it needs no accounts: it is explicitly open, or its
/// clients need certificates.
fn listeners(config: &Config) -> [(&'static str, Option<SocketAddr>, bool); 7] {
    [
        ("nats", config.nats, config.nats_open || is_certified(&config.nats_tls)),
        ("nats-ws", config.nats_ws, config.nats_ws_open || is_certified(&config.nats_ws_tls)),
        ("redis", config.redis, config.redis_open || is_certified(&config.redis_tls)),
        ("hat", config.hat, config.hat_open || is_certified(&config.hat_tls)),
        ("rv", config.rv, config.rv_open || is_certified(&config.rv_tls)),
        ("ftn18", config.ftn18, config.ftn18_open || is_certified(&config.ftn18_tls)),
        ("http", config.http, config.http_open || is_certified(&config.http_tls)),
    ]
}
