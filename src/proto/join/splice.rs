//! Where histories end and the live stream goes on.

use super::JoinEvent;
use crate::message::{Cause, Count, Delivery, Epoch, Loss, LossScope, Publisher, Reason, Verdict};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;
use std::collections::{BTreeMap, VecDeque};

/// What was listed of a subject and did not come from the history; it may still come live.
#[derive(Clone, Debug)]
pub(super) struct ReplayGap {
    pub(super) publisher: Publisher,
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) count: u64,
    pub(super) reason: Reason,
}

/// One subject of one publisher.
#[derive(Clone, Debug)]
struct Splice {
    /// The raw form of the last number that came, was told as lost or is not wanted; it need not be one that exists.
    until: u64,
    /// What of the history is not there; `until` is just below it.
    unreplayed: Option<ReplayGap>,
    /// Messages told as lost since the last one that came.
    reported: Count,
    /// Whether live messages may have been dropped since it began, because the subscriber was slow.
    has_dropped: bool,
}

/// For each subject of each publisher what is not wanted from the live stream any more, until that has passed it.
#[derive(Debug, Default)]
pub(super) struct Splices {
    map: BTreeMap<(Epoch, Subject), Splice>,
    unreplayed: usize,
}

impl Splices {
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// The history is asked for a subject up to the number with this raw form; false if it was before.
    pub(super) fn begin(&mut self, epoch: Epoch, subject: &Subject, until: u64) -> bool {
        let key = (epoch, subject.detached());
        if self.map.contains_key(&key) {
            return false;
        }
        let splice = Splice { until, unreplayed: None, reported: Count::Exact(0), has_dropped: false };
        self.map.insert(key, splice);
        true
    }

    /// The rest of what was listed does not come from the history; `reported` messages just before it were told as lost.
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

    /// Everything that came live so far has been seen: what is still owed is lost.
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

    /// Takes a live message: drops it if the history had it, and tells what is missing before it.
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
        // What is published here cannot be lost here.
        let is_counted = splice.is_in_frame_of(seq) && !splice.has_dropped;
        if !matches!(delivery.verdict, Verdict::Direct | Verdict::Unnumbered) {
            // The live stream may not know of them: to it the subject begins with this message.
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

    /// Takes a live loss: what of it the history had is not lost.
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
                // What lies between is missing as well, though the live stream does not know of it.
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
    /// Whether the number is of the frame in which the history ended.
    fn is_in_frame_of(&self, seq: Seq) -> bool {
        Seq::new(self.until.saturating_add(1)).is_some_and(|next| next.frame() == seq.frame())
    }

    fn add(&mut self, count: Count) {
        self.reported = Count::from_bounds(self.reported.min() + count.min(), self.reported.max() + count.max());
    }

    /// Tells that all of this is lost.
    fn report_all(&mut self, subject: &Subject, lost: &ReplayGap, at: WallTime) -> JoinEvent {
        self.report_count(subject, lost, Count::Exact(lost.count), at)
    }

    /// Tells that so many of this are lost.
    fn report_count(&mut self, subject: &Subject, lost: &ReplayGap, count: Count, at: WallTime) -> JoinEvent {
        self.until = lost.last.raw();
        self.add(count);
        let ReplayGap { publisher, first, last, reason, .. } = lost.clone();
        let what = LossScope::Messages { subject: subject.clone(), first, last, count };
        JoinEvent::Loss(Loss { publisher, what, reason, cause: Cause::Network, at })
    }

    /// The live stream goes on with `seq`: what is owed below it is lost, and the rest is the live stream's to tell.
    fn settle(&mut self, subject: &Subject, unreplayed: ReplayGap, seq: Seq, at: WallTime) -> Option<JoinEvent> {
        if unreplayed.last < seq {
            return Some(self.report_all(subject, &unreplayed, at));
        }
        if seq <= unreplayed.first {
            return None;
        }
        // Numbers are without gaps in a frame only.
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

/// What is missing of the same frame before a message.
fn missing_before(splice: &Splice, publisher: &Publisher, seq: Seq) -> Option<ReplayGap> {
    let first = Seq::new(splice.until.saturating_add(1)).filter(|first| *first < seq)?;
    let (publisher, count) = (publisher.clone(), seq.count() - first.count());
    Some(ReplayGap { publisher, first, last: Seq::new(seq.raw() - 1)?, count, reason: Reason::Deadline })
}
