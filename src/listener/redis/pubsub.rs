//! Subscriptions of a client, and the messages that go to them.

use super::reply::{push, put_bulk, put_head};
use crate::listener::out::Out;
use crate::message::{Count, SubId};
use crate::proto::delivery::Deliveries;
use crate::subject::Subject;
use crate::subject::channel;
use bytes::Bytes;
use std::collections::BTreeMap;

/// How a subscription was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// `SUBSCRIBE`.
    Channel,
    /// `PSUBSCRIBE`.
    Glob,
    /// `SSUBSCRIBE`.
    Shard,
}

impl Kind {
    /// The words for its beginning and end.
    pub(super) fn words(self) -> [&'static str; 2] {
        match self {
            Kind::Channel => ["subscribe", "unsubscribe"],
            Kind::Glob => ["psubscribe", "punsubscribe"],
            Kind::Shard => ["ssubscribe", "sunsubscribe"],
        }
    }
}

/// The subscriptions of a client.
#[derive(Debug, Default)]
pub(super) struct Subs {
    /// By kind and name; no number is given twice, because messages for the one that had it may be on their way.
    names: BTreeMap<(Kind, Bytes), SubId>,
    ids: BTreeMap<SubId, (Kind, Bytes)>,
    globs: usize,
    shards: usize,
    last: u32,
}

impl Subs {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The number that replies about this kind hold.
    pub(super) fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel | Kind::Glob => self.len() - self.shards,
            Kind::Shard => self.shards,
        }
    }

    /// Channels, globs and shard channels.
    pub(super) fn counts(&self) -> [usize; 3] {
        [self.len() - self.globs - self.shards, self.globs, self.shards]
    }

    pub(super) fn has(&self, kind: Kind, name: &Bytes) -> bool {
        self.names.contains_key(&(kind, name.clone()))
    }

    pub(super) fn has_id(&self, sub: SubId) -> bool {
        self.ids.contains_key(&sub)
    }

    /// One more, which is not there yet.
    pub(super) fn add(&mut self, kind: Kind, name: Bytes) -> SubId {
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.ids.contains_key(&SubId(self.last)) {
                break;
            }
        }
        let sub = SubId(self.last);
        self.globs += usize::from(kind == Kind::Glob);
        self.shards += usize::from(kind == Kind::Shard);
        self.names.insert((kind, name.clone()), sub);
        self.ids.insert(sub, (kind, name));
        sub
    }

    pub(super) fn remove(&mut self, kind: Kind, name: &Bytes) -> Option<SubId> {
        let sub = self.names.remove(&(kind, name.clone()))?;
        self.ids.remove(&sub);
        self.globs -= usize::from(kind == Kind::Glob);
        self.shards -= usize::from(kind == Kind::Shard);
        Some(sub)
    }

    pub(super) fn by_id(&self, sub: SubId) -> Option<(Kind, Bytes)> {
        self.ids.get(&sub).cloned()
    }

    /// The names of all of a kind.
    pub(super) fn names(&self, kind: Kind) -> Vec<Bytes> {
        self.names
            .range((kind, Bytes::new())..)
            .take_while(|(key, _)| key.0 == kind)
            .map(|(key, _)| key.1.clone())
            .collect()
    }

    /// Ends all.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = SubId> + use<> {
        let last = self.last;
        let ids = std::mem::replace(self, Subs { last, ..Subs::default() }).ids;
        ids.into_keys()
    }

    /// What stands before the payload of every message on the subject, for each of these subscriptions that is there.
    fn heads(&self, subs: &[SubId], subject: &Subject, is_resp3: bool) -> Vec<Vec<u8>> {
        let mut found: Vec<_> = subs.iter().filter_map(|sub| self.ids.get(sub)).collect();
        if 1 < found.len() {
            found.sort_by_key(|(kind, _)| *kind);
        }
        let channel = channel::of_subject(subject);
        found.into_iter().map(|(kind, name)| head(*kind, name, &channel, is_resp3)).collect()
    }
}

/// What stands before the payload of a message.
fn head(kind: Kind, name: &[u8], channel: &[u8], is_resp3: bool) -> Vec<u8> {
    let (word, len): (&[u8], usize) = match kind {
        Kind::Channel => (b"message", 3),
        Kind::Glob => (b"pmessage", 4),
        Kind::Shard => (b"smessage", 3),
    };
    // The length of the payload finds room too.
    let mut head = Vec::with_capacity(64 + name.len() + channel.len());
    put_head(&mut head, push(is_resp3), len);
    put_bulk(&mut head, word);
    if kind == Kind::Glob {
        put_bulk(&mut head, name);
    }
    put_bulk(&mut head, channel);
    head
}

/// A payload of so many bytes is shared by its receivers instead of copied.
const SHARE_BYTES: usize = 8 * 1024;

/// Writes the messages to each of these subscriptions; gives how many that were.
pub(super) fn deliver(subs: &Subs, of: &[SubId], deliveries: &Deliveries, is_resp3: bool, out: &mut Out) -> usize {
    let mut heads = None;
    let mut written = 0;
    if SHARE_BYTES * deliveries.len() <= deliveries.bytes() {
        for delivery in deliveries.clone() {
            let message = delivery.message;
            let heads = heads.get_or_insert_with(|| Heads::new(subs.heads(of, &message.subject, is_resp3)));
            written += heads.put(message.payload.len(), out, |out| out.put_payload(&message.payload));
        }
        return written;
    }
    deliveries.clone().visit(|delivery| {
        let heads = heads.get_or_insert_with(|| Heads::new(subs.heads(of, delivery.subject, is_resp3)));
        written += heads.put(delivery.payload.len(), out, |out| out.put(delivery.payload));
    });
    written
}

/// What stands before payloads of one length; made anew when the length changes.
struct Heads {
    /// Each with the length behind it, if one is known, and where that begins.
    heads: Vec<(Vec<u8>, usize)>,
    payload_bytes: Option<usize>,
}

impl Heads {
    fn new(heads: Vec<Vec<u8>>) -> Heads {
        Heads {
            heads: heads.into_iter().map(|head| (head.len(), head)).map(|(len, head)| (head, len)).collect(),
            payload_bytes: None,
        }
    }

    /// Writes one message to all; gives to how many.
    #[inline]
    fn put(&mut self, payload_bytes: usize, out: &mut Out, payload: impl Fn(&mut Out)) -> usize {
        if self.payload_bytes != Some(payload_bytes) {
            self.payload_bytes = Some(payload_bytes);
            for (head, len) in &mut self.heads {
                head.truncate(*len);
                put_head(head, b'$', payload_bytes);
            }
        }
        for (head, _) in &self.heads {
            out.put(head);
            payload(out);
            out.put(b"\r\n");
        }
        self.heads.len()
    }
}

/// What was lost before it could be delivered, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    min: u64,
    max: u64,
}

impl Lost {
    pub(super) fn add(&mut self, count: Count) {
        self.min = self.min.saturating_add(count.min());
        self.max = self.max.saturating_add(count.max());
    }

    pub(super) fn count(self) -> Count {
        Count::from_bounds(self.min, self.max)
    }
}
