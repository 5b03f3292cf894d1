//! The messages that the link receives from the cluster by its subscriptions.

use super::{CarrierSubjects, LinkCarrier, is_first_match};
use crate::clock::Clock;
use crate::daemon::link::hub::{Hub, HubSubscriptions, received_message, received_reply};
use crate::link::hub_sender::HubSender;
use crate::link::signatures::verifier::VerifiedMessage;
use crate::link::system_messages::{CALL_PREFIX, INTEREST_PREFIX, REPLY_PREFIX, RESTORE_PREFIX};
use crate::message::Message;
use crate::subject::Subject;
use crate::subject::pattern_set::PatternSet;
use async_nats::StatusCode;
use futures_util::StreamExt;
use std::future::poll_fn;
use std::task::{Context, Poll};

impl LinkCarrier {
    /// Reads the subscriptions of the cluster. Returns why it cannot.
    pub(super) async fn read_hub(&self, hub: &Hub) -> String {
        let of_events = self.gateway.borrow().events().hub_patterns();
        let CarrierSubjects { patterns, relay, .. } = &self.subjects;
        let subscribed = hub.subscribe(patterns, of_events, relay, self.signing.is_some()).await;
        let mut subscriptions = match subscribed {
            Ok(subscriptions) => subscriptions,
            Err(error) => return error.to_string(),
        };
        loop {
            tokio::select! {
                // Messages that have come by a subscription are read before it ends.
                biased;
                () = poll_fn(|context| self.poll_hub(&mut subscriptions, context)) => {
                    return "the client of the cluster has ended".to_owned();
                }
                () = self.for_subscriptions.notified() => {}
            }
            let stream_only = self.stream_only_subjects();
            if let Err(error) = hub.update_patterns(&mut subscriptions, patterns, &stream_only).await {
                return error.to_string();
            }
            self.unsubscribed.replace(stream_only);
        }
    }

    /// Lets the subscriptions be updated if other ones are needed.
    pub(super) fn check_subscriptions(&self) {
        if *self.unsubscribed.borrow() != self.stream_only_subjects() {
            self.for_subscriptions.notify_one();
        }
    }

    fn stream_only_subjects(&self) -> PatternSet {
        self.gateway.borrow().durable().stream_only_subjects(Clock::now().instant)
    }

    /// Takes what waits in the subscriptions. A manifest is read only while no message waits, since each subscription has
    /// a queue of its own: the messages that it names came before it.
    fn poll_hub(&self, subscriptions: &mut HubSubscriptions, context: &mut Context<'_>) -> Poll<()> {
        let HubSubscriptions { certificates, patterns, system } = subscriptions;
        let mut is_idle = true;
        loop {
            for (signing, subscriber) in self.signing.iter().zip(&mut *certificates) {
                while let Poll::Ready(received) = subscriber.poll_next_unpin(context) {
                    let Some(received) = received else { return Poll::Ready(()) };
                    received_message(received).iter().for_each(|message| signing.on_certificate(message));
                    is_idle = false;
                }
            }
            for (index, subscriber) in patterns.iter_mut().enumerate() {
                let Some(subscriber) = subscriber else { continue };
                loop {
                    match subscriber.poll_next_unpin(context) {
                        Poll::Ready(Some(received)) => {
                            is_idle = false;
                            self.on_hub_message(index, received);
                        }
                        Poll::Ready(None) => return Poll::Ready(()),
                        Poll::Pending => break,
                    }
                }
            }
            match system.poll_next_unpin(context) {
                Poll::Ready(Some(received)) => {
                    is_idle = false;
                    self.on_system_message(received);
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => {
                    // This is polled whenever another task of the thread is. If it woke them each time, none would rest.
                    if !is_idle {
                        self.wake();
                        self.check_subscriptions();
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn on_system_message(&self, received: async_nats::Message) {
        let (now, reply) = (Clock::now().instant, received_reply(&received));
        let is_unserved = received.status == Some(StatusCode::NO_RESPONDERS);
        let mut gateway = self.gateway.borrow_mut();
        let Some(message) = received_message(received) else { return gateway.on_invalid() };
        let message = Message { reply, ..message };
        let Some(VerifiedMessage { message, sender }) = self.open(message) else { return };
        if message.subject.as_str().starts_with(RESTORE_PREFIX) {
            self.look_at_stream();
        }
        match is_of_relay(&message.subject) {
            true => gateway.on_relay_message(now, message, is_unserved, &sender),
            false => gateway.on_system_message(now, message, &sender),
        }
    }

    fn on_hub_message(&self, index: usize, received: async_nats::Message) {
        let reply = received_reply(&received);
        match received_message(received).map(|message| Message { reply, ..message }) {
            Some(message) if is_first_match(&self.subjects.patterns, index, &message.subject) => {
                let mut gateway = self.gateway.borrow_mut();
                // A message of the system that is verified here, too, would count as repeated.
                if (self.signing.is_none() || gateway.uses_hub_message(&message))
                    && let Some(VerifiedMessage { message, .. }) = self.open(message)
                {
                    gateway.on_hub_message(Clock::now().instant, message);
                }
            }
            Some(_) => {}
            None => self.gateway.borrow_mut().on_invalid(),
        }
    }

    /// Verifies a message of the cluster, in a realm.
    fn open(&self, message: Message) -> Option<VerifiedMessage> {
        match &self.signing {
            Some(signing) => signing.open(message),
            None => Some(VerifiedMessage { message, sender: HubSender::AnyClient }),
        }
    }
}

/// Returns whether a subject of the system is one of requests.
fn is_of_relay(subject: &Subject) -> bool {
    [INTEREST_PREFIX, CALL_PREFIX, REPLY_PREFIX].iter().any(|prefix| subject.as_str().starts_with(prefix))
}
