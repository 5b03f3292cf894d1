//! A reader of the cluster's stream: a consumer in the memory of one of its servers.
//!
//! The consumer ends with its server. Then the reader ends with an error, and the caller opens another one behind what
//! it has read. The ordered consumers of the client do this by themselves, but wait for a minute before, and begin at the
//! first message of the stream if they have read none.

use super::hub_time;
use crate::clock::Clock;
use crate::link::durable::StoredArrival;
use crate::subject::Pattern;
use crate::time::{Instant, WallTime};
use async_nats::datetime::DateTime;
use async_nats::jetstream::consumer::pull::{Config, Stream};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use async_nats::jetstream::context::Context;
use async_nats::jetstream::{Message, consumer};
use futures_util::StreamExt;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// First server version whose consumers accept several filter subjects.
const FILTER_SUBJECTS_VERSION: (i64, i64, i64) = (2, 10, 0);
/// Number of messages that a request asks for. Another request follows once half of them have come.
const BATCH_MESSAGES: usize = 500;
/// Interval at which the cluster sends something to a reader that gets no messages. A reader that gets nothing for twice
/// this time ends. The link counts a server that does not answer as lost earlier.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(2_500);
/// Time for which messages wait for an earlier one: a cluster that delivers them in another order is no fault.
const GAP_TIME: Duration = Duration::from_secs(1);
/// Maximum number of these messages.
const EARLY_MAX: usize = 64;
/// Time from which the cluster removes a consumer that nobody uses.
const UNUSED_TIME: Duration = Duration::from_secs(30);

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderStart {
    /// Behind the message with this stream sequence.
    Behind(u64),
    /// At the first message that the cluster has stored at this time or later.
    Since(DateTime),
}

/// A message that was read.
#[derive(Debug)]
pub(super) struct ReadMessage {
    pub(super) arrival: StoredArrival,
    pub(super) message: async_nats::Message,
}

/// Reads messages of the stream in its order, up to a gap.
pub(super) struct StreamReader {
    messages: Stream,
    /// Number of messages that were read.
    count: u64,
    /// Messages behind one that has not come.
    early: BTreeMap<u64, ReadMessage>,
    /// End of the time for which they wait.
    gap_end: Option<Instant>,
}

impl StreamReader {
    /// Returns the subjects to which a reader limits itself that wants `wanted` of a stream that has `subjects`; none if
    /// it reads everything.
    pub(super) fn filter(context: &Context, subjects: &[Pattern], wanted: &[Pattern]) -> Vec<Pattern> {
        let (major, minor, patch) = FILTER_SUBJECTS_VERSION;
        let is_possible = wanted.len() == 1 || context.client().is_server_compatible(major, minor, patch);
        if wanted == subjects || !is_possible { Vec::new() } else { wanted.to_vec() }
    }

    /// Opens a reader with a [filter](StreamReader::filter).
    ///
    /// # Errors
    /// The cluster refuses, or does not answer.
    pub(super) async fn open(
        context: &Context,
        stream: &str,
        filter: &[Pattern],
        start: ReaderStart,
    ) -> Result<StreamReader, String> {
        let mut config = Config {
            deliver_policy: match start {
                ReaderStart::Behind(sequence) => DeliverPolicy::ByStartSequence { start_sequence: sequence + 1 },
                ReaderStart::Since(start_time) => DeliverPolicy::ByStartTime { start_time },
            },
            ack_policy: AckPolicy::None,
            max_deliver: 1,
            inactive_threshold: UNUSED_TIME,
            num_replicas: 1,
            memory_storage: true,
            ..Config::default()
        };
        match filter {
            [subject] => config.filter_subject = subject.to_string(),
            subjects => config.filter_subjects = subjects.iter().map(Pattern::to_string).collect(),
        }
        let text = |error: &dyn std::error::Error| error.to_string();
        let consumer: consumer::Consumer<Config> =
            context.create_consumer_on_stream(config, stream).await.map_err(|error| text(&error))?;
        let messages = consumer.stream().max_messages_per_batch(BATCH_MESSAGES).heartbeat(HEARTBEAT_INTERVAL);
        let messages = messages.messages().await.map_err(|error| text(&error))?;
        Ok(StreamReader { messages, count: 0, early: BTreeMap::new(), gap_end: None })
    }

    /// Waits for the next message; `None` if one before it does not come, so that another reader is needed. Messages that
    /// the cluster repeats are left out. No message is lost if this is cancelled.
    ///
    /// # Errors
    /// The consumer has ended, or its server cannot be reached.
    pub(super) async fn read(&mut self) -> Result<Option<ReadMessage>, String> {
        loop {
            if let Some(message) = self.early.remove(&(self.count + 1)) {
                self.count += 1;
                self.gap_end = None;
                return Ok(Some(message));
            }
            if EARLY_MAX <= self.early.len() {
                return Ok(None);
            }
            let next = self.messages.next();
            let message = if self.early.is_empty() {
                next.await
            } else {
                let now = Clock::now().instant;
                let gap_end = *self.gap_end.get_or_insert(now + GAP_TIME);
                let Ok(message) = timeout(gap_end.since(now), next).await else { return Ok(None) };
                message
            };
            let message = message.ok_or("the reader has ended")?.map_err(|error| error.to_string())?;
            let (number, arrival) = position_of(&message)?;
            let message = ReadMessage { arrival, message: message.message };
            if number == self.count + 1 {
                self.count = number;
                self.gap_end = None;
                return Ok(Some(message));
            }
            if self.count < number {
                self.early.insert(number, message);
            }
        }
    }
}

/// Returns the consumer sequence of a message, and its arrival in the stream.
fn position_of(message: &Message) -> Result<(u64, StoredArrival), String> {
    let info = message.info().map_err(|error| error.to_string())?;
    let at = hub_time(info.published).unwrap_or(WallTime::EPOCH);
    Ok((info.consumer_sequence, StoredArrival { sequence: info.stream_sequence, at }))
}
