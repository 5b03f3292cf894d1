//! Messages in sealed datagrams: each must be as it was published, and in the order of publication. A peer may omit
//! only messages that it may suppress.

use super::{EpochTrace, GroundTruth, PublishedMessage, StreamTrace};
use crate::message::{Epoch, Message, Queue};
use crate::proto::pace::Pace;
use crate::sim::report::Findings;
use crate::subject::Subject;
use crate::wire::{PeerAnnouncement, queue};
use std::time::Duration;

impl GroundTruth {
    /// Records that a complete message was sealed, and checks that it is later than the one sealed before it.
    pub(super) fn on_message(
        &mut self,
        flow_id: (usize, Option<u64>),
        flow: &mut StreamTrace,
        message: &Message,
        out: &mut Findings,
    ) {
        let (stream, receiver) = flow_id;
        if receiver.is_some() && is_service(&message.subject) {
            flow.service_messages += 1;
            self.is_answer |= is_history_answer(&message.subject);
            return;
        }
        let is_redirected = queue::stamps(message.headers.block()).any(|stamp| stamp.publisher.is_some());
        if receiver.is_some() && is_redirected {
            // A message of another run, returned for a member of a queue group.
            flow.service_messages += 1;
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
                if known.run != self.streams[stream].run || known.sent.is_some() || Some(id) <= flow.last_published {
                    out.add("publish", format!("message {id} on {} sent out of order", message.subject));
                }
                flow.last_published = Some(id);
                // A pacer may delay a datagram for less than its uptime can show. Then its messages count as sealed
                // when they were published.
                if let Some(sent) =
                    flow.messages.last_mut().filter(|_| self.streams[stream].settings.pace.pace != Pace::Off)
                {
                    sent.sealed = sent.sealed.min(known.at);
                }
                known.sent = Some((stream, receiver, flow.messages.len() - 1));
                known.assigned = assigned;
                if receiver.is_none() {
                    self.record_sent(self.streams[stream].run, id, out);
                }
            }
            Err(reason) => out.add("publish", format!("sent a message on {}: {reason}", message.subject)),
        }
    }
}

impl GroundTruth {
    /// Records that a run has sent this message to the group. It never sends its earlier messages that are unsent.
    fn record_sent(&mut self, run: usize, id: usize, out: &mut Findings) {
        while let Some(first) = self.unsent[run].front().copied().filter(|first| *first <= id) {
            self.unsent[run].pop_front();
            if first < id {
                self.record_suppressed(first, out);
            }
        }
    }

    fn record_suppressed(&mut self, id: usize, out: &mut Findings) {
        self.suppressed += 1;
        if self.published[id].must_be_sent {
            let PublishedMessage { run, envelope, at, .. } = &self.published[id];
            out.add("suppression", format!("run {run} did not send message {id} on {} of {at}", envelope.subject));
        }
    }

    /// Records that a live run sends nothing more.
    pub fn finish_run(&mut self, run: usize, out: &mut Findings) {
        for id in self.unsent.get_mut(run).map(std::mem::take).unwrap_or_default() {
            self.record_suppressed(id, out);
        }
    }
}

impl EpochTrace {
    /// Checks the advertised subscriptions of an announcement.
    pub(super) fn on_interest(&mut self, announce: &PeerAnnouncement, out: &mut Findings) {
        let Some(interest) = announce.interest else { return };
        let known = announce.directed_receiver.map(Epoch::bits).zip(announce.interest_known);
        if let Some((receiver, version)) = known {
            let before = self.confirmed.entry(receiver).or_default();
            // The confirmed version of a forgotten receiver begins anew.
            if 0 < version && version < *before && Duration::from_secs(60) <= self.settings.forget {
                out.add("interest", format!("{} confirmed version {before}, and now {version}", self.epoch));
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
