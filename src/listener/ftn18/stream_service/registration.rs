//! Registrations in the journal that are not confirmed yet.

use super::effect::CallOrigin;
use crate::event::stream::store::PostedEvent;

/// A caller that has added an event and is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAdd {
    pub(super) from: CallOrigin,
    /// Bytes of the data.
    pub(super) bytes: u64,
}

/// The origin of a registration.
#[derive(Debug)]
pub(super) enum JournalRegistration {
    /// A call, and the index of its stream.
    Call(PendingAdd, usize),
    /// Posted events, for which no caller waits.
    Posted(Vec<PostedEvent>),
}
