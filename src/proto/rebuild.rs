//! Missing datagrams whose content is known from a manifest (R6), and their messages fetched from the publisher's
//! history. A manifest lists the content of a datagram whose bytes can no longer be resent.
//!
//! A datagram is rebuilt when each wanted message in it has arrived or is known to be lost. It then counts as arrived:
//! its messages are released in its position, and the others are reported exactly. A large message is fetched once
//! (`large`). All datagrams with a part of it wait for it, and it is released in the datagram in which it begins.

mod large;
mod retry;

pub use large::MessageKey;

use crate::message::{Dseq, Message, MissingDatagrams, Reason};
use crate::proto::continuity::SeqPosition;
use crate::proto::stream_item::{FetchedMessages, GoneMessages, StreamItem};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::Instant;
use crate::wire::{Content, ContentKind};
use large::LargeMessages;
use retry::{RETRY_INTERVAL, RetryTimer};
use std::collections::{BTreeMap, BTreeSet};

/// A run of messages of the datagram, or a part of a large one.
#[derive(Clone, Debug)]
enum RebuildPart {
    /// The messages were requested from the history.
    Requested { subject: Subject, position: SeqPosition, count: u64 },
    /// An item to release.
    Item(StreamItem),
    /// A large message begins here, and was requested from the history.
    LargeRequested(GoneMessages, MessageKey),
    /// The large message that begins here has arrived.
    LargeFetched(FetchedMessages),
    /// A large message begins here that is no longer available.
    LargeUnavailable(GoneMessages),
    /// A part of a large message that began in an earlier datagram, and was requested from the history.
    LargeFragment(Dseq, MessageKey),
}

/// A datagram that is being rebuilt.
#[derive(Clone, Debug)]
pub struct Rebuild {
    before: u64,
    messages: u64,
    parts: Vec<RebuildPart>,
    /// First datagrams of large messages whose part in this datagram is unavailable, with the reason.
    missing_heads: Vec<(Dseq, Reason)>,
    retry: RetryTimer,
}

impl Rebuild {
    /// Creates a rebuild from the manifest of datagram `dseq`; `before` messages were begun in all earlier datagrams.
    /// Messages without subscriptions are not fetched.
    pub fn new(
        now: Instant,
        dseq: Dseq,
        before: u64,
        contents: Vec<Content>,
        mut is_wanted: impl FnMut(&Content) -> bool,
    ) -> Rebuild {
        let messages = contents.iter().map(Content::messages_begun).sum();
        let (mut parts, mut missing_heads) = (Vec::new(), Vec::new());
        for content in contents {
            let wanted = is_wanted(&content);
            let position = content.seq.map(|seq| SeqPosition { seq, stamp: None, chain: content.chain });
            let gone = |subject, count| GoneMessages {
                subject,
                position,
                count,
                reason: Reason::Expired,
                since: now,
                missing: MissingDatagrams::default(),
            };
            match (content.kind, position) {
                (ContentKind::Run { .. }, _) if !wanted => {}
                (ContentKind::Run { count }, Some(position))
                    if position.seq.forward(u64::from(count) - 1).is_some() =>
                {
                    parts.push(RebuildPart::Requested { subject: content.subject, position, count: u64::from(count) });
                }
                (ContentKind::Run { count }, _) => {
                    parts.push(RebuildPart::Item(StreamItem::GoneMessages(Box::new(gone(
                        content.subject,
                        u64::from(count),
                    )))));
                }
                (ContentKind::Part { index, total }, position) => {
                    let first = Dseq(dseq.0.saturating_sub(u64::from(index)));
                    let key = |seq| MessageKey { subject: content.subject.clone(), seq, bytes: total as usize };
                    match position.filter(|_| wanted).map(|position| key(position.seq)) {
                        Some(key) if index == 0 => {
                            parts.push(RebuildPart::LargeRequested(gone(content.subject, 1), key))
                        }
                        Some(key) => parts.push(RebuildPart::LargeFragment(first, key)),
                        None => {
                            missing_heads.push((first, Reason::Expired));
                            if index == 0 {
                                // The subscriptions are matched when the message is given up, as for messages that
                                // arrived.
                                parts.push(RebuildPart::LargeUnavailable(gone(content.subject, 1)));
                            }
                        }
                    }
                }
            }
        }
        Rebuild { before, messages, parts, missing_heads, retry: RetryTimer::after(now, RETRY_INTERVAL) }
    }

    /// Returns the number of messages begun in all earlier datagrams.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// Returns the number of messages begun in this datagram.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns the first datagrams of large messages that lack a fragment because of this one, with the reason.
    pub fn missing_heads(&self) -> impl Iterator<Item = (Dseq, Reason)> {
        self.missing_heads.iter().copied()
    }

    /// Returns whether an answer of the history is outstanding.
    pub fn is_waiting(&self) -> bool {
        self.parts.iter().any(|part| {
            matches!(
                part,
                RebuildPart::Requested { .. } | RebuildPart::LargeRequested(..) | RebuildPart::LargeFragment(..)
            )
        })
    }

    /// Calls `each` with every range of messages that is requested from the history for this datagram alone.
    pub fn for_each_wanted(&self, mut each: impl FnMut(&Subject, Seq, Seq)) {
        for part in &self.parts {
            if let RebuildPart::Requested { subject, position, count } = part
                && let Some(last) = position.seq.forward(count - 1)
            {
                each(subject, position.seq, last);
            }
        }
    }

    /// Returns the awaited large messages that have a part in this datagram, `dseq`, with the datagram in which each
    /// begins.
    fn larges(&self, dseq: Dseq) -> impl Iterator<Item = (Dseq, &MessageKey)> {
        self.parts.iter().filter_map(move |part| match part {
            RebuildPart::LargeRequested(_, key) => Some((dseq, key)),
            RebuildPart::LargeFragment(first, key) => Some((*first, key)),
            _ => None,
        })
    }

    /// Returns the large message that begins in it, if the history had it.
    pub fn whole(&self) -> Option<&FetchedMessages> {
        self.parts
            .iter()
            .find_map(|part| if let RebuildPart::LargeFetched(fetched) = part { Some(fetched) } else { None })
    }

    fn bytes(&self) -> usize {
        let bytes = |part: &RebuildPart| match part {
            RebuildPart::Item(item) => item.bytes(),
            RebuildPart::LargeFetched(fetched) => fetched.bytes(),
            _ => 0,
        };
        self.parts.iter().map(bytes).sum()
    }

    /// Handles the history's answer for a range, with the available messages in order.
    fn on_fetched(&mut self, (subject, first, last): (&Subject, Seq, Seq), messages: Vec<(Seq, Message)>) {
        let is_requested = |part: &RebuildPart| {
            matches!(part, RebuildPart::Requested { subject: s, position, count }
                if s == subject && position.seq == first && position.seq.forward(count - 1) == Some(last))
        };
        let Some(at) = self.parts.iter().position(is_requested) else { return };
        let RebuildPart::Requested { position, count, .. } = self.parts[at].clone() else { return };
        let items = in_order(subject, position, count, messages);
        self.parts.splice(at..=at, items.into_iter().map(RebuildPart::Item));
    }

    /// Handles a large message that begins in datagram `first` and is no longer awaited. This rebuild takes the message
    /// if it begins here. If it did not arrive, `is_unavailable` is true if the history no longer has it.
    fn on_large(&mut self, dseq: Dseq, first: Dseq, fetched: &mut Option<FetchedMessages>, is_unavailable: bool) {
        if is_unavailable {
            self.missing_heads.push((first, Reason::Expired));
        }
        self.parts.retain(|part| !matches!(part, RebuildPart::LargeFragment(begins, _) if *begins == first));
        for part in self.parts.iter_mut().filter(|_| dseq == first) {
            if let RebuildPart::LargeRequested(gone, _) = part {
                let position = gone.position;
                let taken =
                    fetched.take_if(|fetched| Some(fetched.position.seq) == position.map(|position| position.seq));
                *part = match (taken, position) {
                    (Some(fetched), Some(position)) => {
                        RebuildPart::LargeFetched(FetchedMessages { position, ..fetched })
                    }
                    _ => RebuildPart::LargeUnavailable(gone.clone()),
                };
            }
        }
    }

    /// Ends the wait in datagram `dseq`. Large messages that other datagrams still await may arrive later.
    fn abandon(&mut self, dseq: Dseq, reason: Reason, is_awaited: impl Fn(Dseq) -> bool) {
        for part in &mut self.parts {
            match part {
                RebuildPart::Requested { subject, position, count } => {
                    let (subject, position, count) = (subject.clone(), Some(*position), *count);
                    let (since, missing) = (Instant::ZERO, MissingDatagrams::default());
                    let gone = GoneMessages { subject, position, count, reason, since, missing };
                    *part = RebuildPart::Item(StreamItem::GoneMessages(Box::new(gone)));
                }
                RebuildPart::LargeRequested(gone, _) => {
                    self.missing_heads.push((dseq, reason));
                    *part = RebuildPart::LargeUnavailable(GoneMessages { reason, ..gone.clone() });
                }
                RebuildPart::LargeFragment(first, _) if !is_awaited(*first) => {
                    self.missing_heads.push((*first, reason))
                }
                _ => {}
            }
        }
        self.parts.retain(|part| !matches!(part, RebuildPart::LargeFragment(..)));
    }

    /// Returns the items to release, or to report, in the position of datagram `dseq`. It was sent later than `since`,
    /// and `missing` describes it as missing. `is_reported` is called with the datagram of each unavailable large
    /// message that begins here. It returns whether other parts of the message arrived, so that the message is reported
    /// with them.
    pub fn into_items(
        self,
        dseq: Dseq,
        since: Instant,
        missing: MissingDatagrams,
        mut is_reported: impl FnMut(Dseq) -> bool,
    ) -> Vec<StreamItem> {
        let item = |part: RebuildPart| match part {
            RebuildPart::Item(StreamItem::GoneMessages(gone)) => {
                Some(StreamItem::GoneMessages(Box::new(GoneMessages { since, missing, ..*gone })))
            }
            RebuildPart::LargeUnavailable(gone) => (!is_reported(dseq))
                .then(|| StreamItem::GoneMessages(Box::new(GoneMessages { since, missing, ..gone }))),
            RebuildPart::Item(item) => Some(item),
            RebuildPart::LargeFetched(fetched) => Some(StreamItem::FetchedMessages(fetched)),
            RebuildPart::Requested { .. } | RebuildPart::LargeRequested(..) | RebuildPart::LargeFragment(..) => None,
        };
        self.parts.into_iter().filter_map(item).collect()
    }
}

/// Returns the messages of a range that arrived, and the gaps between them.
fn in_order(subject: &Subject, position: SeqPosition, count: u64, messages: Vec<(Seq, Message)>) -> Vec<StreamItem> {
    let at = |index: u64| SeqPosition {
        seq: position.seq.forward(index).unwrap_or(position.seq),
        stamp: None,
        chain: position.chain.filter(|_| index == 0),
    };
    let mut items = Vec::new();
    let mut next = 0;
    let gone = |from: u64, to: u64| {
        let (position, count) = (Some(at(from)), to - from);
        let (since, missing) = (Instant::ZERO, MissingDatagrams::default());
        let (subject, reason) = (subject.clone(), Reason::Expired);
        StreamItem::GoneMessages(Box::new(GoneMessages { subject, position, count, reason, since, missing }))
    };
    for (seq, message) in messages {
        let index = seq.raw().wrapping_sub(position.seq.raw());
        if index < next || count <= index || message.subject != *subject {
            continue;
        }
        if next < index {
            items.push(gone(next, index));
        }
        match items.last_mut() {
            Some(StreamItem::FetchedMessages(fetched)) if next == index => fetched.messages.push(message),
            _ => items
                .push(StreamItem::FetchedMessages(FetchedMessages { position: at(index), messages: vec![message] })),
        }
        next = index + 1;
    }
    if next < count {
        items.push(gone(next, count));
    }
    items
}

/// All rebuilds of one stream.
#[derive(Clone, Debug, Default)]
pub struct Rebuilds {
    by_dseq: BTreeMap<Dseq, Rebuild>,
    larges: LargeMessages,
    /// Datagrams that no longer wait for anything, because of a large message.
    ready: BTreeSet<Dseq>,
    /// Bytes of the messages that have arrived.
    bytes: usize,
}

impl Rebuilds {
    /// Returns whether this datagram is being rebuilt.
    pub fn has(&self, dseq: Dseq) -> bool {
        self.by_dseq.contains_key(&dseq)
    }

    /// Returns the bytes of arrived messages in datagrams that still wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the large message that begins in this datagram, if it is awaited.
    pub fn large(&self, first: Dseq) -> Option<&MessageKey> {
        self.larges.key(first)
    }

    /// Begins to rebuild a datagram. `has_head` returns whether the datagram in which a large message begins has
    /// arrived.
    pub fn insert(&mut self, dseq: Dseq, rebuild: Rebuild, has_head: impl Fn(Dseq, Seq) -> bool) {
        for (first, key) in rebuild.larges(dseq) {
            self.larges.add_datagram(first, dseq, key, first == dseq || has_head(first, key.seq));
        }
        self.bytes += rebuild.bytes();
        self.by_dseq.insert(dseq, rebuild);
    }

    /// Returns whether the large message that begins in this datagram, which is being rebuilt, arrived completely.
    pub fn has_fetched(&self, first: Dseq) -> bool {
        self.by_dseq.get(&first).is_some_and(|rebuild| rebuild.whole().is_some())
    }

    /// Removes a datagram that arrived after all, or that is complete.
    pub fn remove(&mut self, dseq: Dseq) -> Option<Rebuild> {
        if self.by_dseq.is_empty() {
            return None;
        }
        let rebuild = self.by_dseq.remove(&dseq)?;
        self.bytes -= rebuild.bytes();
        for (first, _) in rebuild.larges(dseq) {
            self.larges.remove_datagram(first, dseq);
        }
        Some(rebuild)
    }

    /// Gives up a datagram, and with it a large message that begins in it.
    pub fn abandon(&mut self, dseq: Dseq, reason: Reason) -> Option<Rebuild> {
        let mut rebuild = self.remove(dseq)?;
        self.drop_large(dseq);
        rebuild.abandon(dseq, reason, |first| self.larges.key(first).is_some());
        Some(rebuild)
    }

    /// Records that the beginning of a large message arrived.
    pub fn on_head(&mut self, first: Dseq) {
        self.larges.on_head(first);
    }

    /// Returns the first datagram of a large message that is settled, although its content is unknown.
    pub fn headless_below(&self, frontier: Dseq) -> Option<Dseq> {
        self.larges.headless_below(frontier)
    }

    /// Ends the wait for the large message that begins in this datagram, without the history.
    pub fn drop_large(&mut self, first: Dseq) {
        self.settle_large(first, None, false);
    }

    /// Handles the history's answer for a range. Returns a large message whose beginning arrived and is not rebuilt.
    pub fn on_fetched(
        &mut self,
        dseq: Dseq,
        (subject, first, last): (&Subject, Seq, Seq),
        messages: Vec<(Seq, Message)>,
    ) -> Option<FetchedMessages> {
        if self.larges.key(dseq).is_some_and(|key| key.subject == *subject && (key.seq, key.seq) == (first, last)) {
            let message = messages.into_iter().find(|(seq, message)| *seq == first && message.subject == *subject);
            let position = SeqPosition { seq: first, stamp: None, chain: None };
            let fetched = message.map(|(_, message)| FetchedMessages { position, messages: vec![message] });
            return self.settle_large(dseq, fetched, true);
        }
        if let Some(rebuild) = self.by_dseq.get_mut(&dseq) {
            self.bytes -= rebuild.bytes();
            rebuild.on_fetched((subject, first, last), messages);
            self.bytes += rebuild.bytes();
            self.ready.insert(dseq);
        }
        None
    }

    /// Ends the wait of all datagrams for a large message. Returns the message if it does not begin in a datagram that
    /// is being rebuilt.
    fn settle_large(
        &mut self,
        first: Dseq,
        mut fetched: Option<FetchedMessages>,
        was_requested: bool,
    ) -> Option<FetchedMessages> {
        let waiting = self.larges.remove(first)?;
        let is_unavailable = was_requested && fetched.is_none();
        for dseq in waiting {
            if let Some(rebuild) = self.by_dseq.get_mut(&dseq) {
                self.bytes -= rebuild.bytes();
                rebuild.on_large(dseq, first, &mut fetched, is_unavailable);
                self.bytes += rebuild.bytes();
                self.ready.insert(dseq);
            }
        }
        fetched
    }

    /// Removes and returns a complete datagram.
    pub fn take_ready(&mut self) -> Option<(Dseq, Rebuild)> {
        loop {
            let dseq = self.ready.pop_first()?;
            if self.by_dseq.get(&dseq).is_some_and(|rebuild| !rebuild.is_waiting()) {
                return Some((dseq, self.remove(dseq)?));
            }
        }
    }

    /// Returns the earliest time of the next history request.
    pub fn request_deadline(&self) -> Option<Instant> {
        self.by_dseq.values().map(|rebuild| rebuild.retry.at).chain(self.larges.request_deadline()).min()
    }

    /// Calls `request` with every large message whose request is due, and with every range whose repeated request is
    /// due.
    pub fn send_due_requests(&mut self, now: Instant, mut request: impl FnMut(Dseq, &Subject, Seq, Seq)) {
        for (dseq, rebuild) in &mut self.by_dseq {
            if rebuild.retry.take_due(now) {
                rebuild.for_each_wanted(|subject, first, last| request(*dseq, subject, first, last));
            }
        }
        self.larges.send_due_requests(now, |first, key| request(first, &key.subject, key.seq, key.seq));
    }

    /// Asserts that every waiting datagram waits for something.
    pub fn assert_invariants(&self) {
        assert!(self.ready.is_empty() && self.by_dseq.values().all(Rebuild::is_waiting));
        assert_eq!(self.bytes, self.by_dseq.values().map(Rebuild::bytes).sum::<usize>());
        self.larges.assert_invariants(|dseq, first| {
            self.by_dseq.get(&dseq).is_some_and(|rebuild| rebuild.larges(dseq).any(|(begins, _)| begins == first))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE: (Instant, MissingDatagrams) = (Instant::ZERO, MissingDatagrams { datagrams: 1, overrun: 0 });

    fn seq(count: u64) -> Seq {
        Seq::from_parts(crate::seqno::Frame::new(1).unwrap(), count).unwrap()
    }

    fn run(subject: &str, first: u64, count: u16) -> Content {
        let kind = ContentKind::Run { count };
        Content { subject: subject.parse().unwrap(), seq: Some(seq(first)), chain: None, event: false, kind }
    }

    fn message(subject: &str, count: u64) -> (Seq, Message) {
        (seq(count), Message::new(subject.parse().unwrap(), count.to_string().into_bytes()))
    }

    fn shown(items: Vec<StreamItem>) -> Vec<String> {
        let show = |item: StreamItem| match item {
            StreamItem::GoneMessages(gone) => {
                format!("gone {} {:?} {}", gone.subject, gone.position.map(|p| p.seq.count()), gone.count)
            }
            StreamItem::FetchedMessages(fetched) => {
                format!("{} {}", fetched.position.seq.count(), fetched.messages.len())
            }
            other => format!("{other:?}"),
        };
        items.into_iter().map(show).collect()
    }

    #[test]
    fn retained_messages_are_delivered_and_others_reported_lost() {
        let contents = vec![run("a", 3, 5), run("not.wanted", 9, 1), run("b", 1, 2)];
        let is_wanted = |content: &Content| content.subject.as_str() != "not.wanted";
        let rebuild = Rebuild::new(Instant::ZERO, Dseq(4), 7, contents, is_wanted);
        assert_eq!((rebuild.before(), rebuild.messages(), rebuild.is_waiting()), (7, 8, true));
        let mut rebuilds = Rebuilds::default();
        let mut requested = Vec::new();
        rebuild.for_each_wanted(|subject, first, last| requested.push((subject.clone(), first, last)));
        rebuilds.insert(Dseq(4), rebuild.clone(), |_, _| false);
        assert_eq!(requested.len(), 2);
        let range = |at: usize| (&requested[at].0, requested[at].1, requested[at].2);
        let strange = [message("b", 4), message("a", 1), message("a", 8)];
        let got: Vec<_> = [message("a", 4), message("a", 5), message("a", 7)].into_iter().chain(strange).collect();
        let mut on_fetched = |dseq: u64, range, messages| {
            assert_eq!(rebuilds.on_fetched(Dseq(dseq), range, messages), None);
            rebuilds.take_ready()
        };
        assert!(on_fetched(4, range(0), got).is_none());
        assert!(on_fetched(5, range(1), vec![]).is_none());
        let (dseq, rebuild) = on_fetched(4, range(1), vec![message("b", 1), message("b", 2)]).unwrap();
        assert_eq!((dseq, rebuild.bytes(), rebuilds.bytes()), (Dseq(4), 5, 0));
        let items = rebuild.into_items(Dseq(4), SINCE.0, SINCE.1, |_| false);
        assert_eq!(shown(items), ["gone a Some(3) 1", "4 2", "gone a Some(6) 1", "7 1", "1 2"]);
    }

    #[test]
    fn expired_messages_are_lost_and_reported_once() {
        let is_run = |content: &Content| matches!(content.kind, ContentKind::Run { .. });
        let contents = vec![part(1, 3), run("a", 1, 4), part(2, 0)];
        let mut rebuild = Rebuild::new(Instant::ZERO, Dseq(4), 0, contents, is_run);
        assert_eq!(
            (rebuild.messages(), rebuild.missing_heads().collect::<Vec<_>>()),
            (5, vec![expired(1), expired(4)])
        );
        rebuild.abandon(Dseq(4), Reason::Deadline, |_| false);
        assert!(!rebuild.is_waiting());
        let items = rebuild.clone().into_items(Dseq(4), SINCE.0, SINCE.1, |_| true);
        assert_eq!(shown(items), ["gone a Some(1) 4"]);
        assert_eq!(
            shown(rebuild.into_items(Dseq(4), SINCE.0, SINCE.1, |_| false)),
            ["gone a Some(1) 4", "gone big Some(2) 1"]
        );
    }

    fn expired(first: u64) -> (Dseq, Reason) {
        (Dseq(first), Reason::Expired)
    }

    /// Returns a part of a large message with this number.
    fn part(number: u64, index: u32) -> Content {
        Content { kind: ContentKind::Part { index, total: 9000 }, ..run("big", number, 1) }
    }

    /// Returns datagrams 4, 5 and 6, which hold the parts of a large message with number 2 and other messages.
    fn three() -> Rebuilds {
        let mut rebuilds = Rebuilds::default();
        for (dseq, contents) in [(4, vec![run("a", 1, 1), part(2, 0)]), (5, vec![part(2, 1)]), (6, vec![part(2, 2)])] {
            rebuilds.insert(Dseq(dseq), rebuild(dseq, contents), |_, _| false);
        }
        rebuilds
    }

    fn rebuild(dseq: u64, contents: Vec<Content>) -> Rebuild {
        Rebuild::new(Instant::ZERO, Dseq(dseq), 0, contents, |_| true)
    }

    fn requested(rebuilds: &mut Rebuilds) -> Vec<String> {
        let mut requested = Vec::new();
        let show = |dseq: Dseq, subject: &Subject, first: Seq, last: Seq| {
            requested.push(format!("{dseq} {subject} {}-{}", first.count(), last.count()));
        };
        rebuilds.send_due_requests(Instant::ZERO, show);
        requested
    }

    /// A datagram, its items, and the large messages that lack a part of it.
    type Ready = (u64, Vec<String>, Vec<(Dseq, Reason)>);

    /// Removes and returns the complete datagrams.
    fn ready(rebuilds: &mut Rebuilds) -> Vec<Ready> {
        std::iter::from_fn(|| rebuilds.take_ready())
            .map(|(dseq, rebuild)| {
                let missing_heads = rebuild.missing_heads().collect();
                (dseq.0, shown(rebuild.into_items(dseq, SINCE.0, SINCE.1, |_| false)), missing_heads)
            })
            .collect()
    }

    fn answer(rebuilds: &mut Rebuilds, messages: Vec<(Seq, Message)>) -> Option<FetchedMessages> {
        rebuilds.on_fetched(Dseq(4), (&"big".parse().unwrap(), seq(2), seq(2)), messages)
    }

    #[test]
    fn large_message_is_fetched_once_for_all_datagrams() {
        let mut rebuilds = three();
        assert_eq!(requested(&mut rebuilds), ["4 big 2-2"]);
        assert_eq!(answer(&mut rebuilds, vec![message("big", 2)]), None);
        assert_eq!(ready(&mut rebuilds), [(5, vec![], vec![]), (6, vec![], vec![])]);
        assert_eq!(answer(&mut rebuilds, vec![message("big", 2)]), None, "a second answer");
        assert_eq!(ready(&mut rebuilds), []);
        rebuilds.assert_invariants();
        assert_eq!(rebuilds.bytes(), 1, "the first datagram waits for its other message");
        rebuilds.on_fetched(Dseq(4), (&"a".parse().unwrap(), seq(1), seq(1)), vec![message("a", 1)]);
        assert_eq!(ready(&mut rebuilds), [(4, vec!["1 1".to_owned(), "2 1".to_owned()], vec![])]);
        assert_eq!((rebuilds.bytes(), rebuilds.request_deadline()), (0, None));
    }

    #[test]
    fn unretained_large_message_is_lost_for_all_datagrams() {
        for strange in [vec![], vec![message("big", 3)], vec![message("b", 2)]] {
            let mut rebuilds = three();
            assert_eq!(answer(&mut rebuilds, strange), None);
            let missing_heads = || vec![expired(4)];
            assert_eq!(ready(&mut rebuilds), [(5, vec![], missing_heads()), (6, vec![], missing_heads())]);
            let (items, rebuild) =
                (["gone a Some(1) 1", "gone big Some(2) 1"], rebuilds.abandon(Dseq(4), Reason::Deadline));
            assert_eq!(shown(rebuild.unwrap().into_items(Dseq(4), SINCE.0, SINCE.1, |_| false)), items);
        }
    }

    #[test]
    fn large_message_is_fetched_while_any_datagram_waits() {
        let mut rebuilds = three();
        assert!(
            rebuilds.remove(Dseq(4)).is_some_and(|rebuild| rebuild.whole().is_none()),
            "the datagram arrived after all"
        );
        assert!(rebuilds.abandon(Dseq(5), Reason::Deadline).unwrap().missing_heads().next().is_none());
        rebuilds.assert_invariants();
        let fetched =
            answer(&mut rebuilds, vec![message("big", 2)]).expect("the message begins in a received datagram");
        assert_eq!((fetched.position.seq, ready(&mut rebuilds)), (seq(2), vec![(6, vec![], vec![])]));
        // The last datagram that is given up ends the large message too.
        let mut rebuilds = three();
        rebuilds.remove(Dseq(4));
        for (dseq, missing_heads) in [(5, vec![]), (6, vec![(Dseq(4), Reason::Deadline)])] {
            let rebuild = rebuilds.abandon(Dseq(dseq), Reason::Deadline).unwrap();
            assert_eq!(rebuild.missing_heads().collect::<Vec<_>>(), missing_heads);
        }
        // A message given up where it begins is given up for all datagrams.
        let mut rebuilds = three();
        rebuilds.abandon(Dseq(4), Reason::Deadline).unwrap();
        assert_eq!(ready(&mut rebuilds), [(5, vec![], vec![]), (6, vec![], vec![])]);
        assert_eq!((answer(&mut rebuilds, vec![message("big", 2)]), requested(&mut rebuilds)), (None, vec![]));
    }

    #[test]
    fn history_requests_repeat_at_growing_intervals() {
        let mut rebuilds = Rebuilds::default();
        rebuilds.insert(Dseq(1), rebuild(1, vec![run("a", 1, 1)]), |_, _| false);
        let mut times = Vec::new();
        for _ in 0..6 {
            let at = rebuilds.request_deadline().unwrap();
            rebuilds.send_due_requests(at, |_, _, _, _| times.push(at.since(Instant::ZERO).as_millis()));
        }
        assert_eq!(times, [40, 120, 280, 600, 1240, 1880]);
    }
}
