//! Effects that wait until the caller takes them.

use crate::proto::effect::Effect;
use crate::proto::list_pools::ListPools;
use crate::proto::run_batch::RunBatch;
use std::collections::VecDeque;

/// A batch of deliveries, each of which is an effect.
#[derive(Debug)]
struct PendingBatch {
    batch: RunBatch,
    /// Number of effects that were ever appended before it, without those of batches.
    preceding_effects: u64,
}

/// Effects in the order in which they are to be applied. Batches are apart from the others, so neither is moved
/// more than once.
#[derive(Debug, Default)]
pub(super) struct EffectQueue {
    effects: VecDeque<Effect>,
    /// Batches of one or more deliveries.
    batches: VecDeque<PendingBatch>,
    /// Number of effects that were ever removed, without those of batches.
    removed: u64,
}

impl EffectQueue {
    /// Appends an effect.
    #[inline]
    pub(super) fn push_back(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Appends the deliveries of one or more runs.
    pub(super) fn push_runs(&mut self, batch: RunBatch) {
        let preceding_effects = self.removed + self.effects.len() as u64;
        self.batches.push_back(PendingBatch { batch, preceding_effects });
    }

    /// Returns whether no effect is pending.
    pub(super) fn is_empty(&self) -> bool {
        self.effects.is_empty() && self.batches.is_empty()
    }

    /// Removes the next effect. Each run of a batch is an effect of its own; the lists of a batch are kept after the last.
    #[inline]
    pub(super) fn pop(&mut self, lists: &mut ListPools) -> Option<Effect> {
        if self.is_batch_next()
            && let Some(PendingBatch { batch, .. }) = self.batches.front_mut()
        {
            let (to, deliveries) = batch.next().expect("a batch leaves with its last run");
            if batch.messages() == 0
                && let Some(PendingBatch { batch, .. }) = self.batches.pop_front()
            {
                batch.recycle(lists);
            }
            return Some(Effect::Deliver { to, deliveries });
        }
        self.removed += u64::from(!self.effects.is_empty());
        self.effects.pop_front()
    }

    /// Removes the next effects if they deliver the runs of a datagram.
    #[inline]
    pub(super) fn pop_runs(&mut self) -> Option<RunBatch> {
        if self.is_batch_next() { self.batches.pop_front().map(|pending| pending.batch) } else { None }
    }

    #[inline]
    fn is_batch_next(&self) -> bool {
        self.batches.front().is_some_and(|pending| pending.preceding_effects == self.removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Epoch, Publisher};
    use crate::rng::Rng;
    use crate::wire::Run;

    fn batch(runs: usize) -> RunBatch {
        let run = |_| Run::of_packed("a".parse().unwrap(), None, 1, vec![1, b'x'].into());
        let publisher = Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 1 };
        RunBatch::of_runs((0..runs).map(run).collect(), 0..runs, publisher)
    }

    #[test]
    fn batches_keep_their_place_among_other_effects() {
        let (mut rng, mut lists) = (Rng::new(1), ListPools::default());
        let (mut queue, mut pushed, mut popped) = (EffectQueue::default(), String::new(), String::new());
        for step in 0..2000 {
            match rng.below(4) {
                0 => {
                    queue.push_back(Effect::Rejoin);
                    pushed.push('-');
                }
                1 => {
                    let runs = rng.between(1, 3) as usize;
                    queue.push_runs(batch(runs));
                    pushed.extend(std::iter::repeat_n('d', runs));
                }
                _ if rng.chance(0.5) => match queue.pop_runs() {
                    Some(batch) => popped.extend(std::iter::repeat_n('d', batch.runs())),
                    None => assert!(!pushed[popped.len()..].starts_with('d')),
                },
                _ => match queue.pop(&mut lists) {
                    Some(Effect::Rejoin) => popped.push('-'),
                    Some(effect) => {
                        assert!(matches!(effect, Effect::Deliver { .. }), "{effect:?}");
                        popped.push('d');
                    }
                    None => {}
                },
            }
            assert_eq!((queue.is_empty(), pushed.starts_with(&popped)), (pushed == popped, true), "step {step}");
        }
        assert!(500 < popped.len(), "{}", popped.len());
    }
}
