//! `order`: pushes events of objects, sends them as a worker, shows them in their order, shows the shared state.

pub mod args;
pub mod help;
mod tail;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use self::args::{OrderCommand, OrderShowOptions, PushOptions, StoreOptions, WorkOptions};
use super::bus_options::PeerOptions;
use super::publish::read;
use super::{config, connect};
use crate::bus::{Bus, EventError};
use crate::clock::Clock;
use crate::event::model::{Payload, Registration};
use crate::event::order::envelope::event_type;
use crate::event::order::stamp::{Generation, OrderStamp};
use crate::event::order::store::{OpOutcome, Store, StoreOp, StoreSnapshot};
use crate::event::order::worker::{OrderedEvent, Settings, WorkerAdvisory, WorkerEnd};
use crate::event::refusal::EventRefusalKind;
use crate::message::Message;
use crate::storage::order;
use crate::storage::order::error::{OrderError, OrderFault};
use crate::storage::order::front_end::{FrontEnd, Push, StateLoss};
use crate::storage::order::worker_run::{WorkerNotice, WorkerRun};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::{EscapedText, Output, note, pluralize};
use crate::terminal::peer;
use crate::terminal::table::{Column, TextTable};

/// File name of the shared state in the data directory.
const STORE_FILE: &str = "order.db";
/// Maximum time to wait until the peer accepts an event.
const SEND_TIME: Duration = Duration::from_secs(5);
/// Interval between a worker's checks that its peer is alive.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs `order`.
///
/// # Errors
/// The store, or the peer, cannot be reached, or the input is wrong.
pub fn run(what: &OrderCommand, out: &mut Output) -> Result<Exit, CommandFailure> {
    match what {
        OrderCommand::Push(options) => push(options, out),
        OrderCommand::Work(options) => work(options, out),
        OrderCommand::Tail(options) => tail::run(options, out),
        OrderCommand::Show(options) => show(options, out),
    }
}

/// Opens the configured store; `may_create` allows it to create a file.
fn open(options: &StoreOptions, may_create: bool) -> Result<Box<dyn Store<Error = OrderError>>, CommandFailure> {
    let path = match options.store.as_deref() {
        Some(url) if url.contains("://") || url.starts_with("redis:") => {
            return order::open_redis(url, &options.prefix, options.patience).map_err(failure);
        }
        Some("") => {
            return Err(CommandFailure::new(Exit::Usage, "--store names no store").fix("name a Redis server or a file"));
        }
        Some(path) => PathBuf::from(path),
        None => {
            let directory = config::resolve(&PeerOptions::default())?.data_dir;
            if may_create {
                std::fs::create_dir_all(&directory).map_err(|error| {
                    CommandFailure::new(
                        Exit::Failed,
                        format!("cannot create the directory {}: {error}", directory.display()),
                    )
                    .fix("name another location with --store")
                })?;
            }
            directory.join(STORE_FILE)
        }
    };
    order::open_file(&path, may_create).map_err(failure)?.ok_or_else(|| {
        CommandFailure::new(Exit::Failed, format!("there is no shared state in {}", path.display()))
            .fix("push or work first, or name another store with --store")
    })
}

fn push(options: &PushOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let state = match (&options.state, &options.state_file) {
        (Some(text), _) => text.clone().into_bytes().into(),
        (None, Some(path)) => read(path)?,
        (None, None) => unreachable!("one of the two is required"),
    };
    let mut events = options.events.iter().map(|text| Bytes::copy_from_slice(text.as_bytes()));
    let main = events.next().expect("at least one is required");
    let push = Push { object: options.object.clone(), data: state, main, subs: events.collect() };
    let mut front_end = FrontEnd::new(open(&options.store, true)?, None, options.store.patience);
    let pushed = front_end.push(&push).map_err(failure)?;
    if let Some(lost) = pushed.lost {
        note(StateLossText(lost.known, lost.found));
    }
    let count = options.events.len() as u64;
    if options.json {
        let lost = pushed.lost.map(|StateLoss { known, found }| lost_json(known, found));
        out.line(json!({
            "type": "pushed", "object": options.object.as_str(), "events": count,
            "mark": pushed.mark.number().to_string(), "lost": lost,
        }))?;
    } else {
        note(format_args!("queued {} of {}", pluralize(count, "event"), options.object));
    }
    Ok(Exit::Done)
}

fn lost_json(known: Option<Generation>, found: Option<Generation>) -> Value {
    json!({ "type": "lost_generation", "known": known.map(Generation::number), "found": found.map(Generation::number) })
}

/// Report for people that the state was lost.
struct StateLossText(Option<Generation>, Option<Generation>);

impl std::fmt::Display for StateLossText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "! the shared state was lost or went back, or may have (")?;
        match (self.0, self.1) {
            (Some(known), Some(found)) => write!(f, "generation {known} was known, {found} is there")?,
            (Some(known), None) => write!(f, "generation {known} was known, none is there")?,
            (None, Some(found)) => write!(f, "its generation is {found}, and data may be lost")?,
            (None, None) => write!(f, "none is there")?,
        }
        write!(f, "): earlier pushes may be lost; push lost ones again")
    }
}

/// Sends the events of a worker.
struct Sender<'a> {
    options: &'a WorkOptions,
    bus: &'a Bus,
    out: &'a mut Output,
    sent: u64,
    is_ending: &'a AtomicBool,
    /// Reason why nothing more can be sent.
    failure: Option<CommandFailure>,
    /// True if a failure to send was reported, and sending has not succeeded since.
    is_reported: bool,
}

impl Sender<'_> {
    /// Sends an event; returns whether it was sent.
    fn send(&mut self, event: &OrderedEvent) -> bool {
        let sent = event
            .registration(&self.options.event_type)
            .map_err(|error| CommandFailure::new(Exit::Failed, format!("an event of {}: {error}", event.object)))
            .and_then(|registration| self.send_as(registration));
        match sent.and_then(|is_sent| if is_sent { self.notify(event).map(|()| true) } else { Ok(false) }) {
            Ok(is_sent) => is_sent,
            Err(failure) => {
                // The event stays in process, for the next worker.
                self.failure.get_or_insert(failure);
                self.is_ending.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    fn send_as(&mut self, registration: Registration) -> Result<bool, CommandFailure> {
        let sent = if self.options.journal { self.register(registration)? } else { self.publish(registration)? };
        if !sent && !std::mem::replace(&mut self.is_reported, true) {
            note("the peer accepts no events now; trying again");
        }
        self.is_reported &= !sent;
        Ok(sent)
    }

    fn register(&self, registration: Registration) -> Result<bool, CommandFailure> {
        match self.bus.register(vec![registration]) {
            Ok(_) => Ok(true),
            Err(EventError::Refused(refusal))
                if matches!(refusal.kind, EventRefusalKind::Full | EventRefusalKind::Busy) =>
            {
                Ok(false)
            }
            Err(EventError::Refused(refusal)) => Err(CommandFailure::new(Exit::Failed, refusal)),
            Err(EventError::Timeout) => Ok(false),
            Err(error @ EventError::TooMany) => Err(CommandFailure::new(Exit::Failed, error)),
            Err(EventError::Closed) => Err(peer::end_failure(self.bus)),
        }
    }

    fn publish(&self, registration: Registration) -> Result<bool, CommandFailure> {
        let payload = registration.payload.as_ref().map_or(Bytes::new(), |payload: &Payload| payload.bytes().clone());
        let message = Message::new(registration.event_type.subject().clone(), payload);
        match self.bus.publish_timeout(message, SEND_TIME) {
            Ok(()) => peer::flush(self.bus).map(|()| true),
            Err(crate::bus::PublishError::Full) => Ok(false),
            Err(crate::bus::PublishError::Closed) => Err(peer::end_failure(self.bus)),
            Err(error) => Err(CommandFailure::new(Exit::Failed, error)),
        }
    }

    fn notify(&mut self, event: &OrderedEvent) -> Result<(), CommandFailure> {
        self.sent += 1;
        if self.options.count.is_some_and(|count| count <= self.sent) {
            self.is_ending.store(true, Ordering::Relaxed);
        }
        if self.options.json {
            self.out.line(tail::event_json(event))?;
            self.out.flush()?;
        }
        Ok(())
    }
}

fn work(options: &WorkOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    if options.count == Some(0) {
        return Ok(Exit::Done);
    }
    let lease_ms = u64::try_from(options.lease.as_millis()).unwrap_or(u64::MAX);
    if lease_ms < 100 {
        return Err(CommandFailure::new(
            Exit::Usage,
            "a lease is at least 100 ms: a step of a worker must fit into it",
        ));
    }
    let mut store = open(&options.store, true)?;
    let bus = connect::bus(&options.bus, options.worker.as_str())?;
    let interrupt = Interrupt::watch()?;
    note(format_args!("worker {} sends events of type {}/OBJECT", options.worker, options.event_type));
    let mut sender =
        Sender { options, bus: &bus, out, sent: 0, is_ending: interrupt.flag(), failure: None, is_reported: false };
    let run = WorkerRun {
        settings: Settings { name: options.worker.clone(), lease_ms },
        mark: None,
        patience: options.store.patience,
        send: |event: &OrderedEvent| sender.send(event),
        notify: |notice: WorkerNotice| notify(options.json, &notice),
        is_ending: interrupt.flag(),
    };
    let has_ended = watch_peer(&bus, &interrupt);
    let ended = run.run(&mut store);
    let (sent, failed) = (sender.sent, sender.failure.take());
    out.flush()?;
    note(format_args!("sent {}", pluralize(sent, "event")));
    if let Some(failed) = failed.or_else(|| has_ended.load(Ordering::Relaxed).then(|| peer::end_failure(&bus))) {
        return Err(failed);
    }
    match ended.map_err(failure)?.stop {
        WorkerEnd::Ended if options.count.is_some_and(|count| sent < count) => Ok(Exit::Failed),
        WorkerEnd::Ended => Ok(Exit::Done),
        WorkerEnd::Superseded => Err(CommandFailure::new(
            Exit::Failed,
            format!("another worker named {} has started, so this one has stopped", options.worker),
        )
        .fix("give each worker a name of its own")),
        WorkerEnd::NoGeneration => {
            Err(CommandFailure::new(Exit::Failed, "the shared state has reached its highest generation"))
        }
    }
}

/// Interrupts the worker when its peer has ended, and returns a flag that is true in this case. A worker without events
/// to send would not notice the end of its peer. If it took an object then, the object would wait for the end of the
/// lease.
fn watch_peer(bus: &Bus, interrupt: &Interrupt) -> Arc<AtomicBool> {
    let (bus, interrupt, has_ended) = (bus.clone(), interrupt.clone(), Arc::new(AtomicBool::new(false)));
    let ended = Arc::clone(&has_ended);
    thread::spawn(move || {
        while !interrupt.is_raised() {
            if bus.end_reason().is_some() {
                ended.store(true, Ordering::Relaxed);
                interrupt.flag().store(true, Ordering::Relaxed);
            }
            thread::sleep(POLL_INTERVAL);
        }
    });
    has_ended
}

fn notify(json: bool, notice: &WorkerNotice) {
    match notice {
        WorkerNotice::Advisory(WorkerAdvisory::LostGeneration { known, found }) if json => {
            note(lost_json(*known, *found))
        }
        WorkerNotice::Advisory(WorkerAdvisory::LostGeneration { known, found }) => note(StateLossText(*known, *found)),
        WorkerNotice::Advisory(WorkerAdvisory::TakenOver { object }) => {
            note(format_args!("! {object} was taken over by another worker: the lease had ended"));
        }
        WorkerNotice::Unreachable(error) => note(format_args!("{error}; trying again")),
        WorkerNotice::Recovered => note("the store answers again"),
    }
}

const WORKERS: [Column; 5] = [
    Column::new("worker").left(),
    Column::new("object").left(),
    Column::new("lease ends").left(),
    Column::new("in process"),
    Column::new("up to").left(),
];
const OBJECTS: [Column; 4] = [
    Column::new("object").left(),
    Column::new("queued"),
    Column::new("last event").left(),
    Column::new("owner").left(),
];

fn show(options: &OrderShowOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let mut store = open(&options.store, false)?;
    let op = StoreOp::Show { objects: options.objects.clone(), queued_max: options.limit };
    let OpOutcome::Shown(snapshot) = store.apply(&op).map_err(failure)? else {
        unreachable!("the outcome of StoreOp::Show is a snapshot")
    };
    if options.json {
        out.line(snapshot_json(&snapshot))?;
    } else {
        print(&snapshot, out)?;
    }
    Ok(Exit::Done)
}

fn print(snapshot: &StoreSnapshot, out: &mut Output) -> io::Result<()> {
    let stamp = |stamp: Option<OrderStamp>| stamp.map_or("-".to_owned(), |stamp| stamp.to_string());
    let state = match (snapshot.mark, snapshot.is_suspect) {
        (None, _) => "empty".to_owned(),
        (Some(mark), true) => format!("{mark}, and data may be lost: a new generation must begin"),
        (Some(mark), false) => mark.to_string(),
    };
    out.line(format_args!("last stamp      {state}"))?;
    out.line(format_args!("objects queued  {}\n", snapshot.queued))?;
    let now_ms = Clock::now().wall.as_nanos() / 1_000_000;
    let mut workers = TextTable::new(&WORKERS);
    for worker in &snapshot.workers {
        let lease = worker.lease_end_ms.map_or("-".to_owned(), |end_ms| match end_ms.checked_sub(now_ms) {
            Some(left_ms) => format!("in {:.1} s", left_ms as f64 / 1000.0),
            None => "ended".to_owned(),
        });
        let object = worker.object.as_ref().map_or("-", |object| object.as_str());
        let events = worker.events.to_string();
        workers.row(vec![worker.name.to_string(), object.to_owned(), lease, events, stamp(worker.last)]);
    }
    out.bytes(workers.to_string().as_bytes())?;
    out.line("")?;
    let mut objects = TextTable::new(&OBJECTS);
    for object in &snapshot.objects {
        let owner = object.owner.as_ref().map_or("-", |owner| owner.as_str());
        let name = EscapedText(object.name.as_str().as_bytes()).to_string();
        objects.row(vec![name, object.queued.to_string(), stamp(object.last), owner.to_owned()]);
    }
    out.bytes(objects.to_string().as_bytes())
}

fn snapshot_json(snapshot: &StoreSnapshot) -> Value {
    let stamp = |stamp: Option<OrderStamp>| stamp.map(|stamp| stamp.number().to_string());
    let workers = snapshot.workers.iter().map(|worker| {
        json!({
            "worker": worker.name.as_str(), "object": worker.object.as_ref().map(|object| object.as_str()),
            "lease_end_ms": worker.lease_end_ms, "events": worker.events, "last": stamp(worker.last),
        })
    });
    let objects = snapshot.objects.iter().map(|object| {
        json!({
            "object": object.name.as_str(), "queued": object.queued, "last": stamp(object.last),
            "owner": object.owner.as_ref().map(|owner| owner.as_str()),
        })
    });
    json!({
        "generation": snapshot.mark.map(|mark| mark.generation().number()), "mark": stamp(snapshot.mark),
        "is_suspect": snapshot.is_suspect, "queued": snapshot.queued,
        "workers": workers.collect::<Value>(), "objects": objects.collect::<Value>(),
    })
}

fn failure(error: OrderError) -> CommandFailure {
    let exit = match error.fault {
        OrderFault::Address(_) | OrderFault::Unsupported(_) => Exit::Usage,
        OrderFault::Unreachable(_) | OrderFault::Busy => Exit::Unreachable,
        _ => Exit::Failed,
    };
    CommandFailure::new(exit, error)
}
