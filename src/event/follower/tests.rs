//! Single steps, and random histories of a server, the bus and a follower.

use super::*;
use crate::event::model::Registration;
use crate::event::replication::{INSTANCE_END, split_session};
use crate::event::sequencer::EventSequencer;
use crate::event::store::memory::MemoryJournal;
use crate::event::store::{Journal, Query, QueryPage, ServerQuery};
use crate::event::timestamp::Timestamp;
use crate::rng::Rng;

const ORIGIN: ServerId = ServerId(7);

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn epoch(bits: u64) -> Epoch {
    Epoch::new(bits).unwrap()
}

/// Origin of a server on this LAN.
fn native(bits: u64) -> ServerOrigin {
    ServerOrigin { site: ServerSite::Own, peer: epoch(bits) }
}

/// Origin of a server in another site.
fn remote(site: &str, bits: u64) -> ServerOrigin {
    ServerOrigin { site: ServerSite::Other(site.into()), peer: epoch(bits) }
}

fn position(session: u64, instance: u64) -> EventId {
    EventId { server: ORIGIN, session, instance }
}

fn types(patterns: &[&str]) -> Vec<TypePattern> {
    patterns.iter().map(|text| text.parse().unwrap()).collect()
}

fn event(session: u64, instance: u64, event_type: &str) -> Event {
    Event {
        id: position(session, instance),
        event_type: event_type.parse().unwrap(),
        timestamp: Timestamp::MIN,
        source_timestamp: None,
        payload: None,
    }
}

fn announced(since: EventId, until: EventId, events: Vec<Event>) -> Announcement {
    Announcement { opened: Timestamp::MIN, is_held: true, follows: false, since, until, events }
}

fn follower(patterns: &[&str]) -> Follower {
    Follower::new(ServerId(1), types(patterns), [])
}

/// Returns all actions that are due now.
fn steps(follower: &mut Follower, now: Instant) -> Vec<FollowerAction> {
    let mut steps = Vec::new();
    while let Some(step) = follower.poll(now) {
        if let FollowerAction::Store(_) = step {
            follower.on_stored(now, true);
        }
        steps.push(step);
    }
    steps
}

fn requested(number: u64, after: EventId, patterns: &[&str]) -> FollowerAction {
    FollowerAction::Request { number, request: ReplicationRequest { after, types: types(patterns) } }
}

fn page(covered: EventId, events: Vec<Event>) -> ReplicationPage {
    ReplicationPage { covered, more_follows: false, events }
}

fn rows(follower: &Follower) -> Vec<ServerStatus> {
    follower.rows().collect()
}

/// A gateway relays a server of another site, and another gateway continues. Neither a server of this LAN nor one of a
/// third site takes its place, even after the first one is silent.
#[test]
fn server_of_one_site_only_is_followed() {
    let mut follower = follower(&["*"]);
    let (plant, end) = (remote("plant1", 5), |session| position(session, INSTANCE_END));
    let told = |session| announced(end(session), end(session), Vec::new());
    follower.on_announcement(at(0), epoch(9), &plant, told(2));
    assert!(steps(&mut follower, at(0)).contains(&requested(1, position(0, 0), &["*"])));
    // The gateway is also the peer of another server with this number, whose answer does not count.
    follower.on_page(at(1), epoch(9), &native(9), 1, page(end(8), vec![event(8, 1, "wrong")]));
    assert_eq!(steps(&mut follower, at(1)), []);
    follower.on_page(at(1), epoch(9), &plant, 1, page(end(2), vec![event(2, 1, "a")]));
    assert!(steps(&mut follower, at(1)).contains(&FollowerAction::Store(vec![event(2, 1, "a")])));
    // Another gateway continues: the follower requests what may be missing.
    follower.on_announcement(at(2), epoch(8), &plant, told(3));
    assert!(steps(&mut follower, at(2)).contains(&requested(2, end(2), &["*"])));
    follower.on_page(at(3), epoch(8), &plant, 2, page(end(3), vec![event(3, 1, "a")]));
    assert!(steps(&mut follower, at(3)).contains(&FollowerAction::Store(vec![event(3, 1, "a")])));
    let wrong = || announced(end(3), end(4), vec![event(4, 1, "wrong")]);
    follower.on_announcement(at(4), epoch(7), &native(7), wrong());
    let ServerOrigin { site: followed, .. } = plant.clone();
    let conflict = FollowerNotice::SiteConflict { server: ORIGIN, followed, other: ServerSite::Own };
    assert_eq!(steps(&mut follower, at(4)), [FollowerAction::Report(conflict)]);
    for millis in [5, 40_000, 80_000] {
        follower.on_announcement(at(millis), epoch(7), &native(7), wrong());
        follower.on_announcement(at(millis), epoch(9), &remote("plant2", 5), wrong());
        let steps = steps(&mut follower, at(millis));
        assert!(!steps.iter().any(|step| !matches!(step, FollowerAction::Report(_))), "{steps:?}");
    }
    follower.on_announcement(at(80_001), epoch(8), &plant, told(4));
    assert!(steps(&mut follower, at(80_001)).contains(&requested(3, end(3), &["*"])));
}

/// The peer of a server in another site restarts with an older journal, while the gateway runs on.
#[test]
fn rolled_back_journal_of_another_site_is_reported() {
    let mut follower = follower(&["*"]);
    let end = |session| position(session, INSTANCE_END);
    follower.on_announcement(at(0), epoch(9), &remote("plant1", 5), announced(end(3), end(3), Vec::new()));
    steps(&mut follower, at(0));
    follower.on_page(at(1), epoch(9), &remote("plant1", 5), 1, page(end(3), vec![event(3, 1, "a")]));
    steps(&mut follower, at(1));
    follower.on_announcement(at(2), epoch(9), &remote("plant1", 6), announced(end(1), end(1), Vec::new()));
    let notice = FollowerNotice::Rollback { covered: end(3), until: end(1) };
    assert!(steps(&mut follower, at(2)).contains(&FollowerAction::Report(notice)));
}

#[test]
fn missing_events_are_requested_and_announced_ones_stored() {
    let mut follower = follower(&["a/*"]);
    let (after_2, after_3) = (position(2, INSTANCE_END), position(3, INSTANCE_END));
    follower.on_announcement(at(0), epoch(9), &native(9), announced(after_2, after_2, Vec::new()));
    let start = FollowerAction::Report(FollowerNotice::Start {
        publisher: epoch(9),
        site: ServerSite::Own,
        after: position(0, 0),
    });
    assert_eq!(steps(&mut follower, at(0)), [start, requested(1, position(0, 0), &["a/*"])]);
    // Announcements received during a request are buffered, even if the answer may contain their events.
    follower.on_announcement(
        at(1),
        epoch(9),
        &native(9),
        announced(after_2, after_3, vec![event(3, 1, "a/b"), event(3, 2, "b")]),
    );
    assert_eq!(steps(&mut follower, at(1)), []);
    follower.on_page(at(2), epoch(9), &native(9), 1, page(position(2, 4), vec![event(2, 2, "a")]));
    // The answer ends before the announced position: events may be missing between them.
    assert_eq!(
        steps(&mut follower, at(2)),
        [FollowerAction::Store(vec![event(2, 2, "a")]), requested(2, position(2, 4), &["a/*"])]
    );
    let page_3 = page(position(3, 2), vec![event(3, 1, "a/b")]);
    follower.on_page(at(3), epoch(9), &native(9), 2, page_3.clone());
    let catch_up = FollowerAction::Report(FollowerNotice::CatchUp { covered: position(3, 2) });
    assert_eq!(steps(&mut follower, at(3)), [FollowerAction::Store(page_3.events), catch_up]);
    let after_4 = position(4, INSTANCE_END);
    follower.on_announcement(
        at(4),
        epoch(9),
        &native(9),
        announced(position(3, 2), after_4, vec![event(4, 1, "a"), event(4, 2, "x")]),
    );
    assert_eq!(steps(&mut follower, at(4)), [FollowerAction::Store(vec![event(4, 1, "a")])]);
    assert_eq!(
        rows(&follower),
        [ServerStatus {
            covered: after_4,
            publisher: Some(epoch(9)),
            site: Some(ServerSite::Own),
            state: ReplicationState::Live
        }]
    );
    // The first announcement has nothing new. The next one shows that events are missing.
    follower.on_announcement(at(5), epoch(9), &native(9), announced(after_4, after_4, Vec::new()));
    assert_eq!(steps(&mut follower, at(5)), []);
    follower.on_announcement(
        at(6),
        epoch(9),
        &native(9),
        announced(position(5, INSTANCE_END), position(6, 1), vec![event(6, 1, "a")]),
    );
    assert_eq!(steps(&mut follower, at(6)), [requested(3, after_4, &["a/*"])]);
    let catching_up = ServerStatus {
        covered: after_4,
        publisher: Some(epoch(9)),
        site: Some(ServerSite::Own),
        state: ReplicationState::CatchingUp,
    };
    assert_eq!(rows(&follower), std::slice::from_ref(&catching_up));
    steps(&mut follower, at(60_000));
    assert_eq!(
        rows(&follower),
        [ServerStatus { publisher: None, site: None, state: ReplicationState::Unreachable, ..catching_up }]
    );
}

#[test]
fn lost_message_causes_a_request_at_once() {
    let mut follower = follower(&["*"]);
    follower.on_announcement(at(0), epoch(9), &native(9), announced(position(0, 0), position(0, 0), Vec::new()));
    steps(&mut follower, at(0));
    follower.on_page(at(0), epoch(9), &native(9), 1, page(position(0, 0), Vec::new()));
    steps(&mut follower, at(0));
    follower.on_loss(Some(epoch(8)));
    assert_eq!(steps(&mut follower, at(1)), []);
    follower.on_loss(Some(epoch(9)));
    assert_eq!(steps(&mut follower, at(1)), [requested(2, position(0, 0), &["*"])]);
}

#[test]
fn unanswered_request_is_repeated_with_backoff() {
    let mut follower = follower(&["*"]);
    follower.on_announcement(at(0), epoch(9), &native(9), announced(position(1, 0), position(1, 0), Vec::new()));
    let mut request_times = Vec::new();
    for now in 0..40_000 {
        if now == 20_000 {
            follower.on_announcement(
                at(now),
                epoch(9),
                &native(9),
                announced(position(1, 0), position(1, 0), Vec::new()),
            );
        }
        for step in steps(&mut follower, at(now)) {
            match step {
                FollowerAction::Request { .. } => request_times.push(now),
                // An answer to another request, or of another server, is ignored.
                FollowerAction::Report(FollowerNotice::RequestFailure(_)) => {
                    follower.on_page(at(now), epoch(9), &native(9), 99, page(position(1, 0), Vec::new()));
                    follower.on_page(at(now), epoch(8), &native(8), 1, page(position(1, 0), Vec::new()));
                }
                _ => {}
            }
        }
    }
    assert_eq!(request_times, [0, 5000, 15_000, 35_000]);
    assert_eq!(follower.deadline(), Some(at(55_000)));
    let actions = steps(&mut follower, at(55_000));
    assert!(actions.contains(&FollowerAction::Report(FollowerNotice::AnnouncementTimeout(ORIGIN))), "{actions:?}");
    assert_eq!((follower.deadline(), follower.rows().count()), (None, 0));
}

#[test]
fn unstored_events_are_requested_with_backoff() {
    let mut follower = follower(&["*"]);
    let mut request_times = Vec::new();
    for now in 0..30_000 {
        if now % 10_000 == 0 {
            follower.on_announcement(
                at(now),
                epoch(9),
                &native(9),
                announced(position(1, 9), position(1, 9), Vec::new()),
            );
        }
        while let Some(step) = follower.poll(at(now)) {
            match step {
                FollowerAction::Request { number, .. } => {
                    request_times.push(now);
                    follower.on_page(
                        at(now),
                        epoch(9),
                        &native(9),
                        number,
                        page(position(1, INSTANCE_END), vec![event(1, 1, "a")]),
                    );
                }
                FollowerAction::Store(_) => follower.on_stored(at(now), false),
                FollowerAction::Report(notice) => assert!(matches!(notice, FollowerNotice::Start { .. }), "{notice}"),
            }
        }
    }
    assert_eq!(request_times, [0, 500, 1500, 3500, 7500, 15_500]);
}

#[test]
fn invalid_announcement_is_ignored() {
    let mut follower = follower(&["*"]);
    for (since, until, events) in [
        (position(2, 0), position(1, 0), vec![]),
        (position(1, 0), position(1, 2), vec![event(1, 3, "a")]),
        (position(1, 0), position(1, 2), vec![event(1, 2, "a"), event(1, 1, "a")]),
        (position(1, 1), position(1, 2), vec![event(1, 1, "a")]),
        (position(0, 0), position(1, 2), vec![event(0, 1, "a")]),
        (position(0, 0), position(1 << 63, 2), vec![]),
        (position(0, 0), position(2, 2), vec![event(1, 1 << 63, "a")]),
        (EventId { server: ServerId(8), session: 0, instance: 0 }, position(2, 2), vec![]),
    ] {
        follower.on_announcement(at(0), epoch(9), &native(9), announced(since, until, events.clone()));
        assert_eq!(steps(&mut follower, at(0)), [], "{since} {until} {events:?}");
    }
    // The server is the local one, or does not hold its id yet.
    let own = EventId { server: ServerId(1), session: 0, instance: 0 };
    follower.on_announcement(at(0), epoch(9), &native(9), announced(own, own, Vec::new()));
    follower.on_announcement(
        at(0),
        epoch(9),
        &native(9),
        Announcement { is_held: false, ..announced(position(0, 0), position(0, 0), vec![]) },
    );
    assert_eq!(steps(&mut follower, at(0)), []);
    follower.on_announcement(at(0), epoch(9), &native(9), announced(position(1, 0), position(1, 0), Vec::new()));
    assert_eq!(steps(&mut follower, at(0)).len(), 2);
    // An answer without progress would be requested forever.
    follower.on_page(
        at(0),
        epoch(9),
        &native(9),
        1,
        ReplicationPage { covered: position(0, 0), more_follows: true, events: Vec::new() },
    );
    assert_eq!(steps(&mut follower, at(0)), [FollowerAction::Report(FollowerNotice::RequestFailure(ORIGIN))]);
}

#[test]
fn rewound_journal_is_reported_once() {
    let mut follower = Follower::new(ServerId(1), types(&["*"]), [position(5, 0)]);
    for now in 0..3 {
        follower.on_announcement(at(now), epoch(9), &native(9), announced(position(3, 1), position(3, 1), Vec::new()));
    }
    let actions = steps(&mut follower, at(3));
    let rollback = FollowerNotice::Rollback { covered: position(5, 0), until: position(3, 1) };
    assert_eq!(actions[1..], [FollowerAction::Report(rollback), requested(1, position(5, 0), &["*"])]);
    assert_eq!(rows(&follower)[0].state, ReplicationState::RolledBack);
    // The server has passed that position, but its events under reused ids are not stored here.
    follower.on_announcement(at(4), epoch(9), &native(9), announced(position(6, 1), position(6, 1), Vec::new()));
    assert_eq!(rows(&follower)[0].state, ReplicationState::RolledBack);
    // An announcement may arrive later than a page with all of its events.
    let mut follower = Follower::new(ServerId(1), types(&["*"]), []);
    follower.on_announcement(at(0), epoch(9), &native(9), announced(position(1, 1), position(1, 1), Vec::new()));
    steps(&mut follower, at(0));
    follower.on_page(at(0), epoch(9), &native(9), 1, page(position(20, INSTANCE_END), Vec::new()));
    follower.on_announcement(
        at(1),
        epoch(9),
        &native(9),
        announced(position(1, 1), position(11, 1), vec![event(11, 1, "a")]),
    );
    assert_eq!(rows(&follower)[0].state, ReplicationState::Live);
}

#[test]
fn server_beyond_the_maximum_is_not_followed() {
    let mut follower = follower(&["*"]);
    for number in 0..2 * SERVERS_MAX as u32 {
        let none = EventId { server: ServerId(100 + number), session: 0, instance: 0 };
        follower.on_announcement(
            at(0),
            epoch(1 + u64::from(number)),
            &native(1 + u64::from(number)),
            announced(none, none, Vec::new()),
        );
    }
    let actions = steps(&mut follower, at(0));
    let server_limit = |step: &&FollowerAction| matches!(step, FollowerAction::Report(FollowerNotice::ServerLimit(_)));
    assert_eq!((follower.rows().count(), actions.iter().filter(server_limit).count()), (SERVERS_MAX, 1));
    steps(&mut follower, at(60_000));
    assert!(follower.covered.is_empty() && follower.servers.is_empty());
}

#[test]
fn page_holds_wanted_events_that_fit() {
    let events = vec![event(1, 1, "a"), event(1, 2, "b"), event(2, 1, "a"), event(2, 2, "a"), event(3, 1, "b")];
    let check = |bytes_max, more_follows, expected: (usize, EventId, bool)| {
        let question = ReplicationRequest { after: position(1, 0), types: types(&["a"]) };
        let answer = QueryPage { events: events.clone(), more_follows };
        let page =
            ReplicationPage::new(&question, answer, bytes_max, |event| (event.id != position(2, 2)).then_some(10));
        assert_eq!((page.events.len(), page.covered, page.more_follows), expected);
        assert!(page.answers(&question));
    };
    check(100, false, (2, position(3, INSTANCE_END), false));
    check(100, true, (2, position(3, 1), true));
    check(19, false, (1, position(1, 2), true));
    check(1, false, (1, position(1, 2), true));
}

#[test]
fn large_session_is_announced_in_parts() {
    let head = announced(position(1, INSTANCE_END), position(1, INSTANCE_END), Vec::new());
    let events: Vec<Event> = (1..=5).map(|instance| event(2, instance, "a")).collect();
    let parts = split_session(&head, &events, 20, |_| 10);
    let positions: Vec<_> = parts.iter().map(|part| (part.since, part.until, part.events.len())).collect();
    let expected = [
        (position(1, INSTANCE_END), position(2, 2), 2),
        (position(2, 2), position(2, 4), 2),
        (position(2, 4), position(2, INSTANCE_END), 1),
    ];
    assert_eq!(positions, expected);
    assert!(parts.iter().all(Announcement::is_sound));
}

/// A server, the bus and a follower; server and follower may restart at any time.
struct World {
    rng: Rng,
    sequencer: EventSequencer,
    origin: MemoryJournal,
    /// Epoch of the server.
    epoch: u64,
    last: EventId,
    follower: Follower,
    copy: MemoryJournal,
    /// Announcements and answers in transit: their arrival times and epochs.
    coming: Vec<(u64, u64, Coming)>,
    loss: f64,
    /// Probability that a stored session is announced.
    announces: f64,
}

enum Coming {
    Announced(Announcement),
    Answered(u64, ReplicationPage),
}

const WANTED: [&str; 2] = ["a/*", "b"];

impl World {
    fn new(seed: u64) -> World {
        World {
            rng: Rng::new(seed),
            sequencer: EventSequencer::new(ORIGIN, 0, Timestamp::MIN),
            origin: MemoryJournal::default(),
            epoch: 1,
            last: position(0, INSTANCE_END),
            follower: follower(&WANTED),
            copy: MemoryJournal::default(),
            coming: Vec::new(),
            loss: 0.2,
            announces: 0.7,
        }
    }

    /// Sends a message. Messages of one subject arrive in their order, or not at all; answers arrive in any order.
    fn send(&mut self, now: u64, what: Coming) {
        if self.rng.chance(self.loss) {
            return;
        }
        let delay = match &what {
            Coming::Announced(_) => 5,
            Coming::Answered(..) => 1 + self.rng.below(200),
        };
        self.coming.push((now + delay, self.epoch, what));
    }

    fn register(&mut self, now: u64) {
        let types = ["a", "a/b", "b", "b/c", "c"];
        let registration = |rng: &mut Rng| Registration {
            event_type: types[rng.below(5) as usize].parse().unwrap(),
            source_timestamp: None,
            payload: None,
        };
        let requested: Vec<Registration> = (0..1 + self.rng.below(6)).map(|_| registration(&mut self.rng)).collect();
        let events = self.sequencer.register(Timestamp::MIN, requested);
        self.origin.append(&events).unwrap();
        let head = announced(self.last, self.last, Vec::new());
        for part in split_session(&head, &events, 20, |_| 10) {
            self.last = part.until;
            // The server may not know any follower.
            if self.rng.chance(self.announces) {
                self.send(now, Coming::Announced(part));
            }
        }
    }

    fn answer(&mut self, now: u64, number: u64, question: &ReplicationRequest) {
        let limit = Some(1 + self.rng.below(20) as usize);
        let query = Query::Server(ServerQuery { server: ORIGIN, after: Some(question.after), limit });
        let found = self.origin.query(&query).unwrap();
        let page = ReplicationPage::new(question, found, 50, |_| Some(10));
        self.send(now, Coming::Answered(number, page));
    }

    fn run(&mut self, now: u64) {
        let (due, coming) = std::mem::take(&mut self.coming).into_iter().partition(|(due, ..)| *due <= now);
        self.coming = coming;
        for (_, run, what) in due {
            match what {
                Coming::Announced(announcement) => {
                    self.follower.on_announcement(at(now), epoch(run), &native(run), announcement);
                }
                Coming::Answered(number, page) => {
                    self.follower.on_page(at(now), epoch(run), &native(run), number, page)
                }
            }
        }
        while let Some(step) = self.follower.poll(at(now)) {
            match step {
                FollowerAction::Store(events) => {
                    let is_stored = !self.rng.chance(self.loss / 4.0);
                    assert!(events.iter().all(|event| !self.copy.events().contains(event)), "{events:?}");
                    if is_stored {
                        self.copy.append(&events).unwrap();
                    }
                    self.follower.on_stored(at(now), is_stored);
                }
                FollowerAction::Request { number, request } => {
                    if !self.rng.chance(self.loss) {
                        self.answer(now, number, &request);
                    }
                }
                FollowerAction::Report(notice) => {
                    assert!(!matches!(notice, FollowerNotice::Rollback { .. }), "{notice}")
                }
            }
        }
    }

    /// Returns the time at which something may happen next, in milliseconds, at most the next whole second.
    fn next_time(&self, now: u64) -> u64 {
        let deadline = self.follower.deadline().map(|deadline| deadline.as_nanos() / 1_000_000);
        let arrivals = self.coming.iter().map(|(due, ..)| *due);
        let next = arrivals.chain(deadline).fold((now / 1000 + 1) * 1000, u64::min);
        next.max(now + 1)
    }

    /// Checks that the stored events are the first wanted ones, in their order; returns whether all are stored.
    fn check(&self, seed: u64) -> bool {
        let types = types(&WANTED);
        let wanted: Vec<&Event> = self.origin.events().iter().filter(|event| is_wanted(&types, event)).collect();
        let stored: Vec<&Event> = self.copy.events().iter().collect();
        assert_eq!(stored[..], wanted[..stored.len().min(wanted.len())], "seed {seed}");
        stored.len() == wanted.len()
    }
}

#[test]
fn random_history_is_stored_in_order_and_once() {
    let mut stored = 0;
    // Server and follower restart about six times each in every seed, among 300 sessions.
    for seed in 0..20 {
        let mut world = World::new(seed);
        for now in 0..30_000 {
            if world.rng.chance(0.01) {
                world.register(now);
            }
            if now % 3000 == 0 {
                world.send(now, Coming::Announced(announced(world.last, world.last, Vec::new())));
            }
            if world.rng.chance(0.0002) {
                world.epoch += 1;
                let last = world.origin.last_session(ORIGIN).unwrap();
                world.sequencer = EventSequencer::new(ORIGIN, last.session, last.timestamp);
                world.last = position(last.session, INSTANCE_END);
            }
            if world.rng.chance(0.0002) {
                let last = world.copy.events().last().map(|event| event.id);
                world.follower = Follower::new(ServerId(1), types(&WANTED), last);
            }
            world.run(now);
            if now % 100 == 0 {
                world.check(seed);
            }
        }
        world.loss = 0.0;
        let mut questions = 0;
        let mut now = 30_000;
        while now < 190_000 {
            if now % 10_000 == 0 {
                world.send(now, Coming::Announced(announced(world.last, world.last, Vec::new())));
            }
            if now == 150_000 {
                questions = world.follower.requests;
            }
            if 150_000 < now && now % 1000 == 0 && now < 180_000 {
                world.announces = 1.0;
                world.register(now);
            }
            world.run(now);
            now = world.next_time(now);
        }
        assert_eq!(
            world.follower.requests, questions,
            "seed {seed}: an event that arrives as announced is not requested"
        );
        assert!(world.check(seed), "seed {seed}: {:?}", world.follower.rows().collect::<Vec<_>>());
        stored += world.copy.events().len();
    }
    assert!(2_000 < stored, "{stored}");
}
