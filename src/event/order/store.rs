//! The state that front ends and workers share. Each atomic step on the state is a value, and so is its outcome.
//!
//! A store has these keys, and applies each [`StoreOp`] as a whole or not at all. No step blocks: a worker that finds
//! no object waits by itself. Keys marked + are not in seed 001.
//!
//! | key | value |
//! |---|---|
//! | `OBJ:data` | the state of the object |
//! | `OBJ:events` | its queued events, oldest first |
//! | `OBJ:last.event.id` | the id of its last event that was sent |
//! | `OBJ:event.worker` | its owner: the worker, and the fencing token + of this ownership; unset if there is none |
//! | `objects.with.events` | names of objects with (potentially) pending events, oldest first |
//! | `event.worker:W:object` | the object that the worker has taken, if any, and when the lease + on it ends |
//! | `event.worker:W:event` | the events that the worker processes, if any: a batch, oldest first |
//! | `event.worker:W:event.id` | the id of the last of them; the ids of a batch are consecutive |
//! | `event.worker:W:session` + | the run of the worker that may write |
//! | `next.event.id` | generation + and count of the last assigned stamp |
//!
//! Three rules apply to all steps, in this order. In all three cases the step changes nothing.
//!
//! 1. A caller names the highest stamp that it has seen (`mark`). The outcome is [`OpOutcome::LostGeneration`] if the
//!    state is of another generation, has assigned fewer stamps, or has too few stamps left. The outcome is the same if
//!    the state may have lost data since its generation began (another server, another file).
//! 2. A worker names its session. If a newer session of its name was opened, the outcome is [`OpOutcome::Superseded`].
//! 3. A worker names its object and token. If they differ from those in the store, the outcome is
//!    [`OpOutcome::NotHeld`].
//!
//! The store removes a worker's name when the worker ends ([`WorkerOp::Leave`]) and when another worker takes over its
//! object. Such a worker may return: its name is then unknown, and it begins a run. The names that remain are those of
//! running workers and of workers that crashed without an object.
//!
//! A batch consists of consecutive events of one object's queue, each with the previous one as its `prev`. A worker
//! draws a batch as a whole, sends it event by event, and records it as a whole once all of it was sent. After a crash
//! of the worker, the batch is therefore sent again as a whole, with the same ids.
//!
//! Safety never depends on a clock. Leases only determine how long other workers wait; clocks that differ make this
//! wait longer or shorter. If an object is taken over too soon, the store refuses its former owner as after any
//! takeover.

use super::name::{Object, WorkerName};
use super::stamp::{Generation, OrderStamp};
use bytes::Bytes;

/// Maximum number of entries of `objects.with.events` that one [`WorkerOp::Advance`] examines, so that no step delays
/// the others for long.
pub const OBJECTS_PER_STEP: usize = 256;

/// Maximum number of events drawn in one step, and thus of events sent again after a crash. More events per step would
/// hardly reduce the cost per event.
pub const EVENTS_PER_STEP: usize = 32;

/// Total bytes of events after which a step draws no further event. A batch has fewer bytes without its last event.
pub const BYTES_PER_STEP: usize = 256 << 10;

/// Maximum number of stamps that one step assigns: a token, and the ids of a batch.
pub const STAMPS_PER_STEP: u64 = EVENTS_PER_STEP as u64 + 1;

/// One atomic step on the shared state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreOp {
    /// Reads the last assigned stamp. Outcome: `MarkRead`.
    ReadMark,
    /// Begins a generation in place of generation `found`. If another generation has begun meanwhile, only reads the
    /// last stamp. Outcome: `MarkRead`.
    Begin {
        /// Generation reported by [`OpOutcome::LostGeneration`], or that of [`OpOutcome::MarkRead`].
        found: Option<Generation>,
        /// New generation, above `found`.
        generation: Generation,
    },
    /// Queues events of an object, queues the object, and sets its state. Outcome: `Pushed`.
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
    /// anew. Outcome: `Opened`.
    Open {
        /// The worker. Its mark is that of its previous run, or was read at the start.
        context: WorkerContext,
    },
    /// A step of a worker's run.
    WorkerOp {
        /// The worker that requests the step.
        context: WorkerContext,
        /// The run of the worker.
        session: OrderStamp,
        /// Operation of the step.
        op: WorkerOp,
    },
    /// Reads the contents of the state for a report. Outcome: `Shown`, whatever the generation of the state.
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
    /// Duration of a lease in milliseconds. Until it ends, other workers may not take over the object of this worker.
    pub lease_ms: u64,
}

/// An operation of a worker. After each one, the lease on the object of the worker begins anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WorkerOp {
    /// Takes the next object of `objects.with.events`. Outcome: `Taken` or `Empty`.
    Take,
    /// Takes over the object of another worker whose lease has ended, namely the lease that ended first. The worker
    /// gets the object, its ownership and the batch in process, as after a crash of its own. Outcome: `Taken` or
    /// `NoneEnded`.
    TakeOver,
    /// Makes the worker the owner of the object taken, unless another worker owns it. Outcome: `Claimed` or `Owned`.
    Claim {
        /// The object taken.
        object: Object,
    },
    /// Draws the object's next events and assigns their ids. Without events, ends the ownership. Outcome: `Next` or
    /// `Emptied`.
    Next {
        /// The object owned.
        object: Object,
        /// The token of the ownership.
        token: OrderStamp,
    },
    /// Combines the operations from one batch to the next: `Record`, then `Next`. Without a next event: `Drop`, then
    /// `Take`, `Claim`, and `Next` or `Drop`, repeated until an object has events. Entries of objects that have an
    /// owner, or no events, are only removed, since they need no other operation. Outcome: `Advanced`; `Empty` if no
    /// object is queued any more; `Paused` after [`OBJECTS_PER_STEP`] entries without an event. After `Empty` and
    /// `Paused` the worker holds no object.
    Advance {
        /// The object owned.
        object: Object,
        /// The token of the ownership.
        token: OrderStamp,
        /// The last event of the batch.
        id: OrderStamp,
    },
    /// Releases the batch, all of which was sent, and records its last id as that of the object. Outcome: `Done`.
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
    /// Ends the run of a worker without an object; the store removes the worker's name. Outcome: `Done`.
    Leave,
}

/// An event with its id and that of the object's previous event, as recorded in the store.
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
    /// The state was lost or rolled back, or its stamps are used up. No step is possible before a new generation
    /// begins. The caller always reports this outcome, and a front end pushes the events that it still has again.
    LostGeneration {
        /// Generation of the state now; `None` if the state is empty.
        found: Option<Generation>,
    },
    /// A newer run of this worker has begun. The older run must stop.
    Superseded,
    /// The worker does not hold the object, or not by this token, because another worker took it over. Or the store has
    /// removed the name of the worker. In both cases the worker may begin another run.
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
        /// Object that the worker has held since its previous run.
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
        /// Time at which the first lease ends; `None` if no other worker holds an object.
        first_ms: Option<u64>,
    },
    /// The worker is the object's owner.
    Claimed {
        /// Fencing token of the ownership.
        token: OrderStamp,
        /// Batch that the previous owner stamped and perhaps sent, to be sent again with the same ids. May be empty.
        unfinished: Vec<StampedEvent>,
    },
    /// Another worker is the object's owner. It will process all queued events, because its ownership ends only when
    /// the queue is empty.
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
    /// The worker has recorded its batch and holds no object. More objects may be queued.
    Paused,
    /// The object has no events, and the worker is no longer its owner.
    Emptied,
    /// The step was done.
    Done,
    /// The contents of the state.
    Shown(StoreSnapshot),
}

/// Contents of the shared state, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StoreSnapshot {
    /// The last assigned stamp; `None` if the state is empty.
    pub mark: Option<OrderStamp>,
    /// True if the state may have lost data, so that a new generation must begin before any other step.
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
    /// Number of its events in process.
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
    /// The store cannot be reached. The worker then begins again with [`StoreOp::ReadMark`]: the store has all of its
    /// state.
    fn apply(&mut self, op: &StoreOp) -> Result<OpOutcome, Self::Error>;
}

impl<S: Store + ?Sized> Store for Box<S> {
    type Error = S::Error;

    fn apply(&mut self, op: &StoreOp) -> Result<OpOutcome, S::Error> {
        (**self).apply(op)
    }
}
