//! Where histories end and the live stream goes on.

use super::JoinEvent;
use crate::message::{Cause, Count, Delivery, Epoch, Loss, Missing, Publisher, Reason, Verdict};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::Wall;
use std::collections::{BTreeMap, VecDeque};

/// What was listed of a subject and did not come from the history; it may still come live.
#[derive(Clone, Debug)]
pub(super) struct Owed {
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
    owed: Option<Owed>,
    /// Messages told as lost since the last one that came.
    told: Count,
    /// Whether live messages may have been dropped since it began, because the subscriber was slow.
    has_dropped: bool,
}

/// For each subject of each publisher what is not wanted from the live stream any more, until that has passed it.
#[derive(Debug, Default)]
pub(super) struct Splices {
    map: BTreeMap<(Epoch, Subject), Splice>,
    owed: usize,
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
        let splice = Splice { until, owed: None, told: Count::Exact(0), has_dropped: false };
        self.map.insert(key, splice);
        true
    }

    /// The rest of what was listed does not come from the history; `told` messages just before it were told as lost.
    pub(super) fn owe(&mut self, subject: &Subject, owed: Owed, told: u64) {
        if let Some(splice) = self.map.get_mut(&(owed.publisher.epoch, subject.clone())) {
            self.owed += usize::from(splice.owed.is_none());
            splice.until = owed.first.raw() - 1;
            splice.owed = Some(owed);
            splice.told = Count::Exact(told);
        }
    }

    pub(super) fn on_dropped(&mut self) {
        self.map.values_mut().for_each(|splice| splice.has_dropped = true);
    }

    /// Everything that came live so far has been seen: what is still owed is lost.
    pub(super) fn on_idle(&mut self, at: Wall, out: &mut VecDeque<JoinEvent>) {
        if self.owed == 0 {
            return;
        }
        self.owed = 0;
        for ((_, subject), splice) in &mut self.map {
            if let Some(owed) = splice.owed.take() {
                out.push_back(splice.tell(subject, &owed, at));
            }
        }
    }

    /// Takes a live message: drops it if the history had it, and tells what is missing before it.
    pub(super) fn on_message(&mut self, at: Wall, mut delivery: Delivery, out: &mut VecDeque<JoinEvent>) {
        let Some(seq) = delivery.seq.filter(|_| !self.map.is_empty()) else {
            return out.push_back(JoinEvent::Message(delivery));
        };
        let key = (delivery.publisher.epoch, delivery.message.subject.clone());
        let Some(splice) = self.map.get_mut(&key) else { return out.push_back(JoinEvent::Message(delivery)) };
        if seq.raw() <= splice.until {
            return;
        }
        if let Some(owed) = splice.owed.take() {
            self.owed -= 1;
            out.extend(splice.settle(&key.1, owed, seq, at));
        }
        let Some(mut splice) = self.map.remove(&key) else { return };
        // What is published here cannot be lost here.
        let is_counted = splice.is_in_frame_of(seq) && !splice.has_dropped;
        if !matches!(delivery.verdict, Verdict::Direct | Verdict::Unnumbered) {
            // The live stream may not know of them: to it the subject begins with this message.
            if is_counted && let Some(missing) = missing_before(&splice, &delivery.publisher, seq) {
                out.push_back(splice.tell(&key.1, &missing, at));
            }
            match splice.told {
                Count::Exact(0) if is_counted => delivery.verdict = Verdict::Next,
                Count::Exact(0) => {}
                told => delivery.verdict = Verdict::Skip(told),
            }
        }
        out.push_back(JoinEvent::Message(delivery));
    }

    /// Takes a live loss: what of it the history had is not lost.
    pub(super) fn on_loss(&mut self, mut loss: Loss, out: &mut VecDeque<JoinEvent>) {
        let at = loss.at;
        if let Missing::Messages { subject, first, last, count } = &mut loss.what
            && let Some(splice) = self.map.get_mut(&(loss.publisher.epoch, subject.clone()))
        {
            if let Some(owed) = splice.owed.take_if(|owed| owed.first <= *last) {
                self.owed -= 1;
                out.extend(splice.settle(subject, owed, *first, at));
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
        self.told = Count::from_bounds(self.told.min() + count.min(), self.told.max() + count.max());
    }

    /// Tells that all of this is lost.
    fn tell(&mut self, subject: &Subject, lost: &Owed, at: Wall) -> JoinEvent {
        self.tell_some(subject, lost, Count::Exact(lost.count), at)
    }

    /// Tells that so many of this are lost.
    fn tell_some(&mut self, subject: &Subject, lost: &Owed, count: Count, at: Wall) -> JoinEvent {
        self.until = lost.last.raw();
        self.add(count);
        let Owed { publisher, first, last, reason, .. } = lost.clone();
        let what = Missing::Messages { subject: subject.clone(), first, last, count };
        JoinEvent::Loss(Loss { publisher, what, reason, cause: Cause::Network, at })
    }

    /// The live stream goes on with `seq`: what is owed below it is lost, and the rest is the live stream's to tell.
    fn settle(&mut self, subject: &Subject, owed: Owed, seq: Seq, at: Wall) -> Option<JoinEvent> {
        if owed.last < seq {
            return Some(self.tell(subject, &owed, at));
        }
        if seq <= owed.first {
            return None;
        }
        // Numbers are without gaps in a frame only.
        let count = if seq.frame() == owed.first.frame() {
            Count::Exact((seq.count() - owed.first.count()).min(owed.count))
        } else if seq.frame() == owed.last.frame() {
            Count::Exact(owed.count.saturating_sub(owed.last.count() + 1 - seq.count()))
        } else {
            Count::from_bounds(0, owed.count)
        };
        let before = Seq::new(seq.raw() - 1);
        let last = before.or_else(|| owed.first.forward(count.max().max(1) - 1)).unwrap_or(owed.first);
        let told = (0 < count.max()).then(|| self.tell_some(subject, &Owed { last, ..owed }, count, at));
        self.until = seq.raw() - 1;
        told
    }
}

/// What is missing of the same frame before a message.
fn missing_before(splice: &Splice, publisher: &Publisher, seq: Seq) -> Option<Owed> {
    let first = Seq::new(splice.until.saturating_add(1)).filter(|first| *first < seq)?;
    let (publisher, count) = (publisher.clone(), seq.count() - first.count());
    Some(Owed { publisher, first, last: Seq::new(seq.raw() - 1)?, count, reason: Reason::Deadline })
}
