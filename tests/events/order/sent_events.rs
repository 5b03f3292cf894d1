//! The events that workers sent, as a file with a line for each, and the checks Q1 to Q4.

use seqcast::event::order::worker::OrderedEvent;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Returns an event as a line, which the system appends whole.
pub fn line(event: &OrderedEvent) -> String {
    let prev = event.prev.map_or(0, |prev| prev.number());
    let text = std::str::from_utf8(&event.payload).expect("pushed as text");
    format!("{}\t{}\t{prev}\t{}\t{text}\n", event.object, event.id, event.token)
}

/// Fields of an event: its prev, and its text.
type EventFields = (u64, String);

/// All sent events.
#[derive(Default)]
pub struct SentEvents {
    /// For each object its events by id, and the ids in the order of first sendings.
    objects: BTreeMap<String, (BTreeMap<u64, EventFields>, Vec<u64>)>,
    pub lines: usize,
    pub again: usize,
}

impl SentEvents {
    /// Reads the file and checks Q3 and Q4. An id belongs to one event, with one prev. No worker sends by an old
    /// token an event that was stamped after the newer one.
    pub fn read(path: &Path) -> SentEvents {
        let (mut sent, mut ids) = (SentEvents::default(), BTreeMap::new());
        let mut tokens = BTreeMap::new();
        for line in fs::read_to_string(path).expect("what was sent").lines() {
            let parts: Vec<&str> = line.split('\t').collect();
            let [object, id, prev, token, text] = parts[..] else { panic!("{line}") };
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let (id, of, token) = (number(id), (number(prev), text.to_owned()), number(token));
            let first = ids.entry(id).or_insert_with(|| (object.to_owned(), of.clone()));
            assert_eq!(*first, (object.to_owned(), of.clone()), "Q3: an id of two events, or with another prev: {id}");
            let newest = tokens.entry(object.to_owned()).or_insert(token);
            assert!(*newest <= token || id < *newest, "Q4: {line}");
            *newest = token.max(*newest);
            let (events, order) = sent.objects.entry(object.to_owned()).or_default();
            sent.lines += 1;
            if events.insert(id, of).is_some() {
                sent.again += 1;
            } else {
                order.push(id);
            }
        }
        sent
    }

    /// Checks Q1 and Q2: all events, `… 1` to `… count`, in the order of the pushes, each with the one before as its
    /// prev.
    pub fn check(&self, object: &str, count: usize) {
        let (events, order) = self.objects.get(object).expect("something was pushed");
        assert!(order.is_sorted(), "Q2: {object} in another order");
        let mut before = 0;
        for (number, (id, (prev, text))) in events.iter().enumerate() {
            assert!(text.ends_with(&format!(" {}", number + 1)), "Q2: {object} has {text} as event {}", number + 1);
            assert_eq!(*prev, before, "Q2: prev of {text} of {object}");
            before = *id;
        }
        assert_eq!(events.len(), count, "Q1: events of {object}");
    }
}
