//! The loop of the link: it hands what it receives to the gateway, and carries out what follows from it.
//!
//! One future reads the cluster, one each subscription of the LAN; one sends to the cluster, one to the LAN. None of the
//! readers waits for a sender: the gateway drops what is too much, and counts it. All of them belong to one task, so they
//! share the gateway without locks, and each turn of the task polls all of them.

pub(super) mod durable;
mod events;
mod hub_messages;
mod lan_queries;

use self::durable::DurableLink;
use super::event_client::EventClient;
use super::hub::{Hub, HubSettings, RelaySubjects};
use super::hub_tls::CertificateRefusal;
use super::lan::{LanClient, LanSubscription, PublishFailure};
use super::link_timer::LinkTimer;
use super::report::SharedReport;
use super::signing::LinkSigning;
use crate::clock::Clock;
use crate::daemon::queue_reader::QueueReader;
use crate::daemon::subscription_queue::NoticeRef;
use crate::link::gateway::Gateway;
use crate::link::gateway_counts::SiteCounts;
use crate::link::site_name::SiteName;
use crate::message::Message;
use crate::subject::pattern_set::PatternSet;
use crate::subject::{Pattern, Subject};
use crate::time::Instant;
use async_nats::Event;
use async_nats::client::PublishErrorKind;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Notify, oneshot};

/// Maximum interval of the reports: longer than that of the announcements, whose wake-ups they share.
const REPORT_INTERVAL: Duration = Duration::from_millis(750);
/// Minimum time between two turns of the timer.
const TICK_MIN: Duration = Duration::from_millis(1);
/// Pause before another attempt to publish while publishers wait for the network.
const PUBLISH_PAUSE: Duration = Duration::from_millis(1);
/// Maximum time for which a link that ends waits for the cluster and the LAN.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(750);

/// Subjects that a link carries.
pub(super) struct CarrierSubjects {
    /// Patterns of the subjects that cross.
    pub(super) patterns: Vec<Pattern>,
    /// Subjects that the site imports.
    pub(super) imports: PatternSet,
    /// Names in the subjects of requests.
    pub(super) relay: RelaySubjects,
}

/// The link of a gateway.
pub(super) struct LinkCarrier {
    pub(super) gateway: RefCell<Gateway>,
    pub(super) durable: DurableLink,
    subjects: CarrierSubjects,
    lan: LanClient,
    /// Subscriptions to the replication of events, if any may cross.
    events: Option<EventClient>,
    /// Signatures, in a realm.
    signing: Option<LinkSigning>,
    pub(super) report: SharedReport,
    /// Wakes the futures that send.
    for_hub: Notify,
    for_lan: Notify,
    for_lookup: Notify,
    /// Wakes the reader of the cluster, which updates its subscriptions.
    for_subscriptions: Notify,
    /// Subjects to which the link does not subscribe at the cluster.
    unsubscribed: RefCell<PatternSet>,
    /// Wakes the timer if the gateway is due earlier than it waits for.
    is_due_earlier: Notify,
    due_at: Cell<Instant>,
    /// Time of the next report.
    report_at: Cell<Instant>,
    pub(super) is_connected: Cell<bool>,
    /// Counts of the sites at the last report.
    logged: RefCell<BTreeMap<SiteName, SiteCounts>>,
}

impl LinkCarrier {
    /// Creates the link, which starts with [`LinkCarrier::run`].
    pub(super) fn new(
        gateway: Gateway,
        durable: DurableLink,
        subjects: CarrierSubjects,
        lan: LanClient,
        events: Option<EventClient>,
        signing: Option<LinkSigning>,
        report: SharedReport,
    ) -> LinkCarrier {
        LinkCarrier {
            gateway: RefCell::new(gateway),
            durable,
            subjects,
            lan,
            events,
            signing,
            report,
            for_hub: Notify::new(),
            for_lan: Notify::new(),
            for_lookup: Notify::new(),
            for_subscriptions: Notify::new(),
            unsubscribed: RefCell::default(),
            is_due_earlier: Notify::new(),
            due_at: Cell::new(Instant::ZERO),
            report_at: Cell::new(Instant::ZERO),
            is_connected: Cell::new(false),
            logged: RefCell::default(),
        }
    }

    /// Carries messages until `ended` is closed.
    pub(super) async fn run(&self, settings: HubSettings, ended: oneshot::Receiver<()>) {
        let (hub, events) = match Hub::connect(&settings).await {
            Ok(connected) => connected,
            Err(error) => return self.fail(&error.to_string()),
        };
        let streams = DurableLink::context(&hub.client);
        let refusal = settings.tls.as_ref().map(|(_, refusal)| refusal);
        let fault = tokio::select! {
            // Each turn polls all of them, so none waits for another one. Those that send come behind those that read:
            // one turn carries a message through.
            biased;
            _ = ended => None,
            fault = self.read_lan() => Some(fault),
            fault = self.read_events() => Some(fault),
            fault = self.read_hub(&hub) => Some(fault),
            fault = self.query_lan() => Some(fault),
            fault = self.watch(&hub, events, refusal) => Some(fault),
            fault = self.keep_time(&hub) => Some(fault),
            fault = self.send_to_lan() => Some(fault),
            fault = self.send_to_hub(&hub) => Some(fault),
            () = self.carry_durable(&streams) => None,
        };
        let now = Clock::now().instant;
        match &fault {
            Some(fault) => {
                self.fail(fault);
                // The other gateways of the site continue.
                self.gateway.borrow_mut().on_link(now, false);
            }
            None => {
                self.lan.subscriptions.iter().for_each(|subscription| self.drain(subscription));
                self.gateway.borrow_mut().on_stop(now);
            }
        }
        let to_hub = async {
            if fault.is_none() {
                self.send_waiting_to_hub(&hub).await;
                self.end_reading(&streams).await;
                drop(hub.client.flush().await);
            }
        };
        let end = async { tokio::join!(self.send_waiting_to_lan(), to_hub) };
        drop(tokio::time::timeout(DRAIN_TIMEOUT, end).await);
        self.report.set_counts(&self.gateway.borrow());
    }

    fn fail(&self, fault: &str) {
        tracing::error!(fault, "the link has failed");
        self.report.set_state("failed", Some(fault.to_owned()));
    }

    /// Reads the subscriptions of the LAN. Returns why it cannot.
    async fn read_lan(&self) -> String {
        let reading = self.lan.subscriptions.iter().map(|subscription| async move {
            let reader = QueueReader::new(&subscription.queue)?;
            while reader.read(|notice| self.on_notice(subscription, notice)).await? {
                self.wake();
                // A queue that never rests does not keep the other tasks from running.
                tokio::task::yield_now().await;
            }
            std::io::Result::Ok(())
        });
        match futures_util::future::try_join_all(reading).await {
            Ok(_) => "the peer has ended".to_owned(),
            Err(error) => format!("the link cannot read the LAN: {error}"),
        }
    }

    /// Reads what waits in a subscription of the LAN.
    fn drain(&self, subscription: &LanSubscription) {
        // It fails if nothing is left.
        let _ = subscription.queue.drain(|notice| self.on_notice(subscription, notice));
    }

    fn on_notice(&self, subscription: &LanSubscription, notice: NoticeRef<'_>) {
        let is_first = |subject: &Subject| is_first_match(&self.lan.patterns, subscription.index, subject);
        match notice {
            NoticeRef::Message(delivery) if is_first(delivery.subject) => {
                self.gateway.borrow_mut().on_delivery(Clock::now().instant, &delivery.to_delivery());
            }
            NoticeRef::Dropped(count) => self.gateway.borrow_mut().on_unheard(count),
            _ => {}
        }
    }

    /// Wakes the futures that have something to do after an input.
    pub(super) fn wake(&self) {
        if self.gateway.borrow().has_lookup() {
            self.for_lookup.notify_one();
        }
        self.wake_senders();
    }

    /// Wakes the futures that send, and the timer if it is due earlier.
    fn wake_senders(&self) {
        self.for_hub.notify_one();
        self.for_lan.notify_one();
        self.wake_store();
        self.wake_timer();
    }

    /// Wakes the reader of the stream, for which there may be room.
    fn wake_reader(&self) {
        if self.gateway.borrow().durable().position().is_some() {
            self.durable.for_room.notify_one();
        }
    }

    /// Wakes the timer if the gateway is due earlier than it waits for.
    pub(super) fn wake_timer(&self) {
        if self.gateway.borrow().deadline(Clock::now().instant) < self.due_at.get() {
            self.is_due_earlier.notify_one();
        }
    }

    /// Handles the events of the connection.
    async fn watch(&self, hub: &Hub, mut events: Receiver<Event>, refusal: Option<&CertificateRefusal>) -> String {
        while let Some(event) = events.recv().await {
            match event {
                Event::SlowConsumer(_) => self.gateway.borrow_mut().on_unread(1),
                Event::ServerError(error) => self.on_fault(error.to_string()),
                Event::ClientError(error) => {
                    let refused = refusal.and_then(CertificateRefusal::take);
                    self.on_fault(refused.unwrap_or_else(|| {
                        format!("{error}: look at the address, the server and the firewall; log-level debug has more")
                    }));
                }
                Event::Connected => drop(refusal.and_then(CertificateRefusal::take)),
                _ => {}
            }
            self.update_link(hub);
        }
        "the client of the cluster has ended".to_owned()
    }

    /// Calls the gateway when it is due, and reports.
    async fn keep_time(&self, hub: &Hub) -> String {
        let timer = match LinkTimer::new() {
            Ok(timer) => timer,
            Err(error) => return format!("the link has no timer: {error}"),
        };
        loop {
            self.update_link(hub);
            self.update_events(hub);
            self.signing.iter().for_each(|signing| signing.on_tick(Clock::now()));
            let now = Clock::now().instant;
            self.gateway.borrow_mut().on_tick(now);
            self.update_reading();
            self.check_subscriptions();
            // An early report shares its wake-up with the announcement of the gateway.
            if self.report_at.get() <= now + REPORT_INTERVAL / 2 {
                self.report_at.set(now + REPORT_INTERVAL);
                self.report.set_counts(&self.gateway.borrow());
                self.report.set_security(self.signing.as_ref().map(LinkSigning::report));
                self.log_losses();
            }
            let due_at = self.gateway.borrow().deadline(now).min(self.report_at.get());
            self.due_at.set(due_at);
            // The gateways of the LAN, whose subscriptions do not count, may be others.
            self.for_lookup.notify_one();
            self.wake_senders();
            tokio::select! {
                ended = timer.wait_until(due_at.max(now + TICK_MIN)) => {
                    if let Err(error) = ended {
                        return format!("the timer of the link has failed: {error}");
                    }
                }
                () = self.is_due_earlier.notified() => {}
            }
        }
    }

    /// Sends to the cluster, as long as the peer runs.
    async fn send_to_hub(&self, hub: &Hub) -> String {
        loop {
            self.send_waiting_to_hub(hub).await;
            self.for_hub.notified().await;
        }
    }

    async fn send_waiting_to_hub(&self, hub: &Hub) {
        while let Some(message) = self.next_for_hub() {
            let bytes = message.body_bytes();
            let Message { subject, reply, headers, payload, .. } = message;
            if let Err(error) = hub.publish(&subject, reply, &headers, payload).await {
                tracing::debug!(%error, bytes, "the cluster takes no message");
                self.gateway.borrow_mut().on_unsent(&headers);
                if error.kind() == PublishErrorKind::MaxPayloadExceeded {
                    let limit = hub.client.server_info().max_payload;
                    self.on_fault(format!("the cluster takes no message of more than {limit} bytes (max_payload)"));
                }
            }
        }
    }

    fn next_for_hub(&self) -> Option<Message> {
        let poll = || self.gateway.borrow_mut().poll_hub();
        self.signing.as_ref().map_or_else(poll, |signing| signing.next_for_hub(poll))
    }

    /// Sends to the LAN. Returns once the peer has ended.
    async fn send_to_lan(&self) -> String {
        while self.send_waiting_to_lan().await {
            self.for_lan.notified().await;
        }
        // The peer ends this link soon.
        pending().await
    }

    /// Sends what waits for the LAN. Returns false if the peer has ended.
    async fn send_waiting_to_lan(&self) -> bool {
        while let Some(message) = self.next_for_lan() {
            match self.lan.publish(message) {
                Ok(()) => self.wake_reader(),
                Err(PublishFailure::Ended) => return false,
                Err(PublishFailure::Full(message)) => {
                    self.gateway.borrow_mut().put_back(*message);
                    self.for_hub.notify_one();
                    tokio::time::sleep(PUBLISH_PAUSE).await;
                }
            }
        }
        // Requests may have been made.
        self.for_hub.notify_one();
        true
    }

    fn next_for_lan(&self) -> Option<Message> {
        self.gateway.borrow_mut().poll_lan(Clock::now().instant)
    }

    /// Tells the gateway of a change of the connection.
    fn update_link(&self, hub: &Hub) {
        let is_connected = hub.is_connected();
        if self.is_connected.replace(is_connected) == is_connected {
            return;
        }
        match is_connected {
            true => {
                tracing::info!("connected with the cluster");
                self.report.set_state("connected", None);
            }
            false => {
                tracing::warn!("no connection with the cluster");
                self.report.set_state("connecting", None);
            }
        }
        for unsent in self.signing.iter().flat_map(|signing| signing.on_link(is_connected)) {
            self.gateway.borrow_mut().on_unsent(&unsent.headers);
        }
        self.gateway.borrow_mut().on_link(Clock::now().instant, is_connected);
        self.on_connection();
        self.wake();
    }

    fn on_fault(&self, fault: String) {
        if self.report.set_fault(fault.clone()) {
            tracing::warn!(%fault, "the cluster refuses");
        }
    }

    /// Logs what has been lost since the last report.
    fn log_losses(&self) {
        let gateway = self.gateway.borrow();
        let mut logged = self.logged.borrow_mut();
        for (site, counts) in gateway.sites() {
            let before = logged.insert(site.clone(), *counts).unwrap_or_default();
            let lost = (counts.lost_min - before.lost_min, counts.lost_max.saturating_sub(before.lost_max));
            if lost != (0, 0) {
                tracing::warn!(%site, lost_min = lost.0, lost_max = lost.1, "messages of another site lost");
            }
            if counts.tails != before.tails {
                tracing::warn!(%site, "the last gateway of another site has died; any number of messages may be lost");
            }
        }
    }
}

/// Returns whether the pattern with this index is the first that matches the subject.
fn is_first_match(patterns: &[Pattern], index: usize, subject: &Subject) -> bool {
    patterns.iter().position(|pattern| pattern.matches(subject)) == Some(index)
}
