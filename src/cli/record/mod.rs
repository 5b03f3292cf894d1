//! `record`: writes messages and losses to a file.
//!
//! This thread copies notices from the subscription into a bounded queue and never waits for the disk. A second thread
//! writes them.

pub mod args;
mod file_set;
mod file_sink;
mod mcap_file;
mod notice_queue;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use serde::Serialize;

use self::args::{RecordOptions, SPLIT_BYTES_MIN};
use self::file_set::{FilePlan, FileSet, FileSummary, RecordingError};
use self::notice_queue::{NoticeQueue, NoticeReceiver, notice_queue};
use super::connect;
use super::recording::FORMAT_VERSION;
use crate::bus::{Bus, NoticeRef, RecvError, SubscribeOptions, Subscription};
use crate::clock::{Clock, random_u64};
use crate::message::{Count, DeliveryMode, Loss, LossScope};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::{Output, byte_text, json, note, pluralize};
use crate::terminal::peer;
use crate::terminal::progress::Progress;
use crate::time::Instant;

/// Interval between checks whether the user has interrupted the command, or the writer has failed.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time after which received messages are in the file, if the disk is fast enough.
const SEAL_INTERVAL: Duration = Duration::from_secs(1);

/// Reason for the end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordEnd {
    /// The number of messages of `--count` was received.
    Count,
    /// The time of `--for` is over.
    Time,
    /// The time of `--wait` is over.
    Wait,
    /// A signal came.
    Signal,
    /// The peer has ended.
    Peer,
    /// The file could not be written.
    File,
}

/// Losses on the bus and drops of the subscription.
#[derive(Clone, Copy, Debug, Default)]
struct LossTotals {
    reports: u64,
    lost_min: u64,
    lost_max: u64,
    dropped: u64,
}

/// The summary in JSON.
#[derive(Serialize)]
struct RecordJson<'a> {
    messages: u64,
    payload_bytes: u64,
    file_bytes: u64,
    files: &'a [PathBuf],
    losses: u64,
    lost_min: u64,
    lost_max: u64,
    dropped: u64,
    unwritten: u64,
    seconds: f64,
}

/// Runs `record`.
///
/// # Errors
/// The file exists or cannot be written; the peer cannot be reached, or ends.
pub fn run(options: &RecordOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    check(options)?;
    let bus = connect::bus(&options.bus, "record")?;
    let interrupt = Interrupt::watch()?;
    let mode = match (options.live, options.repair) {
        (true, _) => Some(DeliveryMode::Live),
        (_, true) => Some(DeliveryMode::Repair),
        _ => None,
    };
    let subscription = bus
        .subscribe_with(options.patterns.iter().cloned(), &SubscribeOptions { mode, ..SubscribeOptions::default() })
        .map_err(|error| CommandFailure::new(Exit::Failed, error))?;
    let set = FileSet::create(plan(options, &bus)).map_err(|error| failure(&error))?;
    let path = set.path().to_owned();
    let names: Vec<&str> = options.patterns.iter().map(|pattern| pattern.as_str()).collect();
    note(format_args!("recording {} to {}", names.join(" "), path.display()));
    let (queue, receiver) = notice_queue(usize::try_from(options.max_memory).unwrap_or(usize::MAX));
    let file_bytes = Arc::new(AtomicU64::new(0));
    let writer = thread::Builder::new().name("record".into()).spawn({
        let file_bytes = file_bytes.clone();
        move || write(set, &receiver, &file_bytes)
    })?;
    let start = Clock::now().instant;
    let time = options.duration.map(|span| (start + span, RecordEnd::Time));
    let deadline = time.or(options.wait.map(|span| (start + span, RecordEnd::Wait)));
    let mut intake = RecordIntake { queue, totals: LossTotals::default(), count_max: options.count };
    let progress = Progress::new(None, start);
    let shown = ShownCount { messages: 0, at: start };
    let mut watch = RecordWatch { interrupt, deadline, progress, shown, file_bytes, last_wall: 0 };
    let end = watch.receive(&subscription, &mut intake, || writer.is_finished());
    watch.progress.clear();
    let RecordIntake { queue, totals, .. } = intake;
    let counts = queue.finish(Clock::now().wall.as_nanos());
    let summary = writer.join().expect("the writer does not panic");
    let seconds = Clock::now().instant.since(start).as_secs_f64();
    let totals = LossTotals { dropped: totals.dropped + counts.dropped, ..totals };
    let report = RecordJson {
        messages: summary.messages,
        payload_bytes: counts.payload_bytes,
        file_bytes: summary.bytes,
        files: &summary.files,
        losses: totals.reports,
        lost_min: totals.lost_min,
        lost_max: totals.lost_max,
        dropped: totals.dropped,
        unwritten: counts.messages - summary.messages,
        seconds,
    };
    print(options, &report, out)?;
    if let Some(error) = &summary.error {
        return Err(failure(error));
    }
    match end {
        RecordEnd::Count | RecordEnd::Time => Ok(Exit::Done),
        RecordEnd::Signal => Ok(if options.count.is_some() { Exit::Failed } else { Exit::Done }),
        RecordEnd::Wait => Ok(Exit::TimedOut),
        RecordEnd::Peer => Err(peer::end_failure(&bus)),
        RecordEnd::File => unreachable!("the writer ends early only with an error"),
    }
}

/// Refuses limits that contradict each other.
fn check(options: &RecordOptions) -> Result<(), CommandFailure> {
    let usage = |text: &str, fix: &str| Err(CommandFailure::new(Exit::Usage, text).fix(fix));
    match (options.split, options.disk_quota) {
        (Some(split), _) if split < SPLIT_BYTES_MIN => {
            usage("--split is too small: a file has at least 64 kb", "give a larger size, such as '100 mb'")
        }
        (Some(split), Some(quota)) if quota / 2 < split => {
            usage("--disk-quota leaves no room for a second file", "give a quota of at least twice the size of --split")
        }
        _ => Ok(()),
    }
}

fn plan(options: &RecordOptions, bus: &Bus) -> FilePlan {
    let patterns: Vec<&str> = options.patterns.iter().map(|pattern| pattern.as_str()).collect();
    let entries = [
        ("format", FORMAT_VERSION.to_owned()),
        ("patterns", patterns.join(" ")),
        ("peer", bus.info().peer.to_string()),
        ("epoch", bus.info().epoch.to_string()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    FilePlan {
        path: options.output.clone(),
        force: options.force,
        split: options.split,
        keep: options.keep.map(|keep| keep as usize),
        quota: options.disk_quota,
        encoding: options.encoding.clone(),
        metadata: BTreeMap::from(entries.map(|(key, value)| (key.to_owned(), value))),
        seed: random_u64(),
    }
}

/// Converts the reason for which a recording cannot go on.
fn failure(error: &RecordingError) -> CommandFailure {
    let failure = CommandFailure::new(Exit::Failed, error);
    match error {
        RecordingError::Exists(_) => failure.fix("give another file with -o, or replace it with --force"),
        RecordingError::Quota(_) => failure.fix("give a larger --disk-quota, or --split to remove the oldest files"),
        RecordingError::Io(_, error) if error.kind() == std::io::ErrorKind::StorageFull => {
            failure.fix("free some space, or limit the recording with --disk-quota, or --split and --keep")
        }
        RecordingError::Io(..) => failure.fix("give a file with -o that can be written"),
    }
}

/// Writes batches until the queue ends or a file cannot be written.
fn write(mut set: FileSet, receiver: &NoticeReceiver, file_bytes: &AtomicU64) -> FileSummary {
    let mut seal_at = Clock::now().instant + SEAL_INTERVAL;
    loop {
        let left = seal_at.since(Clock::now().instant);
        let written = match receiver.batches.recv_timeout(left) {
            Ok(batch) => {
                let written = batch.visit(|notice| set.write(&notice));
                receiver.release(batch.bytes());
                written
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => return set.close(None),
        };
        let now = Clock::now().instant;
        let written = match written {
            Ok(()) if seal_at <= now => {
                seal_at = now + SEAL_INTERVAL;
                set.seal()
            }
            written => written,
        };
        if let Err(error) = written {
            return set.close(Some(error));
        }
        file_bytes.store(set.bytes(), Ordering::Relaxed);
    }
}

/// The notices on their way from the subscription to the queue.
struct RecordIntake {
    queue: NoticeQueue,
    totals: LossTotals,
    count_max: Option<u64>,
}

impl RecordIntake {
    fn push(&mut self, notice: NoticeRef<'_>, log_time: u64) {
        match notice {
            NoticeRef::Message(_) if self.is_complete() => return,
            NoticeRef::Loss(loss) => self.totals.add(loss),
            NoticeRef::Dropped(count) => self.totals.dropped += count,
            NoticeRef::Message(_) | NoticeRef::Joined(_) => {}
        }
        self.queue.push(notice, log_time);
    }

    /// Returns whether the number of messages of `--count` is in the queue.
    fn is_complete(&self) -> bool {
        self.count_max.is_some_and(|count| count <= self.queue.counts().messages)
    }
}

impl LossTotals {
    fn add(&mut self, loss: &Loss) {
        self.reports += 1;
        let count = match &loss.what {
            LossScope::Messages { count, .. } => *count,
            LossScope::Inbox { messages } => Count::Exact(*messages),
            // These datagrams may contain no messages.
            LossScope::Datagrams { .. } | LossScope::Tail { .. } => Count::Exact(0),
        };
        self.lost_min = self.lost_min.saturating_add(count.min());
        self.lost_max = self.lost_max.saturating_add(count.max());
    }

    fn lost(&self) -> Count {
        Count::from_bounds(self.lost_min, self.lost_max)
    }
}

/// Number of messages when the progress was shown last; the rate counts from there.
#[derive(Clone, Copy, Debug)]
struct ShownCount {
    messages: u64,
    at: Instant,
}

/// The loop of the reading thread: when it ends, and what it shows.
struct RecordWatch {
    interrupt: Interrupt,
    /// Time at which the recording ends, and the reason.
    deadline: Option<(Instant, RecordEnd)>,
    progress: Progress,
    shown: ShownCount,
    file_bytes: Arc<AtomicU64>,
    /// Largest time so far, in nanoseconds since 1970.
    last_wall: u64,
}

impl RecordWatch {
    /// Reads the clocks. Viewers sort by wall time, so it never decreases, even if the clock is set back.
    fn read_clocks(&mut self) -> Instant {
        let now = Clock::now();
        self.last_wall = now.wall.as_nanos().max(self.last_wall);
        now.instant
    }

    /// Passes notices to the queue until the recording ends.
    fn receive(
        &mut self,
        subscription: &Subscription,
        intake: &mut RecordIntake,
        is_writer_finished: impl Fn() -> bool,
    ) -> RecordEnd {
        loop {
            let now = self.read_clocks();
            if intake.is_complete() {
                return RecordEnd::Count;
            }
            if self.interrupt.is_raised() {
                return RecordEnd::Signal;
            }
            if let Some((_, end)) = self.deadline.filter(|(deadline, _)| *deadline <= now) {
                return end;
            }
            if is_writer_finished() {
                return RecordEnd::File;
            }
            let log_time = self.last_wall;
            let drained = match subscription.drain(|notice| intake.push(notice, log_time)) {
                Ok(0) => self.wait(subscription, intake, now),
                drained => drained,
            };
            intake.queue.send();
            if drained == Err(RecvError::Closed) {
                return RecordEnd::Peer;
            }
            self.show(intake, now);
        }
    }

    /// Waits for a notice, at most until the next check.
    fn wait(
        &mut self,
        subscription: &Subscription,
        intake: &mut RecordIntake,
        now: Instant,
    ) -> Result<usize, RecvError> {
        let left = self.deadline.map_or(CHECK_INTERVAL, |(deadline, _)| deadline.since(now).min(CHECK_INTERVAL));
        match subscription.recv_timeout(left) {
            Ok(notice) => {
                self.read_clocks();
                notice.visit(|notice| intake.push(notice, self.last_wall));
                Ok(1)
            }
            Err(RecvError::Empty) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn show(&mut self, intake: &RecordIntake, now: Instant) {
        let (counts, totals) = (intake.queue.counts(), intake.totals);
        let file_bytes = self.file_bytes.load(Ordering::Relaxed);
        let shown = &mut self.shown;
        self.progress.show(now, counts.messages, || {
            let last = std::mem::replace(shown, ShownCount { messages: counts.messages, at: now });
            let rate = (counts.messages - last.messages) as f64 / now.since(last.at).as_secs_f64().max(1e-9);
            format!(
                "{}, {rate:.0}/s, {} in the file, {} lost, {} dropped",
                pluralize(counts.messages, "message"),
                byte_text(file_bytes),
                totals.lost(),
                counts.dropped + totals.dropped
            )
        });
    }
}

fn print(options: &RecordOptions, report: &RecordJson<'_>, out: &mut Output) -> std::io::Result<()> {
    if options.json {
        return out.line(json(report));
    }
    let files: Vec<String> = report.files.iter().map(|file| file.display().to_string()).collect();
    let location = match files.as_slice() {
        [file] => file.clone(),
        files => format!("{} to {} ({})", files[0], files[files.len() - 1], pluralize(files.len() as u64, "file")),
    };
    note(format_args!(
        "recorded {} ({}) in {location}: {} lost on the bus, {} dropped here",
        pluralize(report.messages, "message"),
        byte_text(report.file_bytes),
        Count::from_bounds(report.lost_min, report.lost_max),
        report.dropped
    ));
    if 0 < report.unwritten {
        note(format_args!("! {} received and not written", pluralize(report.unwritten, "message")));
    }
    Ok(())
}
