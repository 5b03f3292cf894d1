//! Publishing of messages for the clients of this peer.

use super::EngineCore;
use crate::message::{ClientId, Message, Refusal};
use crate::proto::effect::ClientRequest;
use crate::subject::Subject;
use crate::time::ClockReading;

impl EngineCore {
    /// Publishes a message for a client. Returns false without publishing if the client must wait for the socket or for
    /// receivers. A wait for receivers lasts until a later turn, which reads their window reports.
    pub(crate) fn publish(&mut self, now: ClockReading, client: ClientId, message: &Message) -> bool {
        let has_room = self.ensure_send_capacity();
        if has_room {
            let published = self.peer.publish(now, client, message);
            self.on_published(now, client, published);
        }
        has_room
    }

    /// Does the same as [`EngineCore::publish`] for a message that has only a subject and a payload.
    #[inline]
    pub(crate) fn publish_payload(
        &mut self,
        now: ClockReading,
        client: ClientId,
        subject: &Subject,
        payload: &[u8],
    ) -> bool {
        let has_room = self.ensure_send_capacity();
        if has_room {
            let published = self.peer.publish_payload(now, client, subject, payload);
            self.on_published(now, client, published);
        }
        has_room
    }

    /// Publishes the message of a frame of an attached client, which has waited until publishing was possible.
    pub(super) fn publish_whole(&mut self, now: ClockReading, client: ClientId, message: Message) {
        self.clients.client(client).into_iter().for_each(|client| client.published += 1);
        self.request_or_report(now, client, ClientRequest::Publish(message));
    }

    /// Returns whether a message can be sent now. Sends what waits if it is a full batch.
    #[inline]
    pub(in crate::daemon) fn ensure_send_capacity(&mut self) -> bool {
        if self.transmit_queue.is_batch_full() {
            self.transmit_queue.flush(&mut self.sockets);
        }
        !self.transmit_queue.is_backlogged() && !self.peer.is_publish_blocked()
    }

    /// Handles the outcome of a publish request of a client.
    #[inline]
    pub(in crate::daemon) fn on_published(
        &mut self,
        now: ClockReading,
        client: ClientId,
        published: Result<(), Refusal>,
    ) {
        self.on_published_many(now, client, 1);
        if let Err(refusal) = published {
            self.report_refusal(client, None, &refusal);
        }
    }

    /// Applies the effects of `count` publish requests of a client, and counts them. The caller has reported refusals.
    #[inline]
    pub(in crate::daemon) fn on_published_many(&mut self, now: ClockReading, client: ClientId, count: u64) {
        if self.peer.has_effects() {
            self.apply_effects(now);
        }
        if let Some((recent, published)) = &mut self.published
            && *recent == client
        {
            *published += count;
            return;
        }
        self.count_published();
        self.published = Some((client, count));
    }

    /// Credits the last publishing client with its messages since the last call.
    pub(in crate::daemon) fn count_published(&mut self) {
        if let Some((client, count)) = self.published.take()
            && let Some(client) = self.clients.client(client)
        {
            client.published += count;
        }
    }
}
