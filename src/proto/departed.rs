//! State kept of departed members, so that a returning member causes neither a loss nor a repetition.
//!
//! The peer removes a member some time after the member left or was given up. Its epoch may be heard again after a long
//! outage. By R4 its earlier datagrams would be owed again, because this peer is older than the epoch; they are
//! not, because each was delivered or reported before. The directed streams of both sides continue at their previous numbers, because numbers are
//! never reused.

use crate::message::{Dseq, Epoch};
use crate::proto::contact::Contact;
use crate::proto::newest_control::NewestControl;
use crate::proto::queue_ledger::{AssignmentTotals, ReceivedShares};
use crate::time::Instant;
use std::collections::VecDeque;

/// Number of departed members that are remembered for each member that may be followed.
const PER_PEER: usize = 16;

/// State kept of one departed member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepartedMember {
    /// Epoch of the peer.
    pub epoch: Epoch,
    /// True if it left with a BYE, after which it never returns.
    pub left: bool,
    /// Last datagram of this peer's directed stream to it, and the messages begun up to there.
    pub directed: (Dseq, u64),
    /// Last known datagram of its multicast stream, and the messages begun up to there.
    pub high: (Dseq, u64),
    /// Last control datagram of the peer.
    pub control: NewestControl,
    /// Last datagram and message count of its directed stream to this peer.
    pub ptp: (Dseq, u64),
    /// True if it suppresses messages without subscribers; `None` if it never announced that.
    pub suppresses: Option<bool>,
    /// The sums of the queue-group messages assigned to its members.
    pub assigned: [AssignmentTotals; 2],
    /// The queue-group messages that it assigned to members here.
    pub shares: [ReceivedShares; 2],
    /// Time since which it counted as silent.
    pub silent_since: Instant,
}

impl DepartedMember {
    /// Adjusts the first contact after the return. Datagrams up to the last one known were delivered or reported
    /// before. That holds even if the datagram of this contact was sealed earlier.
    pub fn contact(&self, contact: Contact) -> Contact {
        if self.high.0 <= contact.below {
            return contact;
        }
        Contact { below: self.high.0, count: self.high.1, ..contact }
    }
}

/// The members that departed last, oldest first.
#[derive(Clone, Debug)]
pub struct DepartedMembers {
    list: VecDeque<DepartedMember>,
    list_max: usize,
}

impl DepartedMembers {
    /// Creates an empty list; `peers_max` members may be followed at a time.
    pub fn new(peers_max: usize) -> DepartedMembers {
        DepartedMembers { list: VecDeque::new(), list_max: peers_max.saturating_mul(PER_PEER).max(1) }
    }

    /// Remembers a member that the peer removes now. Returns the epoch that the list evicts for it, if any. From then
    /// on, an epoch that began earlier may have been known before.
    #[must_use]
    pub fn remember(&mut self, departed: DepartedMember) -> Option<Epoch> {
        self.push(departed)
    }

    /// Remembers an epoch of this peer itself, whose datagrams may still arrive. Returns the same as
    /// [`DepartedMembers::remember`].
    #[must_use]
    pub fn remember_own(&mut self, epoch: Epoch) -> Option<Epoch> {
        let none = (Dseq(0), 0);
        self.push(DepartedMember {
            epoch,
            left: true,
            directed: none,
            high: none,
            control: NewestControl::default(),
            ptp: none,
            suppresses: None,
            assigned: Default::default(),
            shares: Default::default(),
            silent_since: Instant::ZERO,
        })
    }

    fn push(&mut self, departed: DepartedMember) -> Option<Epoch> {
        let forgotten = if self.list_max <= self.list.len() { self.list.pop_front() } else { None };
        self.list.push_back(departed);
        forgotten.map(|departed| departed.epoch)
    }

    /// Returns whether a datagram is of an epoch that ended with a BYE, or is no newer than the datagrams received
    /// before its member departed.
    pub fn is_old(&self, epoch: Epoch, contact: &Contact) -> bool {
        let is_newer = |newest: NewestControl, n| newest.number() < n || newest.is_contradicted(n, contact.uptime_ms);
        let is_new = |departed: &DepartedMember| {
            contact.control.map_or(departed.high.0 <= contact.below, |number| is_newer(departed.control, number))
        };
        self.list.iter().any(|departed| departed.epoch == epoch && (departed.left || !is_new(departed)))
    }

    /// Returns whether this epoch was known before.
    pub fn has(&self, epoch: Epoch) -> bool {
        self.list.iter().any(|departed| departed.epoch == epoch)
    }

    /// Removes and returns the state of a member that returns.
    pub fn take(&mut self, epoch: Epoch) -> Option<DepartedMember> {
        let at = self.list.iter().position(|departed| departed.epoch == epoch)?;
        self.list.remove(at)
    }

    /// Resets the directed streams to their first datagram, because this peer begins a new epoch.
    pub fn on_new_epoch(&mut self) {
        self.list.iter_mut().for_each(|departed| {
            departed.directed = (Dseq(0), 0);
            departed.ptp = (Dseq(0), 0);
            (departed.assigned, departed.shares) = Default::default();
        });
    }
}
