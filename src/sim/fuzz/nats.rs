//! Target `nats`: the bytes of a connection by the NATS protocol, cut anywhere, with deliveries, losses and refusals
//! in between.
//!
//! For any input the parser and the session do not panic, and a strict reader reads their output without an error.
//! The session requests nothing of the peer before the client is authenticated, and nothing that its account does not
//! permit. It holds no more than one command and the bytes that came with it.

use super::script::Script;
use crate::delivery::Deliveries;
use crate::listener::access::{Access, Account, Credentials};
use crate::listener::nats::{NatsFault, NatsParser, NatsSession, Settings};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::{Permissions, SubjectPermission};
use crate::listener::session_request::{ConnectionInfo, ReceiverCount, SessionRequest};
use crate::message::{Count, Delivery, Epoch, Headers, Message, PeerName, Publisher, Refusal, SubId, Verdict};
use crate::seqno::Seq;
use crate::subject::{Subject, SubjectError};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// A small limit, so that it is reached.
const LINE_BYTES_MAX: usize = 256;
const PAYLOAD_BYTES_MAX: usize = 512;
const SUBSCRIPTIONS_MAX: usize = 8;
/// Maximum number of bytes that are pushed at once.
const PART_BYTES_MAX: usize = 64;

/// Runs the target. The first byte chooses the listener, the second how the stream is cut and the events between the
/// parts.
pub fn nats(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let (choices, seed) = (script.u8(), script.u8());
    let settings = settings(choices);
    let mut client = Client::new(&settings);
    let mut rng = crate::rng::Rng::new(u64::from(seed));
    while !script.is_done() && !client.is_over {
        let part = if seed == 0 { PART_BYTES_MAX } else { rng.between(1, PART_BYTES_MAX as u64) as usize };
        client.push(script.take(part), &mut rng);
        if seed != 0 && !client.is_over {
            client.disturb(&mut rng);
        }
    }
    client.reader.end(client.out.take());
}

fn settings(choices: u8) -> Settings {
    let credentials = match choices & 3 {
        0 => None,
        1 => Some(Credentials::User { name: "u".to_owned(), password: "p".to_owned() }),
        2 => Some(Credentials::Token("t".to_owned())),
        _ => Some(Credentials::Nkey([7; 32])),
    };
    let headers = choices & 4 != 0;
    let permissions = if choices & 8 != 0 { limited_permissions() } else { Permissions::default() };
    let account = |credentials| Account { headers, permissions: permissions.clone(), ..Account::new(credentials) };
    let accounts = credentials.into_iter().map(account).collect();
    Settings {
        access: Access { accounts, headers, ..Access::default() },
        line_bytes_max: LINE_BYTES_MAX,
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        unauthenticated_bytes_max: LINE_BYTES_MAX,
        subscriptions_max: SUBSCRIPTIONS_MAX,
        ..Settings::new(name("A.fuzz"), epoch())
    }
}

/// Returns the permissions of an account that may do little of what clients attempt.
fn limited_permissions() -> Permissions {
    let only = |text: &str| SubjectPermission::Only([text.parse().expect("a pattern")].into_iter().collect());
    Permissions { publish: only("a.*"), subscribe: only("a.>") }
}

fn name(text: &str) -> PeerName {
    text.parse().expect("a name")
}

fn epoch() -> Epoch {
    Epoch::new(1).expect("not zero")
}

/// A connection, and the shell's state for it.
struct Client {
    parser: NatsParser,
    session: NatsSession,
    out: OutputBuffer,
    reader: ReplyReader,
    now: Instant,
    subs: BTreeSet<SubId>,
    permissions: Permissions,
    /// Reply subjects of all messages that were passed to the session.
    replies: BTreeSet<Subject>,
    is_admitted: bool,
    is_over: bool,
}

impl Client {
    fn new(settings: &Settings) -> Client {
        let address = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let hello =
            ConnectionInfo { client: 1, from: address(1), listen: address(2), nonce: [7; 16], is_secure: false };
        let mut session = NatsSession::new(Arc::new(settings.clone()), &hello, Instant::ZERO);
        let mut out = OutputBuffer::new();
        session.on_open(&mut out);
        let is_admitted = session.is_admitted();
        assert_eq!(is_admitted, !settings.access.requires_authentication());
        Client {
            parser: NatsParser::new(settings),
            session,
            out,
            reader: ReplyReader::default(),
            now: Instant::ZERO,
            subs: BTreeSet::new(),
            permissions: settings.access.accounts.first().map(|one| one.permissions.clone()).unwrap_or_default(),
            replies: BTreeSet::new(),
            is_admitted,
            is_over: false,
        }
    }

    fn push(&mut self, bytes: &[u8], rng: &mut crate::rng::Rng) {
        self.parser.push(bytes);
        let mut was_repeated = false;
        while !self.is_over {
            let command = match self.parser.next() {
                Ok(Some(command)) => command,
                Ok(None) => break,
                Err(fault) => return self.end(&fault),
            };
            if !was_repeated && rng.below(8) == 0 {
                was_repeated = true;
                self.parser.repeat_last();
                continue;
            }
            was_repeated = false;
            let first = match self.session.on_command(self.now, command, &mut self.out) {
                Ok(request) => request,
                Err(fault) => return self.end(&fault),
            };
            // A publication borrows from the parser, and is finished before the next command.
            if let Some(SessionRequest::Publish(publish)) = &first {
                assert!(self.is_admitted, "an unauthenticated client publishes");
                let subject = &publish.subject;
                let is_permitted = self.permissions.publish.permits(subject) || self.replies.contains(subject);
                assert!(is_permitted, "the account does not permit {subject}");
                let bytes = publish.payload.len() + publish.headers.block().len();
                assert!(bytes <= PAYLOAD_BYTES_MAX);
                assert!(publish.headers.iter().all(|(key, _)| !is_own(key)), "only the bus sets its own headers");
                if publish.wants_receivers {
                    let receivers = ReceiverCount { count: rng.below(2), is_certain: rng.below(4) != 0 };
                    self.session.on_published(publish.reply.as_ref(), receivers, &mut self.out);
                }
            }
            let first = match first {
                Some(SessionRequest::Publish(_)) | None => None,
                Some(request) => Some(request.detached()),
            };
            self.apply_requests(first, rng);
        }
        let held_bytes = self.parser.held_bytes();
        assert!(
            held_bytes <= LINE_BYTES_MAX + PAYLOAD_BYTES_MAX + 16 + PART_BYTES_MAX,
            "{held_bytes} bytes are buffered"
        );
    }

    fn apply_requests(&mut self, first: Option<SessionRequest<'static>>, rng: &mut crate::rng::Rng) {
        let mut next = first;
        while let Some(request) = next.take().or_else(|| self.session.poll_request()) {
            match request {
                SessionRequest::Admitted { .. } => {
                    self.is_admitted = true;
                    self.parser.admit();
                }
                SessionRequest::Subscribe { sub, filter } => {
                    assert!(self.is_admitted, "an unauthenticated client subscribes");
                    let pattern = &filter.pattern;
                    let is_inbox = pattern.as_str().starts_with("_INBOX.");
                    let is_permitted = is_inbox || self.permissions.subscribe.permits_pattern(pattern);
                    assert!(is_permitted, "the account does not permit {pattern}");
                    assert!(self.subs.insert(sub), "a subscription number is unique");
                    if rng.below(8) == 0 {
                        self.subs.remove(&sub);
                        let refusal = Refusal::TooManySubscriptions { max: 1 };
                        self.session.on_refused(Some(sub), &refusal, &mut self.out);
                    }
                }
                SessionRequest::Unsubscribe { sub } => {
                    assert!(self.subs.remove(&sub), "an ended subscription has begun")
                }
                SessionRequest::Count { subjects } => {
                    assert!(self.is_admitted, "an unauthenticated client counts");
                    assert_eq!(subjects, []);
                    self.session.on_counts(&[], &mut self.out);
                }
                SessionRequest::Close => self.is_over = true,
                SessionRequest::Named { .. } | SessionRequest::Echo(_) => {}
                SessionRequest::Denied(denial) => {
                    assert!(!self.permissions.are_unlimited(), "{denial}, though it may do everything");
                }
                request => panic!("this listener does not send {request:?}"),
            }
        }
        assert_eq!(self.session.is_admitted(), self.is_admitted);
        assert_eq!(self.session.subscriptions(), self.subs.len());
        assert!(self.subs.len() <= SUBSCRIPTIONS_MAX);
    }

    /// Passes an event of the peer to the session, or advances the time.
    fn disturb(&mut self, rng: &mut crate::rng::Rng) {
        let last = self.subs.last().map_or(1, |sub| sub.0);
        let subs: Vec<SubId> = (0..rng.below(3)).map(|_| SubId(rng.between(1, u64::from(last)) as u32)).collect();
        let subs: Vec<SubId> = subs.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        match rng.below(8) {
            0..4 => {
                let delivery = delivery(rng);
                self.replies.extend(delivery.message.reply.clone());
                let deliveries = Deliveries::from(delivery);
                let written = self.session.on_deliveries(&subs, &deliveries, &mut self.out);
                assert!(written <= subs.len());
            }
            4 => self.session.on_lost(&subs, Count::from_bounds(rng.below(2), rng.next_u64())),
            5 => {
                let refusal = match rng.below(3) {
                    0 => Refusal::MessageTooLarge { bytes: 2, bytes_max: 1 },
                    1 => Refusal::Subject(SubjectError::Wildcard),
                    _ => Refusal::Stopping,
                };
                self.session.on_refused(None, &refusal, &mut self.out);
            }
            6 => self.session.on_stop(&mut self.out),
            _ => {
                self.now = self.now + Duration::from_secs(rng.below(100));
                if let Err(fault) = self.session.on_deadline(self.now, &mut self.out) {
                    return self.end(&fault);
                }
            }
        }
        self.apply_requests(None, rng);
        self.reader.push(self.out.take());
    }

    fn end(&mut self, fault: &NatsFault) {
        self.is_over = true;
        self.session.on_fault(fault, &mut self.out);
    }
}

fn is_own(key: &str) -> bool {
    key.len() >= 8 && key.as_bytes()[..8].eq_ignore_ascii_case(b"seqcast-")
}

/// Returns a message as any peer may send it, with headers that may be malformed.
fn delivery(rng: &mut crate::rng::Rng) -> Delivery {
    let subject = |rng: &mut crate::rng::Rng| -> Subject {
        ["a", "a.b", "r.x"][rng.below(3) as usize].parse().expect("a subject")
    };
    let headers: &[u8] = match rng.below(6) {
        0 => b"A: b\r\n",
        1 => b"NATS/1.0 503\r\n",
        2 => b"NATS/1.0 503",
        3 => b"\r\n\r\n\xff",
        _ => b"",
    };
    let message = Message {
        subject: subject(rng),
        reply: (rng.below(2) == 0).then(|| subject(rng)),
        headers: Headers::from_block(Bytes::from_static(headers)),
        payload: Bytes::from(vec![b'\n'; rng.below(30) as usize * rng.below(400) as usize]),
        event: false,
    };
    let publisher_name = (rng.below(2) == 0).then(|| name("B.fuzz"));
    let publisher = Publisher { name: publisher_name, epoch: epoch(), uid: 1 };
    Delivery {
        repaired: rng.below(2) == 0,
        ..Delivery::new(message, publisher, Seq::new(rng.next_u64()), Verdict::First)
    }
}

/// Reader of the session's output, which rejects everything that the protocol does not have.
#[derive(Default)]
struct ReplyReader {
    bytes: Vec<u8>,
}

impl ReplyReader {
    fn push(&mut self, bytes: Vec<u8>) {
        self.bytes.extend_from_slice(&bytes);
        while let Some(read) = read(&self.bytes) {
            self.bytes.drain(..read);
        }
    }

    /// Checks the output at its end.
    fn end(&mut self, bytes: Vec<u8>) {
        self.push(bytes);
        assert!(self.bytes.is_empty(), "ends with {:?}", String::from_utf8_lossy(&self.bytes));
    }
}

/// Returns the length of the first protocol message in the output; `None` if none is complete.
fn read(bytes: &[u8]) -> Option<usize> {
    let line_end = bytes.windows(2).position(|two| two == b"\r\n")?;
    // The client's names for its subscriptions need not be text.
    let line = String::from_utf8_lossy(&bytes[..line_end]);
    let rest = &bytes[line_end + 2..];
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let words: Vec<&str> = line.split(' ').collect();
    let (header_bytes, content_bytes) = match words[..] {
        ["+OK" | "PING" | "PONG"] => return Some(line_end + 2),
        ["-ERR", ..] => {
            let text = line.strip_prefix("-ERR '").and_then(|text| text.strip_suffix('\'')).expect("quoted");
            assert!(!text.contains('\'') && !text.is_empty(), "{line}");
            return Some(line_end + 2);
        }
        ["INFO", json, ""] => {
            assert!(json.starts_with('{') && json.ends_with('}'), "{line}");
            return Some(line_end + 2);
        }
        ["MSG", _, _, bytes] | ["MSG", _, _, _, bytes] => (0, number(bytes)),
        ["HMSG", _, _, headers, bytes] | ["HMSG", _, _, _, headers, bytes] => (number(headers), number(bytes)),
        _ => panic!("no server sends {line:?}"),
    };
    assert!(words[1..].iter().all(|word| !word.is_empty()), "{line:?}");
    assert!(header_bytes <= content_bytes, "{line:?}");
    let content = rest.get(..content_bytes + 2)?;
    if header_bytes != 0 {
        let headers = &content[..header_bytes];
        assert!(headers.starts_with(b"NATS/1.0") && headers.ends_with(b"\r\n\r\n"), "{line:?}");
    }
    assert!(content.ends_with(b"\r\n"), "{line:?}");
    Some(line_end + 2 + content_bytes + 2)
}
