//! Oracle of event streams: it compares the events that consumers read with those that producers added. Nothing may
//! be lost or doubled, and all must be in order.
//!
//! | rule | is broken by |
//! |---|---|
//! | every acknowledged event is read by every reliable consumer that wants its type | [`StreamViolation::Lost`] |
//! | an event that one consumer reads is read by all others that want it, at all peers | [`StreamViolation::Lost`] |
//! | ids rise at first readings, and a producer's events come in the order of adding | [`StreamViolation::Reordered`] |
//! | an event has one id at a peer | [`StreamViolation::Doubled`] |
//! | an event has the id that its producer got | [`StreamViolation::Mistaken`] |
//! | events repeat only after a lost connection or a refused group, and in order | [`StreamViolation::Repeated`] |
//! | an event never repeats if the peer has answered that it is accepted | [`StreamViolation::Repeated`] |
//! | no event is read that no producer added, or that the consumer does not want | [`StreamViolation::Invented`] |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Key of an event: its producer, and its number among the events of that producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub producer: usize,
    pub number: u64,
}

/// An event in the life of a consumer.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// It has a new connection.
    Connected,
    /// It has refused the last group that it read.
    Refused,
    /// It reads an event.
    Event { id: u64, key: Key },
    /// The peer has confirmed that all events up to this id are accepted.
    Accepted(u64),
}

/// A violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamViolation {
    Lost(Key),
    Reordered(Key),
    Doubled(Key),
    Mistaken { key: Key, id: u64 },
    Repeated { key: Key, id: u64 },
    Invented(Key),
}

impl fmt::Display for StreamViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, key, id) = match *self {
            StreamViolation::Lost(key) => ("never came", key, None),
            StreamViolation::Reordered(key) => ("came behind later ones", key, None),
            StreamViolation::Doubled(key) => ("came under a second id", key, None),
            StreamViolation::Mistaken { key, id } => {
                ("has the id of another event, or another id than its producer received", key, Some(id))
            }
            StreamViolation::Repeated { key, id } => ("came again, out of order", key, Some(id)),
            StreamViolation::Invented(key) => {
                ("came, and no producer added it or the consumer does not want it", key, None)
            }
        };
        write!(f, "event {} of producer {} {what}", key.number, key.producer)?;
        id.map_or(Ok(()), |id| write!(f, " (id {id})"))
    }
}

/// Events that one consumer has read, judged as far as that is possible without the others.
#[derive(Debug, Default)]
pub struct Reader {
    /// Events in order, without repetitions; ids rise.
    seen: Vec<(u64, Key)>,
    keys: BTreeSet<Key>,
    /// The last event of each producer.
    last: BTreeMap<usize, u64>,
    /// Read position in `seen`; before the end while events are repeated.
    place: usize,
    /// True if the next event may be any that came before.
    may_repeat: bool,
    accepted: u64,
}

impl Reader {
    /// Returns the last id that it has read.
    pub fn position(&self) -> u64 {
        self.seen.last().map_or(0, |(id, _)| *id)
    }

    /// Returns the number of events that it has read, without repetitions.
    pub fn count(&self) -> usize {
        self.seen.len()
    }

    /// Takes the next step.
    pub fn on(&mut self, step: Step) -> Result<(), StreamViolation> {
        match step {
            Step::Connected | Step::Refused => self.may_repeat = true,
            Step::Accepted(id) => self.accepted = self.accepted.max(id),
            Step::Event { id, key } => return self.on_event(id, key),
        }
        Ok(())
    }

    fn on_event(&mut self, id: u64, key: Key) -> Result<(), StreamViolation> {
        let may_repeat = std::mem::take(&mut self.may_repeat);
        match self.seen.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) if self.seen[at].1 != key => return Err(StreamViolation::Mistaken { key, id }),
            Ok(at) if (may_repeat || at == self.place) && self.accepted < id => {
                self.place = at + 1;
                return Ok(());
            }
            Ok(_) => return Err(StreamViolation::Repeated { key, id }),
            Err(_) => {}
        }
        if self.keys.contains(&key) {
            return Err(StreamViolation::Doubled(key));
        }
        let before = self.last.get(&key.producer);
        // Something new comes in the midst of a repetition, or before what has come.
        let is_out_of_order = !may_repeat && self.place < self.seen.len() || id < self.position();
        if is_out_of_order || before.is_some_and(|before| key.number < *before) {
            return Err(StreamViolation::Reordered(key));
        }
        self.last.insert(key.producer, key.number);
        self.keys.insert(key);
        self.seen.push((id, key));
        self.place = self.seen.len();
        Ok(())
    }
}

/// An event that a producer tried to add.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub kind: &'static str,
    /// The peer, and the id with which it has answered.
    pub acknowledged: Option<(usize, u64)>,
}

/// All attempts.
pub type Ledger = BTreeMap<Key, Attempt>;

/// A consumer: its peer, the types that it wants, and the events that it has read.
pub struct Account<'a> {
    pub peer: usize,
    pub want: Option<&'a [&'static str]>,
    pub reader: &'a Reader,
}

impl Account<'_> {
    fn wants(&self, kind: &str) -> bool {
        self.want.is_none_or(|want| want.contains(&kind))
    }
}

/// Returns the number of events that have yet to come to consumers.
pub fn missing(ledger: &Ledger, accounts: &[Account<'_>]) -> usize {
    judge(ledger, accounts).iter().filter(|(_, wrong)| matches!(wrong, StreamViolation::Lost(_))).count()
}

/// Returns all violations when everything has come to rest, each with the index of the consumer.
pub fn judge(ledger: &Ledger, accounts: &[Account<'_>]) -> Vec<(usize, StreamViolation)> {
    let mut wrongs = Vec::new();
    let mut ids: BTreeMap<(usize, u64), Key> = BTreeMap::new();
    let mut events: BTreeMap<(usize, Key), u64> = BTreeMap::new();
    for (key, attempt) in ledger {
        if let Some((peer, id)) = attempt.acknowledged {
            ids.insert((peer, id), *key);
            events.insert((peer, *key), id);
        }
    }
    let mut missing: BTreeSet<Key> = events.keys().map(|(_, key)| *key).collect();
    for (place, account) in accounts.iter().enumerate() {
        for (id, key) in &account.reader.seen {
            if !ledger.get(key).is_some_and(|attempt| account.wants(attempt.kind)) {
                wrongs.push((place, StreamViolation::Invented(*key)));
                continue;
            }
            let is_right = *ids.entry((account.peer, *id)).or_insert(*key) == *key
                && *events.entry((account.peer, *key)).or_insert(*id) == *id;
            if !is_right {
                wrongs.push((place, StreamViolation::Mistaken { key: *key, id: *id }));
            }
            missing.insert(*key);
        }
    }
    for (place, account) in accounts.iter().enumerate() {
        let lost = missing.iter().filter(|key| account.wants(ledger[*key].kind) && !account.reader.keys.contains(key));
        wrongs.extend(lost.map(|key| (place, StreamViolation::Lost(*key))));
    }
    wrongs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the step of reading event `number` of the only producer; its id is ten times that.
    fn event(number: u64) -> Step {
        Step::Event { id: 10 * number, key: key(number) }
    }

    fn key(number: u64) -> Key {
        Key { producer: 0, number }
    }

    fn read(steps: &[Step]) -> Result<Reader, StreamViolation> {
        let mut reader = Reader::default();
        steps.iter().try_for_each(|step| reader.on(*step)).map(|()| reader)
    }

    fn check(steps: &[Step], expected: Result<usize, StreamViolation>) {
        assert_eq!(read(steps).map(|reader| reader.count()), expected, "{steps:?}");
    }

    #[test]
    fn repeats_in_order_are_good() {
        use Step::{Accepted, Connected, Refused};
        check(&[Connected, event(1), event(2), event(5)], Ok(3));
        check(&[event(1), event(2), Connected, event(1), event(2), event(3)], Ok(3));
        check(&[event(1), event(2), Connected, event(2), Connected, event(1), event(2), event(3)], Ok(3));
        check(&[event(1), event(2), Refused, event(1), event(2), event(3)], Ok(3));
        check(&[event(1), Accepted(10), event(2), Connected, event(2), event(3)], Ok(3));
        check(&[event(1), event(2), Connected, Connected, event(3)], Ok(3));
    }

    #[test]
    fn disorder_is_noticed() {
        use Step::{Accepted, Connected};
        let repeated = |number| Err(StreamViolation::Repeated { key: key(number), id: 10 * number });
        check(&[event(1), event(3), event(2)], Err(StreamViolation::Reordered(key(2))));
        check(&[event(1), event(3), Connected, event(2)], Err(StreamViolation::Reordered(key(2))));
        check(&[event(1), event(2), event(2)], repeated(2));
        check(&[event(1), event(2), event(1)], repeated(1));
        check(&[event(1), Accepted(10), Connected, event(1)], repeated(1));
        // It comes again, but not all of it.
        check(&[event(1), event(2), event(3), Connected, event(1), event(3)], repeated(3));
        check(&[event(1), event(2), Connected, event(1), event(3)], Err(StreamViolation::Reordered(key(3))));
        let second = Step::Event { id: 30, key: key(1) };
        check(&[event(1), event(2), second], Err(StreamViolation::Doubled(key(1))));
        check(&[event(1), event(2), Connected, second], Err(StreamViolation::Doubled(key(1))));
        let other = Step::Event { id: 10, key: key(2) };
        check(&[event(1), Connected, other], Err(StreamViolation::Mistaken { key: key(2), id: 10 }));
        // The ids rise, the events of the producer do not.
        check(&[event(2), Step::Event { id: 30, key: key(1) }], Err(StreamViolation::Reordered(key(1))));
    }

    /// Returns the attempts: events 1 to 4 were added at peer 0, 2 is of another type, 4 was not acknowledged.
    fn ledger() -> Ledger {
        let attempt = |number: u64| {
            let kind = if number == 2 { "B" } else { "A" };
            (key(number), Attempt { kind, acknowledged: (number != 4).then_some((0, 10 * number)) })
        };
        (1..=4).map(attempt).collect()
    }

    /// A consumer at a peer, the types that it wants, and its steps.
    struct Story<'a>(usize, Option<&'a [&'static str]>, &'a [Step]);

    fn judged(stories: &[Story<'_>]) -> Vec<(usize, StreamViolation)> {
        let readers: Vec<Reader> = stories.iter().map(|story| read(story.2).expect("in order")).collect();
        let of = stories.iter().zip(&readers);
        let accounts: Vec<Account<'_>> =
            of.map(|(Story(peer, want, _), reader)| Account { peer: *peer, want: *want, reader }).collect();
        judge(&ledger(), &accounts)
    }

    #[test]
    fn events_read_by_all_are_good() {
        let (all, some) = ([event(1), event(2), event(3)], [event(1), event(3)]);
        assert_eq!(judged(&[Story(0, None, &all), Story(0, Some(&["A"]), &some)]), []);
        // At another peer it has other ids, and may have another order relative to other producers.
        let there = [1, 2, 3].map(|number| Step::Event { id: number, key: key(number) });
        assert_eq!(judged(&[Story(0, None, &all), Story(1, None, &there)]), []);
        // An event that is not acknowledged may exist, for all consumers or for none.
        let more = [event(1), event(2), event(3), event(4)];
        assert_eq!(judged(&[Story(0, None, &more), Story(0, Some(&["B"]), &[event(2)])]), []);
        assert_eq!(judged(&[Story(0, None, &more), Story(0, None, &all)]), [(1, StreamViolation::Lost(key(4)))]);
    }

    #[test]
    fn lost_invented_or_changed_events_are_noticed() {
        let all = [event(1), event(2), event(3)];
        assert_eq!(judged(&[Story(0, None, &[event(1), event(3)])]), [(0, StreamViolation::Lost(key(2)))]);
        assert_eq!(
            judged(&[Story(0, None, &all), Story(0, Some(&["A"]), &all[..1])]),
            [(1, StreamViolation::Lost(key(3)))]
        );
        assert_eq!(judged(&[Story(0, None, &all), Story(1, None, &all[..2])]), [(1, StreamViolation::Lost(key(3)))]);
        let more = [all[0], all[1], all[2], event(9)];
        assert_eq!(judged(&[Story(0, None, &more)]), [(0, StreamViolation::Invented(key(9)))]);
        let some = [event(1), event(2), event(3)];
        assert_eq!(judged(&[Story(0, Some(&["A"]), &some)]), [(0, StreamViolation::Invented(key(2)))]);
        let there = |id: u64, number: u64| Step::Event { id, key: key(number) };
        let mistaken = |number: u64, id: u64| StreamViolation::Mistaken { key: key(number), id };
        assert_eq!(judged(&[Story(0, None, &[there(9, 1), event(2), event(3)])]), [(0, mistaken(1, 9))]);
        let (one, other) = ([there(1, 1), there(2, 2), there(3, 3)], [there(1, 1), there(2, 2), there(4, 3)]);
        assert_eq!(judged(&[Story(1, None, &one), Story(1, None, &other)]), [(1, mistaken(3, 4))]);
    }
}
