//! One connection of a client: calls that come and their answers, calls that go and theirs.

use super::call::{Call, Channel, Version, check};
use super::fault::{CallFault, FaultName};
use super::message::{IncomingMessage, list, on_events, read, response};
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::{StreamId, UserName};
use crate::listener::access::{Access, Credentials, is_equal};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Calls of a client that are not answered yet, at most; then nothing more is read.
const CALLS_MAX: usize = 1024;
/// The same of their bytes, as they came.
const CALLS_BYTES_MAX: usize = 1 << 20;
/// The same of polls, whose answers may be large.
const POLLS_MAX: usize = 8;

/// A call of a client, which no other one of its connection has before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// A consumer to which events are pushed over the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PushId(pub u64);

/// What a call comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// The event is stored, with this id.
    Added(StreamId),
    /// Registered, or pushed from now on.
    Accepted,
    /// What stands there.
    Events(Vec<StreamEvent>),
}

/// What is to be done for the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutput {
    /// Send this message.
    Send(String),
    /// Somebody calls: answered by [`CallSession::on_done`].
    Call {
        /// Which call.
        call: CallId,
        /// Who.
        user: UserName,
        /// What. Never a ping.
        what: Call,
    },
    /// A message was no JSON object, and there is nothing to tell the client by: says what is wrong and where.
    Malformed(CallFault),
    /// The consumer has answered a group.
    Answered {
        /// Which consumer.
        push: PushId,
        /// The number of the group.
        seq: u32,
        /// Whether it has accepted the group.
        is_accepted: bool,
    },
}

/// A call that is not answered.
#[derive(Debug)]
struct PendingCall {
    rid: Option<Box<RawValue>>,
    is_poll: bool,
    bytes: usize,
}

/// The connection, or one request over HTTP.
#[derive(Debug)]
pub struct CallSession {
    channel: Channel,
    access: Arc<Access>,
    /// Those that are not answered, with the ids that the client gave.
    calls: BTreeMap<CallId, PendingCall>,
    calls_next: u64,
    /// How many of them are polls.
    polls: usize,
    /// Bytes of all of them.
    calls_bytes: usize,
    /// Groups that are not answered.
    groups: BTreeMap<u64, (PushId, u32)>,
    groups_next: u64,
    outputs: VecDeque<CallOutput>,
}

impl CallSession {
    /// A new one; `access` says who may call: without accounts whoever says who it is.
    pub fn new(channel: Channel, access: Arc<Access>) -> CallSession {
        CallSession {
            channel,
            access,
            calls: BTreeMap::new(),
            calls_next: 0,
            polls: 0,
            calls_bytes: 0,
            groups: BTreeMap::new(),
            groups_next: 1,
            outputs: VecDeque::new(),
        }
    }

    /// Whether so many calls wait for their answers that no more are to be read.
    pub fn is_full(&self) -> bool {
        CALLS_MAX <= self.calls.len() || POLLS_MAX <= self.polls || CALLS_BYTES_MAX <= self.calls_bytes
    }

    /// What to do next.
    pub fn poll_output(&mut self) -> Option<CallOutput> {
        self.outputs.pop_front()
    }

    /// A message came. What is no JSON object is answered only where answers are not told apart by an id.
    pub fn on_message(&mut self, text: &str) {
        let request = match read(text) {
            Ok(IncomingMessage::CallRequest(request)) => request,
            Ok(IncomingMessage::Response { rid, is_ok }) if self.channel.is_bidirectional => {
                return self.on_response(&rid, is_ok);
            }
            Ok(IncomingMessage::Response { .. }) => {
                return self.answer(
                    None,
                    &Err(CallFault::new(FaultName::InvalidRequest, "nothing was asked over this channel")),
                );
            }
            Err(fault) if self.channel.is_bidirectional => {
                return self.outputs.push_back(CallOutput::Malformed(fault));
            }
            Err(fault) => return self.answer(None, &Err(fault)),
        };
        let user = match &request.sec {
            None => Ok(None),
            Some(sec) => self.user(sec).map(Some),
        };
        match check(&request, user, self.channel) {
            Err(fault) => self.answer(request.rid, &Err(fault)),
            Ok((_, Call::Ping { echo })) => self.answer(request.rid, &Ok(format!("{{\"echo\":{echo}}}"))),
            Ok((user, what)) => {
                let call = CallId(self.calls_next);
                self.calls_next += 1;
                let is_poll = matches!(what, Call::Poll { .. });
                self.polls += usize::from(is_poll);
                self.calls_bytes += text.len();
                let rid = request.rid.map(ToOwned::to_owned);
                self.calls.insert(call, PendingCall { rid, is_poll, bytes: text.len() });
                self.outputs.push_back(CallOutput::Call { call, user, what });
            }
        }
    }

    /// A call is done, or could not be. One that is not waited for does not count.
    pub fn on_done(&mut self, call: CallId, done: Result<CallResult, CallFault>) {
        let Some(PendingCall { rid, is_poll, bytes }) = self.calls.remove(&call) else { return };
        self.polls -= usize::from(is_poll);
        self.calls_bytes -= bytes;
        let result = done.map(|done| match done {
            CallResult::Added(id) => format!("\"{id}\""),
            CallResult::Accepted => "true".to_owned(),
            CallResult::Events(events) => list(&events),
        });
        self.answer(rid.as_deref(), &result);
    }

    /// A group is to be pushed: its answer is an output.
    pub fn on_group(&mut self, push: PushId, version: Version, seq: u32, events: &[StreamEvent]) {
        let number = self.groups_next;
        self.groups_next += 1;
        self.groups.insert(number, (push, seq));
        self.outputs.push_back(CallOutput::Send(on_events(version.as_str(), &format!("S{number}"), seq, events)));
    }

    /// Nothing more is pushed to this consumer.
    pub fn on_push_end(&mut self, push: PushId) {
        self.groups.retain(|_, (other, _)| *other != push);
    }

    fn on_response(&mut self, rid: &str, is_ok: bool) {
        let number = rid.strip_prefix('S').and_then(|number| number.parse().ok());
        if let Some((push, seq)) = number.and_then(|number| self.groups.remove(&number)) {
            self.outputs.push_back(CallOutput::Answered { push, seq, is_accepted: is_ok });
        }
    }

    fn answer(&mut self, rid: Option<&RawValue>, result: &Result<String, CallFault>) {
        self.outputs.push_back(CallOutput::Send(response(rid, result)));
    }

    /// Who is proven by `user:secret` (FTN8.1).
    fn user(&self, sec: &str) -> Result<UserName, CallFault> {
        let refused = |text: &str| Err(CallFault::new(FaultName::SecurityError, text));
        if sec.starts_with("-hmac:") || sec.starts_with("-smac:") {
            return refused("message authentication codes are not known here: send user:secret over a secure channel");
        }
        let Some((user, secret)) = sec.split_once(':') else { return refused("sec is user:secret") };
        let is_account = |credentials: &Credentials| match credentials {
            Credentials::User { name, password } => name == user && is_equal(password, secret.as_bytes()),
            Credentials::Token(_) | Credentials::Nkey(_) => false,
        };
        if self.access.is_closed() && !self.access.accounts.iter().any(|account| is_account(&account.credentials)) {
            return refused("user or secret are wrong");
        }
        user.parse().or_else(|error| refused(&format!("{error}")))
    }
}
