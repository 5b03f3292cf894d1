//! Target `redis`: the bytes of a connection of the Redis listener, and deliveries and refusals in between. Without
//! the permission of its account the session neither publishes nor subscribes.

use super::script::Script;
use crate::delivery::Deliveries;
use crate::listener::access::{Access, Account, Credentials};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::{Permissions, SubjectPermission};
use crate::listener::redis::{RedisFault, RedisParser, RedisSession, Settings};
use crate::listener::session_request::{
    ClientFacts, ConnectionInfo, ListedSubscription, ReceiverCount, RespState, ServerFacts, SessionRequest,
};
use crate::message::{Count, Delivery, Epoch, Message, Publisher, Refusal, SubId, SubscriptionFilter, Verdict};
use crate::subject::Subject;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Runs the target. The first byte chooses the accepted clients, the refusals of the peer, and how the stream is cut.
/// The rest is the client's input.
pub fn redis(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let choices = script.u8();
    let (is_closed, refuses, cut_bytes) = (choices & 1 != 0, choices & 2 != 0, 1 + usize::from(choices >> 2));
    let stream = script.take(bytes.len());
    let whole = RedisWorld::new(is_closed, refuses).play(stream, stream.len().max(1));
    let cut = RedisWorld::new(is_closed, refuses).play(stream, cut_bytes);
    assert_eq!(whole.0, cut.0, "cut into parts of {cut_bytes} bytes");
    read_strictly(&whole.1);
    read_strictly(&cut.1);
}

struct RedisWorld {
    settings: Settings,
    parser: RedisParser,
    session: RedisSession,
    out: OutputBuffer,
    subs: BTreeMap<SubId, SubscriptionFilter>,
    refuses: bool,
    is_over: bool,
    /// The commands, as text.
    requests: Vec<String>,
}

impl RedisWorld {
    fn new(is_closed: bool, refuses: bool) -> RedisWorld {
        let credentials = Credentials::User { name: "default".into(), password: "pw".into() };
        let only = |text: &str| SubjectPermission::Only([text.parse().expect("a pattern")].into_iter().collect());
        let permissions = match refuses {
            true => Permissions { publish: only("a.*"), subscribe: only("a.>") },
            false => Permissions::default(),
        };
        let account = Account { permissions, ..Account::new(credentials) };
        let accounts = if is_closed { vec![account] } else { Vec::new() };
        let settings = Settings {
            access: Access { accounts, ..Access::default() },
            payload_bytes_max: 2048,
            command_bytes_max: 4096,
            arguments_max: 64,
            line_bytes_max: 1024,
            unauthenticated_bytes_max: 128,
            subscriptions_max: 6,
            auth_attempts_max: 3,
            ..Settings::default()
        };
        let address = "127.0.0.1:6379".parse().expect("an address");
        let hello = ConnectionInfo { client: 1, from: address, listen: address, nonce: [0; 16], is_secure: false };
        RedisWorld {
            parser: RedisParser::new(&settings),
            session: RedisSession::new(Arc::new(settings.clone()), &hello, Instant::ZERO),
            settings,
            out: OutputBuffer::new(),
            subs: BTreeMap::new(),
            refuses,
            is_over: false,
            requests: Vec::new(),
        }
    }

    /// Plays a stream. Returns the commands and the final fault, which do not depend on the cuts, and the output.
    fn play(mut self, stream: &[u8], cut_bytes: usize) -> ((Vec<String>, Option<RedisFault>), Vec<u8>) {
        let mut parser = std::mem::replace(&mut self.parser, RedisParser::new(&self.settings));
        let mut fault = None;
        for part in stream.chunks(cut_bytes) {
            parser.push(part);
            fault = self.read(&mut parser).err();
            let buffered_max = self.settings.command_bytes_max * 4 + part.len();
            assert!(parser.held_bytes() <= buffered_max, "{} bytes buffered", parser.held_bytes());
            if fault.is_some() || self.is_over {
                break;
            }
        }
        if let Some(fault) = &fault {
            self.session.on_fault(fault, &mut self.out);
        }
        assert!(self.session.subscriptions() <= self.settings.subscriptions_max);
        ((self.requests, fault), self.out.take())
    }

    fn read(&mut self, parser: &mut RedisParser) -> Result<(), RedisFault> {
        let mut is_repeated = false;
        while let Some(command) = parser.next()? {
            // Every publication is deferred once, as under backpressure.
            if command.is_publish() && !is_repeated {
                parser.repeat_last();
                is_repeated = true;
                continue;
            }
            is_repeated = false;
            let mut next = self.session.on_command(Instant::ZERO, command, &mut self.out)?;
            while let Some(request) = next {
                self.on_request(&request);
                next = self.session.poll_request();
            }
            if self.is_over {
                return Ok(());
            }
            if self.session.is_admitted() {
                parser.admit();
            }
            self.deliver();
        }
        Ok(())
    }

    fn on_request(&mut self, request: &SessionRequest<'_>) {
        self.requests.push(format!("{request:?}"));
        let is_for_all = matches!(
            request,
            SessionRequest::Close | SessionRequest::Unsubscribe { .. } | SessionRequest::Named { .. }
        );
        assert!(is_for_all || self.session.is_admitted(), "{request:?} of an unauthenticated client");
        assert!(self.is_permitted(request), "the account does not permit {request:?}");
        let none = ReceiverCount { count: 0, is_certain: true };
        match request {
            SessionRequest::Publish(_) if self.refuses => {
                self.session.on_refused(None, &Refusal::Stopping, &mut self.out)
            }
            SessionRequest::Publish(_) => self.session.on_published(None, none, &mut self.out),
            SessionRequest::Subscribe { sub, .. } if self.refuses && sub.0 % 2 == 0 => {
                let refusal = Refusal::TooManySubscriptions { max: 1 };
                self.session.on_refused(Some(*sub), &refusal, &mut self.out);
            }
            SessionRequest::Subscribe { sub, filter } => assert!(self.subs.insert(*sub, filter.clone()).is_none()),
            SessionRequest::Unsubscribe { sub } => assert!(self.subs.remove(sub).is_some()),
            SessionRequest::Count { subjects } => self.session.on_counts(&vec![none; subjects.len()], &mut self.out),
            SessionRequest::List => {
                let listed: Vec<_> =
                    self.subs.values().map(|filter| ListedSubscription { filter: filter.clone() }).collect();
                self.session.on_subscription_list(&listed, &mut self.out);
            }
            SessionRequest::ServerFacts => self.session.on_server_facts(&facts(), &mut self.out),
            SessionRequest::Clients { only: _ } => self.session.on_clients(&[1, 2].map(client), &mut self.out),
            SessionRequest::Close => self.is_over = true,
            SessionRequest::Admitted { .. }
            | SessionRequest::Named { .. }
            | SessionRequest::Echo(_)
            | SessionRequest::Denied(_)
            | SessionRequest::Kill { .. } => {}
            SessionRequest::Events(_) | SessionRequest::Rv(_) | SessionRequest::Refused { .. } => {
                unreachable!("this protocol has no such request")
            }
        }
    }

    /// Returns whether the account permits what the request does.
    fn is_permitted(&self, request: &SessionRequest<'_>) -> bool {
        let Some(Account { permissions, .. }) = self.settings.access.accounts.first() else { return true };
        match request {
            SessionRequest::Publish(publish) => permissions.publish.permits(&publish.subject),
            SessionRequest::Subscribe { filter, .. } => permissions.subscribe.permits_pattern(&filter.pattern),
            _ => true,
        }
    }

    /// Delivers a message and a loss to every subscription, and to one that does not exist.
    fn deliver(&mut self) {
        let subs: Vec<SubId> = self.subs.keys().copied().chain([SubId(u32::MAX)]).collect();
        let subject: Subject = "a.%20.b".parse().expect("a subject");
        let publisher = Publisher { name: None, epoch: Epoch::new(1).expect("not zero"), uid: 1 };
        let delivery = Delivery::new(Message::new(subject, "x\r\n"), publisher, None, Verdict::Direct);
        let written = self.session.on_deliveries(&subs, &Deliveries::from(delivery), &mut self.out);
        assert_eq!(written, self.subs.len());
        self.session.on_lost(&subs, Count::Exact(1));
    }
}

fn client(id: u32) -> ClientFacts {
    ClientFacts {
        id,
        from: "127.0.0.1:6379".parse().expect("an address"),
        name: String::new(),
        age_secs: 0,
        resp: RespState::default(),
        account: String::new(),
        unread_bytes: 0,
        queued_bytes: 0,
        lost: Count::Exact(0),
        dropped: 0,
    }
}

fn facts() -> ServerFacts {
    ServerFacts {
        peer: "A.fuzz".parse().expect("a name"),
        epoch: "1".into(),
        listen: "127.0.0.1:6379".parse().expect("an address"),
        pid: 1,
        uptime_secs: 1,
        clients: 2,
        clients_total: 2,
        clients_refused: 0,
        published: 0,
        dropped: 0,
    }
}

/// Panics unless the bytes are complete values of the protocol, one after the other.
fn read_strictly(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        bytes = value(bytes, 0);
    }
}

/// Returns the bytes behind the value at the start.
fn value(bytes: &[u8], depth: usize) -> &[u8] {
    assert!(depth < 8, "values are nested too deeply");
    let end = bytes.windows(2).position(|two| two == b"\r\n").expect("an end of the line");
    let (line, rest) = (&bytes[1..end], &bytes[end + 2..]);
    assert!(!line.contains(&b'\r') && !line.contains(&b'\n'), "a line in a line");
    let number = || std::str::from_utf8(line).ok().and_then(|text| text.parse::<i64>().ok()).expect("a number");
    match bytes[0] {
        b'+' | b'-' => rest,
        b':' => {
            number();
            rest
        }
        b'_' => {
            assert!(line.is_empty());
            rest
        }
        b'$' if number() == -1 => rest,
        b'$' | b'=' => {
            let length = usize::try_from(number()).expect("a length");
            assert_eq!(&rest[length..length + 2], b"\r\n");
            &rest[length + 2..]
        }
        kind @ (b'*' | b'~' | b'>' | b'%') => {
            let count = number() * if kind == b'%' { 2 } else { 1 };
            (0..count).fold(rest, |rest, _| value(rest, depth + 1))
        }
        kind => panic!("no value begins with {kind:#04x}"),
    }
}
