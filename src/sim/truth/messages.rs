//! Messages in sealed datagrams: each must be as it was published, in its turn, and omitted only where that is
//! allowed.

use super::{EpochTrace, GroundTruth, PublishedMessage, StreamTrace};
use crate::message::{Epoch, Message, Queue};
use crate::proto::pace::Pace;
use crate::sim::report::Findings;
use crate::subject::Subject;
use crate::wire::{PeerAnnouncement, queue};
use std::time::Duration;

impl GroundTruth {
    /// Records that a whole message was sealed: it must be the next one published.
    pub(super) fn on_message(
        &mut self,
        whose: (usize, Option<u64>),
        flow: &mut StreamTrace,
        message: &Message,
        out: &mut Findings,
    ) {
        let (stream, receiver) = whose;
        if receiver.is_some() && is_service(&message.subject) {
            flow.services += 1;
            self.is_answer |= is_history_answer(&message.subject);
            return;
        }
        let is_redirected = queue::stamps(message.headers.block()).any(|stamp| stamp.publisher.is_some());
        if receiver.is_some() && is_redirected {
            // A message of another run, for a member of a queue group.
            flow.services += 1;
            return;
        }
        let names = queue::stamps(message.headers.block()).filter_map(|stamp| std::str::from_utf8(stamp.name).ok());
        let assigned: Vec<Queue> = names.filter_map(|name| name.parse().ok()).collect();
        let message = &Message { headers: queue::unstamped(&message.headers), ..message.clone() };
        if let Some(sent) = flow.messages.last_mut() {
            sent.bytes = message.payload.len();
        }
        match self.identify(message) {
            Ok(id) => {
                let known = &mut self.published[id];
                if known.run != self.streams[stream].run || known.sent.is_some() || Some(id) <= flow.published_last {
                    out.add("publish", format!("message {id} on {} sent out of turn", message.subject));
                }
                flow.published_last = Some(id);
                // A pacer may delay a datagram for less than its uptime can show. Its messages existed when they were
                // published.
                if let Some(sent) =
                    flow.messages.last_mut().filter(|_| self.streams[stream].settings.pace.pace != Pace::Off)
                {
                    sent.sealed = sent.sealed.min(known.at);
                }
                known.sent = Some((stream, receiver, flow.messages.len() - 1));
                known.assigned = assigned;
                if receiver.is_none() {
                    self.on_sent_in_turn(self.streams[stream].run, id, out);
                }
            }
            Err(why) => out.add("publish", format!("sent a message on {}: {why}", message.subject)),
        }
    }
}

impl GroundTruth {
    /// Records that a run has sent this message to the group. Its earlier messages that are still unsent are never
    /// sent.
    fn on_sent_in_turn(&mut self, run: usize, id: usize, out: &mut Findings) {
        while let Some(first) = self.unsent[run].front().copied().filter(|first| *first <= id) {
            self.unsent[run].pop_front();
            if first < id {
                self.on_left_out(first, out);
            }
        }
    }

    fn on_left_out(&mut self, id: usize, out: &mut Findings) {
        self.suppressed += 1;
        if self.published[id].must_be_sent {
            let PublishedMessage { run, envelope, at, .. } = &self.published[id];
            out.add("suppression", format!("run {run} did not send message {id} on {} of {at}", envelope.subject));
        }
    }

    /// Records that a live run has sent everything that it will ever send.
    pub fn finish_run(&mut self, run: usize, out: &mut Findings) {
        for id in self.unsent.get_mut(run).map(std::mem::take).unwrap_or_default() {
            self.on_left_out(id, out);
        }
    }
}

impl EpochTrace {
    /// Checks the advertised subscriptions of an announcement.
    pub(super) fn on_interest(&mut self, announce: &PeerAnnouncement, out: &mut Findings) {
        let Some(interest) = announce.interest else { return };
        let known = announce.directed_receiver.map(Epoch::bits).zip(announce.interest_known);
        if let Some((receiver, version)) = known {
            let before = self.known.entry(receiver).or_default();
            // The version of a receiver that was forgotten begins anew.
            if 0 < version && version < *before && Duration::from_secs(60) <= self.settings.forget {
                out.add("interest", format!("{} knew {before} changes and now {version}", self.epoch));
            }
            *before = version.max(*before);
        }
        self.announced_interest = Some((interest.version, known));
    }
}

/// Returns whether a directed message is a question to a history, or an answer of one.
fn is_service(subject: &Subject) -> bool {
    let rest = subject.as_str().strip_prefix("_INBOX.").and_then(|rest| rest.split_once('.'));
    rest.is_some_and(|(_, rest)| rest == "HISTORY" || rest.starts_with("H."))
}

/// Returns whether a directed message is an answer of a history.
fn is_history_answer(subject: &Subject) -> bool {
    is_service(subject) && !subject.as_str().ends_with("HISTORY")
}
