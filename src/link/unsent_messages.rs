//! Messages that wait for the cluster, or for the LAN.

use super::envelope::LinkEnvelope;
use crate::message::Message;
use std::collections::VecDeque;

/// Maximum bytes that wait for the cluster. Further messages are not exported; importers find that they are missing.
pub const UNSENT_BYTES_MAX: usize = 64 << 20;
/// Bytes that a message counts beside its payload and its headers.
const MESSAGE_BYTES: usize = 256;

/// Messages that wait, and the bytes that they take.
#[derive(Debug, Default)]
pub(super) struct UnsentMessages {
    messages: VecDeque<Message>,
    bytes: usize,
}

impl UnsentMessages {
    /// Drops all messages. Returns the number of exported ones among them.
    pub(super) fn clear(&mut self) -> u64 {
        self.bytes = 0;
        self.messages.drain(..).filter(is_export).count() as u64
    }

    /// Returns whether further messages may be exported.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < UNSENT_BYTES_MAX
    }

    /// Returns the bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a message.
    pub(super) fn push(&mut self, message: Message) {
        self.bytes += MESSAGE_BYTES + message.body_bytes();
        self.messages.push_back(message);
    }

    /// Removes the oldest message.
    pub(super) fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.bytes -= MESSAGE_BYTES + message.body_bytes();
        Some(message)
    }
}

/// Returns whether a message for the cluster is an exported one, and not one of the gateways' own.
fn is_export(message: &Message) -> bool {
    LinkEnvelope::is_in(&message.headers)
}
