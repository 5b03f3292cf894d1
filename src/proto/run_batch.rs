//! Runs of one datagram that are delivered together. They stay in one list up to the queue of a program, so nothing is
//! allocated for each.

use crate::delivery::{Deliveries, RunPosition, visit_run};
use crate::message::{DeliveryRef, MessageOrigin, Publisher, Targets};
use crate::proto::interest::MatchSet;
use crate::proto::list_pools::ListPools;
use crate::proto::run_delivery::RunDelivery;
use crate::proto::stream_item::StreamItem;
use crate::wire::Run;
use std::collections::VecDeque;
use std::sync::Arc;

/// Runs of one datagram that arrived in order, for subscriptions in no queue group.
#[derive(Debug)]
pub struct RunBatch {
    /// Items of the datagram from the index `first` on, all of which are runs.
    items: VecDeque<StreamItem>,
    first: u32,
    /// Runs not yielded yet, in order.
    runs: VecDeque<RunDelivery>,
    publisher: Publisher,
    origin: Option<MessageOrigin>,
    /// Number of messages not yielded yet.
    messages: usize,
    /// Bytes of their entries.
    bytes: usize,
    /// True if all runs are for the same subscriptions.
    has_one_match: bool,
    /// True if the list of items has at most two places for each run of the batch when it is created, and these runs
    /// are at least half of the bytes of all items.
    is_dense: bool,
}

impl RunBatch {
    /// Creates a batch of one or more runs of a publisher, which the items contain.
    pub(super) fn new(
        items: Vec<StreamItem>,
        runs: Vec<RunDelivery>,
        publisher: Publisher,
        origin: Option<MessageOrigin>,
    ) -> RunBatch {
        let (items, runs): (VecDeque<StreamItem>, VecDeque<RunDelivery>) = (items.into(), runs.into());
        let (mut messages, mut bytes, mut has_one_match) = (0, 0, true);
        for run in &runs {
            let item = run_at(&items, run.index);
            messages += usize::from(item.count - run.position.repeated);
            bytes += item.entry_bytes();
            has_one_match &= Arc::ptr_eq(&run.matched, &runs[0].matched);
        }
        // A list has up to half as many places without an item, and many runs may be unwanted.
        let is_filled = items.capacity() <= 2 * runs.len();
        let is_dense_by_bytes = || {
            let bytes_of = |item: &StreamItem| item.subject().as_bytes().len() + item.bytes();
            let all: usize = items.iter().map(bytes_of).sum();
            let delivered: usize = runs.iter().map(|run| bytes_of(&items[run.index as usize])).sum();
            all <= 2 * delivered
        };
        let is_dense = is_filled && (runs.len() == items.len() || is_dense_by_bytes());
        RunBatch { items, first: 0, runs, publisher, origin, messages, bytes, has_one_match, is_dense }
    }

    /// Returns the number of messages.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Returns the number of runs.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the bytes of the entries.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the runs are at least half of the items of their datagram, by number and by bytes. The rest of
    /// the memory that the datagram keeps does not count, such as padding.
    pub(crate) fn is_dense(&self) -> bool {
        self.is_dense
    }

    /// Returns the subscriptions that get all messages, if each message is for the same ones.
    pub(crate) fn common_targets(&self) -> Option<&Targets> {
        self.runs.front().filter(|_| self.has_one_match).map(|run| &run.matched.targets)
    }

    /// Calls `each` with the subscriptions of successive runs, and with the number of their messages.
    pub(super) fn for_each_match(&self, mut each: impl FnMut(&MatchSet, u64)) {
        let is_one_match = |a: &RunDelivery, b: &RunDelivery| Arc::ptr_eq(&a.matched, &b.matched);
        let messages = |run: &RunDelivery| u64::from(self.item(run).count - run.position.repeated);
        // Nothing is ever appended to the list, so all of it is in the first slice.
        for group in self.runs.as_slices().0.chunk_by(is_one_match) {
            each(&group[0].matched, group.iter().map(messages).sum());
        }
    }

    fn item(&self, run: &RunDelivery) -> &Run {
        run_at(&self.items, run.index - self.first)
    }

    /// Drops the runs, and keeps their lists.
    pub fn recycle(self, lists: &mut ListPools) {
        lists.put_items(self.items.into());
        lists.put_runs(self.runs.into());
    }

    /// Calls `each` with a borrowed view of every message in order.
    pub fn visit(&self, mut each: impl FnMut(&DeliveryRef<'_>)) {
        for run in &self.runs {
            visit_run(self.item(run), run.position, &self.publisher, self.origin, &mut each);
        }
    }
}

impl Iterator for RunBatch {
    type Item = (Targets, Deliveries);

    /// Returns the next run with its subscriptions.
    fn next(&mut self) -> Option<(Targets, Deliveries)> {
        let run = self.runs.pop_front()?;
        self.items.drain(..(run.index - self.first) as usize);
        let Some(StreamItem::Run(item)) = self.items.pop_front() else { unreachable!("each of the items is a run") };
        self.first = run.index + 1;
        let RunPosition { repeated, verdict, offset } = run.position;
        let mut deliveries = Deliveries::of_run(item, self.publisher.clone(), verdict, false);
        assert!(deliveries.skip_repeated(repeated.into()), "a message is left");
        deliveries.set_offset(offset);
        deliveries.set_origin(self.origin);
        (self.messages, self.bytes) = (self.messages - deliveries.len(), self.bytes - deliveries.bytes());
        Some((run.matched.targets.clone(), deliveries))
    }
}

fn run_at(items: &VecDeque<StreamItem>, index: u32) -> &Run {
    match &items[index as usize] {
        StreamItem::Run(run) => run,
        _ => unreachable!("each of the items is a run"),
    }
}

#[cfg(test)]
impl RunBatch {
    /// Returns a batch with these indices of the runs, without the first message of each run of several; all of it is
    /// for one subscription.
    pub(crate) fn of_runs(runs: Vec<Run>, indices: impl Iterator<Item = usize>, publisher: Publisher) -> RunBatch {
        RunBatch::of_subscriptions(&[">"], runs, indices, publisher)
    }

    /// Returns the same for subscriptions of one client to these patterns, which match all runs.
    pub(crate) fn of_subscriptions(
        patterns: &[&str],
        runs: Vec<Run>,
        indices: impl Iterator<Item = usize>,
        publisher: Publisher,
    ) -> RunBatch {
        use crate::message::{ClientId, DeliveryMode, SubId, Target, Verdict};
        use crate::proto::interest::InterestTable;
        use crate::subject::Pattern;
        use crate::time::Instant;
        let mut interest = InterestTable::new(&crate::proto::peer::tests::settings("A.sub"), 1);
        for (number, pattern) in patterns.iter().enumerate() {
            let target = Target { client: ClientId(1), sub: SubId(number as u32 + 1) };
            let pattern = pattern.parse::<Pattern>().unwrap().into();
            interest.subscribe(Instant::ZERO, target, pattern, DeliveryMode::Repair).unwrap();
        }
        let mut delivery = |index: usize| {
            let (repeated, offset) = (u16::from(1 < runs[index].count), Some(u32::MAX - index as u32));
            let matched = interest.matches(&runs[index].subject, DeliveryMode::Repair).unwrap();
            let position = RunPosition { repeated, verdict: Verdict::First, offset };
            RunDelivery { index: index as u32, position, matched }
        };
        let deliveries = indices.map(&mut delivery).collect();
        // The list of items has the capacity of that of the runs, as in production.
        let mut items = Vec::with_capacity(runs.capacity());
        items.extend(runs.into_iter().map(StreamItem::Run));
        RunBatch::new(items, deliveries, publisher, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Delivery, Epoch, MessageRef};
    use crate::rng::Rng;
    use crate::seqno::{Frame, Seq};
    use crate::wire::entry;

    fn publisher() -> Publisher {
        Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 1 }
    }

    /// Returns runs of one to three messages, with a number or without.
    fn runs(rng: &mut Rng, count: usize) -> Vec<Run> {
        let run = |index: usize| {
            let (mut entries, messages) = (Vec::new(), rng.between(1, 3) as u16);
            let subject = format!("t.{index}").parse().unwrap();
            for message in 0..messages {
                entry::put(&mut entries, MessageRef::new(&subject, &vec![message as u8; rng.below(200) as usize]));
            }
            let seq = Seq::from_parts(Frame::new(7).unwrap(), rng.between(1, 9)).unwrap();
            Run::of_packed(subject, rng.chance(0.8).then_some(seq), messages, entries.into())
        };
        (0..count).map(run).collect()
    }

    #[test]
    fn batch_yields_its_runs_together_or_apart() {
        let mut rng = Rng::new(1);
        for _ in 0..100 {
            let count = rng.between(1, 20) as usize;
            let runs = runs(&mut rng, count);
            let chosen: Vec<usize> = (0..count).filter(|index| *index == 0 || rng.chance(0.7)).collect();
            let mut batch = RunBatch::of_runs(runs, chosen.iter().copied(), publisher());
            assert_eq!(batch.runs(), chosen.len());
            let mut apart: Vec<Delivery> = Vec::new();
            // A batch may lose runs before it is visited.
            for _ in 0..rng.below(chosen.len() as u64 + 1) {
                apart.extend(batch.next().unwrap().1);
            }
            let (before, messages, bytes) = (apart.len(), batch.messages(), batch.bytes());
            let (mut together, mut charged) = (Vec::new(), 0);
            batch.visit(|delivery| together.push(delivery.to_delivery()));
            for (to, deliveries) in batch {
                charged += deliveries.bytes();
                apart.extend(deliveries);
                assert_eq!(to.len(), 1);
            }
            assert_eq!((apart.len() - before, charged), (messages, bytes));
            assert_eq!(together, apart[before..]);
            let offsets = apart.iter().filter_map(|delivery| delivery.offset.zip(delivery.seq));
            let first_of_frame = |(offset, seq): (u32, Seq)| offset.wrapping_sub((seq.count() - 1) as u32);
            assert!(offsets.map(first_of_frame).all(|first| u32::MAX - 20 < first));
        }
    }

    #[test]
    fn batch_with_few_wanted_runs_is_sparse() {
        let dense = |chosen: usize| RunBatch::of_runs(runs(&mut Rng::new(1), 20), 0..chosen, publisher()).is_dense();
        assert_eq!([1, 4, 18, 20].map(dense), [false, false, true, true]);
    }

    #[test]
    fn batch_with_spare_capacity_is_sparse() {
        let dense = |capacity: usize| {
            let mut roomy = Vec::with_capacity(capacity);
            roomy.extend(runs(&mut Rng::new(1), 20));
            RunBatch::of_runs(roomy, 0..20, publisher()).is_dense()
        };
        assert_eq!([20, 40, 41].map(dense), [true, true, false]);
    }

    #[test]
    fn runs_of_two_subscriptions_have_no_common_targets() {
        let batch = |patterns: &[&str], chosen| {
            RunBatch::of_subscriptions(patterns, runs(&mut Rng::new(1), 4), chosen, publisher())
        };
        let subs = |targets: &Targets| targets.iter().map(|target| target.sub.0).collect::<Vec<_>>();
        // The first two runs are for one subscription, the others for another one.
        let patterns = ["t.0", "t.1", "t.*"];
        assert_eq!(batch(&[">"], 0..4).common_targets().map(subs), Some(vec![1]));
        assert_eq!(batch(&patterns, 2..4).common_targets().map(subs), Some(vec![3]));
        let both = batch(&patterns, 0..4);
        assert_eq!(both.common_targets(), None);
        let mut counted = Vec::new();
        both.for_each_match(|matched, messages| counted.push((subs(&matched.targets), messages)));
        let mut apart: Vec<(Vec<u32>, u64)> = Vec::new();
        for (to, deliveries) in both {
            let messages = deliveries.len() as u64;
            match apart.last_mut().filter(|(last, _)| *last == subs(&to)) {
                Some((_, sum)) => *sum += messages,
                None => apart.push((subs(&to), messages)),
            }
        }
        assert_eq!(counted, apart);
        assert_eq!(counted.iter().map(|(to, _)| &to[..]).collect::<Vec<_>>(), [&[1, 3][..], &[2, 3], &[3]]);
    }
}
