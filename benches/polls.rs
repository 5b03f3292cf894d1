//! Polls of a publisher's history over loopback, beside a bare UDP ping-pong in the same run: `cargo bench
//! --bench polls [-- [--json] [--secs n]]`. Takes about 15 seconds.
//!
//! - *raw*: one thread sends a datagram as large as a question of one poll and waits for one as large as its answer.
//! - *one at a time*: a question of one poll, and the wait for its answer, before the next.
//! - *many*: questions of 1,024 polls each; the figure counts polls with their answers. Driven, four of them are on
//!   their way at once; otherwise one.
//!
//! *Driven* peers are [`EmbeddedPeer`](seqcast::bus::EmbeddedPeer): the requesting thread drives its peer. With
//! *threads* ([`Bus::embed`](seqcast::bus::Bus::embed)) a question and its answer change threads in the requesting
//! program. With *attached* ([`Bus::attach`](seqcast::bus::Bus::attach)) they change processes, or threads in place
//! of processes.

use seqcast::bus::{AnswerContent, Bus, EmbeddedPeer, Options, PendingAnswer, Poll, PollAnswer, Question, Selection};
use seqcast::clock::{Clock, random_u64};
use seqcast::config::Config;
use seqcast::message::{Epoch, Message};
use seqcast::offset::PollCase;
use seqcast::subject::Subject;
use seqcast::time::Instant;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use std::{env, fs, thread};

/// Number of subjects in the history; each has two messages, so that there is always a next one.
const SUBJECTS: u32 = 10_000;
/// The payload of a message, in bytes.
const MESSAGE_BYTES: usize = 64;
/// Polls in one question of *many*.
const POLLS: usize = 1024;
/// Maximum number of pending questions if the caller drives its peer.
const IN_FLIGHT: usize = 4;
/// Timeout of everything that succeeds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of UDP payload of a question of one poll, and of its answer, by the layouts of docs/wire.md.
const RAW_BYTES: (usize, usize) = (156, 252);

type Outcome<T> = Result<T, String>;

/// Times of single polls, or the rate of many.
enum Figure {
    Times(Vec<Duration>),
    Rate(f64),
}

struct Row {
    name: &'static str,
    figure: Figure,
}

impl Row {
    /// Returns the time that this share of the polls took at most, in microseconds.
    fn micros(&self, share: f64) -> Option<f64> {
        let Figure::Times(times) = &self.figure else { return None };
        let index = (times.len() as f64 * share) as usize;
        times.get(index).map(|time| time.as_nanos() as f64 / 1000.0)
    }

    fn json(&self, raw: &Row) -> Value {
        match &self.figure {
            Figure::Rate(rate) => json!({ "name": self.name, "polls_per_s": rate }),
            Figure::Times(times) => json!({
                "name": self.name,
                "polls": times.len(),
                "p50_us": self.micros(0.5),
                "p99_us": self.micros(0.99),
                "p50_to_raw": self.micros(0.5).zip(raw.micros(0.5)).map(|(own, raw)| own / raw),
            }),
        }
    }

    fn line(&self, raw: &Row) -> String {
        match (&self.figure, self.micros(0.5), self.micros(0.99), raw.micros(0.5)) {
            (Figure::Times(_), Some(p50), Some(p99), Some(raw)) => {
                format!("{:<24} | {p50:>9.1} | {p99:>9.1} | {:>6.2} |", self.name, p50 / raw)
            }
            (Figure::Rate(rate), ..) => format!("{:<24} | {:>9} | {:>9} | {:>6} | {rate:>11.0}", self.name, "", "", ""),
            _ => format!("{:<24} | no poll was answered", self.name),
        }
    }
}

fn now() -> Instant {
    Clock::now().instant
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Returns the configurations of a publisher and a peer that polls, alone in a group of their own.
fn configs() -> Outcome<[Config; 2]> {
    let bits = random_u64().to_be_bytes();
    let config = |name: &str| -> Outcome<Config> {
        let mut config = Config::default();
        config.name = name.parse().map_err(text)?;
        config.group = [239, 255, bits[0], bits[1].max(1)].into();
        config.port = 20_000 + u16::from_be_bytes([bits[2], bits[3]]) % 10_000;
        config.interface = "lo".parse().map_err(text)?;
        Ok(config)
    };
    Ok([config("bench.pub")?, config("bench.sub")?])
}

/// Runs `each` repeatedly and measures its time.
fn timed(span: Duration, mut each: impl FnMut() -> Outcome<()>) -> Outcome<Figure> {
    (0..1000).try_for_each(|_| each())?;
    let (until, mut times) = (now() + span, Vec::new());
    while now() < until {
        let start = now();
        each()?;
        times.push(now().since(start));
    }
    times.sort_unstable();
    Ok(Figure::Times(times))
}

fn raw(span: Duration) -> Outcome<Figure> {
    let socket = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(text);
    let (requester, answerer) = (socket()?, socket()?);
    requester.connect(answerer.local_addr().map_err(text)?).map_err(text)?;
    answerer.connect(requester.local_addr().map_err(text)?).map_err(text)?;
    thread::scope(|scope| {
        let answering = scope.spawn(move || -> Outcome<()> {
            let mut buffer = [0; 2048];
            // One byte ends it.
            while answerer.recv(&mut buffer).map_err(text)? != 1 {
                answerer.send(&buffer[..RAW_BYTES.1]).map_err(text)?;
            }
            Ok(())
        });
        let mut buffer = [0; 2048];
        let figure = timed(span, || {
            requester.send(&buffer[..RAW_BYTES.0]).map_err(text)?;
            requester.recv(&mut buffer).map(drop).map_err(text)
        });
        requester.send(&[0]).map_err(text)?;
        answering.join().expect("the answering thread does not panic")?;
        figure
    })
}

/// Runs a publisher in a thread of its own, with a full history, while `work` runs.
fn with_publisher<T>(config: &Config, work: impl FnOnce(Epoch) -> Outcome<T>) -> Outcome<T> {
    let mut publisher = EmbeddedPeer::open(config).map_err(text)?;
    let epoch = publisher.info().epoch;
    for index in 0..2 * SUBJECTS {
        let subject: Subject = format!("bench.poll.{}", index % SUBJECTS).parse().expect("a valid subject");
        while publisher.publish(Message::new(subject.clone(), vec![7; MESSAGE_BYTES])).is_err() {
            publisher.turn().map_err(text)?;
        }
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let driving = scope.spawn(|| -> Outcome<()> {
            while !over.load(Relaxed) {
                publisher.drive(Duration::from_millis(20)).map_err(text)?;
            }
            publisher.close().map_err(text)
        });
        let outcome = work(epoch);
        over.store(true, Relaxed);
        driving.join().expect("the publisher does not panic")?;
        outcome
    })
}

/// Operations of each kind of client.
trait HistoryClient {
    /// Requests messages. The handle yields the parts of the answer.
    fn request_history(&mut self, peer: Epoch, question: Question) -> Outcome<PendingAnswer>;
    /// Waits for the next part.
    fn part(&mut self, pending: &PendingAnswer) -> Outcome<(Vec<PollAnswer>, bool)>;
    /// Returns the maximum number of pending questions.
    fn in_flight(&self) -> usize;
}

impl HistoryClient for Bus {
    fn request_history(&mut self, peer: Epoch, question: Question) -> Outcome<PendingAnswer> {
        Bus::request_history(self, peer, question, PATIENCE).map_err(text)
    }

    fn part(&mut self, pending: &PendingAnswer) -> Outcome<(Vec<PollAnswer>, bool)> {
        let answer = pending.recv().map_err(text)?;
        Ok((polled(answer.content)?, answer.last))
    }

    fn in_flight(&self) -> usize {
        1
    }
}

impl HistoryClient for EmbeddedPeer {
    fn request_history(&mut self, peer: Epoch, question: Question) -> Outcome<PendingAnswer> {
        EmbeddedPeer::request_history(self, peer, question, PATIENCE).map_err(text)
    }

    fn part(&mut self, pending: &PendingAnswer) -> Outcome<(Vec<PollAnswer>, bool)> {
        loop {
            if let Some(answer) = pending.try_recv().map_err(text)? {
                return Ok((polled(answer.content)?, answer.last));
            }
            self.drive(Duration::from_secs(1)).map_err(text)?;
        }
    }

    fn in_flight(&self) -> usize {
        IN_FLIGHT
    }
}

fn polled(content: AnswerContent) -> Outcome<Vec<PollAnswer>> {
    match content {
        AnswerContent::Poll { answers, .. } => Ok(answers),
        other => Err(format!("no answer to polls: {other:?}")),
    }
}

/// Returns the polls for the second message of every subject.
fn polls(requester: &mut impl HistoryClient, peer: Epoch) -> Outcome<Vec<Poll>> {
    let unknown = |number: u32| Poll {
        subject: format!("bench.poll.{number}").parse().expect("a valid subject"),
        offset: 0,
        count: 1,
    };
    let mut found = Vec::new();
    let all: Vec<Poll> = (0..SUBJECTS).map(unknown).collect();
    for question in all.chunks(POLLS) {
        let pending = requester.request_history(peer, Question::Poll(question.to_vec()))?;
        loop {
            let (answers, is_last) = requester.part(&pending)?;
            found.extend(
                answers
                    .into_iter()
                    .filter_map(|answer| Some(Poll { offset: answer.span?.first, subject: answer.subject, count: 1 })),
            );
            if is_last {
                break;
            }
        }
    }
    if found.len() == all.len() { Ok(found) } else { Err(format!("{} of {SUBJECTS} subjects are kept", found.len())) }
}

/// Reads a complete answer, in which every poll must get its event.
fn take(requester: &mut impl HistoryClient, pending: &PendingAnswer, count: usize) -> Outcome<()> {
    let mut taken = 0;
    loop {
        let (answers, is_last) = requester.part(pending)?;
        if answers.iter().any(|answer| answer.case != PollCase::Successor || answer.events.len() != 1) {
            return Err("an answer without its event".to_owned());
        }
        taken += answers.len();
        if is_last {
            return if taken == count { Ok(()) } else { Err(format!("{taken} answers to {count} polls")) };
        }
    }
}

/// Polls one at a time, then many in one question.
fn measure(requester: &mut impl HistoryClient, peer: Epoch, span: Duration) -> Outcome<[Figure; 2]> {
    let polls = polls(requester, peer)?;
    let mut next = 0;
    let times = timed(span, || {
        next = (next + 1) % polls.len();
        let pending = requester.request_history(peer, Question::Poll(vec![polls[next].clone()]))?;
        take(requester, &pending, 1)
    });
    let times = times.map_err(|error| format!("one at a time: {error}"))?;
    let (start, mut answered, mut on_their_way) = (now(), 0, VecDeque::new());
    let mut questions = polls.chunks_exact(POLLS).cycle();
    while now().since(start) < span {
        while on_their_way.len() < requester.in_flight() {
            let question = questions.next().expect("there are more subjects than polls in a question");
            on_their_way.push_back(requester.request_history(peer, Question::Poll(question.to_vec()))?);
        }
        let pending = on_their_way.pop_front().expect("one is pending");
        take(requester, &pending, POLLS).map_err(|error| format!("many, after {answered} polls: {error}"))?;
        answered += POLLS;
    }
    Ok([times, Figure::Rate(answered as f64 / now().since(start).as_secs_f64())])
}

fn driven(span: Duration) -> Outcome<[Figure; 2]> {
    let [publisher, requester] = configs()?;
    with_publisher(&publisher, |peer| {
        let mut requester = EmbeddedPeer::open(&requester).map_err(text)?;
        let deadline = now() + PATIENCE;
        while requester.show(&json!({"show": "peers"}))["rows"].as_array().is_none_or(Vec::is_empty) {
            if deadline < now() {
                return Err("the two peers did not meet".to_owned());
            }
            requester.drive(Duration::from_millis(1)).map_err(text)?;
        }
        measure(&mut requester, peer, span)
    })
}

fn meet(requester: &Bus, peer: Epoch) -> Outcome<()> {
    let deadline = now() + PATIENCE;
    let all = ">".parse().map_err(text)?;
    while requester.list_history(peer, &all, Selection { newest: Some(1), age: None }, PATIENCE).is_err() {
        if deadline < now() {
            return Err("the two peers did not meet".to_owned());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn threads(span: Duration) -> Outcome<[Figure; 2]> {
    let [publisher, requester] = configs()?;
    with_publisher(&publisher, |peer| {
        let mut requester = Bus::embed(&requester).map_err(text)?;
        meet(&requester, peer)?;
        measure(&mut requester, peer, span)
    })
}

fn attached(span: Duration) -> Outcome<[Figure; 2]> {
    let [publisher, mut requester] = configs()?;
    let directory = env::temp_dir().join(format!("seqcast-bench-{:016x}", random_u64()));
    fs::create_dir(&directory).map_err(text)?;
    requester.socket = directory.join("poll.sock");
    let outcome = with_publisher(&publisher, |peer| {
        let _daemon = Bus::embed_with(&requester, &Options { serve: true, ..Options::default() }).map_err(text)?;
        let mut client = Bus::attach(&requester.socket).map_err(text)?;
        meet(&client, peer)?;
        measure(&mut client, peer, span)
    });
    fs::remove_dir_all(&directory).map_err(text)?;
    outcome
}

fn run() -> Outcome<()> {
    let (mut is_json, mut span) = (false, Duration::from_secs(2));
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--bench" => {}
            "--json" => is_json = true,
            "--secs" => {
                let secs = args.next().and_then(|text| text.parse().ok()).filter(|secs| (1..=60).contains(secs));
                span = Duration::from_secs(secs.ok_or("--secs takes a number from 1 to 60")?);
            }
            other => return Err(format!("unknown argument {other:?}; there are --json and --secs <1..60>")),
        }
    }
    let mut rows = vec![Row { name: "raw ping-pong", figure: raw(span)? }];
    let mut add = |names: [&'static str; 2], figures: [Figure; 2]| {
        rows.extend(names.into_iter().zip(figures).map(|(name, figure)| Row { name, figure }));
    };
    add(["driven, one at a time", "driven, many"], driven(span).map_err(|error| format!("driven: {error}"))?);
    add(["threads, one at a time", "threads, many"], threads(span).map_err(|error| format!("threads: {error}"))?);
    add(["attached, one at a time", "attached, many"], attached(span).map_err(|error| format!("attached: {error}"))?);
    if is_json {
        let rows: Vec<Value> = rows.iter().map(|row| row.json(&rows[0])).collect();
        println!("{}", json!({ "message_bytes": MESSAGE_BYTES, "subjects": SUBJECTS, "polls": POLLS, "rows": rows }));
    } else {
        println!("polls of {SUBJECTS} subjects, {MESSAGE_BYTES}-byte messages, loopback, {span:?} each");
        println!("                         |    p50 µs |    p99 µs | to raw | polls/s");
        println!("-------------------------+-----------+-----------+--------+------------");
        rows.iter().for_each(|row| println!("{}", row.line(&rows[0])));
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("polls: {error}");
            ExitCode::FAILURE
        }
    }
}
