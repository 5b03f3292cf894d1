//! Requests that nobody gets, as far as is known: their clients are told so as soon as it is certain. A peer that has just started
//! does not know all others, and one that has just come has not told what its clients subscribe to.

use super::Doors;
use crate::daemon::engine::Engine;
use crate::door::ask::Receivers;
use crate::message::ClientId;
use crate::subject::Subject;
use crate::time::{Instant, Now};
use std::time::Duration;

/// Requests that wait, at most; clients of others are left to their own patience.
const UNDECIDED_MAX: usize = 4096;
/// For so long a request waits.
const UNDECIDED_TIME: Duration = Duration::from_secs(2);
/// How often that is looked at.
const INTERVAL: Duration = Duration::from_millis(5);

/// A request that nobody gets, as far as is known.
#[derive(Debug)]
pub(super) struct Undecided {
    client: ClientId,
    subject: Subject,
    reply: Subject,
    until: Instant,
}

impl Doors {
    /// Nobody is known who gets this request, and not all are known.
    pub(super) fn postpone(&mut self, now: Instant, client: ClientId, subject: Subject, reply: Subject) {
        if self.undecided.is_empty() {
            self.decide_at = now + INTERVAL;
        }
        if self.undecided.len() < UNDECIDED_MAX {
            self.undecided.push(Undecided { client, subject, reply, until: now + UNDECIDED_TIME });
        }
    }
}

impl Engine {
    /// Tells clients of requests that certainly nobody got.
    pub(super) fn decide(&mut self, now: Now) {
        if self.doors.undecided.is_empty() || now.instant < self.doors.decide_at {
            return;
        }
        self.doors.decide_at = now.instant + INTERVAL;
        for undecided in std::mem::take(&mut self.doors.undecided) {
            match self.receivers(&undecided.subject) {
                receivers @ Receivers { count: 0, is_certain: true } => {
                    let Some(connection) = self.clients.door(undecided.client) else { continue };
                    connection.answer(|session, out| session.on_published(Some(&undecided.reply), receivers, out));
                    self.clients.note_output(undecided.client);
                }
                Receivers { count: 0, .. } if now.instant < undecided.until => self.doors.undecided.push(undecided),
                // Somebody may have got it who is known only now.
                _ => {}
            }
        }
    }
}
