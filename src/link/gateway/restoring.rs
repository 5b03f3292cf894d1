//! Requests for durable messages that the stream of the cluster has lost.

use super::Gateway;
use crate::link::durable::RestoreRequest;
use crate::link::system_messages::{RESTORE_PREFIX, system_subject};
use crate::message::Message;
use crate::time::Instant;

impl Gateway {
    /// Requests the messages for which others wait, if it is time.
    pub(super) fn request_restoring(&mut self, now: Instant) {
        for (site, request) in self.durable.restore_requests(now) {
            if self.is_linked && self.to_hub.has_room() {
                self.to_hub.push(Message::new(system_subject(RESTORE_PREFIX, &site), request.to_json()));
            }
        }
    }

    pub(super) fn on_restore_request(&mut self, now: Instant, message: &Message) {
        match RestoreRequest::from_json(&message.payload) {
            Some(request) => self.durable.on_restore_request(now, &request),
            None => self.counts.invalid += 1,
        }
    }
}
