//! Permissions of one client: those of its account, and those that its requests and its answers need.
//!
//! A client with a list of patterns may also subscribe to an inbox of its own, and answer the requests that it has
//! received. Otherwise each account would have to list the inboxes of all clients, and could then read the answers to
//! others.

use crate::listener::permissions::{Denial, DeniedAction, Permissions, SubjectPermission};
use crate::subject::{Pattern, Subject};
use bytes::Bytes;
use std::collections::BTreeSet;

/// First token of the inboxes of client libraries.
const INBOX_TOKEN: &[u8] = b"_INBOX";
/// Minimum bytes of the second token of an inbox. Client libraries draw 22 random characters. Programs of the bus have
/// 16 known ones there, so that a shorter token may be that of somebody else.
const INBOX_ID_BYTES_MIN: usize = 20;
/// Maximum number of reply subjects that are remembered for each of two periods.
const REPLIES_MAX: usize = 512;

/// Permissions of a client.
#[derive(Debug, Default)]
pub(crate) struct ClientPermissions {
    permissions: Permissions,
    /// Requests received in the present period.
    present: ReceivedRequests,
    /// Requests received in the period before.
    previous: ReceivedRequests,
}

/// Requests received in one period.
#[derive(Debug, Default)]
struct ReceivedRequests {
    /// Their reply subjects.
    replies: BTreeSet<Subject>,
    /// Memory of the reply subjects, in bytes.
    bytes: usize,
}

impl ClientPermissions {
    /// Creates the permissions of a client that needs no account, or has not authenticated yet.
    pub(crate) fn new(permissions: &Permissions) -> ClientPermissions {
        ClientPermissions { permissions: permissions.clone(), ..ClientPermissions::default() }
    }

    /// Replaces the permissions by those of another account. Requests received before remain answerable if that account
    /// may answer requests.
    pub(crate) fn set(&mut self, permissions: &Permissions) {
        self.permissions.clone_from(permissions);
    }

    /// Returns the reason why the client may not publish on the subject with this reply subject; `None` if it may.
    #[inline]
    pub(crate) fn publish_denial(&self, subject: &Subject, reply: Option<&Subject>) -> Option<Denial> {
        if !self.may_publish(subject) {
            return Some(Denial::new(DeniedAction::Publish, subject));
        }
        let reply = reply.filter(|reply| !self.may_reply_to(reply))?;
        Some(Denial::new(DeniedAction::Reply, reply))
    }

    /// Returns the reason why the client may not name the reply subject; `None` if it may.
    pub(crate) fn reply_denial(&self, reply: &Subject) -> Option<Denial> {
        (!self.may_reply_to(reply)).then(|| Denial::new(DeniedAction::Reply, reply))
    }

    /// Returns the reason why the client may not subscribe to the pattern; `None` if it may.
    pub(crate) fn subscribe_denial(&self, pattern: &Pattern) -> Option<Denial> {
        (!self.may_subscribe(pattern)).then(|| Denial::new(DeniedAction::Subscribe, pattern))
    }

    /// Returns whether the client may publish on the subject.
    #[inline]
    fn may_publish(&self, subject: &Subject) -> bool {
        self.permissions.publish.permits(subject) || self.records_requests() && self.was_requested(subject)
    }

    /// Returns whether the subject is the reply subject of a recorded request.
    fn was_requested(&self, subject: &Subject) -> bool {
        self.present.replies.contains(subject) || self.previous.replies.contains(subject)
    }

    /// Returns whether the client may subscribe to the pattern.
    fn may_subscribe(&self, pattern: &Pattern) -> bool {
        match &self.permissions.subscribe {
            SubjectPermission::Only(_) if is_own_inbox(pattern) => true,
            permission => permission.permits_pattern(pattern),
        }
    }

    /// Returns whether a message of the client may name the reply subject. Otherwise a client could make the receiver
    /// of a request publish where the client itself may not.
    fn may_reply_to(&self, reply: &Subject) -> bool {
        self.permissions.are_unlimited() || self.may_subscribe(&reply.clone().into()) || self.may_publish(reply)
    }

    /// Returns whether the client may answer received requests, which [`ClientPermissions::on_request`] records. An
    /// account that may publish on every subject needs no record, and one that may publish nothing may not answer.
    #[inline]
    pub(crate) fn records_requests(&self) -> bool {
        matches!(self.permissions.publish, SubjectPermission::Only(_))
    }

    /// Records a received request, so that the client may answer it. `reply` is its reply subject.
    pub(crate) fn on_request(&mut self, reply: &[u8]) {
        let Ok(reply) = Subject::from_bytes(Bytes::copy_from_slice(reply)) else { return };
        if REPLIES_MAX <= self.present.replies.len() {
            self.end_period();
        }
        let bytes = size_of::<Subject>() + reply.as_bytes().len();
        if self.present.replies.insert(reply) {
            self.present.bytes += bytes;
        }
    }

    /// Begins a new period. Requests of the one before the last can no longer be answered.
    pub(crate) fn end_period(&mut self) {
        self.previous = std::mem::take(&mut self.present);
    }

    /// Returns the memory of the recorded requests, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.present.bytes + self.previous.bytes
    }
}

/// Returns whether the pattern names an inbox that no other client can guess.
fn is_own_inbox(pattern: &Pattern) -> bool {
    let mut tokens = pattern.tokens();
    tokens.next() == Some(INBOX_TOKEN) && tokens.next().is_some_and(|id| INBOX_ID_BYTES_MIN <= id.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(publish: &[&str], subscribe: &[&str]) -> ClientPermissions {
        let only = |texts: &[&str]| SubjectPermission::Only(texts.iter().map(|text| text.parse().unwrap()).collect());
        let mut client = ClientPermissions::default();
        client.set(&Permissions { publish: only(publish), subscribe: only(subscribe) });
        client
    }

    fn subject(text: &str) -> Subject {
        text.parse().unwrap()
    }

    #[test]
    fn only_unguessable_inboxes_are_own() {
        for (pattern, expected) in [
            ("_INBOX.Xk3v7Q9mZ2b8Lw4N1c6R5t.*", true),
            ("_INBOX.Xk3v7Q9mZ2b8Lw4N1c6R5t", true),
            ("_INBOX.Xk3v7Q9mZ2b8Lw4N1c6R5t.>", true),
            ("_INBOX.>", false),
            ("_INBOX.*", false),
            ("_INBOX.*.Xk3v7Q9mZ2b8Lw4N1c6R5t", false),
            ("_INBOX.00000000000000ab.>", false),
            ("_INBOX", false),
            ("a.Xk3v7Q9mZ2b8Lw4N1c6R5t", false),
            (">", false),
        ] {
            assert_eq!(client(&[], &[]).may_subscribe(&pattern.parse().unwrap()), expected, "{pattern}");
        }
        let mut silent = ClientPermissions::default();
        silent.set(&Permissions { subscribe: SubjectPermission::Nothing, ..Permissions::default() });
        assert!(!silent.may_subscribe(&"_INBOX.Xk3v7Q9mZ2b8Lw4N1c6R5t.*".parse().unwrap()));
    }

    #[test]
    fn requests_are_answerable_for_two_periods() {
        let mut client = client(&["a"], &["req"]);
        client.on_request(b"r.1");
        assert!(client.may_publish(&subject("r.1")) && !client.may_publish(&subject("r.2")));
        client.end_period();
        assert!(client.may_publish(&subject("r.1")));
        client.end_period();
        assert!(!client.may_publish(&subject("r.1")) && client.may_publish(&subject("a")));
        client.on_request(b"r.3");
        client.set(&Permissions { publish: SubjectPermission::Nothing, ..Permissions::default() });
        assert!(!client.may_publish(&subject("r.3")), "the next account may publish nothing");
    }

    #[test]
    fn recorded_requests_are_bounded() {
        let mut client = client(&[], &["req"]);
        (0..10 * REPLIES_MAX).for_each(|number| client.on_request(format!("r.{number}").as_bytes()));
        assert!(client.may_publish(&subject(&format!("r.{}", 10 * REPLIES_MAX - REPLIES_MAX))));
        assert!(!client.may_publish(&subject("r.0")));
        assert!(client.held_bytes() <= 2 * REPLIES_MAX * (size_of::<Subject>() + 6));
    }

    #[test]
    fn reply_subject_must_be_usable_by_the_client() {
        let client = client(&["log.>"], &["req.*"]);
        for (reply, expected) in
            [("log.a", true), ("req.a", true), ("_INBOX.Xk3v7Q9mZ2b8Lw4N1c6R5t.1", true), ("cmd.stop", false)]
        {
            assert_eq!(client.may_reply_to(&subject(reply)), expected, "{reply}");
        }
        assert!(ClientPermissions::default().may_reply_to(&subject("cmd.stop")));
    }
}
