//! The members of a peer, and the next deadline of each.
//!
//! The shell polls the peer's next deadline in every turn, and the state of many members does not fit the processor's
//! cache. The deadlines are therefore stored apart, and computed again only for members that may have changed.

use crate::message::Epoch;
use crate::proto::members::Member;
use crate::time::Instant;
use std::collections::{BTreeMap, btree_map};
use std::ops::Deref;

/// Number of changed members from which the deadlines of all are computed again.
const CHANGED_MAX: usize = 64;

/// Members by epoch. Every access that can change a member marks it as changed.
#[derive(Debug, Default)]
pub struct MemberTable {
    members: BTreeMap<Epoch, Member>,
    /// Deadlines of the members as of the last computation, in the order of the epochs.
    deadlines: Vec<(Epoch, Instant)>,
    /// Members that may have changed since then. An epoch can occur several times.
    changed: Vec<Epoch>,
    /// True if any member may have changed.
    has_changed: bool,
}

impl MemberTable {
    /// Returns a member for modification.
    pub fn get_mut(&mut self, epoch: &Epoch) -> Option<&mut Member> {
        if !self.has_changed && self.changed.last() != Some(epoch) {
            self.has_changed = self.changed.len() == CHANGED_MAX;
            self.changed.push(*epoch);
        }
        self.members.get_mut(epoch)
    }

    /// Returns all members for modification, in the order of their epochs.
    pub fn values_mut(&mut self) -> btree_map::ValuesMut<'_, Epoch, Member> {
        self.has_changed = true;
        self.members.values_mut()
    }

    /// Adds a member.
    pub fn insert(&mut self, epoch: Epoch, member: Member) {
        self.has_changed = true;
        self.members.insert(epoch, member);
    }

    /// Removes a member.
    pub fn remove(&mut self, epoch: &Epoch) -> Option<Member> {
        self.has_changed = true;
        self.members.remove(epoch)
    }

    /// Returns the earliest deadline. `deadline` computes that of a member from its state, the number of members and
    /// constant settings.
    pub fn earliest(&mut self, deadline: impl Fn(&Member) -> Instant) -> Option<Instant> {
        self.update_deadlines(deadline);
        self.deadlines.iter().map(|(_, at)| *at).min()
    }

    /// Returns the members whose deadline has come, in the order of their epochs. `deadline` is that of
    /// [`MemberTable::earliest`].
    pub fn due(&mut self, now: Instant, deadline: impl Fn(&Member) -> Instant) -> Vec<Epoch> {
        self.update_deadlines(deadline);
        self.deadlines.iter().filter(|(_, at)| *at <= now).map(|(epoch, _)| *epoch).collect()
    }

    fn update_deadlines(&mut self, deadline: impl Fn(&Member) -> Instant) {
        if std::mem::take(&mut self.has_changed) {
            self.changed.clear();
            self.deadlines.clear();
            self.deadlines.extend(self.members.iter().map(|(epoch, member)| (*epoch, deadline(member))));
        }
        for epoch in self.changed.drain(..) {
            let index = self.deadlines.binary_search_by_key(&epoch, |(epoch, _)| *epoch);
            if let (Ok(index), Some(member)) = (index, self.members.get(&epoch)) {
                self.deadlines[index].1 = deadline(member);
            }
        }
    }

    /// Checks that the deadlines kept for unchanged members are right. `deadline` is that of
    /// [`MemberTable::earliest`].
    pub fn assert_invariants(&self, deadline: impl Fn(&Member) -> Instant) {
        if self.has_changed {
            return;
        }
        assert!(self.deadlines.iter().map(|(epoch, _)| epoch).eq(self.members.keys()), "each member has a deadline");
        for ((epoch, member), (_, known)) in self.members.iter().zip(&self.deadlines) {
            let is_same = self.changed.contains(epoch) || *known == deadline(member);
            assert!(is_same, "the deadline of the unchanged member {epoch} is right");
        }
    }
}

impl Deref for MemberTable {
    type Target = BTreeMap<Epoch, Member>;

    fn deref(&self) -> &BTreeMap<Epoch, Member> {
        &self.members
    }
}
