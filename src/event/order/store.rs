//! The state that front ends and workers share. Each atomic step on it is a value, and so is its outcome.
//!
//! A store keeps these keys, and applies each [`StoreOp`] as a whole or not at all. No step blocks; a caller that wants
//! to wait for an object does so itself. Keys marked + are not in seed 001.
//!
//! | key | holds |
//! |---|---|
//! | `OBJ:data` | the state of the object |
//! | `OBJ:events` | its queued events, oldest first |
//! | `OBJ:last.event.id` | the id of its last event that was sent |
//! | `OBJ:event.worker` | its owner: the worker, and the fencing token + of this ownership; unset if there is none |
//! | `objects.with.events` | names of objects with (potentially) pending events, oldest first |
//! | `event.worker:W:object` | the object that the worker has taken, if any, and when the lease + on it ends |
//! | `event.worker:W:event` | the events that the worker processes, if any: a batch, oldest first |
//! | `event.worker:W:event.id` | the id of the last of them; those before have the numbers before |
//! | `event.worker:W:session` + | which run of the worker may write |
//! | `next.event.id` | generation + and count of the last stamp that was given out |
//!
//! Three rules apply to all steps, in this order. A caller names the highest stamp it has seen (`mark`). The outcome is
//! [`OpOutcome::LostGeneration`] if the state is of another generation, has assigned fewer stamps, or has too few
//! stamps left. The same holds if the state may have lost something since its generation began (another server, another
//! file). A worker names its session: if a newer one was opened, the outcome is [`OpOutcome::Superseded`]. A worker
//! names what it holds: if the store knows otherwise, the outcome is [`OpOutcome::NotHeld`]. In all three cases nothing
//! was changed.
//!
//! The store removes a worker's name when the worker ends ([`WorkerOp::Leave`]) and when another worker takes over what
//! it holds. The worker may return: its name is then unknown, and it begins a run. The names that remain are those of
//! running workers and of workers that crashed while they held nothing.
//!
//! A batch is some events of one object in the order of its queue, each with the one before as its `prev`. It is drawn
//! as a whole, is sent event by event, and is recorded as a whole when all of it was sent. A batch whose worker is gone
//! is therefore sent again as a whole, with the same ids.
//!
//! Safety never rests on a clock. Leases only determine how long other workers wait: with clocks that differ they last
//! longer or shorter. A worker whose object was taken over too soon is refused like any other.

use super::name::{Object, WorkerName};
use super::stamp::{Generation, OrderStamp};
use bytes::Bytes;

/// Maximum number of entries of `objects.with.events` that one [`WorkerOp::Advance`] examines, so that no step delays
/// the others for long.
pub const OBJECTS_PER_STEP: usize = 256;

/// Maximum number of events drawn in one step, and thus of events sent again after a crash. A larger number hardly
/// reduces the cost of a step per event.
pub const EVENTS_PER_STEP: usize = 32;

/// Bytes of events after which a step draws no further one. A batch therefore has less than this plus one event.
pub const BYTES_PER_STEP: usize = 256 << 10;

/// Maximum number of stamps that one step assigns: a token, and the ids of a batch.
pub const STAMPS_PER_STEP: u64 = EVENTS_PER_STEP as u64 + 1;

/// One atomic step on the shared state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreOp {
    /// Reads the last assigned stamp. Outcome: `MarkRead`.
    ReadMark,
    /// Begins a generation in place of the one that was found. If another one has begun by now, only reads. Outcome:
    /// `MarkRead`.
    Begin {
        /// Generation reported by [`OpOutcome::LostGeneration`], or that of [`OpOutcome::MarkRead`].
        found: Option<Generation>,
        /// New generation, above `found`.
        generation: Generation,
    },
    /// Queues events of an object and the object, and sets its state. Outcome: `Pushed`.
    Push {
        /// The highest stamp that the front end has seen.
        mark: OrderStamp,
        /// The object.
        object: Object,
        /// Its new state.
        data: Bytes,
        /// The main event.
        main: Bytes,
        /// The subevents, which follow it in this order.
        subs: Vec<Bytes>,
    },
    /// Begins a run of a worker: its previous run may no longer write. If the worker holds an object, its lease begins
    /// anew.
    /// Outcome: `Opened`.
    Open {
        /// The worker, with the mark of its previous run, or as read at the start.
        by: WorkerContext,
    },
    /// A step of a worker's run.
    WorkerOp {
        /// The worker.
        by: WorkerContext,
        /// The run of the worker.
        session: OrderStamp,
        /// The step.
        act: WorkerOp,
    },
    /// Reads the contents of the state for people. Outcome: `Shown`, whatever the generation of the state.
    Show {
        /// Objects to include in any case.
        objects: Vec<Object>,
        /// Number of the oldest entries of `objects.with.events` that are examined for more objects.
        queued_max: usize,
    },
}

/// The worker that requests a step, and the time of the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerContext {
    /// Its name.
    pub worker: WorkerName,
    /// The highest stamp that it has seen.
    pub mark: OrderStamp,
    /// Current time in milliseconds, on the clock that all workers of a store share.
    pub now_ms: u64,
    /// Time from now in milliseconds during which other workers may not take over what this worker holds.
    pub lease_ms: u64,
}

/// A step of a worker. Afterwards a lease begins anew on what the worker holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WorkerOp {
    /// Takes the next object of `objects.with.events`. Outcome: `Taken` or `Empty`.
    Take,
    /// Takes what another worker holds whose lease has ended, choosing the lease that ended first. It takes object,
    /// ownership and the batch in process, as if the other worker were this one and had crashed. Outcome: `Taken` or
    /// `NoneEnded`.
    TakeOver,
    /// Becomes owner of the object taken, if it has no owner or this worker is the owner already. Outcome: `Claimed` or
    /// `Owned`.
    Claim {
        /// The object taken.
        object: Object,
    },
    /// Draws the object's next events and stamps their ids. If there is none, gives up the ownership. Outcome: `Next`
    /// or `Emptied`.
    Next {
        /// The object owned.
        object: Object,
        /// The token of the ownership.
        token: OrderStamp,
    },
    /// Combines the steps from one batch to the next: `Record`, then `Next`. If there is no next event: `Drop`, then
    /// `Take`, `Claim`, and `Next` or `Drop`, repeated until there is one. Entries of objects that have an owner, or no
    /// events, are only removed, since no other step affects them. Outcome: `Advanced`; `Empty` if no object is
    /// queued any more; `Paused` after [`OBJECTS_PER_STEP`] entries without an event. After `Empty` and `Paused` the
    /// worker holds nothing.
    Advance {
        /// The object owned.
        object: Object,
        /// The token of the ownership.
        token: OrderStamp,
        /// The last event of the batch.
        id: OrderStamp,
    },
    /// Releases the batch, all of which was sent, and records its last id as the object's. Outcome: `Done`.
    Record {
        /// The object owned.
        object: Object,
        /// The token of the ownership.
        token: OrderStamp,
        /// The last event of the batch.
        id: OrderStamp,
    },
    /// Begins the lease anew and changes nothing else. Outcome: `Done`.
    Renew {
        /// The object owned.
        object: Object,
        /// The token of the ownership.
        token: OrderStamp,
    },
    /// Releases an object that the worker does not own, or no longer owns. Outcome: `Done`.
    Drop {
        /// The object taken.
        object: Object,
    },
    /// Ends the run of a worker that holds nothing; the store removes its name. Outcome: `Done`.
    Leave,
}

/// An event with its id and that of the object's previous event, as the store knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StampedEvent {
    /// Its id.
    pub id: OrderStamp,
    /// Id of the object's previous event; `None` if it is the first one. Less than `id`.
    pub prev: Option<OrderStamp>,
    /// The event as it was pushed.
    pub payload: Bytes,
}

/// The outcome of a [`StoreOp`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OpOutcome {
    /// The last assigned stamp.
    MarkRead {
        /// The stamp, or the first position of its generation.
        mark: OrderStamp,
    },
    /// The state was lost or went back, or its stamps are used up. No step is possible before a new generation begins.
    /// This is never silent: the caller reports it, and a front end pushes again what it still has.
    LostGeneration {
        /// Generation of the state now; `None` if the state is empty.
        found: Option<Generation>,
    },
    /// A newer run of this worker has begun. The older run must stop.
    Superseded,
    /// The worker does not hold the object, or not by this token, because another worker took it over. Or the store no
    /// longer knows its name, which is possible when it holds nothing: it may begin another run.
    NotHeld,
    /// The events are queued.
    Pushed {
        /// The last assigned stamp.
        mark: OrderStamp,
    },
    /// The run has begun.
    Opened {
        /// Stamp that names the run from now on.
        session: OrderStamp,
        /// Object that the worker has held since its last run.
        object: Option<Object>,
    },
    /// The worker holds this object.
    Taken {
        /// The object.
        object: Object,
    },
    /// No object is queued.
    Empty,
    /// No other worker's lease has ended.
    NoneEnded {
        /// Time at which the first lease ends; `None` if no other worker holds anything.
        first_ms: Option<u64>,
    },
    /// The worker is the object's owner.
    Claimed {
        /// Fencing token of the ownership.
        token: OrderStamp,
        /// The batch that the previous owner stamped and perhaps sent, to be sent again with the same ids. Empty if
        /// there is none.
        unfinished: Vec<StampedEvent>,
    },
    /// Another worker is the object's owner. It will process all queued events, because it gives up the ownership only
    /// when the queue is empty.
    Owned,
    /// The object's next events, at least one.
    Next(Vec<StampedEvent>),
    /// The worker has recorded its batch and holds and owns this object, with its next events.
    Advanced {
        /// The object: the previous one or another one.
        object: Object,
        /// The token of the ownership.
        token: OrderStamp,
        /// Its next events, at least one.
        batch: Vec<StampedEvent>,
    },
    /// The worker has recorded its batch and holds nothing. More may be queued.
    Paused,
    /// The object has no events, and the worker is no longer its owner.
    Emptied,
    /// The step was done.
    Done,
    /// The contents of the state.
    Shown(StoreSnapshot),
}

/// Contents of the shared state, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StoreSnapshot {
    /// The last assigned stamp; `None` if the state is empty.
    pub mark: Option<OrderStamp>,
    /// True if something may have been lost, so that a new generation has to begin before any other step.
    pub is_suspect: bool,
    /// Number of entries of `objects.with.events`.
    pub queued: u64,
    /// The workers known to the store, by name.
    pub workers: Vec<WorkerSnapshot>,
    /// The requested objects, those that workers hold and those of the oldest entries, by name, each once.
    pub objects: Vec<ObjectSnapshot>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerSnapshot {
    /// Its name.
    pub name: WorkerName,
    /// The object that it has taken.
    pub object: Option<Object>,
    /// Time from which others may take that object over, in milliseconds since 1970-01-01 UTC.
    pub lease_end_ms: Option<u64>,
    /// Number of events it has in process.
    pub events: u64,
    /// The id of the last of them.
    pub last: Option<OrderStamp>,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectSnapshot {
    /// Its name.
    pub name: Object,
    /// Number of events in its queue.
    pub queued: u64,
    /// The id of its last event that was sent.
    pub last: Option<OrderStamp>,
    /// Its owner.
    pub owner: Option<WorkerName>,
}

/// A store of the shared state.
pub trait Store {
    /// The reason why a step failed, or why its outcome is unknown.
    type Error;

    /// Applies a step as a whole or not at all, and durably.
    ///
    /// # Errors
    /// The store could not be reached. The worker then begins anew with [`StoreOp::ReadMark`]: what the store knows of it
    /// is enough.
    fn apply(&mut self, op: &StoreOp) -> Result<OpOutcome, Self::Error>;
}

impl<S: Store + ?Sized> Store for Box<S> {
    type Error = S::Error;

    fn apply(&mut self, op: &StoreOp) -> Result<OpOutcome, S::Error> {
        (**self).apply(op)
    }
}
