//! The state that front ends and workers share: each atomic step on it as a value, with its outcome.
//!
//! A store keeps these keys, and does each [`StoreOp`] as a whole or not at all. No step waits: whoever wants to wait for an object stands
//! above. Keys marked + are not in seed 001.
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
//! Three rules are the same for all steps, in this order. A caller names the highest stamp it has seen (`mark`): if the state is of
//! another generation, or has given out fewer, or may have lost something since its generation began (another server, another file),
//! or has too few stamps left, the outcome is [`OpOutcome::LostGeneration`]. A worker names its session: if a newer one was opened, the
//! outcome is [`OpOutcome::Superseded`]. A worker names what it holds: if the store knows otherwise, the outcome is
//! [`OpOutcome::NotHeld`]. In all three nothing was changed.
//!
//! A worker's name is forgotten when it ends ([`WorkerOp::Leave`]) and when somebody takes over what it holds. It may come back: then its
//! name is not known, and it begins a run. So what is left of workers are those that run, and those that crashed while they held nothing.
//!
//! A batch is some events of one object in the order of its queue, each with the one before as its `prev`. It is drawn as a whole, is sent
//! event by event, and is recorded as a whole when all of it was sent. So a batch whose worker is gone is sent again as a whole, with the
//! same ids.
//!
//! Safety never rests on a clock. Leases only say how long others wait: with clocks that differ they last longer or shorter, and a
//! worker whose object was taken over too soon is refused like any other.

use super::name::{Object, WorkerName};
use super::stamp::{Generation, OrderStamp};
use bytes::Bytes;

/// Entries of `objects.with.events` that one [`WorkerOp::Advance`] looks at at most, so that no step holds up the others for long.
pub const OBJECTS_PER_STEP: usize = 256;

/// Events that are drawn in one step at most: so many may be sent again after a crash. With more of them a step costs hardly less for
/// each.
pub const EVENTS_PER_STEP: usize = 32;

/// Bytes of events after which no further one is drawn in the same step, so that a batch has less than this and one event.
pub const BYTES_PER_STEP: usize = 256 << 10;

/// Stamps that one step gives out at most: a token, and the ids of a batch.
pub const STAMPS_PER_STEP: u64 = EVENTS_PER_STEP as u64 + 1;

/// One atomic step on the shared state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreOp {
    /// Reads the last stamp given out. Outcome: `Looked`.
    Look,
    /// Begins a generation in place of the one that was found; if another one is there by now, only reads. Outcome: `Looked`.
    Begin {
        /// What [`OpOutcome::LostGeneration`] told, or the generation of [`OpOutcome::Looked`].
        found: Option<Generation>,
        /// Above `found`.
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
    /// Begins a run of a worker: the one before may not write any more. If it holds an object, its lease begins anew.
    /// Outcome: `Opened`.
    Open {
        /// Who; with the mark of before, or of the look.
        by: WorkerContext,
    },
    /// A step of a worker's run.
    WorkerOp {
        /// Who.
        by: WorkerContext,
        /// The run of the worker.
        session: OrderStamp,
        /// What.
        act: WorkerOp,
    },
    /// Reads what there is, for people. Outcome: `StoreSnapshot`, of whatever state.
    Show {
        /// Objects that are wanted in any case.
        objects: Vec<Object>,
        /// How many of the oldest entries of `objects.with.events` are looked at for more objects.
        queued_max: usize,
    },
}

/// Which worker asks, and when.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerContext {
    /// Its name.
    pub worker: WorkerName,
    /// The highest stamp that it has seen.
    pub mark: OrderStamp,
    /// Now, in milliseconds on the clock that all workers of a store share.
    pub now_ms: u64,
    /// How long what it holds is safe from others, from now, in milliseconds.
    pub lease_ms: u64,
}

/// What a worker does. What it holds afterwards is safe from others for a lease from now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WorkerOp {
    /// Takes the next object of `objects.with.events`. Outcome: `Taken` or `Empty`.
    Take,
    /// Takes what another worker holds whose lease has ended, the first that ended: object, ownership and the batch in process, as if
    /// the other one were this worker and had crashed. Outcome: `Taken` or `NoneEnded`.
    TakeOver,
    /// Becomes owner of the object taken, if there is none or it is the owner already. Outcome: `Claimed` or `OwnedObject`.
    Claim {
        /// The object taken.
        object: Object,
    },
    /// Draws the object's next events and stamps their ids; if there is none, gives the ownership up. Outcome: `Next` or `Emptied`.
    Next {
        /// The object owned.
        object: Object,
        /// By which token.
        token: OrderStamp,
    },
    /// What a worker does from one batch to the next, in one step: `Record`, then `Next`; if there is no next event, `Drop`, then `Take`,
    /// `Claim`, and `Next` or `Drop`, over and over until there is one. Entries of objects that have an owner, or no events, are only
    /// taken away, since nothing else would come of them. Outcome: `Advanced`; `Empty` if no object is queued any more; `Paused` after
    /// [`OBJECTS_PER_STEP`] entries without an event. With the last two the worker holds nothing.
    Advance {
        /// The object owned.
        object: Object,
        /// By which token.
        token: OrderStamp,
        /// The last event of the batch.
        id: OrderStamp,
    },
    /// Lets go of the batch, all of which was sent, and writes its last id down as the object's. Outcome: `Done`.
    Record {
        /// The object owned.
        object: Object,
        /// By which token.
        token: OrderStamp,
        /// The last event of the batch.
        id: OrderStamp,
    },
    /// Lets the lease begin anew, nothing else. Outcome: `Done`.
    Renew {
        /// The object owned.
        object: Object,
        /// By which token.
        token: OrderStamp,
    },
    /// Lets go of an object that it does not own, or not any more. Outcome: `Done`.
    Drop {
        /// The object taken.
        object: Object,
    },
    /// Ends the run of a worker that holds nothing: its name is forgotten. Outcome: `Done`.
    Leave,
}

/// An event with its id and that of the object's event before, as the store knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StampedEvent {
    /// Its id.
    pub id: OrderStamp,
    /// The id of the object's event before; `None` if it is the first one. Less than `id`.
    pub prev: Option<OrderStamp>,
    /// The event as it was pushed.
    pub payload: Bytes,
}

/// What became of an [`StoreOp`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OpOutcome {
    /// The last stamp that was given out.
    Looked {
        /// The stamp, or where its generation begins.
        mark: OrderStamp,
    },
    /// The state was lost or went back, or its stamps are used up. Nobody can go on before a new generation begins. Never silent: the
    /// caller tells it, and a front end pushes again what it still has.
    LostGeneration {
        /// The generation that the state is of now; `None` if it is empty.
        found: Option<Generation>,
    },
    /// A newer run of this worker has begun. This one must stop.
    Superseded,
    /// The worker does not hold the object, or not by this token: somebody took it over. Or its name is not known any more, which is so
    /// when it holds nothing: it may begin another run.
    NotHeld,
    /// The events are queued.
    Pushed {
        /// The last stamp that was given out.
        mark: OrderStamp,
    },
    /// The run has begun.
    Opened {
        /// Names it from now on.
        session: OrderStamp,
        /// What the worker holds since its last run.
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
        /// When the first one does; `None` if no other worker holds anything.
        first_ms: Option<u64>,
    },
    /// The worker is the object's owner.
    Claimed {
        /// By this token.
        token: OrderStamp,
        /// The batch that was stamped and perhaps sent by the owner before, to be sent again with the same ids; empty if there is none.
        unfinished: Vec<StampedEvent>,
    },
    /// Another worker is the object's owner. It will process whatever is queued, because it gives the ownership up only when nothing
    /// is.
    OwnedObject,
    /// The object's next events, at least one.
    Next(Vec<StampedEvent>),
    /// The worker has recorded its batch and holds and owns this object, with its next events.
    Advanced {
        /// The object: that of before, or another one.
        object: Object,
        /// By which token.
        token: OrderStamp,
        /// Its next events, at least one.
        batch: Vec<StampedEvent>,
    },
    /// The worker has recorded its batch and holds nothing. More may be queued.
    Paused,
    /// There is none, and the worker is not the owner any more.
    Emptied,
    /// Done.
    Done,
    /// What there is.
    StoreSnapshot(StoreSnapshot),
}

/// What there is in the shared state, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StoreSnapshot {
    /// The last stamp given out; `None` if the state is empty.
    pub mark: Option<OrderStamp>,
    /// Whether something may have been lost, so that a new generation has to begin before anybody goes on.
    pub is_suspect: bool,
    /// Entries of `objects.with.events`.
    pub queued: u64,
    /// The workers that are known, by name.
    pub workers: Vec<WorkerSnapshot>,
    /// The objects that were asked for, those that workers hold and those of the oldest entries, by name, each once.
    pub objects: Vec<ObjectSnapshot>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerSnapshot {
    /// Its name.
    pub name: WorkerName,
    /// The object that it has taken.
    pub object: Option<Object>,
    /// When others may take that over, in milliseconds since 1970-01-01 UTC.
    pub lease_end_ms: Option<u64>,
    /// How many events it has in process.
    pub events: u64,
    /// The id of the last of them.
    pub last: Option<OrderStamp>,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectSnapshot {
    /// Its name.
    pub name: Object,
    /// Events in its queue.
    pub queued: u64,
    /// The id of its last event that was sent.
    pub last: Option<OrderStamp>,
    /// Its owner.
    pub owner: Option<WorkerName>,
}

/// Where the shared state is kept.
pub trait Store {
    /// Why a step could not be done, or why it is not known whether it was.
    type Error;

    /// Does a step as a whole or not at all, and durably.
    ///
    /// # Errors
    /// The store could not be reached. A worker then begins anew, with [`StoreOp::Look`]: what the store knows of it is enough.
    fn apply(&mut self, op: &StoreOp) -> Result<OpOutcome, Self::Error>;
}
