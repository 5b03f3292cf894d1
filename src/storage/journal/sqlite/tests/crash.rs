//! Simulated crashes of the host. A journal appends and removes events while all its file operations are recorded.
//! From the record the test builds images that a disk could hold at any moment. Synchronized data is there; of the
//! data written since, any sectors are, in any order. Of the files created and deleted since, the first few are. More
//! images than usual: `CRASH_IMAGES=100000 cargo test --release --lib crash`.

use super::vfs::{Op, Watch};
use super::{Dir, at, draw_retention, registration};
use crate::event::model::ServerId;
use crate::event::sequencer::EventSequencer;
use crate::event::store::memory::MemoryJournal;
use crate::event::store::{Journal, Query, QueryPage, Series, SeriesOrder, ServerQuery};
use crate::rng::Rng;
use crate::storage::journal::sqlite::SqliteJournal;
use std::collections::BTreeMap;
use std::fs;

/// Number of images. If syncs are missing, at least one image in twenty shows it (`missing_sync_is_detected`).
const IMAGES: usize = 500;
const IMAGES_OF_A_RUN: usize = 25;
/// Size of a write that a disk does atomically, in bytes.
const SECTOR: usize = 512;

#[test]
fn acknowledged_events_survive_a_crash_of_the_host() {
    let images = std::env::var("CRASH_IMAGES").map_or(IMAGES, |text| text.parse().expect("a number"));
    let mut beyond = 0;
    for seed in 0..images.div_ceil(IMAGES_OF_A_RUN) as u64 {
        let mut run = Run::new(seed, "FULL");
        for image in 0..IMAGES_OF_A_RUN {
            match run.check(true) {
                Ok(is_beyond) => beyond += u32::from(is_beyond),
                Err(why) => panic!("run {seed}, image {image}: {why}"),
            }
        }
    }
    // Some images contain operations that were requested and not yet acknowledged.
    assert!(0 < beyond);
}

#[test]
fn missing_sync_is_detected() {
    for (synchronous, is_honest) in [("FULL", false), ("NORMAL", true), ("OFF", true)] {
        let mut failures = 0;
        for seed in 0..4 {
            let mut run = Run::new(seed, synchronous);
            failures += (0..50).filter(|_| run.check(is_honest).is_err()).count();
        }
        assert!(10 < failures, "synchronous={synchronous}, {is_honest}: {failures} of 200 images showed it");
    }
}

/// Record of a journal's operations, and its expected states.
struct Run {
    rng: Rng,
    ops: Vec<Op>,
    /// Content of the journal after each append and each removal.
    states: Vec<MemoryJournal>,
    /// Number of file operations at which each state was requested, and at which it was acknowledged.
    requested_at: Vec<usize>,
    acknowledged_at: Vec<usize>,
    /// Expected answers of the states.
    answers: BTreeMap<usize, Vec<QueryPage>>,
    dir: Dir,
}

impl Run {
    /// Opens a journal several times, appends to it and removes from it.
    fn new(seed: u64, synchronous: &str) -> Run {
        let (dir, mut rng) = (Dir::in_memory(), Rng::new(seed));
        let watch = Watch::new(&dir.0);
        let mut servers = [1, 2].map(|id| EventSequencer::new(ServerId(id), 0, at(-3)));
        let (mut states, mut requested_at, mut acknowledged_at) = (vec![MemoryJournal::default()], vec![0], vec![0]);
        let (mut now, retention) = (0, draw_retention(&mut rng));
        for _ in 0..1 + rng.below(4) {
            let mut journal = SqliteJournal::open(&dir.file()).unwrap();
            journal.tail_events = 1 << rng.below(8);
            journal.connection.pragma_update(None, "synchronous", synchronous).unwrap();
            journal.connection.pragma_update(None, "wal_autocheckpoint", 1 << rng.below(7)).unwrap();
            for _ in 0..rng.below(25) {
                requested_at.push(watch.count());
                let mut state = states.last().unwrap().clone();
                if rng.chance(0.2) {
                    let budget = rng.below(20) as usize;
                    let removed = state.trim(&retention, at(now), budget).unwrap();
                    assert_eq!(journal.trim(&retention, at(now), budget), Ok(removed));
                } else {
                    let mut events = Vec::new();
                    for _ in 0..1 + rng.below(6) {
                        now += 1;
                        let requested = (0..1 + rng.below(4)).map(|_| registration(&mut rng)).collect();
                        events.extend(servers[rng.below(2) as usize].register(at(now), requested));
                    }
                    state.append(&events).unwrap();
                    journal.append(&events).unwrap();
                }
                states.push(state);
                acknowledged_at.push(watch.count());
            }
        }
        let ops = watch.end();
        Run { rng, ops, states, requested_at, acknowledged_at, answers: BTreeMap::new(), dir: Dir::in_memory() }
    }

    /// Builds an image and checks it. Returns whether it holds more than was acknowledged, or the fault.
    fn check(&mut self, is_honest: bool) -> Result<bool, String> {
        let crash = self.rng.below(self.ops.len() as u64 + 1) as usize;
        for entry in fs::read_dir(&self.dir.0).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        for (name, content) in image(&self.ops[..crash], is_honest, &mut self.rng) {
            fs::write(self.dir.0.join(name), content).unwrap();
        }
        let last = |list: &[usize]| list.iter().rposition(|ops| *ops <= crash).expect("the first is 0");
        let (acknowledged, requested) = (last(&self.acknowledged_at), last(&self.requested_at));
        let mut journal = SqliteJournal::open(&self.dir.file()).map_err(|error| error.to_string())?;
        // Appends and removals are atomic: the acknowledged state, or one that was requested since.
        let states: Vec<usize> = (acknowledged..=requested).collect();
        let mut wrong = String::new();
        for state in states {
            match self.check_state(&mut journal, state) {
                Ok(()) => return self.check_continues(&mut journal, state).map(|()| acknowledged < state),
                Err(why) => wrong = why,
            }
        }
        Err(format!("{acknowledged} of {requested} were acknowledged: {wrong}"))
    }

    /// Checks that the journal answers as it did in that state.
    fn check_state(&mut self, journal: &mut SqliteJournal, state: usize) -> Result<(), String> {
        let queries = [
            Query::Latest(None),
            Query::Series(Series::default()),
            Query::Series(Series { by: SeriesOrder::SourceTime, is_descending: true, ..Series::default() }),
            Query::Series(Series { types: Some(vec!["a/*".parse().unwrap()]), ..Series::default() }),
            Query::Server(ServerQuery { server: ServerId(1), after: None, limit: None }),
        ];
        let twin = &mut self.states[state];
        let expected = self
            .answers
            .entry(state)
            .or_insert_with(|| queries.iter().map(|query| twin.query(query).unwrap()).collect());
        for (query, expected) in queries.iter().zip(expected) {
            if journal.query(query).as_ref() != Ok(expected) {
                return Err(format!("state {state}: {query:?}"));
            }
        }
        Ok(())
    }

    /// Checks that the file is intact, and that new ids continue after the last one.
    fn check_continues(&mut self, journal: &mut SqliteJournal, state: usize) -> Result<(), String> {
        let integrity: String =
            journal.connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).map_err(|e| e.to_string())?;
        if integrity != "ok" {
            return Err(integrity);
        }
        for server in [1, 2].map(ServerId) {
            let expected = self.states[state].last_session(server).unwrap();
            let found = journal.last_session(server).map_err(|error| error.to_string())?;
            if found != expected {
                return Err(format!("{found:?}, not {expected:?}"));
            }
            let mut sequencer = EventSequencer::new(server, found.session, found.timestamp);
            let next = sequencer.register(found.timestamp, vec![registration(&mut self.rng)]);
            if journal.append(&next) != Ok(1) {
                return Err(format!("{} cannot be appended", next[0].id));
            }
        }
        Ok(())
    }
}

/// Builds the files that a disk could hold after these operations, by name. A dishonest disk ignores syncs.
fn image(ops: &[Op], is_honest: bool, rng: &mut Rng) -> BTreeMap<String, Vec<u8>> {
    let mut files: BTreeMap<usize, (Vec<u8>, Vec<&Op>)> = BTreeMap::new();
    let (mut names, mut names_since) = (BTreeMap::new(), Vec::new());
    for op in ops {
        match op {
            Op::Create { .. } | Op::Delete { .. } => names_since.push(op),
            Op::Write { file, .. } | Op::Truncate { file, .. } => files.entry(*file).or_default().1.push(op),
            Op::Sync { file } if is_honest => {
                let (content, since) = files.entry(*file).or_default();
                since.drain(..).for_each(|op| apply(content, op));
            }
            Op::SyncNames if is_honest => names_since.drain(..).for_each(|op| rename(&mut names, op)),
            Op::Sync { .. } | Op::SyncNames => (),
        }
    }
    let kept = rng.below(names_since.len() as u64 + 1) as usize;
    names_since.into_iter().take(kept).for_each(|op| rename(&mut names, op));
    // Share of the unsynchronized parts that are on the disk: often none or all. Otherwise each part is drawn at
    // random.
    let share = [0.0, 0.1, 0.5, 0.9, 1.0][rng.below(5) as usize];
    let is_ordered = rng.chance(0.5);
    let mut content = |file| {
        let (mut content, since) = files.get(file).cloned().unwrap_or_default();
        let mut parts: Vec<Op> = since.into_iter().flat_map(sectors).collect();
        if !is_ordered {
            (1..parts.len()).for_each(|at| parts.swap(at, rng.below(at as u64 + 1) as usize));
        }
        parts.iter().filter(|_| rng.chance(share)).for_each(|op| apply(&mut content, op));
        content
    };
    names.iter().map(|(name, file)| (name.clone(), content(file))).collect()
}

fn rename(names: &mut BTreeMap<String, usize>, op: &Op) {
    match op {
        Op::Create { name, file } => drop(names.insert(name.clone(), *file)),
        Op::Delete { name } => drop(names.remove(name)),
        other => unreachable!("{other:?} is no matter of names"),
    }
}

fn apply(content: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write { at, bytes, .. } => {
            content.resize(content.len().max(at + bytes.len()), 0);
            content[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        Op::Truncate { length, .. } => content.resize(*length, 0),
        other => unreachable!("{other:?} is no matter of content"),
    }
}

/// Splits the operation into parts that a disk does atomically.
fn sectors(op: &Op) -> Vec<Op> {
    let Op::Write { file, at, bytes } = op else { return vec![op.clone()] };
    let (mut parts, mut from) = (Vec::new(), 0);
    while from < bytes.len() {
        let to = bytes.len().min(from + SECTOR - (at + from) % SECTOR);
        parts.push(Op::Write { file: *file, at: at + from, bytes: bytes[from..to].to_vec() });
        from = to;
    }
    parts
}
