//! The publisher's side of repair: what others ask for again, and what they get (reliability.md R6, A9; 5.6).
//!
//! What is asked is kept as ranges for each requester, so that a request costs what it has bytes, not what it spans.
//! Answers are made one by one as the budget allows, the oldest first. Whether a requester may be answered at all (its
//! address is proven) is decided above, as is where an answer is sent.

mod budget;
mod log;
mod ranges;
mod recently_resent;
mod ring;
#[cfg(test)]
mod tests;

pub use ring::{Ring, RingContent, RingSettings};

use crate::message::{Dseq, Epoch};
use crate::proto::stats::counters;
use crate::time::Instant;
use crate::wire::{DATAGRAM_BYTES_MAX, Expired, Manifest, ManifestBuilder, Range, ResendRequest};
pub use budget::TokenBucket;
use budget::{BURST_BYTES, ResendBudget};
use bytes::Bytes;
use ranges::Ranges;
use recently_resent::RecentlyResent;
use std::collections::BTreeMap;
use std::time::Duration;

/// After a resend, a request for the same datagram was under way already; that of Aeron (reliability.md 1).
pub const LINGER: Duration = Duration::from_millis(10);

/// The same after a resend to the asker alone: shorter than the least time between two of its requests, 5 ms less a
/// quarter (A1), so that one that asks again gets it again.
pub const LINGER_ALONE: Duration = Duration::from_millis(3);

/// How long an answer is remembered, so that a second asker makes the next one multicast: longer than the longest
/// time between two requests for the same datagram, 640 ms (A1).
const RESENT_TIME: Duration = Duration::from_secs(1);

/// The answers that are remembered.
const RESENT_MAX: usize = 4096;

/// Ranges of one kind that are kept for all requesters together, and within that for each of them at least and at
/// most. The lowest are kept; who asked for more asks again.
const RANGES_MAX: usize = 65_536;
const RANGES_EACH_MIN: usize = 64;
const RANGES_EACH_MAX: usize = 1024;

/// Requests of one requester that are looked at: so many a second, and so many at once.
const REQUESTS_PER_SECOND: u64 = 1000;
const REQUESTS_BURST: u64 = 256;

/// What a requester may be sent: so many times what was sent live, for answers get lost like anything else.
const CREDIT_TIMES: u64 = 4;

/// A manifest may be so many bytes longer than the datagram it stands for.
const MANIFEST_BYTES_MORE: usize = 24;

// After a pause there are tokens enough for the largest answer.
const _: () = assert!((DATAGRAM_BYTES_MAX + MANIFEST_BYTES_MORE) as u64 <= BURST_BYTES);

/// Bytes of an EXPIRED datagram before its ranges, at most, and of each range.
const EXPIRED_BYTES: usize = 58;
const EXPIRED_RANGE_BYTES: usize = 16;

/// The limits of answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResendSettings {
    /// Bytes a second that answers may take even if less than four times as much is sent anyway; 0 counts as 1.
    pub rate_min: u64,
    /// The largest datagram, in bytes.
    pub datagram_bytes_max: usize,
    /// The most requesters that are known at a time; the requests of others are refused.
    pub requesters_max: usize,
    /// Bytes of the datagrams that are kept to be sent again: what one requester can miss at once.
    pub kept_bytes: u64,
}

/// Whom a resend is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResendTarget {
    /// By unicast for this one alone.
    Member(Epoch),
    /// By multicast: more than one asked.
    Group,
}

/// What a request is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResendAnswer {
    /// The datagram, byte for byte as it was sent.
    Resend {
        /// For whom.
        to: ResendTarget,
        /// Whether it is of the directed stream to the requester.
        directed: bool,
        /// Its number in the stream.
        dseq: Dseq,
        /// The datagram.
        bytes: Bytes,
    },
    /// What datagrams of the multicast stream held.
    Manifest {
        /// For whom.
        to: Epoch,
        /// The record to send.
        manifest: Manifest,
    },
    /// Nothing is known of these any more.
    Expired {
        /// For whom.
        to: Epoch,
        /// The record to send.
        expired: Expired,
    },
}

/// What became of the datagrams that a request named; in datagrams, but for `beyond_high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOutcome {
    /// To be answered, some perhaps asked for before.
    pub accepted: u64,
    /// Ranges that end with datagrams not sent yet; these are never missing.
    pub beyond_high: u64,
    /// Just answered, so the request was under way already.
    pub suppressed: u64,
    /// Beyond the limits; or all, if the request was refused.
    pub refused: u64,
}

counters! {
    /// What was asked and answered so far. All of it only rises.
    #[derive(Copy)]
    ResendCounters, "resend_":
    /// Requests received, those refused included.
    requests,
    /// Requests refused because their sender sends too many, or too many others ask.
    requests_refused,
    /// Ranges that end with datagrams not sent yet.
    beyond_high,
    /// Datagrams not resent because they just had been.
    suppressed,
    /// Datagrams named beyond the limits, not counting those of refused requests.
    over_limit,
    /// Datagrams resent to one requester.
    resent_unicast,
    /// Datagrams resent to the group.
    resent_multicast,
    /// Datagrams answered with what they held.
    manifests,
    /// Datagrams answered with word that nothing is known.
    expired,
    /// Bytes of all answers.
    bytes,
    /// Times that answers had to wait for the budget.
    waits,
}

/// The bytes that one requester may be sent: no more than it can miss, however often it asks. It grows with what is sent live.
#[derive(Clone, Copy, Debug)]
struct Credit {
    bytes: u64,
    /// All bytes that had been sent live when it last grew.
    sent: u64,
}

impl Credit {
    /// That of a requester that may miss all that was sent, and is still kept. `sent` bytes were sent live so far.
    fn new(sent: u64, most: u64) -> Credit {
        Credit { bytes: BURST_BYTES, sent: 0 }.grown(sent, most)
    }

    /// The credit after `sent` bytes were sent live altogether; `most` at the most.
    fn grown(self, sent: u64, most: u64) -> Credit {
        let more = (sent - self.sent).saturating_mul(CREDIT_TIMES);
        Credit { bytes: self.bytes.saturating_add(more).min(most), sent }
    }
}

/// Who asks, and for what.
#[derive(Debug)]
struct Requester {
    bucket: TokenBucket,
    requests: TokenBucket,
    credit: Credit,
    /// Whether it hears no multicasts, by its last request.
    is_deaf: bool,
    /// Datagrams of the directed stream to it.
    directed: Ranges,
    /// Datagrams of the multicast stream.
    datagrams: Ranges,
    /// Datagrams of the multicast stream of which only the content is wanted.
    contents: Ranges,
}

impl Requester {
    fn new(now: Instant, credit: Credit) -> Requester {
        let none = Ranges::default;
        let (bucket, requests) = (TokenBucket::full(now), TokenBucket::full(now));
        Requester { bucket, requests, credit, is_deaf: false, directed: none(), datagrams: none(), contents: none() }
    }

    /// Forgets what it wants, and says how many datagrams that were.
    fn clear(&mut self) -> u64 {
        [&mut self.directed, &mut self.datagrams, &mut self.contents].into_iter().map(|wanted| wanted.truncate(0)).sum()
    }

    /// The lowest datagram wanted. Directed streams are short and come before any.
    fn first(&self) -> Option<u64> {
        if !self.directed.is_empty() {
            return Some(0);
        }
        [self.datagrams.first(), self.contents.first()].into_iter().flatten().min()
    }

    /// A datagram was sent to where it gets it. Taken from the middle of a range, it divides it: says how many
    /// datagrams are now beyond the limit.
    fn on_resent(&mut self, stream: Option<Epoch>, dseq: Dseq) -> u64 {
        let without = |wanted: &mut Ranges| {
            wanted.remove(dseq.0);
            wanted.truncate(RANGES_EACH_MAX)
        };
        match stream {
            Some(_) => without(&mut self.directed),
            None => without(&mut self.datagrams) + without(&mut self.contents),
        }
    }
}

/// What was asked for and is still to be answered, over all streams of this peer.
#[derive(Debug)]
pub struct Resends {
    settings: ResendSettings,
    budget: ResendBudget,
    requesters: BTreeMap<Epoch, Requester>,
    recently_resent: RecentlyResent,
    /// When the next answer may be made; `None` if nothing is asked for.
    next: Option<Instant>,
    /// All bytes that were sent live.
    sent: u64,
    counters: ResendCounters,
}

impl Resends {
    /// Nothing asked for yet.
    pub fn new(settings: ResendSettings, now: Instant) -> Resends {
        Resends {
            settings,
            budget: ResendBudget::new(now, settings.rate_min),
            requesters: BTreeMap::new(),
            recently_resent: RecentlyResent::default(),
            next: None,
            sent: 0,
            counters: ResendCounters::default(),
        }
    }

    /// What was asked and answered so far.
    pub fn counters(&self) -> &ResendCounters {
        &self.counters
    }

    /// Whether everything asked for is answered.
    pub fn is_idle(&self) -> bool {
        self.requesters.values().all(|requester| requester.first().is_none())
    }

    /// When to poll for an answer next; early is harmless.
    pub fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Live data of so many bytes was sent: first transmissions, of whatever stream.
    pub fn on_sent(&mut self, now: Instant, bytes: usize) {
        self.sent += bytes as u64;
        self.budget.on_sent(now, bytes);
    }

    /// The most credit that a requester can have.
    fn credit_max(&self) -> u64 {
        BURST_BYTES + self.settings.kept_bytes.saturating_mul(CREDIT_TIMES)
    }

    /// Whether so many bytes may be spent on another answer; if so, they are.
    pub fn spend(&mut self, now: Instant, bytes: usize) -> bool {
        let has = self.budget.has(now, bytes as u64);
        if has {
            self.budget.spend(bytes as u64);
        }
        has
    }

    /// Whether live data waits until what is asked for has been sent.
    pub fn pause_live(&mut self, now: Instant, is_paused: bool) {
        self.budget.pause(now, is_paused);
    }

    /// A member is gone, and what it asked for with it.
    pub fn forget(&mut self, epoch: Epoch) {
        self.requesters.remove(&epoch);
        // The others' shares have grown.
        self.next = self.next.map(|_| Instant::ZERO);
    }

    /// A proven member asks; `high` is the last datagram of the stream that it asks about.
    pub fn on_request(&mut self, now: Instant, from: Epoch, request: &ResendRequest, high: Dseq) -> RequestOutcome {
        self.counters.requests += 1;
        let mut asked = RequestOutcome::default();
        let named = || request.ranges.iter().map(Range::datagrams).fold(0, u64::saturating_add);
        let is_full = self.settings.requesters_max <= self.requesters.len();
        if is_full && !self.requesters.contains_key(&from) {
            self.counters.requests_refused += 1;
            return RequestOutcome { refused: named(), ..asked };
        }
        let ranges_max = (RANGES_MAX / (self.requesters.len() + 1)).clamp(RANGES_EACH_MIN, RANGES_EACH_MAX);
        let (sent, credit_max) = (self.sent, self.credit_max());
        let answer_bytes_max = self.answer_bytes_max();
        let new = || Requester::new(now, Credit::new(sent, credit_max));
        let requester = self.requesters.entry(from).or_insert_with(new);
        requester.requests.refill(now, REQUESTS_PER_SECOND, REQUESTS_BURST);
        requester.credit = requester.credit.grown(sent, credit_max);
        // Rule: credit
        if !requester.requests.has(1) || requester.credit.bytes < answer_bytes_max {
            self.counters.requests_refused += 1;
            return RequestOutcome { refused: named(), ..asked };
        }
        requester.requests.take(1);
        requester.is_deaf = request.unicast;
        let (stream, wanted) = match (request.directed, request.manifests_only) {
            (true, _) => (Some(from), &mut requester.directed),
            (false, false) => (None, &mut requester.datagrams),
            (false, true) => (None, &mut requester.contents),
        };
        for range in &request.ranges {
            let (first, last) = (range.first.0, range.last.0.min(high.0));
            asked.beyond_high += u64::from(last < range.last.0);
            if last < first {
                continue;
            }
            asked.accepted += last - first + 1;
            if request.manifests_only || request.unicast {
                wanted.insert(first, last);
            } else {
                asked.suppressed += self.recently_resent.select_wanted(now, from, stream, (first, last), wanted);
            }
            asked.refused += wanted.truncate(ranges_max);
        }
        asked.accepted = asked.accepted.saturating_sub(asked.suppressed + asked.refused);
        self.counters.beyond_high += asked.beyond_high;
        self.counters.suppressed += asked.suppressed;
        // Whoever asks for what is long gone names any number of datagrams, at no cost.
        self.counters.over_limit = self.counters.over_limit.saturating_add(asked.refused);
        if requester.first().is_some() {
            self.next = Some(now);
        }
        asked
    }

    /// The next answer, if one is due and the budget allows it. `ring` is the memory of the multicast stream,
    /// `directed` finds that of the directed stream to a member.
    pub fn poll_answer<'a>(
        &mut self,
        now: Instant,
        ring: &'a Ring,
        directed: impl Fn(Epoch) -> Option<&'a Ring>,
    ) -> Option<ResendAnswer> {
        if self.next.is_none_or(|next| now < next) {
            return None;
        }
        let from = self.choose(now)?;
        let requester = self.requesters.get(&from).expect("it was chosen among them");
        // Rule: resend
        let (answer, bytes) = if let Some(dseq) = requester.directed.first().map(Dseq) {
            let ring = directed(from);
            match ring.map(|ring| ring.find(dseq)) {
                Some(RingContent::Datagram(bytes)) => self.resend(now, from, Some(from), dseq, bytes),
                _ => self.expire(from, Some(from), ring.map_or(Dseq(u64::MAX), Ring::trail)),
            }
        } else {
            let dseq = requester.first().map(Dseq).expect("who wants nothing is not chosen");
            if dseq < ring.manifest_trail() {
                self.expire(from, None, ring.manifest_trail())
            } else if requester.datagrams.contains(dseq.0)
                && let RingContent::Datagram(bytes) = ring.find(dseq)
            {
                self.resend(now, from, None, dseq, bytes)
            } else {
                self.answer_manifest(from, dseq, ring)
            }
        };
        self.budget.spend(bytes as u64);
        let answer_bytes_max = self.answer_bytes_max();
        let requester = self.requesters.get_mut(&from).expect("it was chosen among them");
        requester.bucket.take(bytes as u64);
        requester.credit.bytes = requester.credit.bytes.saturating_sub(bytes as u64);
        if requester.credit.bytes < answer_bytes_max {
            // Whoever still misses them asks again, and may have more when more was sent.
            self.counters.over_limit = self.counters.over_limit.saturating_add(requester.clear());
        }
        self.counters.bytes += bytes as u64;
        Some(answer)
    }

    /// The most bytes that any answer can have. None is made before there are tokens for so many.
    fn answer_bytes_max(&self) -> u64 {
        (self.settings.datagram_bytes_max + MANIFEST_BYTES_MORE) as u64
    }

    /// Who is answered next: among those whose share is not used up, who wants the oldest datagram. The share is an
    /// equal one, so that whoever wants little gets it soon, however much the others want.
    fn choose(&mut self, now: Instant) -> Option<Epoch> {
        let waiting = self.requesters.values().filter(|requester| requester.first().is_some()).count() as u64;
        if waiting == 0 {
            self.next = None;
            return None;
        }
        let bytes = self.answer_bytes_max();
        if !self.budget.has(now, bytes) {
            return self.wait(now, self.budget.ready_at(bytes));
        }
        let (rate, burst) = ((self.budget.rate() / waiting).max(1), (BURST_BYTES / waiting).max(bytes));
        let mut chosen: Option<(u64, Epoch)> = None;
        let mut ready_at = None;
        for (epoch, requester) in &mut self.requesters {
            let Some(first) = requester.first() else { continue };
            if chosen.is_some_and(|(lowest, _)| lowest <= first) {
                continue;
            }
            requester.bucket.refill(now, rate, burst);
            if requester.bucket.has(bytes) {
                chosen = Some((first, *epoch));
            } else {
                let ready = requester.bucket.ready_at(bytes, rate);
                ready_at = Some(ready_at.map_or(ready, |at: Instant| at.min(ready)));
            }
        }
        match chosen {
            Some((_, epoch)) => Some(epoch),
            None => self.wait(now, ready_at.expect("all who wait were looked at")),
        }
    }

    /// Nothing more until `ready`, or until the live rate may have changed.
    fn wait(&mut self, now: Instant, ready: Instant) -> Option<Epoch> {
        self.counters.waits += 1;
        self.next = Some(ready.min(now + budget::SLOT));
        None
    }

    /// The datagram itself.
    fn resend(
        &mut self,
        now: Instant,
        from: Epoch,
        stream: Option<Epoch>,
        dseq: Dseq,
        bytes: Bytes,
    ) -> (ResendAnswer, usize) {
        let place = (stream, dseq.0);
        let is_deaf = self.requesters.get(&from).is_some_and(|requester| requester.is_deaf);
        // Rule: suppress
        let to = match self.recently_resent.target_of(now, place) {
            // Rule: blackhole
            _ if is_deaf => ResendTarget::Member(from),
            // Who asks after a multicast may be one who hears none.
            Some(ResendTarget::Group) => ResendTarget::Member(from),
            Some(ResendTarget::Member(last)) if last != from => ResendTarget::Group,
            _ if stream.is_none() && self.is_wanted_beside(from, dseq) => ResendTarget::Group,
            _ => ResendTarget::Member(from),
        };
        match to {
            ResendTarget::Member(_) => self.counters.resent_unicast += 1,
            ResendTarget::Group => self.counters.resent_multicast += 1,
        }
        // What only one can have says nothing of how many miss it.
        if !is_deaf {
            self.recently_resent.remember(now, place, to);
        }
        for (epoch, requester) in &mut self.requesters {
            if to == ResendTarget::Group && !requester.is_deaf || *epoch == from {
                let over = requester.on_resent(stream, dseq);
                self.counters.over_limit = self.counters.over_limit.saturating_add(over);
            }
        }
        let sent = bytes.len();
        (ResendAnswer::Resend { to, directed: stream.is_some(), dseq, bytes }, sent)
    }

    /// Whether another one wants this datagram of the multicast stream.
    fn is_wanted_beside(&self, from: Epoch, dseq: Dseq) -> bool {
        let hears = |epoch: &Epoch, requester: &Requester| *epoch != from && !requester.is_deaf;
        self.requesters.iter().any(|(epoch, one)| hears(epoch, one) && one.datagrams.contains(dseq.0))
    }

    /// Word that everything is gone that `from` wants of a stream below `end`, or as much as one datagram can say.
    fn expire(&mut self, from: Epoch, stream: Option<Epoch>, end: Dseq) -> (ResendAnswer, usize) {
        let ranges_max = Expired::ranges_max(self.settings.datagram_bytes_max);
        let requester = self.requesters.get_mut(&from).expect("it was chosen among them");
        let mut gone = Ranges::default();
        let mut take = |wanted: &mut Ranges| {
            while gone.count() < ranges_max
                && let Some((first, last)) = wanted.pop_below(end.0)
            {
                gone.insert(first, last);
            }
        };
        match stream {
            Some(_) => take(&mut requester.directed),
            None => {
                take(&mut requester.datagrams);
                take(&mut requester.contents);
            }
        }
        let ranges: Vec<_> = gone.iter().map(|(first, last)| Range { first: Dseq(first), last: Dseq(last) }).collect();
        let datagrams = ranges.iter().map(Range::datagrams).sum();
        self.counters.expired = self.counters.expired.saturating_add(datagrams);
        let sent = EXPIRED_BYTES + EXPIRED_RANGE_BYTES * ranges.len();
        (ResendAnswer::Expired { to: from, expired: Expired { receiver: stream, ranges } }, sent)
    }

    /// What `dseq` held and the datagrams that follow it, as far as `from` wants that or can have no more.
    fn answer_manifest(&mut self, from: Epoch, dseq: Dseq, ring: &Ring) -> (ResendAnswer, usize) {
        let requester = self.requesters.get_mut(&from).expect("it was chosen among them");
        let mut builder = None;
        let mut next = dseq;
        while requester.contents.contains(next.0) || next < ring.trail() && requester.datagrams.contains(next.0) {
            let (before, contents) = ring.contents(next).expect("what was sent after the manifest trail is known");
            let bytes_max = self.settings.datagram_bytes_max;
            if !builder.get_or_insert_with(|| ManifestBuilder::new(bytes_max, dseq, before)).push(&contents) {
                break;
            }
            requester.contents.remove(next.0);
            if next < ring.trail() {
                requester.datagrams.remove(next.0);
            }
            next = next.next();
        }
        self.counters.manifests += next.0 - dseq.0;
        let builder = builder.expect("what `dseq` held is wanted");
        let sent = builder.bytes();
        (ResendAnswer::Manifest { to: from, manifest: builder.finish() }, sent)
    }

    /// The limits hold.
    pub fn assert_invariants(&self) {
        self.recently_resent.assert_invariants();
        assert!(self.requesters.len() <= self.settings.requesters_max);
        for requester in self.requesters.values() {
            for wanted in [&requester.directed, &requester.datagrams, &requester.contents] {
                assert!(wanted.count() <= RANGES_EACH_MAX);
            }
        }
        assert!(self.next.is_some() || self.is_idle(), "what is asked is polled for");
    }
}
