//! The listens of a client.

use crate::message::SubId;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Number of subscriptions that each session has for itself.
const OWN: u32 = 1;
/// Subscription to the losses of messages, which every client gets.
pub(super) const LOSSES: SubId = SubId(0);

/// Listens of a client. Several listens to one subject are one subscription with a count.
#[derive(Debug, Default)]
pub(super) struct RvSubscriptions {
    texts: BTreeMap<Bytes, ListenCount>,
    ids: BTreeMap<SubId, Bytes>,
    last: u32,
    /// Subscription to `>`.
    all: Option<SubId>,
}

/// Number of listens to one subject.
#[derive(Clone, Copy, Debug)]
struct ListenCount {
    sub: SubId,
    listens: u32,
}

impl RvSubscriptions {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn has(&self, text: &[u8]) -> bool {
        self.texts.contains_key(text)
    }

    pub(super) fn has_id(&self, sub: SubId) -> bool {
        sub.0 < OWN || self.ids.contains_key(&sub)
    }

    /// Counts a listen. Returns its text, and the number of a subscription that begins with it. Numbers are not reused
    /// before the counter wraps, because messages for an ended subscription may still arrive.
    pub(super) fn add(&mut self, text: &[u8]) -> (Bytes, Option<SubId>) {
        if let Some((key, count)) = self.texts.get_key_value(text).map(|(key, count)| (key.clone(), *count)) {
            let listens = count.listens.saturating_add(1);
            self.texts.insert(key.clone(), ListenCount { listens, ..count });
            return (key, None);
        }
        loop {
            self.last = self.last.wrapping_add(1);
            if OWN <= self.last && !self.ids.contains_key(&SubId(self.last)) {
                break;
            }
        }
        let (sub, text) = (SubId(self.last), Bytes::copy_from_slice(text));
        if text == ">" {
            self.all = Some(sub);
        }
        self.ids.insert(sub, text.clone());
        self.texts.insert(text.clone(), ListenCount { sub, listens: 1 });
        (text, Some(sub))
    }

    /// Takes one listen away. Returns its text, and the subscription that ends with it; `None` if there was no listen.
    pub(super) fn cancel(&mut self, text: &[u8]) -> Option<(Bytes, Option<SubId>)> {
        let (key, _) = self.texts.get_key_value(text)?;
        let key = key.clone();
        let Entry::Occupied(mut entry) = self.texts.entry(key.clone()) else { return None };
        entry.get_mut().listens -= 1;
        if 0 < entry.get().listens {
            return Some((key, None));
        }
        let sub = entry.remove().sub;
        self.remove(sub);
        Some((key, Some(sub)))
    }

    /// Removes a subscription with all its listens. Returns its text.
    pub(super) fn remove(&mut self, sub: SubId) -> Option<Bytes> {
        self.all = self.all.filter(|all| *all != sub);
        let text = self.ids.remove(&sub)?;
        self.texts.remove(&text);
        Some(text)
    }

    /// Returns the part of `subs` for which a message of a program is written once; empty if there is none. A listen to
    /// `>` does not match inboxes, and the subscription to losses matches advisories of the peer alone.
    pub(super) fn first_of<'a>(&self, subs: &'a [SubId], is_inbox: bool) -> &'a [SubId] {
        let rank = |sub: &SubId| match *sub {
            LOSSES => None,
            sub if Some(sub) == self.all => (!is_inbox).then_some(1),
            _ => Some(0),
        };
        let ranked = subs.iter().enumerate().filter_map(|(index, sub)| Some((rank(sub)?, index)));
        ranked.min().map_or(&[], |(_, index)| &subs[index..=index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listens_to_a_subject_are_counted() {
        let mut subs = RvSubscriptions::default();
        let (_, first) = subs.add(b"a.b");
        assert_eq!((first, subs.add(b"a.b").1, subs.len()), (Some(SubId(1)), None, 1));
        assert_eq!(subs.cancel(b"a.c"), None);
        assert_eq!(subs.cancel(b"a.b"), Some((Bytes::from("a.b"), None)));
        assert_eq!(subs.cancel(b"a.b"), Some((Bytes::from("a.b"), first)));
        assert_eq!((subs.cancel(b"a.b"), subs.len(), subs.has_id(SubId(1))), (None, 0, false));
        assert_eq!(subs.add(b"a.b").1, Some(SubId(2)));
    }

    #[test]
    fn narrow_listen_represents_several() {
        let mut subs = RvSubscriptions::default();
        let [all, one] = [&b">"[..], b"a.*"].map(|text| subs.add(text).1.unwrap());
        assert_eq!(subs.first_of(&[LOSSES, all, one], false), [one]);
        assert_eq!(subs.first_of(&[LOSSES, all], false), [all]);
        assert_eq!(subs.first_of(&[all], true), [SubId(0); 0]);
        assert_eq!(subs.first_of(&[LOSSES], false), [SubId(0); 0]);
        subs.remove(all);
        assert!(subs.has_id(LOSSES) && !subs.has_id(all));
    }
}
