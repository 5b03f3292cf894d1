//! Target `rv`: the bytes of a connection of the Rendezvous listener, with deliveries and refusals in between. What
//! decodes as a message also encodes, and decodes to the same message.

use super::script::Script;
use crate::delivery::Deliveries;
use crate::listener::access::{Access, Account, Credentials};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::{Permissions, SubjectPermission};
use crate::listener::rv::message::RvMessage;
use crate::listener::rv::request::RvRequest;
use crate::listener::rv::{RvFault, RvHost, RvHostFacts, RvParser, RvSession, Settings};
use crate::listener::session_request::{ConnectionInfo, Publish, SessionRequest};
use crate::message::{Delivery, Epoch, Message, Publisher, Refusal, SubId, SubscriptionFilter, Verdict};
use crate::time::{ClockReading, Instant};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The records and the inits with which a client begins.
const BEGINNING: &[u8] = b"\0\0\0\0\0\0\0\x04\0\0\0\0\
    \0\0\0\x03............................................................\
    \0\0\0\x13\x99\x55\xee\xaa\x06mtype\0\x08\x02I\0\0\0\0\x13\x99\x55\xee\xaa\x06mtype\0\x08\x02I\0";

/// Runs the target. The first byte chooses the beginning, the refusals of the peer, and how the stream is cut. The rest
/// is the client's input.
pub fn rv(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let choices = script.u8();
    let (is_begun, refuses, cut_bytes) = (choices & 1 != 0, choices & 2 != 0, 1 + usize::from(choices >> 2));
    let rest = script.take(bytes.len());
    check_message(rest);
    let stream = if is_begun { [BEGINNING, rest].concat() } else { rest.to_vec() };
    let whole = RvWorld::new(refuses).play(&stream, stream.len().max(1));
    let cut = RvWorld::new(refuses).play(&stream, cut_bytes);
    assert_eq!(whole, cut, "cut into parts of {cut_bytes} bytes");
}

/// Checks that a message which decodes also encodes.
fn check_message(bytes: &[u8]) {
    let Ok(message) = RvMessage::decode(bytes) else { return };
    let mut again = Vec::new();
    message.encode(&mut again).expect("a decoded message encodes");
    let decoded = RvMessage::decode(&again).expect("an encoded message decodes");
    assert_eq!(format!("{decoded:?}"), format!("{message:?}"));
}

struct RvWorld {
    settings: Settings,
    session: RvSession,
    host: RvHost,
    out: OutputBuffer,
    subs: BTreeMap<SubId, SubscriptionFilter>,
    refuses: bool,
    /// The requests as text.
    requests: Vec<String>,
}

impl RvWorld {
    fn new(refuses: bool) -> RvWorld {
        let only = |text: &str| SubjectPermission::Only([text.parse().expect("a pattern")].into_iter().collect());
        let permissions = match refuses {
            true => Permissions { publish: only("a.*"), subscribe: only("a.>") },
            false => Permissions::default(),
        };
        let account = Account { permissions, ..Account::new(Credentials::Certificate("c".into())) };
        let settings = Settings {
            access: Access { accounts: vec![account], ..Access::default() },
            message_bytes_max: 2048,
            frame_bytes_max: 80_000,
            unauthenticated_bytes_max: 256,
            subscriptions_max: 6,
            ..Settings::default()
        };
        let address = "127.0.0.1:7500".parse().expect("an address");
        let hello = ConnectionInfo { client: 1, from: address, listen: address, nonce: [7; 16], is_secure: false };
        let facts = RvHostFacts {
            host: settings.host,
            name: "A".into(),
            version: "1".into(),
            port: 7500,
            service: 7500,
            network: String::new(),
        };
        let mut session = RvSession::new(Arc::new(settings.clone()), &hello, Instant::ZERO);
        session.on_certificate(&["c".into()]);
        RvWorld {
            session,
            host: RvHost::new(facts, ClockReading::default()),
            settings,
            out: OutputBuffer::new(),
            subs: BTreeMap::new(),
            refuses,
            requests: Vec::new(),
        }
    }

    /// Plays a stream. Returns the requests, the output and the final fault, which do not depend on the cuts.
    fn play(mut self, stream: &[u8], cut_bytes: usize) -> (Vec<String>, Vec<u8>, Option<RvFault>) {
        let mut parser = RvParser::new(&self.settings);
        self.session.on_open(&mut self.out);
        let mut fault = None;
        for part in stream.chunks(cut_bytes) {
            parser.push(part);
            fault = self.read(&mut parser).err();
            let buffered_max = 4 * (self.settings.frame_bytes_max + part.len());
            assert!(parser.held_bytes() <= buffered_max, "{} bytes buffered", parser.held_bytes());
            if fault.is_some() {
                break;
            }
        }
        fault.iter().for_each(|fault| self.session.on_fault(fault, &mut self.out));
        assert!(self.session.subscriptions() <= self.settings.subscriptions_max);
        self.host.on_departure(ClockReading::default(), 1);
        while self.host.poll_message(|_| true).is_some() {}
        (self.requests, self.out.take(), fault)
    }

    fn read(&mut self, parser: &mut RvParser) -> Result<(), RvFault> {
        let mut is_repeated = false;
        while let Some(command) = parser.next()? {
            // Every command is deferred once, as under backpressure.
            if !is_repeated {
                parser.repeat_last();
                is_repeated = true;
                continue;
            }
            is_repeated = false;
            let mut next = self.session.on_command(Instant::ZERO, command, &mut self.out)?;
            let mut published = Vec::new();
            while let Some(request) = next {
                self.on_request(request, &mut published);
                next = self.session.poll_request();
            }
            if self.session.is_admitted() {
                parser.admit();
            }
            published.into_iter().for_each(|message| self.deliver(message));
        }
        Ok(())
    }

    fn on_request(&mut self, request: SessionRequest<'_>, published: &mut Vec<Message>) {
        self.requests.push(format!("{request:?}"));
        match request {
            SessionRequest::Publish(Publish { subject, reply, headers, payload, .. }) => {
                let text = subject.as_str();
                // An account may also answer requests.
                let is_permitted = text.starts_with("a.") || text.starts_with("_INBOX.");
                assert!(!self.refuses || is_permitted, "{subject} is not permitted");
                published.push(Message { reply, headers, ..Message::new(subject, payload.to_vec()) });
            }
            SessionRequest::Subscribe { sub, .. } if self.refuses && sub.0 % 2 == 1 => {
                let refusal = Refusal::TooManySubscriptions { max: 1 };
                self.session.on_refused(Some(sub), &refusal, &mut self.out);
            }
            SessionRequest::Subscribe { sub, filter } => assert!(self.subs.insert(sub, filter).is_none()),
            SessionRequest::Unsubscribe { sub } => assert!(self.subs.remove(&sub).is_some()),
            SessionRequest::Rv(RvRequest::PublishLocal(message)) => published.push(message),
            SessionRequest::Rv(request) => {
                self.host.on_request(ClockReading::default(), 1, request);
                published.extend(std::iter::from_fn(|| self.host.poll_message(|_| true)));
            }
            SessionRequest::Admitted { .. }
            | SessionRequest::Named { .. }
            | SessionRequest::Refused { .. }
            | SessionRequest::Denied(_) => {}
            other => unreachable!("this protocol has no such request: {other:?}"),
        }
    }

    /// Delivers a message to the matching subscriptions of the client.
    fn deliver(&mut self, message: Message) {
        if self.host.has_clients() && self.host.inbox().matches(&message.subject) {
            self.host.on_query(ClockReading::default(), &message);
            // The answers of the daemon need no further look.
            while self.host.poll_message(|_| true).is_some() {}
        }
        let matching = self.subs.iter().filter(|(_, filter)| filter.pattern.matches(&message.subject));
        let subs: Vec<SubId> = matching.map(|(sub, _)| *sub).collect();
        if subs.is_empty() {
            return;
        }
        let publisher = Publisher { name: None, epoch: Epoch::new(1).expect("not 0"), uid: 0 };
        let subject = message.subject.clone();
        let delivery = Deliveries::from(Delivery::new(message, publisher, None, Verdict::Direct));
        let subs = self.session.delivery_subs(&subs, &subject);
        assert!(self.session.on_deliveries(subs, &delivery, &mut self.out) <= 1, "one copy for each client");
        let mut published = Vec::new();
        while let Some(request) = self.session.poll_request() {
            self.on_request(request, &mut published);
        }
    }
}
