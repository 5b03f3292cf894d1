//! The connection to the cluster.

use super::credentials::LinkCredentials;
use super::hub_tls::CertificateRefusal;
use crate::config::HubAddress;
use crate::link::durable::{DURABLE_HEADER, STORED_HEADER};
use crate::link::envelope::ORIGIN_HEADER;
use crate::link::signatures::CERTIFICATE_PREFIX;
use crate::link::site_name::SiteName;
use crate::link::system_messages::{
    BYE_PREFIX, CALL_PREFIX, INTEREST_PREFIX, MANIFEST_PREFIX, REPLY_PREFIX, REQUEST_PREFIX, RESTORE_PREFIX,
};
use crate::message::{Epoch, Headers, Message};
use crate::subject::pattern_set::PatternSet;
use crate::subject::{Pattern, Subject};
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, HeaderMap, HeaderName, Subscriber};
use bytes::Bytes;
use futures_util::stream::SelectAll;
use rustls::ClientConfig;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};

/// Maximum number of messages of one subscription that wait in the client. The link takes them in its next turn. Further
/// ones are lost.
pub(super) const MESSAGES_MAX: usize = 16_384;
/// Maximum number of messages that wait in the client. After an outage it sends those that are left.
const COMMANDS_MAX: usize = 64;
/// Maximum number of events of the connection that wait.
const EVENTS_MAX: usize = 64;
/// Timeout of an attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of the pings by which a dead connection is detected: when the third one is due and none was answered. By
/// then the other gateways still retain what was lost on it.
const PING_INTERVAL: Duration = Duration::from_millis(750);
/// Longest pause between two attempts to connect.
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(4);

/// How a gateway connects to the cluster.
pub(super) struct HubSettings {
    pub(super) addresses: Vec<HubAddress>,
    pub(super) credentials: LinkCredentials,
    /// Configuration of encrypted connections, and where refused certificates are noted; `None` without encryption.
    pub(super) tls: Option<(ClientConfig, CertificateRefusal)>,
    /// Name of the connection, which the cluster shows.
    pub(super) name: String,
    /// Prefix of the subjects on which the cluster's stream answers this gateway.
    pub(super) inbox_prefix: String,
}

/// Site and gateway, of which the subjects of requests are made.
#[derive(Debug)]
pub(super) struct RelaySubjects {
    pub(super) site: SiteName,
    pub(super) gateway: Epoch,
}

/// The connection. It reconnects by itself.
pub(super) struct Hub {
    pub(super) client: Client,
}

/// The subscriptions of a link, each with the messages that wait in it.
pub(super) struct HubSubscriptions {
    /// That to the certificates of gateways, in a realm. They are read first, since messages that follow need them.
    pub(super) certificates: Option<Subscriber>,
    /// Those to the patterns that cross, in their order; `None` for one that is read from the stream only.
    pub(super) patterns: Vec<Option<Subscriber>>,
    /// Those to the subjects of the system, which get fair turns.
    pub(super) system: SelectAll<Subscriber>,
}

impl Hub {
    /// Begins to connect. The cluster may be away. Also returns the events of the connection; those for which there is
    /// no room are dropped, and [`Hub::is_connected`] has the state.
    ///
    /// # Errors
    /// An address cannot be used.
    pub(super) async fn connect(settings: &HubSettings) -> Result<(Hub, Receiver<Event>), async_nats::ConnectError> {
        let (sender, events) = channel(EVENTS_MAX);
        let options = ConnectOptions::new()
            .name(&settings.name)
            .no_echo()
            .custom_inbox_prefix(&settings.inbox_prefix)
            .retry_on_initial_connect()
            .max_reconnects(None)
            .connection_timeout(CONNECT_TIMEOUT)
            .ping_interval(PING_INTERVAL)
            .subscription_capacity(MESSAGES_MAX)
            .client_capacity(COMMANDS_MAX)
            .reconnect_delay_callback(|attempts| RECONNECT_DELAY_MAX.min(Duration::from_millis(50 << attempts.min(10))))
            .event_callback(move |event| {
                drop(sender.try_send(event));
                std::future::ready(())
            });
        let mut options = settings.credentials.add_to(options);
        if let Some((config, _)) = &settings.tls {
            // The cluster names further servers, without saying that they encrypt.
            options = options.tls_client_config(config.clone()).require_tls(true);
        }
        let addresses: Vec<&str> = settings.addresses.iter().map(HubAddress::as_str).collect();
        Ok((Hub { client: options.connect(addresses).await? }, events))
    }

    /// Returns whether the connection is established.
    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Subscribes to patterns, to the manifests, the requests and the ends of all gateways, to the replication of
    /// `events`, and to what concerns requests of programs and lost messages. In a realm (`is_signed`) also to certificates.
    ///
    /// # Errors
    /// The client has ended.
    pub(super) async fn subscribe(
        &self,
        patterns: &[Pattern],
        events: Vec<String>,
        relay: &RelaySubjects,
        is_signed: bool,
    ) -> Result<HubSubscriptions, async_nats::SubscribeError> {
        let mut subscriptions = HubSubscriptions { certificates: None, patterns: Vec::new(), system: SelectAll::new() };
        if is_signed {
            subscriptions.certificates = Some(self.client.subscribe(format!("{CERTIFICATE_PREFIX}*")).await?);
        }
        subscriptions.patterns.resize_with(patterns.len(), || None);
        self.update_patterns(&mut subscriptions, patterns, &PatternSet::default()).await?;
        let of_gateways =
            [MANIFEST_PREFIX, REQUEST_PREFIX, BYE_PREFIX, INTEREST_PREFIX].map(|prefix| format!("{prefix}*"));
        for pattern in of_gateways.into_iter().chain(events) {
            subscriptions.system.push(self.client.subscribe(pattern).await?);
        }
        let RelaySubjects { site, gateway } = relay;
        subscriptions.system.push(self.client.subscribe(format!("{REPLY_PREFIX}{site}.{gateway}.*")).await?);
        // All gateways get it, so that none accepts a repetition of a request that another one has had.
        subscriptions.system.push(self.client.subscribe(format!("{CALL_PREFIX}{site}")).await?);
        subscriptions.system.push(self.client.subscribe(format!("{RESTORE_PREFIX}{site}")).await?);
        Ok(subscriptions)
    }

    /// Ends the subscriptions to those of the patterns that `stream_only` contains, and subscribes to the others. A pattern
    /// stays that has subjects in common with one of the others: of two that match a message the first one takes it.
    ///
    /// # Errors
    /// The client has ended.
    pub(super) async fn update_patterns(
        &self,
        subscriptions: &mut HubSubscriptions,
        patterns: &[Pattern],
        stream_only: &PatternSet,
    ) -> Result<(), async_nats::SubscribeError> {
        let stays = |pattern: &Pattern| !stream_only.contains(pattern);
        for (pattern, subscription) in patterns.iter().zip(&mut subscriptions.patterns) {
            if !stays(pattern) && !patterns.iter().any(|other| stays(other) && other.intersects(pattern)) {
                *subscription = None;
            } else if subscription.is_none() {
                *subscription = Some(self.client.subscribe(pattern.to_string()).await?);
            }
        }
        Ok(())
    }

    /// Sends a message. Waits for room in the client.
    ///
    /// # Errors
    /// The message is too large for the cluster, or the client has ended.
    pub(super) async fn publish(
        &self,
        subject: &Subject,
        reply: Option<Subject>,
        headers: &Headers,
        payload: Bytes,
    ) -> Result<(), async_nats::PublishError> {
        let subject = hub_subject(subject);
        if headers.is_empty() && reply.is_none() {
            return self.client.publish(subject, payload).await;
        }
        let headers = header_map(headers);
        match reply.as_ref().map(hub_subject) {
            Some(reply) => self.client.publish_with_reply_and_headers(subject, reply, headers, payload).await,
            None => self.client.publish_with_headers(subject, headers, payload).await,
        }
    }
}

/// Returns a subject as one of the cluster.
pub(super) fn hub_subject(subject: &Subject) -> async_nats::Subject {
    async_nats::Subject::from(subject.as_str())
}

/// Returns header fields as those of a message for the cluster.
pub(super) fn header_map(headers: &Headers) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (key, value) in headers.iter() {
        match key {
            // Exported messages have them. A name that is a constant needs no memory.
            ORIGIN_HEADER => map.append(HeaderName::from_static(ORIGIN_HEADER), value),
            DURABLE_HEADER => map.append(HeaderName::from_static(DURABLE_HEADER), value),
            _ => map.append(key, value),
        }
    }
    map
}

/// Returns the subject to which the sender of a message expects replies.
pub(super) fn received_reply(received: &async_nats::Message) -> Option<Subject> {
    received.reply.as_ref()?.as_str().parse().ok()
}

/// Returns a message of the cluster as one of the bus, without its reply subject; `None` if its subject or its headers
/// are none of the bus.
pub(super) fn received_message(received: async_nats::Message) -> Option<Message> {
    let subject: Subject = received.subject.as_str().parse().ok()?;
    let headers = received.headers.as_ref().map_or_else(|| Some(Headers::new()), bus_headers)?;
    Some(Message { headers, ..Message::new(subject, received.payload) })
}

/// Returns header fields of the cluster as those of a message of the bus, without the one that only gateways may write
/// on their own LAN; `None` if one of them is none of the bus.
pub(super) fn bus_headers(fields: &HeaderMap) -> Option<Headers> {
    let pairs = fields.iter().flat_map(|(key, values)| {
        let key: &str = key.as_ref();
        values.iter().map(move |value| (key, value.as_str()))
    });
    Headers::from_pairs(pairs.filter(|(key, _)| !key.eq_ignore_ascii_case(STORED_HEADER))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_of_the_lan_is_dropped() {
        let mut fields = HeaderMap::new();
        for (key, value) in [("seqcast-stored", "SEQCAST 5000"), ("unit", "bar"), (STORED_HEADER, "x")] {
            fields.append(key, value);
        }
        let received = async_nats::Message {
            subject: "plant.1".into(),
            reply: None,
            payload: Bytes::from_static(b"7"),
            headers: Some(fields),
            status: None,
            description: None,
            length: 0,
        };
        let message = received_message(received).expect("a message of the bus");
        assert_eq!(message.headers.iter().collect::<Vec<_>>(), [("unit", "bar")]);
        assert_eq!((message.subject.as_bytes(), &message.payload[..]), (&b"plant.1"[..], &b"7"[..]));
    }
}
