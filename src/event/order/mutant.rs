//! Deliberate mistakes in the order of events, to prove that the exhaustive model would notice them.
//!
//! As in `proto::mutant`: a mutant is switched on at run time and only in the unit-test build of this crate.

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrderMutant {
    /// That the queue is empty and that the object has no owner any more are two steps.
    ReleaseLater,
    /// Events that may have been sent already get other ids when they are sent again.
    NewIdOnResend,
    /// Whoever writes is not asked whether it still owns the object.
    OwnerUnchecked,
    /// Whoever is taken over keeps what it holds, and its token goes on to count.
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
    /// Only the id of the first event of a batch is given out for good.
    IdsUnreserved,
    /// The first id of a batch is written down as the last one of the object.
    FirstAsLast,
    /// An object is claimed although it has an owner.
    ClaimOwned,
    /// Of two workers with one name the older one is not refused.
    SessionUnchecked,
    /// What a worker had stamped before it crashed is not sent again.
    UnfinishedForgotten,
    /// Of the batch that a worker had stamped before it crashed, only the first event is sent again.
    UnfinishedCut,
    /// A worker drops its object after one batch.
    DropEarly,
    /// An entry is passed over although its object has events and no owner.
    EntryWasted,
    /// A lost state is not noticed: ids go on from where it went back to.
    LossUnnoticed,
    /// The last id of the object is not written down.
    LastForgotten,
    /// A worker that finds nothing to do does not look at the leases again.
    LeasesUnwatched,
}

/// The mutant that is on, if any, and whether workers do each step of the seed as a step of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OrderMutants {
    #[cfg(test)]
    on: Option<OrderMutant>,
    #[cfg(test)]
    is_stepwise: bool,
}

impl OrderMutants {
    /// The order of events with this mistake.
    #[cfg(test)]
    pub(crate) fn only(mutant: OrderMutant) -> OrderMutants {
        OrderMutants { on: Some(mutant), is_stepwise: false }
    }

    /// With single steps. That is no mistake: it lets crashes and others in between them.
    #[cfg(test)]
    pub(crate) fn stepwise(self) -> OrderMutants {
        OrderMutants { is_stepwise: true, ..self }
    }

    /// Whether there are to be single steps only.
    #[cfg(test)]
    pub fn is_stepwise(self) -> bool {
        self.is_stepwise
    }

    /// Whether there are to be single steps only; always false outside the unit-test build.
    #[cfg(not(test))]
    pub const fn is_stepwise(self) -> bool {
        false
    }

    /// Whether this mistake is to be made; always false outside the unit-test build.
    #[cfg(test)]
    pub fn is(self, mutant: OrderMutant) -> bool {
        self.on == Some(mutant)
    }

    /// Whether this mistake is to be made; always false outside the unit-test build.
    #[cfg(not(test))]
    pub const fn is(self, _: OrderMutant) -> bool {
        false
    }
}
