//! The state that front ends and workers share: each atomic step on it as a value, with its outcome.
//!
//! A store keeps these keys, and does each [`Op`] as a whole or not at all. No step waits: whoever wants to wait for an object stands
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
//! | `event.worker:W:event` | the event that the worker processes, if any |
//! | `event.worker:W:event.id` | the id of that event |
//! | `event.worker:W:session` + | which run of the worker may write |
//! | `next.event.id` | generation + and count of the last stamp that was given out |
//!
//! Three rules are the same for all steps, in this order. A caller names the highest stamp it has seen (`mark`): if the state is of
//! another generation, or has given out fewer, or may have lost something since its generation began (another server, another file),
//! or has no stamp left, the outcome is [`Outcome::LostGeneration`]. A worker names its session: if a newer one was opened, the
//! outcome is [`Outcome::Superseded`]. A worker names what it holds: if the store knows otherwise, the outcome is
//! [`Outcome::NotHeld`]. In all three nothing was changed.
//!
//! Safety never rests on a clock. Leases only say how long others wait: with clocks that differ they last longer or shorter, and a
//! worker whose object was taken over too soon is refused like any other.

use super::name::{Object, WorkerName};
use super::stamp::{Generation, Stamp};
use bytes::Bytes;

/// One atomic step on the shared state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads the last stamp given out. Outcome: `Looked`.
    Look,
    /// Begins a generation in place of the one that was found; if another one is there by now, only reads. Outcome: `Looked`.
    Begin {
        /// What [`Outcome::LostGeneration`] told, or the generation of [`Outcome::Looked`].
        found: Option<Generation>,
        /// Above `found`.
        generation: Generation,
    },
    /// Queues events of an object and the object, and sets its state. Outcome: `Pushed`.
    Push {
        /// The highest stamp that the front end has seen.
        mark: Stamp,
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
        by: Caller,
    },
    /// A step of a worker's run.
    Act {
        /// Who.
        by: Caller,
        /// The run of the worker.
        session: Stamp,
        /// What.
        act: Act,
    },
}

/// Which worker asks, and when.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Its name.
    pub worker: WorkerName,
    /// The highest stamp that it has seen.
    pub mark: Stamp,
    /// Now, in milliseconds on the clock that all workers of a store share.
    pub now_ms: u64,
    /// How long what it holds is safe from others, from now, in milliseconds.
    pub lease_ms: u64,
}

/// What a worker does. What it holds afterwards is safe from others for a lease from now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Takes the next object of `objects.with.events`. Outcome: `Taken` or `Empty`.
    Take,
    /// Takes what another worker holds whose lease has ended, the first that ended: object, ownership and the event in process, as if
    /// the other one were this worker and had crashed. Outcome: `Taken` or `NoneEnded`.
    TakeOver,
    /// Becomes owner of the object taken, if there is none or it is the owner already. Outcome: `Claimed` or `Owned`.
    Claim {
        /// The object taken.
        object: Object,
    },
    /// Takes the object's next event and stamps its id; if there is none, gives the ownership up. Outcome: `Next` or `Emptied`.
    Next {
        /// The object owned.
        object: Object,
        /// By which token.
        token: Stamp,
    },
    /// Lets go of the event, which was sent, and writes its id down as the object's last one. Outcome: `Done`.
    Record {
        /// The object owned.
        object: Object,
        /// By which token.
        token: Stamp,
        /// The event.
        id: Stamp,
    },
    /// Lets the lease begin anew, nothing else. Outcome: `Done`.
    Renew {
        /// The object owned.
        object: Object,
        /// By which token.
        token: Stamp,
    },
    /// Lets go of an object that it does not own, or not any more. Outcome: `Done`.
    Drop {
        /// The object taken.
        object: Object,
    },
}

/// An event with its id and that of the object's event before, as the store knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stamped {
    /// Its id.
    pub id: Stamp,
    /// The id of the object's event before; `None` if it is the first one. Less than `id`.
    pub prev: Option<Stamp>,
    /// The event as it was pushed.
    pub payload: Bytes,
}

/// What became of an [`Op`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The last stamp that was given out.
    Looked {
        /// The stamp, or where its generation begins.
        mark: Stamp,
    },
    /// The state was lost or went back, or its stamps are used up. Nobody can go on before a new generation begins. Never silent: the
    /// caller tells it, and a front end pushes again what it still has.
    LostGeneration {
        /// The generation that the state is of now; `None` if it is empty.
        found: Option<Generation>,
    },
    /// A newer run of this worker has begun. This one must stop.
    Superseded,
    /// The worker does not hold the object, or not by this token: somebody took it over.
    NotHeld,
    /// The events are queued.
    Pushed {
        /// The last stamp that was given out.
        mark: Stamp,
    },
    /// The run has begun.
    Opened {
        /// Names it from now on.
        session: Stamp,
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
        token: Stamp,
        /// What was stamped and perhaps sent by the owner before, to be sent again with the same id.
        unfinished: Option<Stamped>,
    },
    /// Another worker is the object's owner. It will process whatever is queued, because it gives the ownership up only when nothing
    /// is.
    Owned,
    /// The object's next event.
    Next(Stamped),
    /// There is none, and the worker is not the owner any more.
    Emptied,
    /// Done.
    Done,
}

/// Where the shared state is kept.
pub trait Store {
    /// Why a step could not be done, or why it is not known whether it was.
    type Error;

    /// Does a step as a whole or not at all, and durably.
    ///
    /// # Errors
    /// The store could not be reached. A worker then begins anew, with [`Op::Look`]: what the store knows of it is enough.
    fn apply(&mut self, op: &Op) -> Result<Outcome, Self::Error>;
}
