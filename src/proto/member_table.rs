//! The members of a peer, and the next deadline of each.
//!
//! The handling of one datagram looks its sender up several times, and most datagrams follow others of the same sender.
//! The table therefore remembers the member found last, so that one search serves all of them.
//!
//! The shell polls the peer's next deadline in every turn, and the state of many members does not fit the processor's
//! cache. The deadlines are therefore stored apart, and computed again only for members that may have changed.

use crate::message::Epoch;
use crate::proto::members::Member;
use crate::time::Instant;
use std::cell::Cell;

/// Number of changed members from which the deadlines of all are computed again.
const CHANGED_MAX: usize = 64;

/// Members by epoch. Every access that can change a member marks it as changed.
#[derive(Debug, Default)]
pub struct MemberTable {
    /// Epochs of the members, in order.
    epochs: Vec<Epoch>,
    /// The members, each at the position of its epoch. Boxed, so that an insertion or a removal moves pointers only.
    members: Vec<Box<Member>>,
    /// Position at which a member was found last. Members may have moved since, so the epoch there is compared.
    last_position: Cell<usize>,
    /// Deadlines of the members as of the last computation, each at the position of its member.
    deadlines: Vec<Instant>,
    /// Positions of the members that may have changed since then. A position can occur several times.
    changed: Vec<usize>,
    /// True if any member may have changed, or may have moved to another position.
    has_changed: bool,
}

impl MemberTable {
    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.epochs.len()
    }

    /// Returns whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }

    /// Returns the epochs of all members, in order.
    pub fn epochs(&self) -> &[Epoch] {
        &self.epochs
    }

    /// Returns whether the epoch is that of a member.
    pub fn contains(&self, epoch: &Epoch) -> bool {
        self.position(epoch).is_some()
    }

    /// Returns a member.
    pub fn get(&self, epoch: &Epoch) -> Option<&Member> {
        self.position(epoch).map(|position| &*self.members[position])
    }

    /// Returns a member for modification.
    pub fn get_mut(&mut self, epoch: &Epoch) -> Option<&mut Member> {
        let position = self.position(epoch)?;
        if !self.has_changed && self.changed.last() != Some(&position) {
            self.has_changed = self.changed.len() == CHANGED_MAX;
            self.changed.push(position);
        }
        Some(&mut *self.members[position])
    }

    /// Returns all members, in the order of their epochs.
    pub fn values(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().map(|member| &**member)
    }

    /// Returns all members for modification, in the order of their epochs.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.has_changed = true;
        self.members.iter_mut().map(|member| &mut **member)
    }

    /// Adds a member, or replaces the one of this epoch.
    pub fn insert(&mut self, epoch: Epoch, member: Member) {
        self.has_changed = true;
        match self.epochs.binary_search(&epoch) {
            Ok(position) => *self.members[position] = member,
            Err(position) => {
                self.epochs.insert(position, epoch);
                self.members.insert(position, Box::new(member));
            }
        }
    }

    /// Removes a member.
    pub fn remove(&mut self, epoch: &Epoch) -> Option<Member> {
        let position = self.position(epoch)?;
        self.has_changed = true;
        self.epochs.remove(position);
        Some(*self.members.remove(position))
    }

    /// Returns the earliest deadline. `deadline` computes that of a member from its state, the number of members and
    /// constant settings.
    pub fn earliest(&mut self, deadline: impl Fn(&Member) -> Instant) -> Option<Instant> {
        self.update_deadlines(deadline);
        self.deadlines.iter().copied().min()
    }

    /// Returns the members whose deadline has come, in the order of their epochs. `deadline` is that of
    /// [`MemberTable::earliest`].
    pub fn due(&mut self, now: Instant, deadline: impl Fn(&Member) -> Instant) -> Vec<Epoch> {
        self.update_deadlines(deadline);
        self.epochs.iter().zip(&self.deadlines).filter(|(_, at)| **at <= now).map(|(epoch, _)| *epoch).collect()
    }

    fn update_deadlines(&mut self, deadline: impl Fn(&Member) -> Instant) {
        if std::mem::take(&mut self.has_changed) {
            self.changed.clear();
            self.deadlines.clear();
            self.deadlines.extend(self.members.iter().map(|member| deadline(member)));
        }
        for position in self.changed.drain(..) {
            self.deadlines[position] = deadline(&self.members[position]);
        }
    }

    /// Returns the position of a member.
    fn position(&self, epoch: &Epoch) -> Option<usize> {
        let last = self.last_position.get();
        if self.epochs.get(last) == Some(epoch) {
            return Some(last);
        }
        let position = self.epochs.binary_search(epoch).ok()?;
        self.last_position.set(position);
        Some(position)
    }

    /// Checks that the deadlines kept for unchanged members are right. `deadline` is that of
    /// [`MemberTable::earliest`].
    pub fn assert_invariants(&self, deadline: impl Fn(&Member) -> Instant) {
        assert!(self.epochs.is_sorted_by(|earlier, later| earlier < later), "each epoch has one position");
        let own = self.members.iter().map(|member| member.epoch());
        assert!(own.eq(self.epochs.iter().copied()), "each member stands at the position of its epoch");
        assert!(self.changed.len() <= CHANGED_MAX + 1, "few changed members are listed");
        if self.has_changed {
            return;
        }
        assert_eq!(self.deadlines.len(), self.members.len(), "each member has a deadline");
        for (position, member) in self.members.iter().enumerate() {
            let is_same = self.changed.contains(&position) || self.deadlines[position] == deadline(member);
            assert!(is_same, "the deadline of the unchanged member {} is right", member.epoch());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Dseq, Publisher};
    use crate::proto::contact::{Contact, FirstContact};
    use crate::proto::pace::{PacedReceiver, Pacer};
    use crate::proto::peer::tests::settings;
    use crate::rng::Rng;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn epoch(bits: u64) -> Epoch {
        Epoch::new(bits).expect("not 0")
    }

    fn member(epoch: Epoch, uid: u32, last_heard: Instant) -> Member {
        let settings = settings("B.pub");
        let mut pacer = Pacer::resumed(&settings.pace, 1 << 20, last_heard);
        let receiver = PacedReceiver::new(last_heard, &mut pacer);
        let contact = Contact { uptime_ms: 0, is_fresh: true, below: Dseq(0), count: 0, control: None };
        let first = FirstContact {
            publisher: Publisher { name: None, epoch, uid },
            address: ([127, 0, 0, 1], 9001).into(),
            contact,
            at: last_heard,
            arrived: last_heard,
            listening_since: last_heard,
        };
        Member::new(&settings, first, receiver, &mut Rng::new(1))
    }

    fn last_heard(member: &Member) -> Instant {
        member.last_heard
    }

    #[test]
    fn random_changes_match_a_map() {
        let mut rng = Rng::new(7);
        let (mut table, mut map) = (MemberTable::default(), BTreeMap::new());
        for step in 0..4_000 {
            let epoch = epoch(1 + rng.below(24));
            let at = Instant::ZERO + Duration::from_millis(rng.below(1_000));
            match rng.below(9) {
                0 => {
                    table.insert(epoch, member(epoch, step, at));
                    map.insert(epoch, (step, at));
                }
                1 => {
                    let removed = table.remove(&epoch).map(|member| member.publisher.uid);
                    assert_eq!(removed, map.remove(&epoch).map(|(uid, _)| uid), "step {step}");
                }
                2 => table.values_mut().zip(map.values_mut()).for_each(|(member, (_, expected))| {
                    (member.last_heard, *expected) = (at, at);
                }),
                3 => assert_eq!(table.earliest(last_heard), map.values().map(|(_, at)| *at).min(), "step {step}"),
                4 => {
                    let due = map.iter().filter(|(_, (_, due))| *due <= at).map(|(epoch, _)| *epoch);
                    assert_eq!(table.due(at, last_heard), due.collect::<Vec<_>>(), "step {step}");
                }
                5 => {
                    for _ in 0..100 {
                        let epoch = self::epoch(1 + rng.below(24));
                        if let Some(member) = table.get_mut(&epoch) {
                            member.last_heard = at;
                        }
                        map.entry(epoch).and_modify(|(_, expected)| *expected = at);
                    }
                }
                _ => {
                    if let Some(member) = table.get_mut(&epoch) {
                        member.last_heard = at;
                    }
                    map.entry(epoch).and_modify(|(_, expected)| *expected = at);
                }
            }
            table.assert_invariants(last_heard);
            let found = table.get(&epoch).map(|member| (member.publisher.uid, member.last_heard));
            assert_eq!(found, map.get(&epoch).copied(), "step {step}");
            assert_eq!((table.len(), table.contains(&epoch)), (map.len(), map.contains_key(&epoch)), "step {step}");
            assert!(table.epochs().iter().eq(map.keys()), "step {step}");
        }
    }

    #[test]
    fn moved_member_is_found_after_an_insertion() {
        let mut table = MemberTable::default();
        for epoch in (2..=9).map(epoch) {
            table.insert(epoch, member(epoch, 1, Instant::ZERO));
        }
        assert_eq!(table.get(&epoch(6)).map(Member::epoch), Some(epoch(6)));
        table.insert(epoch(1), member(epoch(1), 1, Instant::ZERO));
        // The member 5 is now at the position at which 6 was found.
        assert_eq!(table.get(&epoch(6)).map(Member::epoch), Some(epoch(6)));
        assert_eq!(table.get(&epoch(5)).map(Member::epoch), Some(epoch(5)));
        assert!(!table.contains(&epoch(60)));
    }
}
