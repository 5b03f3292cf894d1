//! Deliberate mistakes in the order of events. They prove that the exhaustive model would detect them.
//!
//! As in `proto::mutant`, a mutant is activated at run time and only in the unit-test build of this crate.

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrderMutant {
    /// Two steps, instead of one, establish that the queue is empty and release the object.
    ReleaseLater,
    /// Events that may have been sent already get other ids when they are sent again.
    NewIdOnResend,
    /// The store does not check whether a writing worker still owns the object.
    OwnerUnchecked,
    /// A worker that is taken over keeps what it holds, and its token remains valid.
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
    /// An entry is skipped although its object has events and no owner.
    EntryWasted,
    /// A lost state is not detected: ids continue from where it went back to.
    LossUnnoticed,
    /// The last id of the object is not recorded.
    LastForgotten,
    /// A worker that finds nothing to do does not check the leases again.
    LeasesUnwatched,
}

/// The active mutant, if any. In addition, the mode in which workers do each step of the seed as a step of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OrderMutants {
    #[cfg(test)]
    on: Option<OrderMutant>,
    #[cfg(test)]
    is_stepwise: bool,
}

impl OrderMutants {
    /// Returns the order of events with this mistake.
    #[cfg(test)]
    pub(crate) fn only(mutant: OrderMutant) -> OrderMutants {
        OrderMutants { on: Some(mutant), is_stepwise: false }
    }

    /// Returns the value with single steps. That is no mistake: it allows crashes and other workers between the steps.
    #[cfg(test)]
    pub(crate) fn stepwise(self) -> OrderMutants {
        OrderMutants { is_stepwise: true, ..self }
    }

    /// Returns whether workers do single steps only.
    #[cfg(test)]
    pub fn is_stepwise(self) -> bool {
        self.is_stepwise
    }

    /// Returns whether workers do single steps only; always false outside the unit-test build.
    #[cfg(not(test))]
    pub const fn is_stepwise(self) -> bool {
        false
    }

    /// Returns whether this mistake is active; always false outside the unit-test build.
    #[cfg(test)]
    pub fn is(self, mutant: OrderMutant) -> bool {
        self.on == Some(mutant)
    }

    /// Returns whether this mistake is active; always false outside the unit-test build.
    #[cfg(not(test))]
    pub const fn is(self, _: OrderMutant) -> bool {
        false
    }
}
