//! The measurement of a round trip: one message after the other is sent, and its echo awaited.

use super::job::{PingJob, PingReport};
use super::latencies::Latencies;
use super::meter::warm_up;
use super::payload::fill;
use crate::clock::Clock;
use crate::terminal::exit::CommandFailure;
use crate::time::Instant;

/// Number of polls without a message before a program offers its processor to others.
const POLLS_PER_YIELD: u32 = 4;

/// A path to a program that sends every message back.
pub trait EchoPath {
    /// Sends a message.
    ///
    /// # Errors
    /// The path is broken.
    fn send(&mut self, payload: &[u8]) -> Result<(), CommandFailure>;

    /// Waits until message `number`, sent at `sent_at`, is back. Returns false if it is not back in time.
    ///
    /// # Errors
    /// The path is broken.
    fn await_echo(&mut self, number: u64, sent_at: Instant) -> Result<bool, CommandFailure>;
}

/// Polls of a busy program that found no message, one after the other. There may be more busy programs and peers than
/// processors. So each offers its processor to the others after some such polls, or they would take turns by whole time
/// slices.
#[derive(Debug, Default)]
pub struct EmptyPolls(u32);

impl EmptyPolls {
    /// Records a poll, which has found something or not.
    pub fn record(&mut self, has_found: bool) {
        self.0 = if has_found { 0 } else { self.0 + 1 };
        if self.0 == POLLS_PER_YIELD {
            self.0 = 0;
            std::thread::yield_now();
        }
    }
}

/// Sends messages for the duration of the job. A latency is half of a round trip; those of the warm-up do not count.
///
/// # Errors
/// The path is broken.
pub fn measure(path: &mut impl EchoPath, job: &PingJob) -> Result<PingReport, CommandFailure> {
    let (mut latencies, mut lost) = (Latencies::new(), 0);
    let mut payload = vec![0; job.bytes];
    let start = Clock::now().instant;
    let (counted, until) = (start + warm_up(job.span()), start + job.span());
    let mut sent_at = start;
    for number in 0.. {
        if until <= sent_at {
            break;
        }
        fill(&mut payload, number, None);
        sent_at = Clock::now().instant;
        path.send(&payload)?;
        match path.await_echo(number, sent_at)? {
            true if counted <= sent_at => latencies.record(Clock::now().instant.since(sent_at) / 2),
            true => {}
            false => lost += 1,
        }
    }
    Ok(PingReport { latencies: latencies.quantiles(), lost })
}
