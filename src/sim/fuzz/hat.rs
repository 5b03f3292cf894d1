//! Target `hat`: the bytes of a connection of the Hat listener, with a journal that answers at once or later.

use super::script::Script;
use crate::event::model::{Event, Registration};
use crate::event::sequencer::EventSequencer;
use crate::event::store::memory::MemoryJournal;
use crate::event::store::{Journal, Query, QueryPage};
use crate::event::timestamp::Timestamp;
use crate::listener::access::{Access, Account, Credentials};
use crate::listener::hat::chatter::{Conversation, PING};
use crate::listener::hat::client_message::{EventSubscription, HatClientMessage};
use crate::listener::hat::server_message::{HatServerMessage, Status};
use crate::listener::hat::{ChatterMessage, ChatterParser, HatAction, HatFault, HatSession, RequestId, Settings};
use crate::listener::output_buffer::OutputBuffer;
use crate::rng::Rng;
use crate::time::Instant;
use std::sync::Arc;

/// Types of messages, by number.
const TYPES: [&str; 9] = [
    "HatChatter.Ping",
    "HatChatter.Pong",
    "HatEventer.MsgInitReq",
    "HatEventer.MsgRegisterReq",
    "HatEventer.MsgQueryReq",
    "HatEventer.MsgEventsAck",
    "HatEventer.MsgEventsNotify",
    "HatEventer.MsgQueryRes",
    "HatEventer",
];

const REQUESTS_MAX: usize = 4;

/// Runs the target. The first byte chooses the accepted clients, whether frames or messages to be framed follow, and
/// how the stream is cut.
///
/// A message to be framed has a byte for its type and flags, one for the length of its body, and the body.
pub fn hat(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let choices = script.u8();
    let (is_closed, announces, is_framed) = (choices & 1 != 0, choices & 2 != 0, choices & 4 != 0);
    let cut_bytes = 1 + usize::from(choices >> 3);
    let stream = if is_framed { script.take(bytes.len()).to_vec() } else { framed(script) };
    let settings = settings(is_closed, announces);
    let whole = HatWorld::new(&settings, None).play(&stream, stream.len().max(1));
    let cut = HatWorld::new(&settings, None).play(&stream, cut_bytes);
    assert_eq!(whole, cut, "cut into parts of {cut_bytes} bytes");
    // The client gets the same answers in the same order, however late the journal answers.
    let late = HatWorld::new(&settings, Some(Rng::new(choices.into()))).play(&stream, cut_bytes);
    let (whole_answers, late_answers) = (answers(&whole.1), answers(&late.1));
    if whole.0.is_some() {
        assert!(whole_answers.starts_with(&late_answers), "{whole_answers:?}\n{late_answers:?}");
    } else {
        assert_eq!(whole_answers, late_answers);
    }
}

fn framed(mut script: Script<'_>) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut id = 0;
    while !script.is_done() {
        let (kind, length) = (script.u8(), script.u8());
        let type_name = TYPES[usize::from(kind & 0x3f) % TYPES.len()];
        id += 1;
        let conversation = Conversation { first: id, is_own: kind & 0x40 == 0 };
        let message = ChatterMessage {
            id,
            conversation,
            is_last: kind & 0x80 != 0,
            type_name,
            body: script.take(usize::from(length)),
        };
        stream.extend_from_slice(&message.frame());
    }
    stream
}

fn settings(is_closed: bool, announces: bool) -> Settings {
    let token = Account::new(Credentials::Token("pw".into()));
    Settings {
        access: Access { accounts: if is_closed { vec![token] } else { Vec::new() }, ..Access::default() },
        announces,
        frame_bytes_max: 1024,
        unauthenticated_bytes_max: 256,
        message_bytes_max: 512,
        registrations_max: 5,
        types_max: 4,
        wildcard_subtypes_max: 8,
        requests_max: REQUESTS_MAX,
        ..Settings::default()
    }
}

/// Messages of the listener, with the conversation as the client names it.
type SessionOutput = Vec<(Conversation, HatServerMessage)>;

/// Returns the answers to requests.
fn answers(output: &SessionOutput) -> Vec<&(Conversation, HatServerMessage)> {
    let is_answer = |message: &&(Conversation, HatServerMessage)| {
        matches!(message.1, HatServerMessage::Init(_) | HatServerMessage::Registered(_) | HatServerMessage::Found(_))
    };
    output.iter().filter(is_answer).collect()
}

struct HatWorld {
    settings: Settings,
    session: HatSession,
    out: OutputBuffer,
    sequencer: EventSequencer,
    journal: MemoryJournal,
    /// Source of the delays of the journal; `None` if it answers at once.
    delays: Option<Rng>,
    /// Requests that the journal has served, with the replies that the session has not got yet.
    deferred: Vec<(RequestId, DeferredReply)>,
    /// The client's event subscription, once the client is welcome.
    subscription: Option<EventSubscription>,
    is_over: bool,
}

enum DeferredReply {
    Registered(Option<Vec<Event>>),
    Answered(QueryPage),
}

impl HatWorld {
    fn new(settings: &Settings, delays: Option<Rng>) -> HatWorld {
        HatWorld {
            session: HatSession::new(Arc::new(settings.clone()), Status::Operational, Instant::ZERO),
            settings: settings.clone(),
            out: OutputBuffer::new(),
            sequencer: EventSequencer::new(settings.server, 0, Timestamp::MIN),
            journal: MemoryJournal::default(),
            delays,
            deferred: Vec::new(),
            subscription: None,
            is_over: false,
        }
    }

    /// Plays a stream. Returns the client's fault that ended it, if any, and the output of the listener.
    fn play(mut self, stream: &[u8], cut_bytes: usize) -> (Option<HatFault>, SessionOutput) {
        let mut parser = ChatterParser::new(&self.settings);
        let mut fault = None;
        for part in stream.chunks(cut_bytes) {
            parser.push(part);
            fault = self.read(&mut parser).err();
            assert!(parser.held_bytes() <= 2 * self.settings.frame_bytes_max + stream.len());
            if fault.is_some() {
                break;
            }
        }
        match &fault {
            Some(fault) => self.session.on_fault(fault, &mut self.out),
            None => self.stop(),
        }
        assert_eq!(self.session.deadline(), None);
        let output = parse_output(&self.out.take());
        let has_stopped = matches!(output.last(), Some((_, HatServerMessage::Status(Status::Standby))));
        assert_eq!(has_stopped, self.subscription.is_some() && fault.is_none());
        (fault, output)
    }

    fn stop(&mut self) {
        // Before its welcome, a client gets no more answers.
        while self.subscription.is_none() && !self.deferred.is_empty() {
            self.answer_one();
        }
        self.session.on_stop(&mut self.out);
        self.act();
        while !self.deferred.is_empty() {
            self.answer_one();
        }
        assert!(self.is_over, "nothing is left to wait for");
    }

    fn read(&mut self, parser: &mut ChatterParser) -> Result<(), HatFault> {
        loop {
            while self.session.is_full() {
                self.answer_one();
            }
            let Some(message) = parser.next()? else { return Ok(()) };
            check_round_trip(&message, &self.settings);
            self.session.on_command(Instant::ZERO, message, &mut self.out)?;
            if self.session.is_admitted() {
                parser.admit();
            }
            self.act();
            while self.delays.as_mut().is_some_and(|rng| rng.below(3) == 0) && !self.deferred.is_empty() {
                self.answer_one();
            }
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.session.poll_request(true) {
            match action {
                HatAction::Admitted { .. } => assert!(self.session.is_admitted()),
                HatAction::Subscribe(subscription) => {
                    assert!(subscription.patterns.len() <= self.settings.types_max);
                    assert_eq!(self.subscription.replace(subscription), None);
                }
                HatAction::Register { request, registrations } => {
                    let done = DeferredReply::Registered(self.register(registrations));
                    self.deferred.push((request, done));
                }
                HatAction::Query { request, query } => {
                    assert_eq!(query.check(), Ok(()));
                    let answer = self.query(&query);
                    self.deferred.push((request, DeferredReply::Answered(answer)));
                }
                HatAction::Refused(refusal) => drop(refusal.to_string()),
                HatAction::Denied(denial) => panic!("{denial}, though the account may do everything"),
                HatAction::Close => self.is_over = true,
            }
            assert!(self.deferred.len() <= REQUESTS_MAX);
            while self.delays.is_none() && !self.deferred.is_empty() {
                self.answer_one();
            }
        }
    }

    /// Registers events. Returns `None` for some registrations, which are the same in each play.
    fn register(&mut self, registrations: Vec<Registration>) -> Option<Vec<Event>> {
        assert!(self.session.is_admitted() && !registrations.is_empty());
        assert!(registrations.len() <= self.settings.registrations_max);
        if registrations[0].event_type.subject().as_bytes().len() % 8 == 7 {
            return None;
        }
        let events = self.sequencer.register(Timestamp::MIN, registrations);
        assert_eq!(self.journal.append(&events), Ok(events.len()));
        let HatWorld { subscription, session, out, .. } = self;
        let is_wanted = |event: &&Event| {
            let Some(EventSubscription { patterns, server }) = subscription else { return false };
            server.is_none_or(|server| server == event.id.server)
                && patterns.iter().any(|pattern| pattern.matches(&event.event_type))
        };
        let wanted: Vec<&Event> = events.iter().filter(is_wanted).collect();
        if !wanted.is_empty() {
            assert_eq!(session.on_events(&wanted, out), wanted.len());
        }
        Some(events)
    }

    fn query(&mut self, query: &Query) -> QueryPage {
        match self.journal.query(query) {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }

    fn answer_one(&mut self) {
        let count = self.deferred.len() as u64;
        let at = self.delays.as_mut().map_or(0, |rng| rng.below(count));
        let (request, done) = self.deferred.remove(usize::try_from(at).expect("an index"));
        match done {
            DeferredReply::Registered(events) => self.session.on_registered(request, events, &mut self.out),
            DeferredReply::Answered(answer) => self.session.on_answered(request, answer, &mut self.out),
        }
        self.act();
    }
}

/// Panics unless the content of a message is the same after a client's encoding and decoding.
fn check_round_trip(message: &ChatterMessage<'_>, settings: &Settings) {
    let again =
        ChatterMessage::decode(&message.frame()[1 + usize::from(message.frame()[0])..]).map(|again| again == *message);
    assert_eq!(again, Ok(true));
    let Ok(decoded) = HatClientMessage::decode(message, settings) else { return };
    if let Some(body) = decoded.encode() {
        assert_eq!(HatClientMessage::decode(&ChatterMessage { body: &body, ..*message }, settings), Ok(decoded));
    }
}

/// Panics unless the bytes are frames as a client expects them.
fn parse_output(bytes: &[u8]) -> SessionOutput {
    let mut parser = ChatterParser::new(&Settings { unauthenticated_bytes_max: usize::MAX, ..Settings::default() });
    parser.push(bytes);
    let (mut output, mut id): (SessionOutput, i128) = (Vec::new(), 0);
    while let Some(message) = parser.next().expect("frames") {
        id += 1;
        assert_eq!(message.id, id);
        assert_eq!(message.is_last, message.type_name != PING);
        let what = HatServerMessage::decode(&message).expect("messages of a server");
        let begins = matches!(what, HatServerMessage::Status(_) | HatServerMessage::Events(_) | HatServerMessage::Ping);
        assert!(!begins || message.conversation == Conversation { first: id, is_own: true });
        if let HatServerMessage::Events(events) = &what {
            let is_one_session = events
                .windows(2)
                .all(|two| two[0].id.session == two[1].id.session && two[0].id.instance < two[1].id.instance);
            assert!(!events.is_empty() && is_one_session);
        }
        output.push((message.conversation.mirror(), what));
    }
    assert_eq!(parser.held_bytes(), 0, "part of a frame");
    output
}
