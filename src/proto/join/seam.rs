//! Where histories end and the live stream goes on.

use super::JoinEvent;
use crate::message::{Cause, Count, Delivery, Epoch, Loss, Missing, Reason, Verdict};
use crate::offset::Span;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::Wall;
use std::collections::{BTreeMap, VecDeque};

/// For each subject of each publisher the last number that is not wanted from the live stream any more, until it has passed it.
#[derive(Debug, Default)]
pub(super) struct Seams {
    last: BTreeMap<(Epoch, Subject), Seq>,
    /// Whether live messages were dropped because the subscriber was slow.
    has_dropped: bool,
}

impl Seams {
    /// The history is asked for this; false if it was before.
    pub(super) fn begin(&mut self, epoch: Epoch, subject: &Subject, span: &Span) -> bool {
        let key = (epoch, subject.detached());
        if self.last.contains_key(&key) {
            return false;
        }
        self.last.insert(key, span.last_seq);
        true
    }

    pub(super) fn on_dropped(&mut self) {
        self.has_dropped = true;
    }

    /// Takes a live message: drops it if the history had it, and tells what is missing before it.
    pub(super) fn on_message(&mut self, at: Wall, mut delivery: Delivery, out: &mut VecDeque<JoinEvent>) {
        if self.last.is_empty() {
            return out.push_back(JoinEvent::Message(delivery));
        }
        let key = (delivery.publisher.epoch, delivery.message.subject.clone());
        let (Some(seq), Some(last)) = (delivery.seq, self.last.get(&key).copied()) else {
            return out.push_back(JoinEvent::Message(delivery));
        };
        if seq <= last {
            return;
        }
        self.last.remove(&key);
        let is_counted = seq.frame() == last.frame() && !self.has_dropped;
        match (delivery.verdict, if is_counted { seq.count() - last.count() - 1 } else { 0 }) {
            // What is published here cannot be lost here.
            (Verdict::Direct | Verdict::Unnumbered, _) => {}
            (_, 0) if is_counted => delivery.verdict = Verdict::Next,
            (Verdict::First, missing) if is_counted => {
                // The live stream does not know of them: to it the subject begins with this message.
                let (first, before) = (last.forward(1), Seq::new(seq.raw() - 1));
                if let (Some(first), Some(last)) = (first, before) {
                    let count = Count::Exact(missing);
                    let what = Missing::Messages { subject: key.1, first, last, count };
                    let publisher = delivery.publisher.clone();
                    let (reason, cause) = (Reason::Deadline, Cause::Network);
                    out.push_back(JoinEvent::Loss(Loss { publisher, what, reason, cause, at }));
                    delivery.verdict = Verdict::Skip(count);
                }
            }
            _ => {}
        }
        out.push_back(JoinEvent::Message(delivery));
    }

    /// Takes a live loss: what of it the history had is not lost.
    pub(super) fn on_loss(&mut self, mut loss: Loss) -> Option<Loss> {
        let Missing::Messages { subject, first, last, count } = &mut loss.what else { return Some(loss) };
        let Some(seam) = self.last.get_mut(&(loss.publisher.epoch, subject.clone())) else { return Some(loss) };
        if *last <= *seam {
            return None;
        }
        if *first <= *seam {
            let before = seam.count().saturating_sub(first.count()) + 1;
            *first = seam.forward(1).unwrap_or(*last);
            *count = match *count {
                Count::Exact(all) if first.frame() == seam.frame() => Count::Exact(all.saturating_sub(before)),
                all => Count::from_bounds(0, all.max()),
            };
        }
        *seam = *last;
        Some(loss)
    }
}
