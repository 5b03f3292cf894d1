//! Messages of the stream that wait for earlier ones of their publishers.

use super::stored::StoredMessage;
use crate::link::envelope::LinkEnvelope;
use crate::link::position::StreamPoint;
use crate::link::remote_stream_key::RemoteStreamKey;
use crate::time::{Instant, WallTime};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// A message that waits for an earlier one of its stream.
#[derive(Debug)]
struct HeldMessage {
    /// Time of its arrival.
    at: Instant,
    stored: StoredMessage,
}

/// When a message that waits has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldArrival {
    pub(super) key: RemoteStreamKey,
    /// Time of its arrival at this gateway.
    pub(super) since: Instant,
    /// Time of its arrival in the stream.
    pub(super) at: WallTime,
}

/// A stream with messages that wait for earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldStream {
    pub(super) key: RemoteStreamKey,
    /// The last point that was delivered.
    pub(super) last: StreamPoint,
    /// Envelope of the first message that waits.
    pub(super) waiting: LinkEnvelope,
}

/// The messages that wait, those of each stream in its order.
#[derive(Debug, Default)]
pub(super) struct HeldMessages {
    streams: BTreeMap<RemoteStreamKey, VecDeque<HeldMessage>>,
    /// The messages, by the times of their arrival and their stream sequences.
    by_arrival: BTreeMap<(Instant, u64), HeldArrival>,
    bytes: usize,
}

impl HeldMessages {
    /// Holds a message back from now on.
    pub(super) fn put(&mut self, now: Instant, key: RemoteStreamKey, stored: StoredMessage) {
        self.bytes += stored.bytes();
        let arrival = HeldArrival { key: key.clone(), since: now, at: stored.arrival.at };
        self.by_arrival.insert((now, stored.arrival.sequence), arrival);
        let held = self.streams.entry(key).or_default();
        let is_earlier =
            |other: &HeldMessage| other.stored.point().zip(stored.point()).is_some_and(|(one, own)| one.precedes(own));
        let index = held.partition_point(is_earlier);
        held.insert(index, HeldMessage { at: now, stored });
    }

    /// Returns the streams behind another one in the order of the keys, or all, with the first message of each.
    pub(super) fn streams_behind(
        &self,
        behind: Option<&RemoteStreamKey>,
    ) -> impl Iterator<Item = (&RemoteStreamKey, &StoredMessage)> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let streams = self.streams.range((from, Bound::Unbounded));
        streams.filter_map(|(key, held)| Some((key, &held.front()?.stored)))
    }

    /// Returns the first message of a stream.
    pub(super) fn first(&self, key: &RemoteStreamKey) -> Option<&StoredMessage> {
        Some(&self.streams.get(key)?.front()?.stored)
    }

    /// Returns the messages of a stream, each with the next one.
    pub(super) fn neighbours(&self, key: &RemoteStreamKey) -> impl Iterator<Item = (&StoredMessage, &StoredMessage)> {
        let held = self.streams.get(key).into_iter();
        held.flat_map(|held| held.iter().zip(held.iter().skip(1))).map(|(one, next)| (&one.stored, &next.stored))
    }

    /// Removes the first message of a stream.
    pub(super) fn pop_first(&mut self, key: &RemoteStreamKey) -> Option<StoredMessage> {
        let held = self.streams.get_mut(key)?;
        let HeldMessage { at, stored } = held.pop_front()?;
        if held.is_empty() {
            self.streams.remove(key);
        }
        self.by_arrival.remove(&(at, stored.arrival.sequence));
        self.bytes -= stored.bytes();
        Some(stored)
    }

    /// Returns the message that has waited longest.
    pub(super) fn oldest(&self) -> Option<&HeldArrival> {
        self.by_arrival.first_key_value().map(|(_, oldest)| oldest)
    }

    /// Returns the bytes that the messages take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
