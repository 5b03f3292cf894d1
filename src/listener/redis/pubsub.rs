//! Subscriptions of a client, and the encoding of messages for them.

use super::reply::{push, put_bulk, put_head};
use crate::delivery::Deliveries;
use crate::listener::output_buffer::OutputBuffer;
use crate::message::{Count, SubId, SubscriptionFilter};
use crate::subject::glob::Glob;
use crate::subject::{Pattern, Subject, SubjectError, channel};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Kind of a subscription, named after its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SubscriptionKind {
    /// `SUBSCRIBE`.
    Channel,
    /// `PSUBSCRIBE`.
    Glob,
    /// `SSUBSCRIBE`.
    Shard,
}

impl SubscriptionKind {
    /// Returns the push types for the beginning and the end of a subscription.
    pub(super) fn push_types(self) -> [&'static str; 2] {
        match self {
            SubscriptionKind::Channel => ["subscribe", "unsubscribe"],
            SubscriptionKind::Glob => ["psubscribe", "punsubscribe"],
            SubscriptionKind::Shard => ["ssubscribe", "sunsubscribe"],
        }
    }
}

/// The subscriptions of a client.
#[derive(Debug, Default)]
pub(super) struct RedisSubscriptions {
    /// Subscriptions by kind and name. Numbers are not reused before the counter wraps, because messages for an ended
    /// subscription may still arrive.
    names: BTreeMap<(SubscriptionKind, Bytes), SubId>,
    ids: BTreeMap<SubId, (SubscriptionKind, Bytes)>,
    globs: usize,
    shards: usize,
    last: u32,
}

impl RedisSubscriptions {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the number of subscriptions in replies about this kind.
    pub(super) fn count(&self, kind: SubscriptionKind) -> usize {
        match kind {
            SubscriptionKind::Channel | SubscriptionKind::Glob => self.len() - self.shards,
            SubscriptionKind::Shard => self.shards,
        }
    }

    /// Returns the number of channels, of globs and of shard channels.
    pub(super) fn counts(&self) -> [usize; 3] {
        [self.len() - self.globs - self.shards, self.globs, self.shards]
    }

    pub(super) fn has(&self, kind: SubscriptionKind, name: &Bytes) -> bool {
        self.names.contains_key(&(kind, name.clone()))
    }

    pub(super) fn has_id(&self, sub: SubId) -> bool {
        self.ids.contains_key(&sub)
    }

    /// Adds a subscription that must not exist yet.
    pub(super) fn add(&mut self, kind: SubscriptionKind, name: Bytes) -> SubId {
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.ids.contains_key(&SubId(self.last)) {
                break;
            }
        }
        let sub = SubId(self.last);
        self.globs += usize::from(kind == SubscriptionKind::Glob);
        self.shards += usize::from(kind == SubscriptionKind::Shard);
        self.names.insert((kind, name.clone()), sub);
        self.ids.insert(sub, (kind, name));
        sub
    }

    pub(super) fn remove(&mut self, kind: SubscriptionKind, name: &Bytes) -> Option<SubId> {
        let sub = self.names.remove(&(kind, name.clone()))?;
        self.ids.remove(&sub);
        self.globs -= usize::from(kind == SubscriptionKind::Glob);
        self.shards -= usize::from(kind == SubscriptionKind::Shard);
        Some(sub)
    }

    pub(super) fn by_id(&self, sub: SubId) -> Option<(SubscriptionKind, Bytes)> {
        self.ids.get(&sub).cloned()
    }

    /// Returns the names of all subscriptions of a kind.
    pub(super) fn names(&self, kind: SubscriptionKind) -> Vec<Bytes> {
        self.names
            .range((kind, Bytes::new())..)
            .take_while(|(key, _)| key.0 == kind)
            .map(|(key, _)| key.1.clone())
            .collect()
    }

    /// Removes all subscriptions and returns them.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = SubId> + use<> {
        let last = self.last;
        let ids = std::mem::replace(self, RedisSubscriptions { last, ..RedisSubscriptions::default() }).ids;
        ids.into_keys()
    }

    /// Returns the bytes before the payload of every message on the subject, for each of these subscriptions that
    /// exists.
    fn heads(&self, subs: &[SubId], subject: &Subject, is_resp3: bool) -> Vec<Vec<u8>> {
        let mut found: Vec<_> = subs.iter().filter_map(|sub| self.ids.get(sub)).collect();
        if 1 < found.len() {
            found.sort_by_key(|(kind, _)| *kind);
        }
        let channel = channel::of_subject(subject);
        found.into_iter().map(|(kind, name)| head(*kind, name, &channel, is_resp3)).collect()
    }
}

/// Returns the bytes before the payload of a message.
fn head(kind: SubscriptionKind, name: &[u8], channel: &[u8], is_resp3: bool) -> Vec<u8> {
    let (push_type, len): (&[u8], usize) = match kind {
        SubscriptionKind::Channel => (b"message", 3),
        SubscriptionKind::Glob => (b"pmessage", 4),
        SubscriptionKind::Shard => (b"smessage", 3),
    };
    // The capacity includes the length of the payload.
    let mut head = Vec::with_capacity(64 + name.len() + channel.len());
    put_head(&mut head, push(is_resp3), len);
    put_bulk(&mut head, push_type);
    if kind == SubscriptionKind::Glob {
        put_bulk(&mut head, name);
    }
    put_bulk(&mut head, channel);
    head
}

/// Minimum average payload size, in bytes, at which payloads are shared by their receivers instead of copied.
const SHARE_BYTES: usize = 8 * 1024;

/// Writes the messages to each of these subscriptions. Returns the number of messages written.
pub(super) fn deliver(
    subs: &RedisSubscriptions,
    ids: &[SubId],
    deliveries: &Deliveries,
    is_resp3: bool,
    out: &mut OutputBuffer,
) -> usize {
    let mut heads = None;
    let mut written = 0;
    if SHARE_BYTES * deliveries.len() <= deliveries.bytes() {
        for delivery in deliveries.clone() {
            let message = delivery.message;
            let heads = heads.get_or_insert_with(|| PushHeaders::new(subs.heads(ids, &message.subject, is_resp3)));
            written += heads.for_each(message.payload.len(), |head| {
                out.put(head);
                out.put_payload(&message.payload);
                out.put(b"\r\n");
            });
        }
        return written;
    }
    deliveries.clone().visit(|delivery| {
        let heads = heads.get_or_insert_with(|| PushHeaders::new(subs.heads(ids, delivery.subject, is_resp3)));
        written += heads.for_each(delivery.payload.len(), |head| out.put_all(&[head, delivery.payload, b"\r\n"]));
    });
    written
}

/// Headers before payloads of one length. They are rebuilt when the length changes.
struct PushHeaders {
    /// Each header with the payload length, if it is known, and the offset of that length.
    heads: Vec<(Vec<u8>, usize)>,
    payload_bytes: Option<usize>,
}

impl PushHeaders {
    fn new(heads: Vec<Vec<u8>>) -> PushHeaders {
        PushHeaders {
            heads: heads.into_iter().map(|head| (head.len(), head)).map(|(len, head)| (head, len)).collect(),
            payload_bytes: None,
        }
    }

    /// Calls `write` with the header of each subscription for a payload of this size. Returns the number of
    /// subscriptions.
    #[inline]
    fn for_each(&mut self, payload_bytes: usize, mut write: impl FnMut(&[u8])) -> usize {
        if self.payload_bytes != Some(payload_bytes) {
            self.payload_bytes = Some(payload_bytes);
            for (head, len) in &mut self.heads {
                head.truncate(*len);
                put_head(head, b'$', payload_bytes);
            }
        }
        self.heads.iter().for_each(|(head, _)| write(head));
        self.heads.len()
    }
}

/// Total number of messages that were lost before delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LossCounter {
    min: u64,
    max: u64,
}

impl LossCounter {
    pub(super) fn add(&mut self, count: Count) {
        self.min = self.min.saturating_add(count.min());
        self.max = self.max.saturating_add(count.max());
    }

    pub(super) fn count(self) -> Count {
        Count::from_bounds(self.min, self.max)
    }
}

/// Returns the filter of a subscription to this name, or the error reply.
pub(super) fn subscription_filter(kind: SubscriptionKind, name: &Bytes) -> Result<SubscriptionFilter, String> {
    if kind != SubscriptionKind::Glob {
        return channel::to_subject(name)
            .map(|subject| Pattern::from(subject).into())
            .map_err(|error| invalid_channel(&error));
    }
    let glob = Glob::new(name).map_err(|error| format!("ERR {error}"))?;
    let pattern = channel::to_pattern(&glob.prefix()).map_err(|error| invalid_channel(&error))?;
    Ok(SubscriptionFilter { pattern, glob: Some(glob), queue: None })
}

/// Returns the error reply for a channel that cannot be mapped to a subject.
pub(super) fn invalid_channel(error: &SubjectError) -> String {
    format!("ERR invalid channel: {error}")
}
