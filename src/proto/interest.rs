//! Local subscriptions, and the lookup of those that match a subject.
//!
//! Matches are looked up in a tree. If a lookup takes many steps, its result goes into a cache of the most recently
//! used subjects. All other lookups bypass the cache, because the tree is faster. Subjects with the same subscriptions share one match set; the match set of a single subscription is stored
//! with it. Every change of the subscriptions clears the caches. Match sets are in the order of (client, subscription).

use crate::message::{ClientId, DeliveryMode, Queue, Refusal, SubId, SubscriptionFilter, Target, Targets};
use crate::proto::Settings;
use crate::proto::globs::GlobSteps;
use crate::proto::local_interest::{ENDED_MAX, LocalInterest};
use crate::proto::stats::SubRow;
use crate::rng::Rng;
use crate::subject::tree::Tree;
use crate::subject::{Pattern, Subject, channel};
use crate::time::Instant;
use foldhash::quality::FixedState;
use lru::LruCache;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Number of steps from which a lookup is cached; shorter lookups always use the tree.
const STEPS: usize = 32;
/// Maximum number of cached match sets. Few subscriptions have few different match sets.
const MATCH_SETS_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("not 0");

/// The subscriptions that match a subject; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchSet {
    /// All matching subscriptions, ascending, including those of queue groups.
    pub targets: Targets,
    /// Start time of each subscription, in the order of `targets`.
    pub since: Box<[Instant]>,
    /// Table index of each subscription, in the order of `targets`.
    indices: Box<[u32]>,
    /// Start time of the first of the subscriptions.
    pub oldest: Instant,
    /// Start time of the last of the subscriptions.
    pub newest: Instant,
    /// Queue-group members among the subscriptions, if any.
    grouped: Option<Box<GroupMatches>>,
}

/// Matching subscriptions of which some are in queue groups.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupMatches {
    /// Queue group of each subscription, in the order of all.
    queues: Box<[Option<Queue>]>,
    /// The members of each group.
    groups: BTreeMap<Queue, Vec<MatchEntry>>,
    /// Subscriptions in no queue group.
    plain: Option<Arc<MatchSet>>,
}

/// One subscription of a match set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MatchEntry {
    found: SubscriptionRef,
    since: Instant,
    queue: Option<Queue>,
}

impl MatchSet {
    /// Returns the subscriptions that existed at `at`; `None` if there are none.
    pub fn at(self: Arc<MatchSet>, at: Instant) -> Option<Arc<MatchSet>> {
        if self.newest <= at {
            return Some(self);
        }
        MatchSet::of(self.all().filter(|entry| entry.since <= at).collect())
    }

    /// Returns whether some of the subscriptions are in queue groups.
    #[inline]
    pub fn has_queues(&self) -> bool {
        self.grouped.is_some()
    }

    /// Returns the subscriptions that get every message: those in no queue group.
    #[inline]
    pub fn plain(self: &Arc<MatchSet>) -> Option<&Arc<MatchSet>> {
        self.grouped.as_ref().map_or(Some(self), |grouped| grouped.plain.as_ref())
    }

    /// Returns the queue groups, with the number of local members of each.
    pub fn queues(&self) -> impl Iterator<Item = (&Queue, usize)> {
        let groups = self.grouped.iter().flat_map(|grouped| &grouped.groups);
        groups.map(|(queue, members)| (queue, members.len()))
    }

    /// Returns the subscriptions of other clients than this one; `None` if there are none.
    pub fn without(self: Arc<MatchSet>, client: ClientId) -> Option<Arc<MatchSet>> {
        if self.targets.iter().all(|target| target.client != client) {
            return Some(self);
        }
        MatchSet::of(self.all().filter(|entry| entry.found.target.client != client).collect())
    }

    /// Returns one random member of this queue group.
    pub fn member(&self, queue: &[u8], rng: &mut Rng) -> Option<Arc<MatchSet>> {
        let members = self.grouped.as_ref()?.groups.get(queue)?;
        let chosen = rng.below(members.len() as u64) as usize;
        MatchSet::of(vec![MatchEntry { queue: None, ..members[chosen].clone() }])
    }

    /// Splits the subscriptions into those that are owed messages since `since`, and the others: later ones and
    /// queue-group members.
    pub fn split(&self, since: Instant) -> (Targets, Targets) {
        if self.newest <= since && self.grouped.is_none() {
            return (self.targets.clone(), Targets::from([]));
        }
        let (owed, others): (Vec<MatchEntry>, Vec<MatchEntry>) =
            self.all().partition(|entry| entry.since <= since && entry.queue.is_none());
        let targets = |part: Vec<MatchEntry>| part.iter().map(|entry| entry.found.target).collect();
        (targets(owed), targets(others))
    }

    /// Returns the subscriptions together with those of the other mode.
    fn with(&self, other: &MatchSet) -> Option<Arc<MatchSet>> {
        let mut all: Vec<MatchEntry> = self.all().chain(other.all()).collect();
        all.sort_unstable();
        MatchSet::of(all)
    }

    /// Creates the set; `None` if it is empty.
    fn of(all: Vec<MatchEntry>) -> Option<Arc<MatchSet>> {
        let since = || all.iter().map(|entry| entry.since);
        let grouped = all.iter().any(|entry| entry.queue.is_some()).then(|| {
            let mut groups: BTreeMap<Queue, Vec<MatchEntry>> = BTreeMap::new();
            for entry in &all {
                if let Some(queue) = &entry.queue {
                    groups.entry(queue.clone()).or_default().push(entry.clone());
                }
            }
            let plain = all.iter().filter(|entry| entry.queue.is_none()).cloned().collect();
            let queues = all.iter().map(|entry| entry.queue.clone()).collect();
            Box::new(GroupMatches { queues, groups, plain: MatchSet::of(plain) })
        });
        Some(Arc::new(MatchSet {
            targets: all.iter().map(|entry| entry.found.target).collect(),
            since: since().collect(),
            indices: all.iter().map(|entry| entry.found.index).collect(),
            oldest: since().min()?,
            newest: since().max()?,
            grouped,
        }))
    }

    fn all(&self) -> impl Iterator<Item = MatchEntry> {
        let found =
            self.targets.iter().zip(&self.indices).map(|(target, index)| SubscriptionRef::new(*target, *index, false));
        let queue = |index: usize| self.grouped.as_ref().and_then(|grouped| grouped.queues[index].clone());
        let all = found.zip(self.since.iter().copied()).enumerate();
        all.map(move |(index, (found, since))| MatchEntry { found, since, queue: queue(index) })
    }
}

/// A subscription that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SubscriptionRef {
    target: Target,
    index: u32,
    /// True if it has a glob, which is matched separately.
    has_glob: bool,
}

impl SubscriptionRef {
    fn new(target: Target, index: u32, has_glob: bool) -> SubscriptionRef {
        SubscriptionRef { target, index, has_glob }
    }
}

/// All subscriptions of local clients.
pub struct InterestTable {
    /// Table indices of the subscriptions.
    clients: BTreeMap<ClientId, BTreeMap<SubId, u32>>,
    subscriptions: Vec<Option<LocalSubscription>>,
    /// Unused table indices.
    unused: Vec<u32>,
    /// Number of subscriptions of all clients.
    len: usize,
    /// One matcher for each mode.
    matchers: [Matcher; 2],
    /// Number of changes of the subscriptions so far.
    changes: u64,
    /// The subscriptions as advertised to other peers.
    local_interest: LocalInterest,
    /// Budget of steps for matching globs.
    globs: GlobSteps,
    /// True if a subscription was ever in a queue group.
    has_had_queues: bool,
    /// Scratch buffer; empty between calls, and keeps its capacity.
    found: Vec<SubscriptionRef>,
    client_subscriptions_max: usize,
    subscriptions_max: usize,
}

struct LocalSubscription {
    target: Target,
    wanted: SubscriptionFilter,
    mode: DeliveryMode,
    since: Instant,
    deliveries: u64,
    /// Cached match set with only this subscription.
    single_match: Option<Arc<MatchSet>>,
}

/// Finds the subscriptions of one mode.
struct Matcher {
    tree: Tree<SubscriptionRef>,
    len: usize,
    /// Matches by subject, if the lookup takes many steps.
    cache: LruCache<Subject, Option<Arc<MatchSet>>, FixedState>,
    /// Shared match sets by their subscriptions.
    match_sets: LruCache<Box<[SubscriptionRef]>, Arc<MatchSet>, FixedState>,
    one_per_client: Option<Targets>,
}

impl Matcher {
    fn new(settings: &Settings, seed: u64) -> Matcher {
        let cache_max = NonZeroUsize::new(settings.match_cache_max).unwrap_or(NonZeroUsize::MIN);
        Matcher {
            tree: Tree::new(seed),
            len: 0,
            cache: LruCache::with_hasher(cache_max, FixedState::with_seed(seed)),
            match_sets: LruCache::with_hasher(MATCH_SETS_MAX, FixedState::with_seed(seed)),
            one_per_client: None,
        }
    }

    fn insert(&mut self, pattern: &Pattern, found: SubscriptionRef) {
        self.clear_match_cache();
        self.tree.insert(pattern, found);
        self.len += 1;
    }

    fn remove(&mut self, pattern: &Pattern, found: SubscriptionRef) {
        self.clear_match_cache();
        assert!(self.tree.remove(pattern, found), "every subscription is in the tree");
        self.len -= 1;
    }

    fn clear_match_cache(&mut self) {
        self.cache.clear();
        self.match_sets.clear();
        self.one_per_client = None;
    }
}

impl InterestTable {
    /// Creates an empty table. Of `settings` it uses `client_subscriptions_max`, `subscriptions_max` and
    /// `match_cache_max` (at least 1); `seed` makes the cache's hash unpredictable.
    pub fn new(settings: &Settings, seed: u64) -> InterestTable {
        InterestTable {
            clients: BTreeMap::new(),
            subscriptions: Vec::new(),
            unused: Vec::new(),
            len: 0,
            matchers: [Matcher::new(settings, seed), Matcher::new(settings, seed)],
            changes: 0,
            local_interest: LocalInterest::new(seed, ENDED_MAX, settings.mutants),
            globs: GlobSteps::default(),
            has_had_queues: false,
            found: Vec::new(),
            client_subscriptions_max: settings.client_subscriptions_max,
            subscriptions_max: settings.subscriptions_max,
        }
    }

    /// Adds a subscription; one that the client already has under this id stays unchanged.
    ///
    /// # Errors
    /// [`Refusal::TooManySubscriptions`] and [`Refusal::TooManyGlobSteps`] with the limit that was reached: the
    /// client's or the global one.
    pub fn subscribe(
        &mut self,
        now: Instant,
        target: Target,
        wanted: SubscriptionFilter,
        mode: DeliveryMode,
    ) -> Result<(), Refusal> {
        let Target { client, sub } = target;
        let subscriptions = self.clients.get(&client);
        if subscriptions.is_some_and(|subscriptions| subscriptions.contains_key(&sub)) {
            return Ok(());
        }
        if self.client_subscriptions_max <= subscriptions.map_or(0, BTreeMap::len) {
            return Err(Refusal::TooManySubscriptions { max: self.client_subscriptions_max });
        }
        if self.subscriptions_max <= self.len {
            return Err(Refusal::TooManySubscriptions { max: self.subscriptions_max });
        }
        wanted.glob.as_ref().map_or(Ok(()), |glob| self.globs.add(client, glob))?;
        self.changes += 1;
        self.local_interest.change(&wanted, true);
        self.has_had_queues |= wanted.queue.is_some();
        let index = self.unused.pop().unwrap_or_else(|| {
            self.subscriptions.push(None);
            u32::try_from(self.subscriptions.len() - 1).expect("fewer subscriptions than 2^32")
        });
        self.matchers[mode as usize]
            .insert(&wanted.pattern, SubscriptionRef::new(target, index, wanted.glob.is_some()));
        let subscription = LocalSubscription { target, wanted, mode, since: now, deliveries: 0, single_match: None };
        self.subscriptions[index as usize] = Some(subscription);
        self.clients.entry(client).or_default().insert(sub, index);
        self.len += 1;
        Ok(())
    }

    /// Ends a subscription. Returns false if it does not exist.
    pub fn unsubscribe(&mut self, client: ClientId, sub: SubId) -> bool {
        let Some(subscriptions) = self.clients.get_mut(&client) else { return false };
        let Some(index) = subscriptions.remove(&sub) else { return false };
        if subscriptions.is_empty() {
            self.clients.remove(&client);
        }
        self.end(index);
        true
    }

    /// Ends all subscriptions of a client.
    pub fn detach(&mut self, client: ClientId) {
        let Some(subscriptions) = self.clients.remove(&client) else { return };
        subscriptions.into_values().for_each(|index| self.end(index));
    }

    fn end(&mut self, index: u32) {
        let LocalSubscription { target, wanted, mode, .. } =
            self.subscriptions[index as usize].take().expect("a client has the indices of its subscriptions");
        self.unused.push(index);
        self.matchers[mode as usize]
            .remove(&wanted.pattern, SubscriptionRef::new(target, index, wanted.glob.is_some()));
        self.local_interest.change(&wanted, false);
        wanted.glob.iter().for_each(|glob| self.globs.remove(target.client, glob));
        self.changes += 1;
        self.len -= 1;
    }

    /// Returns the subscriptions of this mode that match `subject`, or `None` if there are none.
    pub fn matches(&mut self, subject: &Subject, mode: DeliveryMode) -> Option<Arc<MatchSet>> {
        let matcher = &mut self.matchers[mode as usize];
        if matcher.len == 0 {
            return None;
        }
        self.found.clear();
        let is_quick = matcher.tree.matches_within(subject, &mut self.found, STEPS);
        if is_quick && self.found.iter().all(|found| !found.has_glob) {
            return self.match_set(mode);
        }
        if let Some(matched) = matcher.cache.get(subject) {
            return matched.clone();
        }
        self.found.clear();
        matcher.tree.matches(subject, &mut self.found);
        self.match_globs(subject);
        let matched = self.match_set(mode);
        // The subject is a slice of a datagram, whose memory the cache must not keep alive.
        self.matchers[mode as usize].cache.put(subject.detached(), matched.clone());
        matched
    }

    /// Returns the subscriptions that match `subject`, in any mode.
    pub fn matches_any(&mut self, subject: &Subject) -> Option<Arc<MatchSet>> {
        if self.len == 0 {
            return None;
        }
        match (self.matches(subject, DeliveryMode::Repair), self.matches(subject, DeliveryMode::Live)) {
            (Some(repair), Some(live)) => repair.with(&live),
            (matched, None) | (None, matched) => matched,
        }
    }

    /// Returns the number of changes of the subscriptions. While it is unchanged, matches are unchanged.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the subscriptions as advertised to other peers.
    pub fn local_interest(&mut self) -> &mut LocalInterest {
        &mut self.local_interest
    }

    /// Returns whether there are changes not yet advertised to other peers.
    pub fn has_changes(&self) -> bool {
        self.local_interest.has_changes()
    }

    /// Returns the version of the last advertised change.
    pub fn version(&self) -> u64 {
        self.local_interest.high()
    }

    /// Returns whether a subscription was ever in a queue group.
    pub fn has_had_queues(&self) -> bool {
        self.has_had_queues
    }

    /// Returns whether there are no subscriptions of this mode.
    pub fn is_empty(&self, mode: DeliveryMode) -> bool {
        self.matchers[mode as usize].len == 0
    }

    /// Returns the start time of a subscription; `None` if it has ended.
    pub fn since(&self, target: Target) -> Option<Instant> {
        let index = self.clients.get(&target.client)?.get(&target.sub)?;
        Some(self.subscription(*index)?.since)
    }

    /// Returns the first subscription of this mode of each client. Events that concern no single subject are reported
    /// to it.
    pub fn one_per_client(&mut self, mode: DeliveryMode) -> Targets {
        let (clients, subscriptions) = (&self.clients, &self.subscriptions);
        let first = self.matchers[mode as usize].one_per_client.get_or_insert_with(|| {
            let first = |(client, indices): (&ClientId, &BTreeMap<SubId, u32>)| {
                let has_mode = |index: &u32| {
                    subscriptions[*index as usize].as_ref().is_some_and(|subscription| subscription.mode == mode)
                };
                let (sub, _) = indices.iter().find(|(_, index)| has_mode(index))?;
                Some(Target { client: *client, sub: *sub })
            };
            clients.iter().filter_map(first).collect()
        });
        Arc::clone(first)
    }

    /// Returns the first subscription of each client, in any mode.
    pub fn one_of_each_client(&self) -> Targets {
        let first = |(client, indices): (&ClientId, &BTreeMap<SubId, u32>)| {
            let (sub, _) = indices.first_key_value()?;
            Some(Target { client: *client, sub: *sub })
        };
        self.clients.iter().filter_map(first).collect()
    }

    /// Counts `messages` deliveries for each of `matched`; ended subscriptions are skipped.
    pub fn count(&mut self, matched: &MatchSet, messages: u64) {
        for (target, index) in matched.targets.iter().zip(&matched.indices) {
            let subscription = self.subscriptions.get_mut(*index as usize).and_then(Option::as_mut);
            if let Some(subscription) = subscription.filter(|subscription| subscription.target == *target) {
                subscription.deliveries += messages;
            }
        }
    }

    /// Returns all subscriptions, in order.
    pub fn rows(&self) -> Vec<SubRow> {
        let indices = self.clients.values().flat_map(BTreeMap::values);
        let rows = indices.filter_map(|index| self.subscription(*index)).map(|subscription| SubRow {
            client: subscription.target.client,
            sub: subscription.target.sub,
            wanted: subscription.wanted.clone(),
            mode: subscription.mode,
            deliveries: subscription.deliveries,
        });
        rows.collect()
    }

    fn subscription(&self, index: u32) -> Option<&LocalSubscription> {
        self.subscriptions.get(index as usize)?.as_ref()
    }

    /// Removes found subscriptions whose glob does not match the subject.
    fn match_globs(&mut self, subject: &Subject) {
        let subscriptions = &self.subscriptions;
        let channel = channel::of_subject(subject);
        self.found.retain(|found| {
            let subscription = subscriptions[found.index as usize].as_ref();
            let glob = subscription.and_then(|subscription| subscription.wanted.glob.as_ref());
            glob.is_none_or(|glob| glob.matches(&channel))
        });
    }

    /// Returns the shared match set of the found subscriptions.
    fn match_set(&mut self, mode: DeliveryMode) -> Option<Arc<MatchSet>> {
        if let [found] = self.found[..] {
            let subscription = self.subscriptions[found.index as usize].as_mut()?;
            let single_match = &mut subscription.single_match;
            if single_match.is_none() {
                let queue = subscription.wanted.queue.clone();
                *single_match = MatchSet::of(vec![MatchEntry { found, since: subscription.since, queue }]);
            }
            return single_match.clone();
        }
        let matcher = &mut self.matchers[mode as usize];
        if self.found.is_empty() {
            return None;
        }
        if let Some(matched) = matcher.match_sets.get(&self.found[..]) {
            return Some(Arc::clone(matched));
        }
        let entry = |found: &SubscriptionRef| {
            let LocalSubscription { since, wanted, .. } = self.subscriptions[found.index as usize].as_ref()?;
            Some(MatchEntry { found: *found, since: *since, queue: wanted.queue.clone() })
        };
        let matched = MatchSet::of(self.found.iter().filter_map(entry).collect())?;
        matcher.match_sets.put(self.found[..].into(), Arc::clone(&matched));
        Some(matched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::mutant::Mutants;
    use crate::proto::{Recovery, WindowSettings};
    use crate::rng::Rng;
    use crate::subject::glob::Glob;
    use std::time::Duration;

    fn settings(client_subscriptions_max: usize, subscriptions_max: usize, match_cache_max: usize) -> Settings {
        let window = WindowSettings { bytes: 1 << 16, time: Duration::from_secs(10), bytes_max: 1 << 20 };
        Settings {
            name: "A.test".parse().unwrap(),
            group: 7500,
            datagram_bytes_max: 1472,
            check_value: crate::wire::CheckValue::Crc32c,
            message_bytes_max: 1 << 20,
            heartbeat: Duration::from_secs(1),
            reliability: Duration::from_millis(5),
            recovery: Recovery::modest(),
            forget: Duration::from_secs(60),
            pub_window: window,
            sub_window: window,
            frame_messages_max: u64::MAX,
            hold_bytes_max: 1 << 20,
            reassembly_bytes_max: 1 << 20,
            reassembly_sets_max: 16,
            gaps_max: 64,
            peers_max: 16,
            client_subscriptions_max,
            subscriptions_max,
            interest_max: 1000,
            suppresses: false,
            match_cache_max,
            advisory_interval: Duration::from_secs(1),
            advisory_subjects_max: 16,
            pace: crate::proto::pace::PaceSettings::auto(4 << 20),
            mutants: Mutants::default(),
        }
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn target(client: u32, sub: u32) -> Target {
        Target { client: ClientId(client), sub: SubId(sub) }
    }

    const MODES: [DeliveryMode; 2] = [DeliveryMode::Repair, DeliveryMode::Live];

    /// Returns the matches, each subscription with its start time.
    fn pairs(matched: Option<Arc<MatchSet>>) -> Vec<(Target, Instant)> {
        matched.map_or(Vec::new(), |matched| {
            assert_eq!(Some(&matched.oldest), matched.since.iter().min());
            assert_eq!(Some(&matched.newest), matched.since.iter().max());
            matched.targets.iter().copied().zip(matched.since.iter().copied()).collect()
        })
    }

    #[test]
    fn excess_subscriptions_are_refused_and_repeated_ids_ignored() {
        let mut interest = InterestTable::new(&settings(2, 3, 8), 1);
        let pattern = |text: &str| text.parse::<Pattern>().unwrap();
        let mut subscribe = |client: u32, sub: u32, text: &str| {
            interest.subscribe(at(u64::from(sub)), target(client, sub), pattern(text).into(), DeliveryMode::Repair)
        };
        assert_eq!(subscribe(1, 1, "a"), Ok(()));
        assert_eq!(subscribe(1, 2, "a.>"), Ok(()));
        assert_eq!(subscribe(1, 3, "b"), Err(Refusal::TooManySubscriptions { max: 2 }));
        assert_eq!(subscribe(1, 2, "z"), Ok(()), "the first pattern stays");
        assert_eq!(subscribe(2, 7, "*"), Ok(()));
        assert_eq!(subscribe(2, 8, "*"), Err(Refusal::TooManySubscriptions { max: 3 }));
        assert_eq!(subscribe(3, 1, "*"), Err(Refusal::TooManySubscriptions { max: 3 }));

        assert!(interest.matches(&"z.y".parse().unwrap(), DeliveryMode::Repair).is_none());
        let matched = interest.matches(&"a".parse().unwrap(), DeliveryMode::Repair).unwrap();
        assert_eq!(*matched.targets, [target(1, 1), target(2, 7)]);
        assert_eq!((*matched.since).to_vec(), [at(1), at(7)]);
        assert_eq!(matched.oldest, at(1));
        assert_eq!(*interest.one_per_client(DeliveryMode::Repair), [target(1, 1), target(2, 7)]);

        interest.count(&matched, 5);
        assert!(interest.unsubscribe(ClientId(1), SubId(1)));
        assert!(!interest.unsubscribe(ClientId(1), SubId(1)));
        interest.count(&matched, 1);
        let rows: Vec<_> = interest
            .rows()
            .into_iter()
            .map(|row| (row.client.0, row.sub.0, row.wanted.pattern, row.deliveries))
            .collect();
        assert_eq!(rows, [(1, 2, pattern("a.>"), 0), (2, 7, pattern("*"), 6)]);
        assert_eq!(*interest.one_per_client(DeliveryMode::Repair), [target(1, 2), target(2, 7)]);
        interest.detach(ClientId(1));
        interest.detach(ClientId(1));
        assert!(!interest.is_empty(DeliveryMode::Repair));
        interest.detach(ClientId(2));
        assert!(interest.is_empty(DeliveryMode::Repair) && interest.one_per_client(DeliveryMode::Repair).is_empty());
        assert!(interest.matches(&"a".parse().unwrap(), DeliveryMode::Repair).is_none());
    }

    #[test]
    fn matches_are_cached_up_to_the_cache_size() {
        for (match_cache, remembered) in [(2, 2), (8, 5)] {
            let mut interest = InterestTable::new(&settings(2, 2, match_cache), 1);
            let glob = Some(Glob::new(b"a.*").unwrap());
            let wanted = SubscriptionFilter { glob, ..">".parse::<Pattern>().unwrap().into() };
            interest.subscribe(at(0), target(1, 1), wanted, DeliveryMode::Repair).unwrap();
            for number in 0..5 {
                let subject: Subject = format!("a.{number}").parse().unwrap();
                assert!(interest.matches(&subject, DeliveryMode::Repair).is_some());
            }
            assert_eq!(interest.matchers[DeliveryMode::Repair as usize].cache.len(), remembered);
        }
    }

    /// Compares random changes and lookups, with a cache that is too small, with matching each pattern in turn.
    #[test]
    fn interest_table_agrees_with_its_reference_model() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let (of_client, of_all) = (rng.between(1, 20) as usize, rng.between(1, 60) as usize);
            let mut interest = InterestTable::new(&settings(of_client, of_all, rng.below(10) as usize), rng.next_u64());
            let mut model: BTreeMap<Target, (SubscriptionFilter, Instant, DeliveryMode)> = BTreeMap::new();
            for step in 0..1500 {
                let context = format!("seed {seed} step {step}");
                let mut draw = |tokens: &[&str]| {
                    let depth = rng.between(1, 4);
                    (0..depth).map(|_| tokens[rng.below(tokens.len() as u64) as usize]).collect::<Vec<_>>().join(".")
                };
                let subject: Subject = draw(&["a", "b", "c"]).parse().unwrap();
                let pattern: Result<Pattern, _> = draw(&["a", "b", "*", ">"]).parse();
                let glob = (rng.below(4) == 0).then(|| {
                    let text: Vec<u8> = (0..rng.below(5)).map(|_| b"ab*?."[rng.below(5) as usize]).collect();
                    Glob::new(&text).unwrap()
                });
                let target = target(rng.below(5) as u32, rng.below(30) as u32);
                let mode = MODES[rng.below(2) as usize];
                let wanted = pattern.map(|pattern| SubscriptionFilter { glob, ..pattern.into() });
                match (rng.below(20), wanted) {
                    (0..6, Ok(wanted)) => {
                        let others = model.keys().filter(|other| other.client == target.client).count();
                        let expected = match () {
                            () if model.contains_key(&target) => Ok(()),
                            () if of_client <= others => Err(Refusal::TooManySubscriptions { max: of_client }),
                            () if of_all <= model.len() => Err(Refusal::TooManySubscriptions { max: of_all }),
                            () => Ok(()),
                        };
                        let answer = interest.subscribe(at(step), target, wanted.clone(), mode);
                        assert_eq!(answer, expected, "{context}");
                        if answer.is_ok() {
                            model.entry(target).or_insert((wanted, at(step), mode));
                        }
                    }
                    (6..8, _) => {
                        let removed = interest.unsubscribe(target.client, target.sub);
                        assert_eq!(removed, model.remove(&target).is_some(), "{context}");
                    }
                    (8, _) => {
                        interest.detach(target.client);
                        model.retain(|other, _| other.client != target.client);
                    }
                    _ => {}
                }
                let expected = |modes: &[DeliveryMode]| -> Vec<(Target, Instant)> {
                    let wanting =
                        model.iter().filter(|(_, (wanted, _, mode))| modes.contains(mode) && wanted.matches(&subject));
                    wanting.map(|(target, (_, since, _))| (*target, *since)).collect()
                };
                for mode in MODES {
                    let found = pairs(interest.matches(&subject, mode));
                    assert_eq!(found, expected(&[mode]), "{context} {subject} {mode:?}");
                    let is_empty = model.values().all(|(.., other)| *other != mode);
                    assert_eq!(interest.is_empty(mode), is_empty, "{context}");
                    let cache = &interest.matchers[mode as usize].cache;
                    assert!(cache.len() <= cache.cap().get(), "{context}");
                }
                assert_eq!(pairs(interest.matches_any(&subject)), expected(&MODES), "{context} {subject}");
                assert_eq!(interest.rows().len(), model.len(), "{context}");
            }
        }
    }
}
