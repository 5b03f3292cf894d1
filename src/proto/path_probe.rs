//! Search for the largest datagram that arrives at a receiver (wire.md W101). RFC 8899 names the method packetization
//! layer path MTU discovery.
//!
//! Datagrams that are requested again after they were resent make the path to their receiver suspect. The publisher
//! then sends heartbeats to that receiver alone, padded to the size of these datagrams and to smaller ones. The
//! receiver echoes the token of each heartbeat that arrives. Only a size of which no heartbeat arrives, while nearly all
//! heartbeats of each smaller size do, is too large: random loss, bursts, a dead path and a slow receiver affect all.

use crate::message::Epoch;
use crate::rng::Rng;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Sizes of datagrams to try, in bytes of UDP payload: the smallest one that can be configured, and usual MTUs without
/// headers and with some room for tunnels.
const DATAGRAM_SIZES: [usize; 6] = [576, 1000, 1200, 1400, 4000, 8000];

/// Number of repeated resends within [`SUSPICION_TIME`] that make a path suspect.
const SUSPICION_REPEATS: u32 = 8;
const SUSPICION_TIME: Duration = Duration::from_secs(5);

/// Minimum interval between two heartbeats of one search. A receiver echoes tokens at most every 4 ms.
const PROBE_INTERVAL: Duration = Duration::from_millis(8);
/// Time to wait for an echo before the next heartbeat. A busy receiver that reads two at once echoes only one of them.
const ECHO_TIME: Duration = Duration::from_millis(50);
/// Number of heartbeats of each size.
const ROUNDS: usize = 8;
/// Minimum number of them that arrive if the size is not too large. If half of the echoes fail by chance, one search in
/// a million finds that 1472 bytes are too large.
const ANSWERS_MIN: u32 = 6;
/// Time to wait for late echoes at the end.
const LATE_ECHO_TIME: Duration = Duration::from_millis(100);
/// Maximum number of searches in a row if no result is clear.
const ATTEMPTS_MAX: u32 = 3;
/// Minimum time from a search without a finding to the next one for the same receiver.
const REST_TIME: Duration = Duration::from_secs(10);
/// Maximum number of searches at a time.
const SEARCHES_MAX: usize = 4;

/// Heartbeat to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathProbe {
    /// Its receiver.
    pub to: Epoch,
    /// Token that the receiver echoes.
    pub token: u64,
    /// Size of the datagram in bytes.
    pub bytes: usize,
}

/// Sizes between which the largest datagram lies that arrives at a receiver, in bytes of UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSizes {
    /// Largest tried size that arrives.
    pub arriving: usize,
    /// Smallest tried size that does not arrive.
    pub failing: usize,
}

/// Search for the largest datagram that arrives at one receiver.
#[derive(Clone, Debug)]
struct PathSearch {
    /// The size of the suspect datagrams, then all smaller ones to try in ascending order.
    sizes: Vec<usize>,
    /// Number of echoes of each size.
    answers: Vec<u32>,
    /// Tokens of the heartbeats so far, which have the sizes in turn; 0 if it was echoed.
    tokens: Vec<u64>,
    /// Time of the last heartbeat.
    sent_at: Instant,
    /// Time of the next heartbeat, or of the end.
    next: Instant,
    /// Number of searches in a row, with this one.
    attempts: u32,
}

impl PathSearch {
    fn new(now: Instant, suspect_bytes: usize) -> PathSearch {
        let smaller = DATAGRAM_SIZES.into_iter().filter(|bytes| *bytes < suspect_bytes);
        let sizes: Vec<usize> = [suspect_bytes].into_iter().chain(smaller).collect();
        let answers = vec![0; sizes.len()];
        PathSearch { sizes, answers, tokens: Vec::new(), sent_at: now, next: now, attempts: 1 }
    }

    /// Returns another search of the same sizes after one without a clear result; `None` after too many.
    fn repeated(&self, now: Instant) -> Option<PathSearch> {
        let attempts = self.attempts + 1;
        (attempts <= ATTEMPTS_MAX).then(|| PathSearch { attempts, ..PathSearch::new(now, self.sizes[0]) })
    }

    /// Returns whether all heartbeats have left.
    fn is_complete(&self) -> bool {
        self.tokens.len() == ROUNDS * self.sizes.len()
    }

    /// Returns the size of the next heartbeat, and records its token.
    fn send(&mut self, now: Instant, token: u64) -> usize {
        let bytes = self.sizes[self.tokens.len() % self.sizes.len()];
        self.tokens.push(token);
        self.sent_at = now;
        self.next = now + if self.is_complete() { LATE_ECHO_TIME } else { ECHO_TIME };
        bytes
    }

    /// Handles an echo. Returns whether it shows that the suspect size arrives.
    fn on_echo(&mut self, token: u64) -> bool {
        let Some(at) = self.tokens.iter().position(|sent| *sent == token) else { return false };
        self.tokens[at] = 0;
        let size = at % self.sizes.len();
        self.answers[size] += 1;
        if at + 1 == self.tokens.len() && !self.is_complete() {
            self.next = self.next.min(self.sent_at + PROBE_INTERVAL);
        }
        size == 0
    }

    /// Returns the result after all answers; `None` if none of the sizes stands out.
    fn result(&self) -> Option<PathSizes> {
        let largest = (1..self.sizes.len()).rev().find(|size| 0 < self.answers[*size])?;
        let do_arrive = self.answers[1..=largest].iter().all(|answers| ANSWERS_MIN <= *answers);
        let failing = self.sizes.get(largest + 1).unwrap_or(&self.sizes[0]);
        (self.answers[0] == 0 && do_arrive).then_some(PathSizes { arriving: self.sizes[largest], failing: *failing })
    }
}

/// State of the path to one receiver.
#[derive(Clone, Debug)]
enum PathState {
    /// Number of repeated resends since a time, and the size of the largest of them.
    Counting { since: Instant, repeats: u32, bytes: usize },
    /// The path is suspect.
    Searching(PathSearch),
    /// The last search has found nothing. Until that time there is no other one.
    Resting { until: Instant },
}

/// Searches for all receivers.
#[derive(Clone, Debug, Default)]
pub struct PathProbes {
    paths: BTreeMap<Epoch, PathState>,
}

impl PathProbes {
    /// Handles the resend of a datagram of `bytes` that was resent to the same receiver shortly before.
    pub fn on_repeated_resend(&mut self, now: Instant, to: Epoch, bytes: usize) {
        if bytes <= DATAGRAM_SIZES[0] {
            return;
        }
        let is_full = SEARCHES_MAX <= self.searches().count();
        let fresh = PathState::Counting { since: now, repeats: 0, bytes: 0 };
        let path = self.paths.entry(to).or_insert_with(|| fresh.clone());
        match path {
            PathState::Counting { since, .. } if SUSPICION_TIME < now.since(*since) => *path = fresh,
            PathState::Resting { until } if *until <= now => *path = fresh,
            _ => {}
        }
        if let PathState::Counting { repeats, bytes: largest, .. } = path {
            *repeats = repeats.saturating_add(1);
            *largest = bytes.max(*largest);
            if SUSPICION_REPEATS <= *repeats && !is_full {
                *path = PathState::Searching(PathSearch::new(now, *largest));
            }
        }
    }

    /// Returns the next heartbeat that is due.
    pub fn poll_probe(&mut self, now: Instant, rng: &mut Rng) -> Option<PathProbe> {
        self.paths.iter_mut().find_map(|(to, path)| match path {
            PathState::Searching(search) if search.next <= now && !search.is_complete() => {
                let token = rng.next_u64() | 1;
                Some(PathProbe { to: *to, token, bytes: search.send(now, token) })
            }
            _ => None,
        })
    }

    /// Handles a token that a receiver echoes.
    pub fn on_echo(&mut self, now: Instant, from: Epoch, token: u64) {
        if let Some(path) = self.paths.get_mut(&from)
            && let PathState::Searching(search) = path
            && search.on_echo(token)
        {
            *path = PathState::Resting { until: now + REST_TIME };
        }
    }

    /// Returns the result of a search that has ended, if it has found a size that does not arrive.
    pub fn poll_result(&mut self, now: Instant) -> Option<(Epoch, PathSizes)> {
        for (to, path) in &mut self.paths {
            if let PathState::Searching(search) = path
                && search.next <= now
                && search.is_complete()
            {
                let result = search.result();
                *path = match (result, search.repeated(now)) {
                    // Datagrams of the smaller size may be suspect at once.
                    (Some(_), _) => PathState::Counting { since: now, repeats: 0, bytes: 0 },
                    (None, Some(repeated)) => PathState::Searching(repeated),
                    (None, None) => PathState::Resting { until: now + REST_TIME },
                };
                if let Some(sizes) = result {
                    return Some((*to, sizes));
                }
            }
        }
        None
    }

    /// Returns the time of the next heartbeat, or of the next end of a search.
    pub fn deadline(&self) -> Option<Instant> {
        self.searches().map(|search| search.next).min()
    }

    /// Discards a receiver that is gone.
    pub fn remove(&mut self, receiver: Epoch) {
        self.paths.remove(&receiver);
    }

    /// Ends all searches.
    pub fn clear(&mut self) {
        self.paths.clear();
    }

    fn searches(&self) -> impl Iterator<Item = &PathSearch> {
        self.paths.values().filter_map(|path| match path {
            PathState::Searching(search) => Some(search),
            _ => None,
        })
    }

    /// Checks the limits.
    pub fn assert_invariants(&self) {
        assert!(self.searches().count() <= SEARCHES_MAX);
        assert!(self.searches().all(|search| search.tokens.len() <= ROUNDS * search.sizes.len()));
    }
}

#[cfg(test)]
mod tests;
