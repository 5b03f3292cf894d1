//! Unconfirmed registrations in the journal.

use super::effect::CallOrigin;
use crate::event::stream::store::PostedEvent;

/// An unanswered call that adds an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAdd {
    pub(super) from: CallOrigin,
    /// Bytes of the data.
    pub(super) bytes: u64,
}

/// The origin of a registration.
#[derive(Debug)]
pub(super) enum JournalRegistration {
    /// A call that adds an event, with the index of its stream.
    Call(PendingAdd, usize),
    /// Claimed posted events, for which no caller waits.
    Posted(Vec<PostedEvent>),
}
