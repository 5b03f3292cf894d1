//! Target resolution for polls of this peer's clients, and polls in text. Any client can send one as a request on
//! `_POLL.<peer>.<subject>` (docs/local-protocol.md, "Polls as requests").

use super::Peer;
use super::questions::{AnswerRecipient, TextPoll};
use crate::message::{ClientId, Epoch, Headers, Message, PeerName, PeerRef, QuestionFailure};
use crate::offset::{HistorySpan, PollCase};
use crate::proto::effect::Effect;
use crate::proto::history::HistoryEvent;
use crate::proto::question::{Answer, AnswerContent, Poll, PollAnswer, Question, Refused};
use crate::subject::Subject;
use crate::time::ClockReading;
use bytes::Bytes;
use std::time::Duration;

/// Prefix of subjects on which a request is a poll.
const PREFIX: &str = "_POLL.";
/// Timeout of a poll in text: less than the default timeout of a request, two seconds.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// Maximum number of events of a poll in text; each is a message to the client.
const COUNT_MAX: u16 = 256;

/// Reason for which a poll in text cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextPollError {
    Subject,
    Offset,
    Count,
}

impl TextPollError {
    /// Returns the name in the header, and the text for people.
    fn texts(self) -> (&'static str, &'static str) {
        match self {
            TextPollError::Subject => ("subject", "a subject must follow the peer: _POLL.B_test.demo.hello"),
            TextPollError::Offset => ("offset", "the payload is an offset from 0 to 4294967295, or empty"),
            TextPollError::Count => ("count", "the header 'count' is a number from 1 to 256"),
        }
    }
}

/// Returns whether a message on this subject is a poll in text, if it has a reply subject. Only the peer itself
/// receives such a message.
pub(super) fn is_text_poll(subject: &Subject) -> bool {
    subject.as_bytes().starts_with(PREFIX.as_bytes())
}

/// Returns the peer that a poll in text addresses, and the poll.
fn read(message: &Message) -> Result<(&str, Poll), TextPollError> {
    let rest = message.subject.as_str().strip_prefix(PREFIX).unwrap_or_default();
    let (peer, subject) = rest.split_once('.').ok_or(TextPollError::Subject)?;
    let subject = subject.parse().map_err(|_| TextPollError::Subject)?;
    let payload = std::str::from_utf8(&message.payload).map_err(|_| TextPollError::Offset)?.trim();
    let offset = if payload.is_empty() { 0 } else { payload.parse().map_err(|_| TextPollError::Offset)? };
    let count = message.headers.field("count");
    let count = count.map_or(Ok(1), |count| count.trim().parse()).map_err(|_| TextPollError::Count)?;
    match count {
        1..=COUNT_MAX => Ok((peer, Poll { subject, offset, count })),
        _ => Err(TextPollError::Count),
    }
}

impl Peer {
    /// Returns the run of the peer that a client names. A name means the only live peer with that name, which may be
    /// this peer.
    ///
    /// # Errors
    /// No peer or several have the name, or the peer with the name has left. An epoch is returned as it is.
    pub fn resolve(&self, peer: &PeerRef) -> Result<Epoch, QuestionFailure> {
        match peer {
            PeerRef::Epoch(epoch) => Ok(*epoch),
            PeerRef::Name(name) => self.resolve_unique(|known| known == name),
        }
    }

    /// Returns the run of the peer that a token of a subject names, where '_' replaces '.'.
    fn resolve_token(&self, token: &str) -> Result<Epoch, QuestionFailure> {
        match token.parse() {
            Ok(PeerRef::Epoch(epoch)) => Ok(epoch),
            _ => self.resolve_unique(|known| known.as_str().replace('.', "_") == token),
        }
    }

    /// Returns the only live peer whose name matches.
    fn resolve_unique(&self, is_match: impl Fn(&PeerName) -> bool) -> Result<Epoch, QuestionFailure> {
        let named = self.members.values().filter(|member| member.publisher.name.as_ref().is_some_and(&is_match));
        let (mut only, mut has_gone) = (is_match(&self.settings.name).then_some(self.origin.epoch), false);
        for member in named {
            match only {
                _ if !member.is_alive() => has_gone = true,
                Some(_) => return Err(QuestionFailure::Ambiguous),
                None => only = Some(member.publisher.epoch),
            }
        }
        only.ok_or(if has_gone { QuestionFailure::Gone } else { QuestionFailure::UnknownPeer })
    }

    /// Handles a client's request that is a poll.
    pub(super) fn on_text_poll(&mut self, now: ClockReading, client: ClientId, message: &Message) {
        let Some(reply) = message.reply.clone() else { return };
        let requester = TextPoll { client, reply };
        let (token, poll) = match read(message) {
            Ok(read) => read,
            Err(unreadable) => {
                let (name, text) = unreadable.texts();
                return self.reply_error(now, &requester, name, text);
            }
        };
        match self.resolve_token(token) {
            Ok(peer) => {
                self.request_history(now, AnswerRecipient::Text(requester), peer, &Question::Poll(vec![poll]), TIMEOUT)
            }
            Err(reason) => self.on_text_answer(now, &requester, Err(reason)),
        }
    }

    /// Sends the answer to a poll in text, or the failure: one or more messages to the reply subject.
    pub(super) fn on_text_answer(
        &mut self,
        now: ClockReading,
        requester: &TextPoll,
        answer: Result<Answer, QuestionFailure>,
    ) {
        let Answer { epoch, content, .. } = match answer {
            Ok(answer) => answer,
            Err(reason) => return self.reply_error(now, requester, reason.as_str(), &reason.to_string()),
        };
        let answers = match content {
            AnswerContent::Poll { answers, .. } => answers,
            AnswerContent::Refused(reason) => {
                let name = match reason {
                    Refused::Malformed => "malformed",
                    Refused::Unknown => "unknown",
                    Refused::TooMany => "too-many",
                    Refused::Off => "off",
                    // These are answers to questions about reports.
                    Refused::NoReports | Refused::Busy => "refused",
                };
                return self.reply_error(now, requester, name, &reason.to_string());
            }
            _ => return self.reply_error(now, requester, "malformed", "the answer does not fit the question"),
        };
        for PollAnswer { case, span, events, .. } in answers {
            match (case, span) {
                (PollCase::NoEvent, _) => {
                    self.reply_case(now, requester, &[("Case", "none"), ("Epoch", &epoch.to_string())])
                }
                (PollCase::Recovery, Some(HistorySpan { first, last, .. })) => {
                    let (first, last) = (first.to_string(), last.to_string());
                    let fields =
                        [("Case", "recovery"), ("Epoch", &epoch.to_string()), ("First", &first), ("Last", &last)];
                    self.reply_case(now, requester, &fields);
                }
                _ => {
                    let remaining = (0..events.len()).rev();
                    events
                        .iter()
                        .zip(remaining)
                        .for_each(|(event, left)| self.reply_event(now, requester, epoch, event, left));
                }
            }
        }
    }

    /// Sends an event; its own header fields follow those of the answer.
    fn reply_event(
        &mut self,
        now: ClockReading,
        requester: &TextPoll,
        epoch: Epoch,
        event: &HistoryEvent,
        remaining: usize,
    ) {
        let HistoryEvent { seq, offset, time, message } = event;
        let own = headers(&[
            ("Case", "event"),
            ("Epoch", &epoch.to_string()),
            ("Offset", &offset.to_string()),
            ("Seq", &seq.to_string()),
            ("Time", &time.as_nanos().to_string()),
            ("Remaining", &remaining.to_string()),
        ]);
        let block = [&own.block()[..], &message.headers.block()[..]].concat();
        let headers = Headers::from_block(block.into());
        let answer = Message { headers, ..Message::new(requester.reply.clone(), message.payload.clone()) };
        if self.settings.message_bytes_max < answer.body_bytes() {
            let text = format!("the event with offset {offset} is too large for a message with these headers");
            return self.reply_error(now, requester, "too-large", &text);
        }
        self.publish_answer(now, requester, &answer);
    }

    /// Publishes an answer in the name of the client that sent the poll. An attached client gets a refusal; other
    /// clients get no answer.
    fn publish_answer(&mut self, now: ClockReading, requester: &TextPoll, answer: &Message) {
        if let Err(refusal) = self.publish(now, requester.client, answer) {
            self.effects.push_back(Effect::Refuse { client: requester.client, sub: None, refusal });
        }
    }

    fn reply_error(&mut self, now: ClockReading, requester: &TextPoll, name: &str, text: &str) {
        let headers = headers(&[("Case", "error"), ("Error", name)]);
        let payload = Bytes::copy_from_slice(text.as_bytes());
        self.publish_answer(now, requester, &Message { headers, ..Message::new(requester.reply.clone(), payload) });
    }

    fn reply_case(&mut self, now: ClockReading, requester: &TextPoll, fields: &[(&str, &str)]) {
        let answer = Message { headers: headers(fields), ..Message::new(requester.reply.clone(), Bytes::new()) };
        self.publish_answer(now, requester, &answer);
    }
}

/// Returns the header fields of an answer, each with the prefix that separates them from an event's own.
fn headers(fields: &[(&str, &str)]) -> Headers {
    let keys: Vec<String> = fields.iter().map(|(key, _)| format!("Seqcast-{key}")).collect();
    let pairs = keys.iter().zip(fields).map(|(key, (_, value))| (key.as_str(), *value));
    Headers::from_pairs(pairs).expect("keys of letters, values of names and numbers")
}
