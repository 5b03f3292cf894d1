//! Deliberate mistakes in the order of events. Tests with them prove that the exhaustive model detects such mistakes.
//!
//! A mutant is activated at run time, and only in builds with the feature `sim` and in the unit-test build of this
//! crate. Everywhere else [`OrderMutants::is`] is a constant `false`, and the compiler removes the branch.

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrderMutant {
    /// One step finds that the queue is empty, and another one releases the object.
    ReleaseLater,
    /// A worker assigns other ids to events that it sends again.
    NewIdOnResend,
    /// The store does not check whether a writing worker still owns the object.
    OwnerUnchecked,
    /// A worker keeps its object after another one took it over, and its token remains valid.
    TakeOverUnfenced,
    /// An object is taken over before the lease of its holder ends.
    TakeOverEarly,
    /// Only objects with an owner are taken over, not those taken and not yet claimed.
    TakeOverOwnedOnly,
    /// Events are recorded as sent before they are sent.
    RecordBeforeSend,
    /// A batch is recorded as sent when its first event was sent.
    RecordEarly,
    /// Each event of a batch names the one before the batch as its prev.
    PrevOfBatch,
    /// Only the id of the first event of a batch is reserved.
    IdsUnreserved,
    /// The first id of a batch is recorded as the last one of the object.
    FirstAsLast,
    /// An object is claimed although it has an owner.
    ClaimOwned,
    /// Of two workers with one name, the older one is not refused.
    SessionUnchecked,
    /// Events stamped by a worker before it crashed are not sent again.
    UnfinishedForgotten,
    /// Of the batch that a worker had stamped before it crashed, only the first event is sent again.
    UnfinishedCut,
    /// A worker drops its object after one batch.
    DropEarly,
    /// A step removes a queue entry although its object has events and no owner.
    EntryWasted,
    /// A loss of the state is not detected: ids continue from the state that remains.
    LossUnnoticed,
    /// The last id of the object is not recorded.
    LastForgotten,
    /// A worker that finds no object does not check the leases again.
    LeasesUnwatched,
}

/// The active mutant, if any, and whether workers perform each step of the seed separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OrderMutants {
    #[cfg(any(test, feature = "sim"))]
    on: Option<OrderMutant>,
    #[cfg(any(test, feature = "sim"))]
    is_stepwise: bool,
}

impl OrderMutants {
    /// Activates this mistake alone.
    #[cfg(any(test, feature = "sim"))]
    pub fn only(mutant: OrderMutant) -> OrderMutants {
        OrderMutants { on: Some(mutant), is_stepwise: false }
    }

    /// Makes workers perform single steps. That is no mistake: crashes and other workers can then come between them.
    #[cfg(any(test, feature = "sim"))]
    pub fn stepwise(self) -> OrderMutants {
        OrderMutants { is_stepwise: true, ..self }
    }

    /// Returns whether workers perform single steps only.
    #[cfg(any(test, feature = "sim"))]
    pub fn is_stepwise(self) -> bool {
        self.is_stepwise
    }

    /// Returns whether workers perform single steps only; always false without the feature `sim`.
    #[cfg(not(any(test, feature = "sim")))]
    pub const fn is_stepwise(self) -> bool {
        false
    }

    /// Returns whether this mistake is active; always false without the feature `sim`.
    #[cfg(any(test, feature = "sim"))]
    pub fn is(self, mutant: OrderMutant) -> bool {
        self.on == Some(mutant)
    }

    /// Returns whether this mistake is active; always false without the feature `sim`.
    #[cfg(not(any(test, feature = "sim")))]
    pub const fn is(self, _: OrderMutant) -> bool {
        false
    }
}
