//! The session of one connection: the client's calls and their answers, and the groups pushed to the client and their
//! answers.

use super::call::{Call, Channel, Version, check};
use super::fault::{CallFault, FaultName};
use super::message::{IncomingMessage, list, on_events, read, response};
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::{StreamId, UserName};
use crate::listener::access::{Access, Account, Credentials, is_equal};
use crate::listener::permissions::Permissions;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Maximum number of unanswered calls of a client; at the limit no further message is read.
const CALLS_MAX: usize = 1024;
/// Maximum bytes of unanswered calls, as received.
const CALLS_BYTES_MAX: usize = 1 << 20;
/// Maximum number of unanswered polls, whose answers may be large.
const POLLS_MAX: usize = 8;

/// The id of a call, unique among the unanswered calls of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// A consumer to which events are pushed over the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PushId(pub u64);

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// The event is stored, with this id.
    Added(StreamId),
    /// The consumer is registered, or its pushes begin.
    Accepted,
    /// The events found.
    Events(Vec<StreamEvent>),
}

/// An output of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutput {
    /// Send this message.
    Send(String),
    /// Execute a call, and pass its result to [`CallSession::on_result`].
    Call {
        /// Id of the call.
        id: CallId,
        /// The caller.
        user: UserName,
        /// The call, which is never a ping.
        call: Call,
        /// Permissions of the caller's account.
        permissions: Permissions,
    },
    /// A message was not a JSON object, so the session cannot answer it. Holds the problem and its position.
    Malformed(CallFault),
    /// The consumer has answered a group.
    Answered {
        /// Id of the consumer.
        push: PushId,
        /// Number of the group.
        seq: u32,
        /// True if it has accepted the group.
        is_accepted: bool,
    },
}

/// An unanswered call.
#[derive(Debug)]
struct PendingCall {
    rid: Option<Box<RawValue>>,
    is_poll: bool,
    bytes: usize,
}

/// A connection, or one request over HTTP.
#[derive(Debug)]
pub struct CallSession {
    channel: Channel,
    access: Arc<Access>,
    /// Unanswered calls, with the ids that the client assigned.
    calls: BTreeMap<CallId, PendingCall>,
    calls_next: u64,
    /// Number of unanswered polls.
    polls: usize,
    /// Bytes of all unanswered calls.
    calls_bytes: usize,
    /// Unanswered groups.
    groups: BTreeMap<u64, (PushId, u32)>,
    groups_next: u64,
    outputs: VecDeque<CallOutput>,
}

impl CallSession {
    /// Creates a session. `access` holds the accounts that may call; without accounts, any user name is accepted.
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

    /// Returns whether the limit of unanswered calls is reached, so that no further message may be read.
    pub fn is_full(&self) -> bool {
        CALLS_MAX <= self.calls.len() || POLLS_MAX <= self.polls || CALLS_BYTES_MAX <= self.calls_bytes
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<CallOutput> {
        self.outputs.pop_front()
    }

    /// Handles a message. A message that is not a JSON object is answered only on channels whose answers need no id.
    pub fn on_message(&mut self, text: &str) {
        let request = match read(text) {
            Ok(IncomingMessage::Request(request)) => request,
            Ok(IncomingMessage::Response { rid, is_ok }) if self.channel.is_bidirectional => {
                return self.on_response(&rid, is_ok);
            }
            Ok(IncomingMessage::Response { .. }) => {
                return self.answer(
                    None,
                    &Err(CallFault::new(FaultName::InvalidRequest, "a response is not expected over this channel")),
                );
            }
            Err(fault) if self.channel.is_bidirectional => {
                return self.outputs.push_back(CallOutput::Malformed(fault));
            }
            Err(fault) => return self.answer(None, &Err(fault)),
        };
        let (user, permissions) = match request.sec.as_ref().map(|sec| self.user(sec)) {
            None => (Ok(None), self.access.permissions_of(None).clone()),
            Some(Ok((user, permissions))) => (Ok(Some(user)), permissions),
            Some(Err(fault)) => (Err(fault), Permissions::default()),
        };
        match check(&request, user, self.channel) {
            Err(fault) => self.answer(request.rid, &Err(fault)),
            Ok((_, Call::Ping { echo })) => self.answer(request.rid, &Ok(format!("{{\"echo\":{echo}}}"))),
            Ok((user, call)) => {
                let id = CallId(self.calls_next);
                self.calls_next += 1;
                let is_poll = matches!(call, Call::Poll { .. });
                self.polls += usize::from(is_poll);
                self.calls_bytes += text.len();
                let rid = request.rid.map(ToOwned::to_owned);
                self.calls.insert(id, PendingCall { rid, is_poll, bytes: text.len() });
                self.outputs.push_back(CallOutput::Call { id, user, call, permissions });
            }
        }
    }

    /// Answers a call with its result. An unknown call is ignored.
    pub fn on_result(&mut self, call: CallId, result: Result<CallResult, CallFault>) {
        let Some(PendingCall { rid, is_poll, bytes }) = self.calls.remove(&call) else { return };
        self.polls -= usize::from(is_poll);
        self.calls_bytes -= bytes;
        let result = result.map(|result| match result {
            CallResult::Added(id) => format!("\"{id}\""),
            CallResult::Accepted => "true".to_owned(),
            CallResult::Events(events) => list(&events),
        });
        self.answer(rid.as_deref(), &result);
    }

    /// Pushes a group to a consumer. The consumer's answer becomes a [`CallOutput::Answered`].
    pub fn on_group(&mut self, push: PushId, version: Version, seq: u32, events: &[StreamEvent]) {
        let number = self.groups_next;
        self.groups_next += 1;
        self.groups.insert(number, (push, seq));
        self.outputs.push_back(CallOutput::Send(on_events(version.as_str(), &format!("S{number}"), seq, events)));
    }

    /// Records that pushing to this consumer has ended.
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

    /// Returns the user authenticated by `user:secret` (FTN8.1), and the permissions of its account.
    fn user(&self, sec: &str) -> Result<(UserName, Permissions), CallFault> {
        let refuse = |text: &str| Err(CallFault::new(FaultName::SecurityError, text));
        if sec.starts_with("-hmac:") || sec.starts_with("-smac:") {
            return refuse("message authentication codes are not supported: send user:secret over a secure channel");
        }
        let Some((user, secret)) = sec.split_once(':') else { return refuse("sec is user:secret") };
        let is_account = |account: &&Account| match &account.credentials {
            Credentials::User { name, password } => name == user && is_equal(password, secret.as_bytes()),
            Credentials::Token(_) | Credentials::Nkey(_) | Credentials::Certificate(_) => false,
        };
        let account = self.access.accounts.iter().find(is_account);
        if self.access.requires_authentication() && account.is_none() {
            return refuse("user or secret are wrong");
        }
        let permissions = self.access.permissions_of(account).clone();
        user.parse().map(|user| (user, permissions)).or_else(|error| refuse(&format!("{error}")))
    }
}
