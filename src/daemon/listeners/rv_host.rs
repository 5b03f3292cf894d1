//! The daemon that Rendezvous clients see: it publishes the announcements of their sessions and listens.

use super::Listeners;
use super::stream::ListenerTls;
use crate::config::{Config, TlsClients, TlsFirst};
use crate::daemon::clients::ClientTransport;
use crate::daemon::engine_core::EngineCore;
use crate::daemon::mailbox::SubscriptionRequest;
use crate::daemon::subscription_queue::{Notice, QueueItem, QueueLimits, SubscriptionQueue};
use crate::listener::access::Access;
use crate::listener::refusal::RefusalReason;
use crate::listener::rv::request::RvRequest;
use crate::listener::rv::{RvHost, RvHostFacts, RvTraffic, Settings};
use crate::message::{ClientId, Delivery, Epoch, Message, Refusal, SubId, Verdict};
use crate::proto::stats::LossRow;
use crate::subject::permitted_subjects::HostPermissions;
use crate::subject::{Pattern, Subject};
use crate::time::ClockReading;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// Number of the peer as a client of its own. Clients begin at 1.
const OWN_CLIENT: ClientId = ClientId(0);
/// Name of the client that receives queries, in `show clients`.
const INBOX_NAME: &str = "rendezvous daemon";
/// Limits of the queries of one turn. Further ones are dropped and counted.
const INBOX_LIMITS: QueueLimits = QueueLimits { count_max: 1024, bytes_max: 1 << 20 };
/// Time that a Rendezvous client has to begin a TLS handshake, if it need not encrypt. Then it gets the first bytes of the
/// protocol.
const HANDSHAKE_WAIT: Duration = Duration::from_millis(50);
/// Maximum number of announcements that are published at once. Others wait for the next turn.
const MESSAGES_MAX: usize = 1024;

impl Listeners {
    /// Serves a request of a Rendezvous session.
    pub(super) fn on_rv_request(&mut self, core: &mut EngineCore, now: ClockReading, id: ClientId, request: RvRequest) {
        if let RvRequest::PublishLocal(message) = request {
            // Messages that the client has published before come first.
            core.deliver_published(now);
            return deliver_locally(core, now, message);
        }
        let Some(index) = core.clients.listener_connection(id).map(|connection| connection.listener) else { return };
        let facts = self.listeners[index].rv_facts.clone().expect("a session of Rendezvous has a Rendezvous listener");
        let host = self.rv_host.get_or_insert_with(|| RvHost::new(facts, now));
        host.on_request(now, id.0, request);
        self.update_rv_inbox(core, now);
        self.publish_rv_messages(core, now);
    }

    /// Announces the end of a client's session, if it had one.
    pub(super) fn on_rv_departure(&mut self, core: &mut EngineCore, now: ClockReading, id: ClientId) {
        if let Some(host) = &mut self.rv_host {
            host.on_departure(now, id.0);
            self.update_rv_inbox(core, now);
            self.publish_rv_messages(core, now);
        }
    }

    /// Opens the inbox with the first client, and closes it after the last one. A refused inbox is not asked for again
    /// before that.
    fn update_rv_inbox(&mut self, core: &mut EngineCore, now: ClockReading) {
        let Some(host) = &self.rv_host else { return };
        if !host.has_clients() {
            if let RvInbox::Open { client, .. } = std::mem::take(&mut self.rv_inbox) {
                core.detach(now, client);
            }
        } else if matches!(self.rv_inbox, RvInbox::Closed) {
            self.rv_inbox = RvInbox::open(core, now, host.inbox());
        }
    }

    /// Answers the queries at the inbox. Those that a full inbox has dropped have no answer.
    pub(super) fn answer_rv_queries(&mut self, core: &mut EngineCore, now: ClockReading) {
        let (Some(host), RvInbox::Open { queue, .. }) = (&mut self.rv_host, &self.rv_inbox) else { return };
        while let Ok(item) = queue.pop() {
            match item {
                QueueItem::Notice(Notice::Message(delivery)) => host.on_query(now, &delivery.message),
                QueueItem::Notice(Notice::Dropped(queries)) => host.on_unanswered(queries),
                QueueItem::Notice(_) | QueueItem::Publisher(_) => {}
            }
        }
        self.publish_rv_messages(core, now);
    }

    /// Announces the state of the host if that is due, and publishes waiting announcements.
    pub(super) fn serve_rv_host(&mut self, core: &mut EngineCore, now: ClockReading) {
        let Some(host) = &mut self.rv_host else { return };
        if host.deadline().is_some_and(|deadline| deadline <= now.instant) {
            host.on_deadline(now, traffic(core));
        }
        self.publish_rv_messages(core, now);
    }

    /// Publishes waiting announcements, as long as the peer can publish, and up to a number for each call.
    fn publish_rv_messages(&mut self, core: &mut EngineCore, now: ClockReading) {
        let Some(host) = self.rv_host.as_mut().filter(|_| self.discovery_end.is_none()) else { return };
        for _ in 0..MESSAGES_MAX {
            if !host.has_messages() || !core.ensure_send_capacity() {
                return;
            }
            // Without a monitor on the LAN, announcements of many listens would only fill the network.
            let is_wanted = |subject: &Subject| !matches!(core.peer.receivers(OWN_CLIENT, subject), (0, true));
            let Some(message) = host.poll_message(is_wanted) else { return };
            let published = core.peer.publish(now, OWN_CLIENT, &message);
            core.on_published(now, OWN_CLIENT, Ok(()));
            // The certificate of the host may not permit advisories. Its own clients still get them.
            if matches!(published, Err(Refusal::PublishDenied(_))) {
                deliver_locally(core, now, message);
            }
        }
    }
}

/// Returns the order of the TLS handshake and the version record with which a Rendezvous daemon begins. An encrypted
/// client expects nothing before the handshake.
pub(super) fn tls_first(tls: Option<&ListenerTls>) -> TlsFirst {
    match tls {
        None => TlsFirst::Never,
        Some(tls) if tls.is_optional() => TlsFirst::Within(HANDSHAKE_WAIT),
        Some(_) => TlsFirst::Always,
    }
}

/// Returns the settings of Rendezvous clients. Their protocol has no login, so that accounts apply to certificates only.
pub(super) fn settings(config: &Config, epoch: Epoch, host: &HostPermissions, tls: Option<&ListenerTls>) -> Settings {
    let is_certified = tls.is_some_and(|tls| matches!(tls.clients, TlsClients::Certified(_)));
    let accounts = if config.rv_open && !is_certified { &[][..] } else { &config.accounts };
    let bits = epoch.bits();
    Settings {
        access: Access::new(accounts, host, false),
        // Each run of a peer is a new host to clients, which know hosts by this number alone.
        host: Ipv4Addr::from_bits((bits ^ (bits >> 32)) as u32),
        service: config.port,
        group: config.group,
        message_bytes_max: config.message_size,
        subscriptions_max: config.client_subscriptions_max,
        ..Settings::default()
    }
}

/// Returns the facts about the daemon of a listener.
pub(super) fn facts(settings: &Settings, name: &str, port: u16) -> RvHostFacts {
    RvHostFacts {
        host: settings.host,
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        port,
        service: settings.service,
        network: format!(";{}", settings.group),
    }
}

/// The inbox of the daemon: a client of the peer in its own process.
#[derive(Debug, Default)]
pub(super) enum RvInbox {
    /// The daemon has no clients.
    #[default]
    Closed,
    /// The peer has refused the subscription.
    Refused,
    Open {
        client: ClientId,
        /// Queries that wait until the end of the turn.
        queue: Arc<SubscriptionQueue>,
    },
}

impl RvInbox {
    /// Subscribes to the queries. The peer refuses that if it has too many subscriptions, or its certificate does not
    /// permit the inbox.
    fn open(core: &mut EngineCore, now: ClockReading, pattern: Pattern) -> RvInbox {
        let client = core.clients.add(now, INBOX_NAME.to_owned(), ClientTransport::Embedded(BTreeMap::new()));
        let queue = Arc::new(SubscriptionQueue::new(INBOX_LIMITS));
        let request = SubscriptionRequest { wanted: pattern.into(), mode: None, wants_discovery: false };
        match core.subscribe(now, client, SubId(0), request, Arc::clone(&queue)) {
            Ok(()) => RvInbox::Open { client, queue },
            Err(refusal) => {
                tracing::warn!(reason = %RefusalReason::from(&refusal), "no queries of Rendezvous monitors are answered");
                core.detach(now, client);
                RvInbox::Refused
            }
        }
    }
}

/// Delivers a message of the daemon to the clients of this peer.
fn deliver_locally(core: &mut EngineCore, now: ClockReading, message: Message) {
    if let Some(to) = core.peer.targets(&message.subject) {
        let delivery = Delivery::new(message, core.me(), None, Verdict::Direct);
        core.clients.deliver(now, &to, delivery.into());
    }
}

/// Returns the traffic of the peer.
fn traffic(core: &EngineCore) -> RvTraffic {
    let counters = core.peer.counters();
    let rows = core.peer.loss_rows();
    let sum = |count: fn(&LossRow) -> u64| rows.iter().map(count).fold(0, u64::saturating_add);
    // Reports of other peers may contain any value.
    let outbound = core.peer.outbound_rows().into_iter().map(|row| row.report);
    let lost_elsewhere =
        outbound.fold(0, |sum: u64, report| sum.saturating_add(report.lost_min).saturating_add(report.directed_lost));
    RvTraffic {
        messages: [counters.messages_published, counters.messages_delivered],
        bytes: [counters.bytes_out, counters.bytes_in],
        datagrams: [counters.datagrams_multicast + counters.datagrams_unicast, counters.datagrams_in],
        repairs: [counters.resends, sum(|row| row.datagrams.missing())],
        losses: [sum(|row| row.msg_loss.count.saturating_add(row.ibx_loss.count)), lost_elsewhere],
    }
}
