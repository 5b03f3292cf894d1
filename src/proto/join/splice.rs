//! Splices of histories with the live stream.

use super::event::JoinEvent;
use crate::message::{Cause, Count, Delivery, Epoch, Loss, LossScope, Publisher, Reason, Verdict};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;
use std::collections::{BTreeMap, VecDeque};

/// Listed events of a subject that were not replayed from the history; they may still arrive live.
#[derive(Clone, Debug)]
pub(super) struct ReplayGap {
    pub(super) publisher: Publisher,
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) count: u64,
    pub(super) reason: Reason,
}

/// State of one subject of one publisher.
#[derive(Clone, Debug)]
struct Splice {
    /// Raw form of the highest number that was replayed, was reported as lost or is not wanted; that number need not
    /// exist.
    until: u64,
    /// Gap of the history; `until` is just below it.
    unreplayed: Option<ReplayGap>,
    /// Number of messages reported as lost since the last one that arrived.
    reported: Count,
    /// True if live messages may have been dropped since the splice began, because the subscriber was slow.
    has_dropped: bool,
}

/// Splice of each subject of each publisher, until the live stream has passed the history.
#[derive(Debug, Default)]
pub(super) struct Splices {
    map: BTreeMap<(Epoch, Subject), Splice>,
    unreplayed: usize,
}

impl Splices {
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Begins a subject whose history is read up to the number with this raw form. Returns false if the subject has
    /// begun before.
    pub(super) fn begin(&mut self, epoch: Epoch, subject: &Subject, until: u64) -> bool {
        let key = (epoch, subject.detached());
        if self.map.contains_key(&key) {
            return false;
        }
        let splice = Splice { until, unreplayed: None, reported: Count::Exact(0), has_dropped: false };
        self.map.insert(key, splice);
        true
    }

    /// Adds the listed events that were not replayed from the history. `reported` messages just before them were
    /// reported as lost.
    pub(super) fn add_gap(&mut self, subject: &Subject, unreplayed: ReplayGap, reported: u64) {
        if let Some(splice) = self.map.get_mut(&(unreplayed.publisher.epoch, subject.clone())) {
            self.unreplayed += usize::from(splice.unreplayed.is_none());
            splice.until = unreplayed.first.raw() - 1;
            splice.unreplayed = Some(unreplayed);
            splice.reported = Count::Exact(reported);
        }
    }

    pub(super) fn on_dropped(&mut self) {
        self.map.values_mut().for_each(|splice| splice.has_dropped = true);
    }

    /// Reports all outstanding gaps as lost, after all live events so far were handled.
    pub(super) fn on_idle(&mut self, at: WallTime, out: &mut VecDeque<JoinEvent>) {
        if self.unreplayed == 0 {
            return;
        }
        self.unreplayed = 0;
        for ((_, subject), splice) in &mut self.map {
            if let Some(unreplayed) = splice.unreplayed.take() {
                out.push_back(splice.report_all(subject, &unreplayed, at));
            }
        }
    }

    /// Handles a live message: drops it if the history supplied it, and reports missing messages before it.
    pub(super) fn on_message(&mut self, at: WallTime, mut delivery: Delivery, out: &mut VecDeque<JoinEvent>) {
        let Some(seq) = delivery.seq.filter(|_| !self.map.is_empty()) else {
            return out.push_back(JoinEvent::Message(delivery));
        };
        let key = (delivery.publisher.epoch, delivery.message.subject.clone());
        let Some(splice) = self.map.get_mut(&key) else { return out.push_back(JoinEvent::Message(delivery)) };
        if seq.raw() <= splice.until {
            return;
        }
        if let Some(unreplayed) = splice.unreplayed.take() {
            self.unreplayed -= 1;
            out.extend(splice.settle(&key.1, unreplayed, seq, at));
        }
        let Some(mut splice) = self.map.remove(&key) else { return };
        let is_counted = splice.is_in_frame_of(seq) && !splice.has_dropped;
        // Messages that this peer published itself cannot be lost here.
        if !matches!(delivery.verdict, Verdict::Direct | Verdict::Unnumbered) {
            // The live stream may not know of these losses, because for it the subject begins with this message.
            if is_counted && let Some(missing) = missing_before(&splice, &delivery.publisher, seq) {
                out.push_back(splice.report_all(&key.1, &missing, at));
            }
            match splice.reported {
                Count::Exact(0) if is_counted => delivery.verdict = Verdict::Next,
                Count::Exact(0) => {}
                reported => delivery.verdict = Verdict::Skip(reported),
            }
        }
        out.push_back(JoinEvent::Message(delivery));
    }

    /// Handles a live loss, without the part that the history supplied.
    pub(super) fn on_loss(&mut self, mut loss: Loss, out: &mut VecDeque<JoinEvent>) {
        let at = loss.at;
        if let LossScope::Messages { subject, first, last, count } = &mut loss.what
            && let Some(splice) = self.map.get_mut(&(loss.publisher.epoch, subject.clone()))
        {
            if let Some(unreplayed) = splice.unreplayed.take_if(|unreplayed| unreplayed.first <= *last) {
                self.unreplayed -= 1;
                out.extend(splice.settle(subject, unreplayed, *first, at));
            }
            if last.raw() <= splice.until {
                return;
            }
            let in_frame = splice.is_in_frame_of(*first);
            let next = Seq::new(splice.until.saturating_add(1)).unwrap_or(*first);
            let overlaps = first.raw() <= splice.until;
            *count = match *count {
                Count::Exact(all) if in_frame && overlaps => {
                    Count::Exact(all.saturating_sub(next.count() - first.count()))
                }
                all if overlaps => Count::from_bounds(0, all.max()),
                // The messages in between are missing as well, though the live stream does not know of them.
                Count::Exact(all) if in_frame && !splice.has_dropped => {
                    Count::Exact(all + (first.count() - next.count()))
                }
                all => all,
            };
            if overlaps || in_frame && !splice.has_dropped {
                *first = next;
            }
            splice.until = last.raw();
            splice.add(*count);
        }
        out.push_back(JoinEvent::Loss(loss));
    }
}

impl Splice {
    /// Returns whether the number is of the frame in which the history ended.
    fn is_in_frame_of(&self, seq: Seq) -> bool {
        Seq::new(self.until.saturating_add(1)).is_some_and(|next| next.frame() == seq.frame())
    }

    fn add(&mut self, count: Count) {
        self.reported = Count::from_bounds(self.reported.min() + count.min(), self.reported.max() + count.max());
    }

    /// Reports the whole gap as lost.
    fn report_all(&mut self, subject: &Subject, lost: &ReplayGap, at: WallTime) -> JoinEvent {
        self.report_count(subject, lost, Count::Exact(lost.count), at)
    }

    /// Reports `count` messages of the gap as lost.
    fn report_count(&mut self, subject: &Subject, lost: &ReplayGap, count: Count, at: WallTime) -> JoinEvent {
        self.until = lost.last.raw();
        self.add(count);
        let ReplayGap { publisher, first, last, reason, .. } = lost.clone();
        let what = LossScope::Messages { subject: subject.clone(), first, last, count };
        JoinEvent::Loss(Loss { publisher, what, reason, cause: Cause::Network, at })
    }

    /// Settles a gap when the live stream continues with `seq`: messages below it are lost; the live stream reports the
    /// rest.
    fn settle(&mut self, subject: &Subject, unreplayed: ReplayGap, seq: Seq, at: WallTime) -> Option<JoinEvent> {
        if unreplayed.last < seq {
            return Some(self.report_all(subject, &unreplayed, at));
        }
        if seq <= unreplayed.first {
            return None;
        }
        // Numbers are without gaps only within a frame.
        let count = if seq.frame() == unreplayed.first.frame() {
            Count::Exact((seq.count() - unreplayed.first.count()).min(unreplayed.count))
        } else if seq.frame() == unreplayed.last.frame() {
            Count::Exact(unreplayed.count.saturating_sub(unreplayed.last.count() + 1 - seq.count()))
        } else {
            Count::from_bounds(0, unreplayed.count)
        };
        let before = Seq::new(seq.raw() - 1);
        let last = before.or_else(|| unreplayed.first.forward(count.max().max(1) - 1)).unwrap_or(unreplayed.first);
        let reported =
            (0 < count.max()).then(|| self.report_count(subject, &ReplayGap { last, ..unreplayed }, count, at));
        self.until = seq.raw() - 1;
        reported
    }
}

/// Returns the messages of the same frame that are missing before `seq`.
fn missing_before(splice: &Splice, publisher: &Publisher, seq: Seq) -> Option<ReplayGap> {
    let first = Seq::new(splice.until.saturating_add(1)).filter(|first| *first < seq)?;
    let (publisher, count) = (publisher.clone(), seq.count() - first.count());
    Some(ReplayGap { publisher, first, last: Seq::new(seq.raw() - 1)?, count, reason: Reason::Deadline })
}
