//! Announcements of the daemon that wait until they are published.

use super::advisory::{self, AdvisoryClass, field, text};
use super::message::{RvField, RvValue};
use super::payload::RvHeaders;
use super::subject;
use crate::message::Message;
use crate::subject::Subject;
use bytes::Bytes;
use std::collections::VecDeque;
use std::vec;

/// Maximum number of messages that wait because the peer cannot publish. Beyond it the oldest are dropped.
const WAITING_MAX: usize = 16_384;
/// Maximum size of their payloads in bytes.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Maximum memory in bytes of ended listens that are not announced yet. Beyond it the oldest are dropped too.
const STOPS_BYTES_MAX: usize = 64 << 20;
/// Memory of an ended listen beside its subject, in bytes.
const STOP_OVERHEAD_BYTES: usize = 64;
/// Maximum number of unwanted messages that one call of [`AnnouncementQueue::poll`] passes over.
const SKIPPED_MAX: usize = 1024;

/// Announcements that wait.
#[derive(Debug)]
enum AnnouncementEntry {
    Message(Message),
    /// Ends of listens, whose messages are made one by one.
    Stops {
        session: String,
        listens: vec::IntoIter<Bytes>,
    },
}

/// Queue of announcements, limited in number and in memory.
#[derive(Debug, Default)]
pub struct AnnouncementQueue {
    entries: VecDeque<AnnouncementEntry>,
    /// Size of the payloads of its messages in bytes.
    message_bytes: usize,
    /// Memory of its ended listens in bytes.
    stops_bytes: usize,
    /// Number of messages dropped because too many waited.
    dropped: u64,
}

impl AnnouncementQueue {
    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of messages dropped because too many waited.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the next message to publish for whose subject `is_wanted` is true. Others are dropped. `None` may mean
    /// that there were many of them, so that the rest has to wait.
    pub fn poll(&mut self, mut is_wanted: impl FnMut(&Subject) -> bool) -> Option<Message> {
        for _ in 0..SKIPPED_MAX {
            let message = match self.entries.front_mut()? {
                AnnouncementEntry::Stops { session, listens } => {
                    let text = listens.next();
                    self.stops_bytes -= text.as_ref().map_or(0, stop_bytes);
                    let message = text.and_then(|text| {
                        let wanted = listen_subject("STOP", &text).is_some_and(|subject| is_wanted(&subject));
                        wanted.then(|| listen_message("STOP", session, &text, 0, None)).flatten()
                    });
                    if listens.len() == 0 {
                        self.entries.pop_front();
                    }
                    message
                }
                AnnouncementEntry::Message(_) => self.pop_message().filter(|message| is_wanted(&message.subject)),
            };
            if message.is_some() {
                return message;
            }
        }
        None
    }

    /// Queues a message.
    pub fn push(&mut self, message: Option<Message>) {
        let Some(message) = message else { return };
        self.message_bytes += message.payload.len();
        self.enqueue(AnnouncementEntry::Message(message));
    }

    /// Queues the ends of all listens of a session to these subjects.
    pub fn push_stops(&mut self, session: String, subjects: Vec<Bytes>) {
        self.stops_bytes += subjects.iter().map(stop_bytes).sum::<usize>();
        self.enqueue(AnnouncementEntry::Stops { session, listens: subjects.into_iter() });
    }

    /// Queues announcements. The oldest ones are dropped if too many wait.
    fn enqueue(&mut self, announcement: AnnouncementEntry) {
        self.entries.push_back(announcement);
        while WAITING_MAX < self.entries.len()
            || WAITING_BYTES_MAX < self.message_bytes
            || STOPS_BYTES_MAX < self.stops_bytes
        {
            self.dropped += match self.entries.pop_front() {
                Some(AnnouncementEntry::Message(message)) => {
                    self.message_bytes -= message.payload.len();
                    1
                }
                Some(AnnouncementEntry::Stops { listens, .. }) => {
                    self.stops_bytes -= listens.as_slice().iter().map(stop_bytes).sum::<usize>();
                    listens.len() as u64
                }
                None => 0,
            };
        }
    }

    /// Takes the message at the front.
    fn pop_message(&mut self) -> Option<Message> {
        let Some(AnnouncementEntry::Message(message)) = self.entries.pop_front() else { return None };
        self.message_bytes -= message.payload.len();
        Some(message)
    }
}

/// Returns an advisory as a message for the bus; `None` if its subject is too long or too deep.
pub fn message(name: &str, reply: Option<&[u8]>, rest: Vec<RvField<'_>>) -> Option<Message> {
    let advisory = advisory::encode(AdvisoryClass::Info, name, rest)?;
    let subject = subject::to_subject(advisory.subject.as_bytes()).ok()?;
    let headers = RvHeaders { is_advisory: true, ..RvHeaders::default() }.to_headers();
    let reply = reply.and_then(|reply| subject::to_subject(reply).ok());
    Some(Message { reply, headers, ..Message::new(subject, advisory.data) })
}

/// Returns the advisory about listens of a session to a subject, of which there are `count` now.
pub fn listen_message(event: &str, session: &str, subject: &[u8], count: u32, reply: Option<&[u8]>) -> Option<Message> {
    let name = listen_name(event, subject);
    let rest =
        vec![field("id", text(session)), field("sub", RvValue::String(subject)), field("refcnt", RvValue::U32(count))];
    message(&name, reply, rest)
}

/// Returns the subject of that advisory on the bus; `None` if it is too long or too deep.
fn listen_subject(event: &str, subject: &[u8]) -> Option<Subject> {
    let text = advisory::subject_text(AdvisoryClass::Info, &listen_name(event, subject));
    subject::to_subject(text.as_bytes()).ok()
}

/// Returns the name of that advisory. The bytes of a subject need not be UTF-8; the name is text.
fn listen_name(event: &str, subject: &[u8]) -> String {
    format!("LISTEN.{event}.{}", String::from_utf8_lossy(subject))
}

/// Returns the memory of an ended listen in bytes.
fn stop_bytes(text: &Bytes) -> usize {
    text.len() + STOP_OVERHEAD_BYTES
}
