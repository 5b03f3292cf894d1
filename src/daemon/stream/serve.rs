//! The thread that serves streams. What comes in meanwhile is done together, stored together, and then told.

use super::error::StreamError;
use super::inputs::{InputReceiver, Inputs};
use super::store::Batches;
use crate::daemon::clock::Clock;
use crate::event::follow::FetchedEvent;
use crate::event::model::{EventId, Registration, ServerId};
use crate::event::refusal::Refusal;
use crate::event::store::QueryPage;
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::{Consumer, StreamName, UserName};
use crate::event::stream::store::MissedRange;
use crate::listener::ftn18::call::{Call, Version};
use crate::listener::ftn18::fault::{Fault, Name};
use crate::listener::ftn18::session::{CallId, Done, PushId};
use crate::listener::ftn18::stream_service::{Conn, Effect, Notice, Settings, StreamService};
use crate::listener::stream::{StreamAnswer, StreamRefusal, StreamRefusalKind, StreamRequest};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Inputs that are taken at a time.
const INPUTS: usize = 4096;
/// When to try again what could not be read.
const RETRY_TIME: Duration = Duration::from_secs(1);

/// What the thread is told.
pub enum Input {
    /// A client has connected; this takes what it is told.
    Opened(Conn, Told),
    /// It calls.
    Called {
        /// Which client.
        conn: Conn,
        /// Its number for the call.
        call: CallId,
        /// The place of the stream in the settings.
        stream: usize,
        /// Who it is.
        user: UserName,
        /// What it wants.
        what: Call,
    },
    /// It has answered a group.
    Answered {
        /// Which client.
        conn: Conn,
        /// Which of its consumers.
        push: PushId,
        /// The number of the group.
        seq: u32,
        /// Whether the group is accepted.
        is_accepted: bool,
    },
    /// It is gone.
    Closed(Conn),
    /// A program asks; this takes the answer.
    Asked(StreamRequest, Answered),
    /// What was to be registered is, or is not.
    Registered {
        /// Which request.
        number: u64,
        /// As what.
        registered: Result<EventId, Refusal>,
    },
    /// These events did not come by the bus as they were registered: they are fetched, and stored next.
    FetchedEvent(Vec<FetchedEvent>),
    /// The journal holds more events of this server.
    News(ServerId),
    /// What the journal holds.
    Found {
        /// For this stream.
        stream: usize,
        /// Behind this.
        after: EventId,
        /// `None` if it could not be looked at.
        found: Option<QueryPage>,
    },
    /// The end.
    Stop,
}

/// What a client is told.
#[derive(Clone, Debug)]
pub enum ToClient {
    /// A call is done.
    Done(CallId, Result<Done, Fault>),
    /// A group is pushed.
    Group {
        /// To this consumer.
        push: PushId,
        /// With the interface of this version.
        version: Version,
        /// Under this number.
        seq: u32,
        /// The events.
        events: Arc<Vec<StreamEvent>>,
    },
    /// Nothing more is pushed to this consumer.
    PushEnd {
        /// Which one.
        push: PushId,
        /// Whether the connection is to be closed.
        is_closed: bool,
    },
}

/// Takes what a client is told; must not wait.
pub type Told = Box<dyn Fn(ToClient) + Send>;

/// Takes the answer to a request; must not wait.
pub type Answered = Box<dyn FnOnce(Result<StreamAnswer, StreamRefusal>) + Send>;

/// The journal of the peer, as the thread sees it. What comes of it are inputs.
pub trait Events: Send {
    /// Registers events as a session: [`Input::Registered`] follows.
    fn register(&mut self, number: u64, registrations: Vec<Registration>);

    /// Finds the events of the server behind one: [`Input::Found`] follows.
    fn find(&mut self, stream: usize, after: EventId);

    /// Tells programs that a consumer has lapsed.
    fn advise_lapse(&mut self, stream: StreamName, consumer: Consumer, missed: MissedRange);
}

/// The thread. It ends when this is dropped, with what it was told before.
#[derive(Debug)]
pub struct Streams {
    inputs: Inputs,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Opened(conn, _) => f.debug_tuple("Opened").field(conn).finish_non_exhaustive(),
            Input::Called { conn, call, stream, user, what } => {
                f.debug_tuple("Called").field(conn).field(call).field(stream).field(user).field(what).finish()
            }
            Input::Answered { conn, push, seq, is_accepted } => {
                f.debug_tuple("Answered").field(conn).field(push).field(seq).field(is_accepted).finish()
            }
            Input::Closed(conn) => f.debug_tuple("Closed").field(conn).finish(),
            Input::Asked(request, _) => f.debug_tuple("Asked").field(request).finish_non_exhaustive(),
            Input::Registered { number, registered } => {
                f.debug_tuple("Registered").field(number).field(registered).finish()
            }
            Input::FetchedEvent(events) => f.debug_tuple("Fetched").field(&events.len()).finish(),
            Input::News(server) => f.debug_tuple("News").field(server).finish(),
            Input::Found { stream, after, .. } => {
                f.debug_tuple("Found").field(stream).field(after).finish_non_exhaustive()
            }
            Input::Stop => f.write_str("Stop"),
        }
    }
}

impl Streams {
    /// Serves these streams of the server, of which the journal holds events up to `held`.
    ///
    /// # Errors
    /// The store cannot be read, or the system makes no thread.
    pub fn start(
        mut store: Box<dyn Batches>,
        settings: Settings,
        (server, held): (ServerId, &[EventId]),
        events: Box<dyn Events>,
        (sender, receiver): (Inputs, InputReceiver),
    ) -> Result<Streams, StreamError> {
        let stream_service = StreamService::new(&mut *store, settings, server, held)?;
        let at = store.place();
        let serving = Serving {
            stream_service,
            store,
            events,
            inputs: receiver,
            clients: BTreeMap::new(),
            asked: BTreeMap::new(),
            numbers: 0,
        };
        let failed = |error: io::Error| StreamError { at, fault: super::error::Fault::Other(error.to_string()) };
        let thread = thread::Builder::new().name("streams".into()).spawn(move || serving.run()).map_err(failed)?;
        Ok(Streams { inputs: sender, thread: Some(thread) })
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        // If it has panicked, it has told what went wrong.
        drop(self.inputs.push(Input::Stop));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

struct Serving {
    stream_service: StreamService,
    store: Box<dyn Batches>,
    events: Box<dyn Events>,
    inputs: InputReceiver,
    clients: BTreeMap<Conn, Told>,
    /// Who waits for an answer, by its number.
    asked: BTreeMap<u64, Answered>,
    /// The number of the next one.
    numbers: u64,
}

impl Serving {
    fn run(mut self) {
        loop {
            let wait = self.stream_service.deadline().since(Clock::now().instant);
            let mut next = self.inputs.pop_wait(wait);
            self.store.begin();
            let mut goes_on = true;
            let mut taken = 0;
            while let Some(input) = next {
                goes_on &= self.take(input);
                taken += 1;
                next = if taken < INPUTS { self.inputs.pop() } else { None };
            }
            self.stream_service.run(&mut *self.store, Clock::now());
            if let Err(error) = self.store.commit() {
                tracing::warn!(%error, "streams could not be stored");
                goes_on &= self.take_back(error);
            }
            self.tell();
            if !goes_on {
                return;
            }
        }
    }

    /// Goes back to what is stored, when that can be read again. Until then whoever calls is told why nothing is done, and events wait in the
    /// journal. Gives whether to go on.
    fn take_back(&mut self, error: StreamError) -> bool {
        let mut why = error.to_string();
        let mut is_away = false;
        while let Err(again) = self.stream_service.take_back(&mut *self.store, &why) {
            why = again.to_string();
            if !is_away {
                is_away = true;
                tracing::error!(error = %again, "streams cannot be read; this is tried again until they can");
            }
            self.tell_failed(&why);
            let until = Clock::now().instant + RETRY_TIME;
            loop {
                let Some(input) = self.inputs.pop_wait(until.since(Clock::now().instant)) else { break };
                if !self.refuse(input, &why) {
                    return false;
                }
            }
        }
        if is_away {
            tracing::info!("streams can be read again");
        }
        true
    }

    /// Takes an input without the store. Gives whether to go on.
    fn refuse(&mut self, input: Input, why: &str) -> bool {
        match input {
            Input::Called { conn, call, .. } => {
                if let Some(client) = self.clients.get(&conn) {
                    client(ToClient::Done(call, Err(Fault::new(Name::InternalError, why))));
                }
                true
            }
            Input::Asked(_, answered) => {
                answered(Err(StreamRefusal::new(StreamRefusalKind::Unavailable, why)));
                true
            }
            // It is found again later.
            Input::Found { stream, after, .. } => self.take(Input::Found { stream, after, found: None }),
            Input::Opened(..)
            | Input::Answered { .. }
            | Input::Closed(_)
            | Input::Registered { .. }
            | Input::FetchedEvent(_)
            | Input::News(_)
            | Input::Stop => self.take(input),
        }
    }

    /// Tells what was to be told, but for what could not be stored.
    fn tell_failed(&mut self, why: &str) {
        self.tell_but(|effect| match effect {
            Effect::Done { conn, call, done: Ok(_) } => {
                Some(Effect::Done { conn, call, done: Err(Fault::new(Name::InternalError, why)) })
            }
            Effect::Answered { number, answer: Ok(_) } => {
                let refusal = StreamRefusal::new(StreamRefusalKind::Unavailable, why);
                Some(Effect::Answered { number, answer: Err(refusal) })
            }
            // Whoever is pushed to comes again.
            Effect::Group { .. } => None,
            effect => Some(effect),
        });
    }

    /// Gives whether to go on.
    fn take(&mut self, input: Input) -> bool {
        let now = Clock::now();
        match input {
            Input::Opened(conn, told) => drop(self.clients.insert(conn, told)),
            Input::Called { conn, call, stream, user, what } => {
                self.stream_service.on_call(&mut *self.store, now, (conn, call), stream, user, what);
            }
            Input::Answered { conn, push, seq, is_accepted } => {
                self.stream_service.on_answer(now.instant, conn, push, seq, is_accepted);
            }
            Input::Closed(conn) => {
                self.stream_service.on_close(conn);
                self.clients.remove(&conn);
            }
            Input::Asked(request, answered) => {
                let number = self.numbers;
                self.numbers += 1;
                self.asked.insert(number, answered);
                self.stream_service.on_ask(&mut *self.store, now, number, request);
            }
            Input::Registered { number, registered } => self.stream_service.on_registered(number, registered),
            Input::FetchedEvent(events) => self.stream_service.on_fetched(&events),
            Input::News(server) => self.stream_service.on_events_added(server),
            Input::Found { stream, after, found } => {
                self.stream_service.on_found(&mut *self.store, now.instant, stream, after, found);
            }
            Input::Stop => return false,
        }
        true
    }

    fn tell(&mut self) {
        self.tell_but(Some);
    }

    fn tell_but(&mut self, becomes: impl Fn(Effect) -> Option<Effect>) {
        while let Some(effect) = self.stream_service.poll_effect() {
            let Some(effect) = becomes(effect) else { continue };
            let (conn, told) = match effect {
                Effect::Register { number, registrations } => {
                    self.events.register(number, registrations);
                    continue;
                }
                Effect::Find { stream, after } => {
                    self.events.find(stream, after);
                    continue;
                }
                Effect::Notice(notice) => {
                    tracing::warn!("{notice}");
                    if let Notice::Lapsed { stream, consumer, missed } = notice {
                        self.events.advise_lapse(stream, consumer, missed);
                    }
                    continue;
                }
                Effect::Answered { number, answer } => {
                    if let Some(answered) = self.asked.remove(&number) {
                        answered(answer);
                    }
                    continue;
                }
                Effect::Done { conn, call, done } => (conn, ToClient::Done(call, done)),
                Effect::Group { conn, push, version, seq, events } => {
                    (conn, ToClient::Group { push, version, seq, events })
                }
                Effect::PushEnd { conn, push, is_closed } => (conn, ToClient::PushEnd { push, is_closed }),
            };
            if let Some(client) = self.clients.get(&conn) {
                client(told);
            }
        }
    }
}
