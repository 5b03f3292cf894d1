//! The journal of events when its process is killed: every event reported as stored is there, and no id is given
//! twice. While it runs no other process gets the journal. More often than usual: `JOURNAL_CYCLES=5000 cargo test
//! --release --test main journal`.

use crate::support::TempDir;
use crate::support::wait::wait_until_some;
use seqcast::clock::Clock;
use seqcast::event::model::{EventId, Payload, Registration, ServerId};
use seqcast::event::sequencer::EventSequencer;
use seqcast::event::store::{Journal, Query, ServerQuery};
use seqcast::rng::Rng;
use seqcast::storage::journal::error::JournalOpenError;
use seqcast::storage::journal::sqlite::SqliteJournal;
use seqcast::storage::journal::writer::{AppendOp, JournalWriter};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;

/// Environment variable of the process that is killed: the journal's file.
const FILE: &str = "JOURNAL_FILE";
const CYCLES: usize = 500;
const SERVER: ServerId = ServerId(7);
const PRODUCERS: u64 = 4;

#[test]
fn acknowledged_events_survive_a_kill_with_unique_ids() {
    if let Some(file) = std::env::var_os(FILE) {
        return append_until_killed(Path::new(&file));
    }
    let cycles =
        std::env::var("JOURNAL_CYCLES").map_or(CYCLES, |text| text.parse().expect("JOURNAL_CYCLES is a number"));
    let (dir, mut rng) = (TempDir::new(), Rng::new(7));
    let file = dir.path().join("events.db");
    let mut checked = JournalCheck::default();
    for cycle in 0..cycles {
        let acknowledged = run_and_kill(&file, 1 + rng.below(60));
        checked.check(&file, &acknowledged, cycle);
    }
    assert!(cycles as u64 <= checked.acknowledged, "{} events were acknowledged", checked.acknowledged);
}

/// Starts the process, kills it when it has reported `count` events, and returns all that it has reported: ids and
/// texts.
fn run_and_kill(file: &Path, count: u64) -> Vec<(EventId, String)> {
    let name = "events::journal::acknowledged_events_survive_a_kill_with_unique_ids";
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([name, "--exact", "--nocapture"])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let (mut acknowledged, mut line) = (Vec::new(), String::new());
    let mut is_killed = false;
    // The last line may be cut off: then it does not count as reported.
    while 0 < lines.read_line(&mut line).expect("text") && line.ends_with('\n') {
        if let Some((id, text)) = line.trim_end().strip_prefix("stored ").and_then(|rest| rest.split_once(' ')) {
            acknowledged.push((id.parse().expect("an id"), text.to_owned()));
        }
        line.clear();
        if !is_killed && count <= acknowledged.len() as u64 {
            let error = SqliteJournal::open(file).expect_err("it is the child's");
            assert!(matches!(error, JournalOpenError::InUse(_)), "{error}");
            child.kill().expect("it runs");
            is_killed = true;
        }
    }
    child.wait().expect("it has ended");
    assert!(is_killed, "it ended by itself after {acknowledged:?}");
    acknowledged
}

/// Contents of the file in former checks.
#[derive(Default)]
struct JournalCheck {
    last: Option<EventId>,
    acknowledged: u64,
}

impl JournalCheck {
    /// Checks that all reported events are in the file, after the earlier ones, without gaps and repeats.
    fn check(&mut self, file: &Path, acknowledged: &[(EventId, String)], cycle: usize) {
        let mut journal = SqliteJournal::open(file).expect("a whole journal");
        let mut found = BTreeMap::new();
        loop {
            let query = Query::Server(ServerQuery { server: SERVER, after: self.last, limit: None });
            let answer = journal.query(&query).expect("readable");
            for event in answer.events {
                let (session, instance) = self.last.map_or((0, 0), |last| (last.session, last.instance));
                let id = (event.id.session, event.id.instance);
                assert!(
                    id == (session, instance + 1) || id == (session + 1, 1),
                    "cycle {cycle}: {} after {:?}",
                    event.id,
                    self.last
                );
                self.last = Some(event.id);
                let Some(Payload::Binary { type_name, .. }) = event.payload else { panic!("{} has no text", event.id) };
                found.insert(event.id, type_name.to_string());
            }
            if !answer.more_follows {
                break;
            }
        }
        for (id, text) in acknowledged {
            assert_eq!(found.get(id), Some(text), "cycle {cycle}: {id} was acknowledged");
        }
        self.acknowledged += acknowledged.len() as u64;
    }
}

/// Registers events from several threads, a few at a time, and reports the stored ones, until the process is killed.
fn append_until_killed(file: &Path) {
    // A program that another test starts at this moment has a copy of the lock until it is loaded.
    let mut journal = wait_until_some(
        || "the journal is free".to_owned(),
        || match SqliteJournal::open(file) {
            Err(JournalOpenError::InUse(_)) => None,
            opened => Some(opened.expect("a journal")),
        },
    );
    let last = journal.last_session(SERVER).expect("readable");
    let writer =
        JournalWriter::start(journal, EventSequencer::new(SERVER, last.session, last.timestamp)).expect("a thread");
    let produce = |producer: u64| {
        let writer = &writer;
        move || {
            let mut rng = Rng::new(producer);
            let (sender, receiver) = sync_channel(1024);
            for number in 0u64.. {
                let text = format!("{}-{producer}-{number}", std::process::id());
                let one = |text: &str| Registration {
                    event_type: format!("kill/{producer}").parse().expect("a type"),
                    source_timestamp: None,
                    payload: Some(Payload::Binary { type_name: text.into(), bytes: vec![0; 256].into() }),
                };
                let requested: Vec<_> = (0..1 + rng.below(3)).map(|part| one(&format!("{text}-{part}"))).collect();
                let append = AppendOp::Register { registrations: requested, now: Clock::now().wall.into() };
                let sender = sender.clone();
                writer
                    .append(append, Box::new(move |done| sender.send(done).expect("it waits")))
                    .expect("there is room");
                let events = receiver.recv().expect("an answer").expect("it is stored");
                let mut lines = String::new();
                for event in events {
                    let Some(Payload::Binary { type_name, .. }) = event.payload else { unreachable!("as registered") };
                    lines.push_str(&format!("stored {} {type_name}\n", event.id));
                }
                let mut out = std::io::stdout().lock();
                if out.write_all(lines.as_bytes()).and_then(|()| out.flush()).is_err() {
                    // The reader of the output is gone.
                    return;
                }
            }
        }
    };
    thread::scope(|scope| (0..PRODUCERS).for_each(|producer| drop(scope.spawn(produce(producer)))));
}
