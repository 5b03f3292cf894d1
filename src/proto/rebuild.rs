//! Missing datagrams whose content is known from a manifest (R6), and what was got of it from the publisher's history.
//!
//! A datagram is rebuilt when each message in it that is wanted here has come or is known to be lost. Then it counts as
//! arrived: what came is handed on in its place, and the rest is told, exactly.

use crate::message::{Dseq, Message, Reason};
use crate::proto::recv::{Fetched, Gone, Item};
use crate::proto::stream::Place;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::Instant;
use crate::wire::{Content, ContentKind};
use std::collections::BTreeMap;
use std::time::Duration;

/// The history is asked again after this time, then after twice as long each time.
const AGAIN: Duration = Duration::from_millis(40);
/// The longest such wait.
const AGAIN_MAX: Duration = Duration::from_millis(640);

/// A run of messages of the datagram, or the beginning of a large one.
#[derive(Clone, Debug)]
enum Part {
    /// The history was asked for it.
    Asked { subject: Subject, place: Place, count: u64 },
    /// What is handed on.
    Item(Item),
    /// A large message that nobody has any more begins here.
    Head(Gone),
}

/// One such datagram.
#[derive(Clone, Debug)]
pub struct Rebuild {
    before: u64,
    messages: u64,
    parts: Vec<Part>,
    /// The indices of fragments in it, which are gone.
    fragments: Vec<u32>,
    ask_at: Instant,
    wait: Duration,
}

impl Rebuild {
    /// From its manifest: `before` messages were begun in all earlier datagrams. What is not wanted needs no answer.
    pub fn new(
        now: Instant,
        before: u64,
        contents: Vec<Content>,
        mut is_wanted: impl FnMut(&Subject) -> bool,
    ) -> Rebuild {
        let messages = contents.iter().map(Content::messages_begun).sum();
        let (mut parts, mut fragments) = (Vec::new(), Vec::new());
        for content in contents {
            // Whether a large message is wanted is asked when it is given up, as for those that came.
            if matches!(content.what, ContentKind::Run { .. }) && !is_wanted(&content.subject) {
                continue;
            }
            let place = content.seq.map(|seq| Place { seq, stamp: None, chain: content.chain });
            let gone = |subject, count| Gone { subject, place, count, reason: Reason::Expired, since: now };
            match (content.what, place) {
                (ContentKind::Run { count }, Some(place))
                    if content.seq.and_then(|seq| seq.forward(u64::from(count) - 1)).is_some() =>
                {
                    parts.push(Part::Asked { subject: content.subject, place, count: u64::from(count) });
                }
                (ContentKind::Run { count }, _) => {
                    parts.push(Part::Item(Item::Gone(gone(content.subject, u64::from(count)))));
                }
                (ContentKind::Part { index, .. }, _) => {
                    fragments.push(index);
                    if index == 0 {
                        parts.push(Part::Head(gone(content.subject, 1)));
                    }
                }
            }
        }
        Rebuild { before, messages, parts, fragments, ask_at: now + AGAIN, wait: AGAIN }
    }

    /// Messages begun in all earlier datagrams.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// Messages begun in this one.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// The first datagrams of large messages that lack a fragment because of this one, as datagram `dseq`.
    pub fn lacking(&self, dseq: Dseq) -> impl Iterator<Item = Dseq> {
        self.fragments.iter().filter_map(move |index| dseq.0.checked_sub(u64::from(*index)).map(Dseq))
    }

    /// Whether the history has yet to answer.
    pub fn is_waiting(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Asked { .. }))
    }

    /// Calls `each` with every range of messages that the history is asked for.
    pub fn for_each_wanted(&self, mut each: impl FnMut(&Subject, Seq, Seq)) {
        for part in &self.parts {
            if let Part::Asked { subject, place, count } = part
                && let Some(last) = place.seq.forward(count - 1)
            {
                each(subject, place.seq, last);
            }
        }
    }

    /// The history answered for a range: it has these messages of it, in order.
    fn on_fetched(&mut self, (subject, first, last): (&Subject, Seq, Seq), messages: Vec<(Seq, Message)>) {
        let is_it = |part: &Part| {
            matches!(part, Part::Asked { subject: s, place, count }
                if s == subject && place.seq == first && place.seq.forward(count - 1) == Some(last))
        };
        let Some(at) = self.parts.iter().position(is_it) else { return };
        let Part::Asked { place, count, .. } = self.parts[at].clone() else { return };
        let items = in_order(subject, place, count, messages);
        self.parts.splice(at..=at, items.into_iter().map(Part::Item));
    }

    /// Nothing more is waited for.
    pub fn give_up(&mut self, reason: Reason) {
        for part in &mut self.parts {
            if let Part::Asked { subject, place, count } = part {
                let (subject, place, count) = (subject.clone(), Some(*place), *count);
                *part = Part::Item(Item::Gone(Gone { subject, place, count, reason, since: Instant::ZERO }));
            }
        }
    }

    /// What is handed on, or told, in the place of datagram `dseq`, which was sent later than `since`. `is_told` is
    /// called with the datagram of each large message that begins here, and says whether other parts of it came,
    /// by which it is told.
    pub fn into_items(self, dseq: Dseq, since: Instant, mut is_told: impl FnMut(Dseq) -> bool) -> Vec<Item> {
        let item = |part: Part| match part {
            Part::Item(Item::Gone(gone)) => Some(Item::Gone(Gone { since, ..gone })),
            Part::Head(gone) => (!is_told(dseq)).then_some(Item::Gone(Gone { since, ..gone })),
            Part::Item(item) => Some(item),
            Part::Asked { .. } => None,
        };
        self.parts.into_iter().filter_map(item).collect()
    }
}

/// The messages of a range that came, and what is missing between them.
fn in_order(subject: &Subject, place: Place, count: u64, messages: Vec<(Seq, Message)>) -> Vec<Item> {
    let at = |index: u64| Place {
        seq: place.seq.forward(index).unwrap_or(place.seq),
        stamp: None,
        chain: place.chain.filter(|_| index == 0),
    };
    let mut items = Vec::new();
    let mut next = 0;
    let gone = |from: u64, to: u64| {
        let (place, count) = (Some(at(from)), to - from);
        Item::Gone(Gone { subject: subject.clone(), place, count, reason: Reason::Expired, since: Instant::ZERO })
    };
    for (seq, message) in messages {
        let index = seq.raw().wrapping_sub(place.seq.raw());
        if index < next || count <= index || message.subject != *subject {
            continue;
        }
        if next < index {
            items.push(gone(next, index));
        }
        match items.last_mut() {
            Some(Item::Fetched(fetched)) if next == index => fetched.messages.push(message),
            _ => items.push(Item::Fetched(Fetched { place: at(index), messages: vec![message] })),
        }
        next = index + 1;
    }
    if next < count {
        items.push(gone(next, count));
    }
    items
}

/// All of them, of one stream.
#[derive(Clone, Debug, Default)]
pub struct Rebuilds {
    by_dseq: BTreeMap<Dseq, Rebuild>,
}

impl Rebuilds {
    /// Whether this datagram is being rebuilt.
    pub fn has(&self, dseq: Dseq) -> bool {
        self.by_dseq.contains_key(&dseq)
    }

    /// Begins to rebuild it.
    pub fn insert(&mut self, dseq: Dseq, rebuild: Rebuild) {
        self.by_dseq.insert(dseq, rebuild);
    }

    /// It came after all, or is complete, or is given up.
    pub fn remove(&mut self, dseq: Dseq) -> Option<Rebuild> {
        if self.by_dseq.is_empty() { None } else { self.by_dseq.remove(&dseq) }
    }

    /// The history answered for a range of it. Whether it is complete now.
    pub fn on_fetched(&mut self, dseq: Dseq, range: (&Subject, Seq, Seq), messages: Vec<(Seq, Message)>) -> bool {
        let Some(rebuild) = self.by_dseq.get_mut(&dseq) else { return false };
        rebuild.on_fetched(range, messages);
        !rebuild.is_waiting()
    }

    /// When the history is to be asked again, at the earliest.
    pub fn ask_deadline(&self) -> Option<Instant> {
        self.by_dseq.values().map(|rebuild| rebuild.ask_at).min()
    }

    /// Calls `ask` with every range that the history is to be asked for again.
    pub fn ask_due(&mut self, now: Instant, mut ask: impl FnMut(Dseq, &Subject, Seq, Seq)) {
        for (dseq, rebuild) in self.by_dseq.iter_mut().filter(|(_, rebuild)| rebuild.ask_at <= now) {
            rebuild.wait = (rebuild.wait * 2).min(AGAIN_MAX);
            rebuild.ask_at = now + rebuild.wait;
            rebuild.for_each_wanted(|subject, first, last| ask(*dseq, subject, first, last));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seq(count: u64) -> Seq {
        Seq::from_parts(crate::seqno::Frame::new(1).unwrap(), count).unwrap()
    }

    fn run(subject: &str, first: u64, count: u16) -> Content {
        let what = ContentKind::Run { count };
        Content { subject: subject.parse().unwrap(), seq: Some(seq(first)), chain: None, event: false, what }
    }

    fn message(subject: &str, count: u64) -> (Seq, Message) {
        (seq(count), Message::new(subject.parse().unwrap(), count.to_string().into_bytes()))
    }

    fn shown(items: Vec<Item>) -> Vec<String> {
        let show = |item: Item| match item {
            Item::Gone(gone) => format!("gone {} {:?} {}", gone.subject, gone.place.map(|p| p.seq.count()), gone.count),
            Item::Fetched(fetched) => format!("{} {}", fetched.place.seq.count(), fetched.messages.len()),
            other => format!("{other:?}"),
        };
        items.into_iter().map(show).collect()
    }

    #[test]
    fn what_the_history_still_has_is_handed_on_in_its_place_and_the_rest_is_lost() {
        let contents = vec![run("a", 3, 5), run("not.wanted", 9, 1), run("b", 1, 2)];
        let mut rebuild = Rebuild::new(Instant::ZERO, 7, contents, |subject| subject.as_str() != "not.wanted");
        assert_eq!((rebuild.before(), rebuild.messages(), rebuild.is_waiting()), (7, 8, true));
        let mut rebuilds = Rebuilds::default();
        let mut asked = Vec::new();
        rebuild.for_each_wanted(|subject, first, last| asked.push((subject.clone(), first, last)));
        rebuilds.insert(Dseq(4), rebuild.clone());
        assert_eq!(asked.len(), 2);
        let range = |at: usize| (&asked[at].0, asked[at].1, asked[at].2);
        let strange = [message("b", 4), message("a", 1), message("a", 8)];
        let got: Vec<_> = [message("a", 4), message("a", 5), message("a", 7)].into_iter().chain(strange).collect();
        assert!(!rebuilds.on_fetched(Dseq(4), range(0), got));
        assert!(!rebuilds.on_fetched(Dseq(5), range(1), vec![]));
        assert!(rebuilds.on_fetched(Dseq(4), range(1), vec![message("b", 1), message("b", 2)]));
        rebuild = rebuilds.remove(Dseq(4)).unwrap();
        let items = rebuild.into_items(Dseq(4), Instant::ZERO, |_| false);
        assert_eq!(shown(items), ["gone a Some(3) 1", "4 2", "gone a Some(6) 1", "7 1", "1 2"]);
    }

    #[test]
    fn what_is_given_up_is_lost_whole_and_a_large_message_is_told_once() {
        let head = Content { what: ContentKind::Part { index: 0, total: 9000 }, ..run("big", 2, 1) };
        let part = Content { what: ContentKind::Part { index: 3, total: 9000 }, ..run("big", 1, 1) };
        let mut rebuild = Rebuild::new(Instant::ZERO, 0, vec![part, run("a", 1, 4), head], |_| true);
        assert_eq!(rebuild.messages(), 5);
        rebuild.give_up(Reason::Deadline);
        assert!(!rebuild.is_waiting());
        let told = rebuild.clone().into_items(Dseq(4), Instant::ZERO, |_| true);
        assert_eq!(shown(told), ["gone a Some(1) 4"]);
        assert_eq!(
            shown(rebuild.into_items(Dseq(4), Instant::ZERO, |_| false)),
            ["gone a Some(1) 4", "gone big Some(2) 1"]
        );
    }

    #[test]
    fn the_history_is_asked_again_at_growing_intervals() {
        let mut rebuilds = Rebuilds::default();
        rebuilds.insert(Dseq(1), Rebuild::new(Instant::ZERO, 0, vec![run("a", 1, 1)], |_| true));
        let mut times = Vec::new();
        for _ in 0..6 {
            let at = rebuilds.ask_deadline().unwrap();
            rebuilds.ask_due(at, |_, _, _, _| times.push(at.since(Instant::ZERO).as_millis()));
        }
        assert_eq!(times, [40, 120, 280, 600, 1240, 1880]);
    }
}
