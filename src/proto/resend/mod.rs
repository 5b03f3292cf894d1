//! The publisher's side of repair: requests of receivers, and the answers to them (R6, A9; wire.md W114).
//!
//! Requested datagrams are kept as ranges for each requester. The cost of a request depends on its bytes, not on its
//! span. Answers are made one by one as the budget allows, the oldest first. The caller checks that the address of a
//! requester is proven, and sends the answers.

mod answer;
mod budget;
mod log;
mod ranges;
mod recently_resent;
mod ring;
#[cfg(test)]
mod tests;

pub use answer::{RequestOutcome, ResendAnswer, ResendCounters};
pub use ring::{Ring, RingContent, RingSettings};

use crate::message::{Dseq, Epoch};
use crate::time::Instant;
use crate::wire::{DATAGRAM_BYTES_MAX, ExpiryNotice, ManifestBuilder, Range, ResendRequest};
pub use budget::TokenBucket;
use budget::{BURST_BYTES, ResendBudget};
use bytes::Bytes;
use ranges::Ranges;
use recently_resent::RecentlyResent;
pub use recently_resent::ResendTarget;
use std::collections::BTreeMap;

/// Maximum number of ranges of one kind for all requesters together, and minimum and maximum for each of them within
/// that. The lowest are kept; a requester of more must repeat its request.
const RANGES_MAX: usize = 65_536;
const RANGES_EACH_MIN: usize = 64;
const RANGES_EACH_MAX: usize = 1024;

/// Accepted requests of one requester: rate per second, and burst.
const REQUESTS_PER_SECOND: u64 = 1000;
const REQUESTS_BURST: u64 = 256;

/// Factor from live bytes to the credit of a requester. It exceeds 1 because answers get lost like other datagrams.
const CREDIT_TIMES: u64 = 4;

/// Maximum number of bytes by which a manifest exceeds its datagram.
const MANIFEST_BYTES_MORE: usize = 24;

// A full bucket suffices for the largest answer.
const _: () = assert!((DATAGRAM_BYTES_MAX + MANIFEST_BYTES_MORE) as u64 <= BURST_BYTES);

/// Maximum number of bytes of an EXPIRED datagram before its ranges, and bytes of each range.
const EXPIRED_BYTES: usize = 58;
const EXPIRED_RANGE_BYTES: usize = 16;

/// Limits of answers to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResendSettings {
    /// Minimum rate of answers in bytes per second, even if a quarter of the live rate is less; 0 counts as 1.
    pub rate_min: u64,
    /// Size of the largest datagram, in bytes.
    pub datagram_bytes_max: usize,
    /// Maximum number of requesters known at a time; requests of others are refused.
    pub requesters_max: usize,
    /// Bytes of the datagrams retained for resends: as many as one requester can miss at once.
    pub ring_bytes: u64,
}

/// Bytes that one requester may still be sent. Repeated requests do not raise it; it grows with the live bytes.
#[derive(Clone, Copy, Debug)]
struct Credit {
    bytes: u64,
    /// Live bytes sent when the credit last grew.
    sent: u64,
}

impl Credit {
    /// Returns the initial credit of a requester, which may miss all datagrams that are still retained. `sent` is the
    /// number of live bytes so far.
    fn new(sent: u64, most: u64) -> Credit {
        Credit { bytes: BURST_BYTES, sent: 0 }.grown(sent, most)
    }

    /// Returns the credit after `sent` live bytes in total, at most `most`.
    fn grown(self, sent: u64, most: u64) -> Credit {
        let more = (sent - self.sent).saturating_mul(CREDIT_TIMES);
        Credit { bytes: self.bytes.saturating_add(more).min(most), sent }
    }
}

/// State of a requester and its outstanding requests.
#[derive(Debug)]
struct Requester {
    bucket: TokenBucket,
    requests: TokenBucket,
    credit: Credit,
    /// True if it receives no multicasts, according to its last request.
    lacks_multicast: bool,
    /// Size of the largest datagram that reaches it, in bytes, as far as is known.
    datagram_bytes_max: usize,
    /// Datagrams of the directed stream to it.
    directed: Ranges,
    /// Datagrams of the multicast stream.
    datagrams: Ranges,
    /// Datagrams of the multicast stream of which it wants only the content.
    contents: Ranges,
}

impl Requester {
    fn new(now: Instant, credit: Credit) -> Requester {
        let none = Ranges::default;
        let (bucket, requests) = (TokenBucket::full(now), TokenBucket::full(now));
        Requester {
            bucket,
            requests,
            credit,
            lacks_multicast: false,
            datagram_bytes_max: DATAGRAM_BYTES_MAX,
            directed: none(),
            datagrams: none(),
            contents: none(),
        }
    }

    /// Discards its requests, and returns the number of datagrams in them.
    fn clear(&mut self) -> u64 {
        [&mut self.directed, &mut self.datagrams, &mut self.contents].into_iter().map(|wanted| wanted.truncate(0)).sum()
    }

    /// Returns the lowest requested datagram. Directed streams are short and come first.
    fn first(&self) -> Option<u64> {
        if !self.directed.is_empty() {
            return Some(0);
        }
        [self.datagrams.first(), self.contents.first()].into_iter().flatten().min()
    }

    /// Removes a datagram that was just sent to it. A removal from the middle of a range splits it; returns the number
    /// of datagrams that now exceed the limit.
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

/// Unanswered requests, over all streams of this peer.
#[derive(Debug)]
pub struct Resends {
    settings: ResendSettings,
    budget: ResendBudget,
    requesters: BTreeMap<Epoch, Requester>,
    recently_resent: RecentlyResent,
    /// Time of the next answer; `None` if there is no request.
    next: Option<Instant>,
    /// Total live bytes sent.
    sent: u64,
    counters: ResendCounters,
}

impl Resends {
    /// Creates the state without requests.
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

    /// Returns the counters of requests and answers.
    pub fn counters(&self) -> &ResendCounters {
        &self.counters
    }

    /// Returns whether all requests are answered.
    pub fn is_idle(&self) -> bool {
        self.requesters.values().all(|requester| requester.first().is_none())
    }

    /// Returns the time of the next poll for an answer; an earlier poll is harmless.
    pub fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Counts `bytes` of live data: first transmissions, of any stream.
    pub fn on_sent(&mut self, now: Instant, bytes: usize) {
        self.sent += bytes as u64;
        self.budget.on_sent(now, bytes);
    }

    /// Returns the maximum credit of a requester.
    fn credit_max(&self) -> u64 {
        BURST_BYTES + self.settings.ring_bytes.saturating_mul(CREDIT_TIMES)
    }

    /// Spends `bytes` of the budget on an answer, if it has them. Returns whether it did.
    pub fn spend(&mut self, now: Instant, bytes: usize) -> bool {
        let has = self.budget.has(now, bytes as u64);
        if has {
            self.budget.spend(bytes as u64);
        }
        has
    }

    /// Records that larger datagrams do not reach a member. It gets manifests of those instead, and credit for them,
    /// because the answers so far were in vain. There are few sizes, and each is set once.
    pub fn limit_datagrams(&mut self, to: Epoch, bytes_max: usize) {
        if let Some(requester) = self.requesters.get_mut(&to) {
            requester.datagram_bytes_max = bytes_max;
            requester.credit.bytes = requester.credit.bytes.max(BURST_BYTES);
        }
    }

    /// Sets whether live data waits until requested datagrams have been sent.
    pub fn pause_live(&mut self, now: Instant, is_paused: bool) {
        self.budget.pause(now, is_paused);
    }

    /// Discards the requests of a member that is gone.
    pub fn remove_requester(&mut self, epoch: Epoch) {
        self.requesters.remove(&epoch);
        // The shares of the others have grown.
        self.next = self.next.map(|_| Instant::ZERO);
    }

    /// Accepts the request of a proven member. `high` is the last datagram of the requested stream.
    pub fn on_request(&mut self, now: Instant, from: Epoch, request: &ResendRequest, high: Dseq) -> RequestOutcome {
        self.counters.requests += 1;
        let mut outcome = RequestOutcome::default();
        let requested = || request.ranges.iter().map(Range::datagrams).fold(0, u64::saturating_add);
        let is_full = self.settings.requesters_max <= self.requesters.len();
        if is_full && !self.requesters.contains_key(&from) {
            self.counters.requests_refused += 1;
            return RequestOutcome { refused: requested(), ..outcome };
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
            return RequestOutcome { refused: requested(), ..outcome };
        }
        requester.requests.take(1);
        requester.lacks_multicast = request.unicast;
        let (stream, wanted) = match (request.directed, request.manifests_only) {
            (true, _) => (Some(from), &mut requester.directed),
            (false, false) => (None, &mut requester.datagrams),
            (false, true) => (None, &mut requester.contents),
        };
        for range in &request.ranges {
            let (first, last) = (range.first.0, range.last.0.min(high.0));
            outcome.beyond_high += u64::from(last < range.last.0);
            if last < first {
                continue;
            }
            outcome.accepted += last - first + 1;
            if request.manifests_only || request.unicast {
                wanted.insert(first, last);
            } else {
                outcome.suppressed += self.recently_resent.select_wanted(now, from, stream, (first, last), wanted);
            }
            outcome.refused += wanted.truncate(ranges_max);
        }
        outcome.accepted = outcome.accepted.saturating_sub(outcome.suppressed + outcome.refused);
        self.counters.beyond_high += outcome.beyond_high;
        self.counters.suppressed += outcome.suppressed;
        // A request for datagrams that are long gone can name any number of them at no cost.
        self.counters.over_limit = self.counters.over_limit.saturating_add(outcome.refused);
        if requester.first().is_some() {
            self.next = Some(now);
        }
        outcome
    }

    /// Returns the next answer, if one is due and the budget allows it. `ring` is the memory of the multicast stream;
    /// `directed` returns that of the directed stream to a member.
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
        let requester = self.requesters.get(&from).expect("the requester was chosen among the known ones");
        // Rule: resend
        let (answer, bytes) = if let Some(dseq) = requester.directed.first().map(Dseq) {
            let ring = directed(from);
            match ring.map(|ring| ring.find(dseq)) {
                Some(RingContent::Datagram(bytes)) => self.resend(now, from, Some(from), dseq, bytes),
                _ => self.expire(from, Some(from), ring.map_or(Dseq(u64::MAX), Ring::trail)),
            }
        } else {
            let dseq = requester.first().map(Dseq).expect("the chosen requester misses a datagram");
            if dseq < ring.manifest_trail() {
                self.expire(from, None, ring.manifest_trail())
            } else if requester.datagrams.contains(dseq.0)
                && ring.has_datagram(dseq, requester.datagram_bytes_max)
                && let RingContent::Datagram(bytes) = ring.find(dseq)
            {
                self.resend(now, from, None, dseq, bytes)
            } else {
                self.answer_manifest(from, dseq, ring)
            }
        };
        self.budget.spend(bytes as u64);
        let answer_bytes_max = self.answer_bytes_max();
        let requester = self.requesters.get_mut(&from).expect("the requester was chosen among the known ones");
        requester.bucket.take(bytes as u64);
        requester.credit.bytes = requester.credit.bytes.saturating_sub(bytes as u64);
        if requester.credit.bytes < answer_bytes_max {
            // A requester that still misses datagrams repeats its request, and gets more credit when more data was
            // sent.
            self.counters.over_limit = self.counters.over_limit.saturating_add(requester.clear());
        }
        self.counters.bytes += bytes as u64;
        Some(answer)
    }

    /// Returns the maximum bytes of an answer. An answer is made only when the budget has tokens for this number.
    fn answer_bytes_max(&self) -> u64 {
        (self.settings.datagram_bytes_max + MANIFEST_BYTES_MORE) as u64
    }

    /// Chooses the requester to answer next: of those with unspent shares, the one that wants the oldest datagram.
    /// Shares are equal, so that a small request is answered soon, however large the others are.
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
            None => self.wait(now, ready_at.expect("each waiting requester has a time")),
        }
    }

    /// Delays further answers until `ready`, or until the live rate may have changed.
    fn wait(&mut self, now: Instant, ready: Instant) -> Option<Epoch> {
        self.counters.waits += 1;
        self.next = Some(ready.min(now + budget::SLOT));
        None
    }

    /// Returns the answer that resends the datagram itself.
    fn resend(
        &mut self,
        now: Instant,
        from: Epoch,
        stream: Option<Epoch>,
        dseq: Dseq,
        bytes: Bytes,
    ) -> (ResendAnswer, usize) {
        let position = (stream, dseq.0);
        let last = self.recently_resent.target_of(now, position);
        let lacks_multicast = self.requesters.get(&from).is_some_and(|requester| requester.lacks_multicast);
        // Rule: suppress
        let to = match last {
            // Rule: blackhole
            _ if lacks_multicast => ResendTarget::Member(from),
            // A requester that repeats its request after a multicast may not receive multicasts.
            Some(ResendTarget::Group) => ResendTarget::Member(from),
            Some(ResendTarget::Member(last)) if last != from => ResendTarget::Group,
            _ if stream.is_none() && self.is_wanted_beside(from, dseq) => ResendTarget::Group,
            _ => ResendTarget::Member(from),
        };
        match to {
            ResendTarget::Member(_) => self.counters.resent_unicast += 1,
            ResendTarget::Group => self.counters.resent_multicast += 1,
        }
        // An answer to a requester without multicast does not show that a second receiver misses the datagram.
        if !lacks_multicast {
            self.recently_resent.remember(now, position, to);
        }
        for (epoch, requester) in &mut self.requesters {
            if to == ResendTarget::Group && !requester.lacks_multicast || *epoch == from {
                let over = requester.on_resent(stream, dseq);
                self.counters.over_limit = self.counters.over_limit.saturating_add(over);
            }
        }
        let sent = bytes.len();
        let is_repeated = last == Some(ResendTarget::Group) || last == Some(ResendTarget::Member(from));
        let repeated_for = is_repeated.then_some(from);
        (ResendAnswer::Resend { to, directed: stream.is_some(), dseq, bytes, repeated_for }, sent)
    }

    /// Returns whether another requester wants this datagram of the multicast stream.
    fn is_wanted_beside(&self, from: Epoch, dseq: Dseq) -> bool {
        let receives = |epoch: &Epoch, requester: &Requester| *epoch != from && !requester.lacks_multicast;
        self.requesters
            .iter()
            .any(|(epoch, requester)| receives(epoch, requester) && requester.datagrams.contains(dseq.0))
    }

    /// Returns an EXPIRED record for the datagrams below `end` that `from` wants of a stream, up to the size of one
    /// datagram.
    fn expire(&mut self, from: Epoch, stream: Option<Epoch>, end: Dseq) -> (ResendAnswer, usize) {
        let requester = self.requesters.get_mut(&from).expect("the requester was chosen among the known ones");
        let ranges_max = ExpiryNotice::ranges_max(self.settings.datagram_bytes_max.min(requester.datagram_bytes_max));
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
        (ResendAnswer::Expired { to: from, expired: ExpiryNotice { receiver: stream, ranges } }, sent)
    }

    /// Returns the manifests of `dseq` and of the datagrams that follow it, as far as `from` wants them, or wants the
    /// datagrams and they are gone or too large for it.
    fn answer_manifest(&mut self, from: Epoch, dseq: Dseq, ring: &Ring) -> (ResendAnswer, usize) {
        let requester = self.requesters.get_mut(&from).expect("the requester was chosen among the known ones");
        let bytes_max = self.settings.datagram_bytes_max.min(requester.datagram_bytes_max);
        let mut builder = None;
        let mut next = dseq;
        loop {
            let is_unavailable = !ring.has_datagram(next, requester.datagram_bytes_max);
            let is_wanted =
                requester.contents.contains(next.0) || is_unavailable && requester.datagrams.contains(next.0);
            if !is_wanted {
                break;
            }
            let (before, contents) =
                ring.contents(next).expect("the content of datagrams above the manifest trail is known");
            if !builder.get_or_insert_with(|| ManifestBuilder::new(bytes_max, dseq, before)).push(&contents) {
                break;
            }
            requester.contents.remove(next.0);
            if is_unavailable {
                requester.datagrams.remove(next.0);
            }
            next = next.next();
        }
        self.counters.manifests += next.0 - dseq.0;
        let builder = builder.expect("the content of `dseq` is requested");
        let sent = builder.bytes();
        (ResendAnswer::Manifest { to: from, manifest: builder.finish() }, sent)
    }

    /// Checks the limits.
    pub fn assert_invariants(&self) {
        self.recently_resent.assert_invariants();
        assert!(self.requesters.len() <= self.settings.requesters_max);
        for requester in self.requesters.values() {
            for wanted in [&requester.directed, &requester.datagrams, &requester.contents] {
                assert!(wanted.count() <= RANGES_EACH_MAX);
            }
        }
        assert!(self.next.is_some() || self.is_idle(), "answers are polled for while requests are pending");
    }
}
