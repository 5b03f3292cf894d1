//! Single messages, and random histories of a server in one site and a follower in another one, with gateways that
//! take over from each other, and a hub that loses, repeats and reorders messages.

use super::*;
use crate::event::follower::{Follower, FollowerAction};
use crate::event::model::{Payload, Registration};
use crate::event::replication::{INSTANCE_END, ReplicationPage, ReplicationRequest, split_session};
use crate::event::sequencer::EventSequencer;
use crate::event::store::QueryPage;
use crate::event::timestamp::Timestamp;
use crate::listener::replication::{
    REQUEST_PREFIX, encode_announcement, encode_page, encode_request, event_bytes, read_announcement, read_page,
    read_request,
};
use crate::rng::Rng;

const SERVER: ServerId = ServerId(7);

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn epoch(bits: u64) -> Epoch {
    Epoch::new(bits).unwrap()
}

fn all_shares() -> CarriedShares {
    CarriedShares::new(|_| true)
}

fn types(patterns: &[&str]) -> Vec<crate::subject::event_type::TypePattern> {
    patterns.iter().map(|text| text.parse().unwrap()).collect()
}

fn relay(site: &str, gateway: u64, exports: &[&str], imports: &[&str]) -> EventRelay {
    let mut relay = EventRelay::new(site.parse().unwrap(), epoch(gateway), PermittedSubjects::all(), 1 << 20, at(0));
    relay.set_types(RelayedTypes { exports: types(exports), imports: types(imports) });
    relay.set_inbox(format!("_INBOX.{}.5.", epoch(gateway)));
    relay
}

fn position(session: u64) -> EventId {
    EventId { server: SERVER, session, instance: INSTANCE_END }
}

fn event(session: u64, event_type: &str, bytes: usize) -> Event {
    let payload = Some(Payload::Binary { type_name: "".into(), bytes: vec![0; bytes].into() });
    let id = EventId { server: SERVER, session, instance: 1 };
    let event_type = event_type.parse().unwrap();
    Event { id, event_type, timestamp: Timestamp::MIN, source_timestamp: None, payload }
}

fn announcement(since: u64, until: u64, events: Vec<Event>) -> Announcement {
    let (since, until) = (position(since), position(until));
    Announcement { opened: Timestamp::MIN, is_held: true, follows: false, since, until, events }
}

/// Returns the announcement as a message of the LAN.
fn on_lan(announcement: &Announcement) -> Message {
    let subject = format!("{SERVER_PREFIX}{}", announcement.until.server).parse().unwrap();
    Message { event: true, ..Message::new(subject, encode_announcement(announcement)) }
}

/// Returns the announcement as a message of the cluster.
fn at_hub(site: &str, announcement: &Announcement) -> Message {
    let subject = format!("{EVENT_PREFIX}SERVER.{site}.{}", announcement.until.server);
    message_with(&subject, ServerOrigin::relayed_headers(site, epoch(70)), encode_announcement(announcement))
}

fn drain(next: impl FnMut() -> Option<Message>) -> Vec<Message> {
    std::iter::from_fn(next).take(1000).collect()
}

fn announced(messages: &[Message]) -> Vec<Announcement> {
    messages.iter().map(|message| read_announcement(message.payload.clone(), true).unwrap()).collect()
}

#[test]
fn only_named_types_leave_and_enter_a_site() {
    let mut plant = relay("plant1", 1, &["plant/*", "line/*"], &[]);
    let events = vec![event(2, "plant/1", 0), event(3, "secret", 0), event(4, "line/1", 0)];
    let told = announcement(1, 4, events.clone());
    let permitted = PermittedSubjects::all();
    plant.on_lan_message(at(0), all_shares(), &on_lan(&told), epoch(70), &permitted);
    assert_eq!(plant.poll_hub(), None, "nobody follows");
    plant.on_hub_message(
        at(1),
        all_shares(),
        &message_with(&format!("{EVENT_PREFIX}FOLLOW.hq"), Headers::new(), Bytes::new()),
        &HubSender::AnyClient,
    );
    assert_eq!(announced(&drain(|| plant.poll_hub())), [announcement(4, 4, Vec::new())], "the position");
    plant.on_tick(at(1), all_shares());
    assert_eq!(plant.poll_lan().unwrap().subject.as_str(), RELAY_SUBJECT);
    let told = Announcement { since: position(4), until: position(9), ..told };
    let [first, second, third] = [5, 6, 7].map(|session| EventId { session, ..events[0].id });
    let events: Vec<Event> =
        events.into_iter().zip([first, second, third]).map(|(event, id)| Event { id, ..event }).collect();
    let told = Announcement { events: events.clone(), ..told };
    plant.on_lan_message(at(2), all_shares(), &on_lan(&told), epoch(70), &permitted);
    let crossing = drain(|| plant.poll_hub());
    let exported = Announcement { events: vec![events[0].clone(), events[2].clone()], ..told.clone() };
    assert_eq!(announced(&crossing), [exported], "the positions stay");
    let mut hq = relay("hq", 2, &[], &["plant/*", "secret"]);
    hq.on_hub_message(at(3), all_shares(), &crossing[0], &HubSender::AnyClient);
    let delivered = drain(|| hq.poll_lan());
    assert_eq!(announced(&delivered), [Announcement { events: vec![events[0].clone()], ..told.clone() }]);
    let origin = ServerOrigin { site: ServerSite::Other("plant1".into()), peer: epoch(70) };
    assert_eq!(ServerOrigin::of_message(&delivered[0].headers, epoch(2)), Some(origin));
    assert!(delivered[0].event);
    // Nothing that was imported leaves again, and nothing unnamed enters a site.
    let mut other = relay("hq", 3, &["*"], &[]);
    other.on_hub_message(
        at(4),
        all_shares(),
        &message_with(&format!("{EVENT_PREFIX}FOLLOW.lab"), Headers::new(), Bytes::new()),
        &HubSender::AnyClient,
    );
    other.on_lan_message(at(5), all_shares(), &delivered[0], epoch(2), &permitted);
    other.on_hub_message(at(6), all_shares(), &crossing[0], &HubSender::AnyClient);
    assert_eq!((other.poll_hub(), other.poll_lan()), (None, None));
}

#[test]
fn denied_and_oversize_events_are_counted() {
    let mut hq = relay("hq", 2, &[], &["*"]);
    hq.permitted = PermittedSubjects::of(["plant.>".parse().unwrap()]);
    hq.lan_bytes_max = 10_000;
    let events =
        vec![event(2, "plant/1", 4_000), event(3, "other", 0), event(4, "plant/1", 20_000), event(5, "plant/1", 6_000)];
    hq.on_hub_message(
        at(0),
        all_shares(),
        &at_hub("plant1", &announcement(1, 5, events.clone())),
        &HubSender::AnyClient,
    );
    let cut = Announcement { until: events[0].id, events: vec![events[0].clone()], ..announcement(1, 5, Vec::new()) };
    // The last event is requested by the followers.
    assert_eq!(announced(&drain(|| hq.poll_lan())), [cut]);
    let EventCounts { imported, refused, too_large, .. } = hq.counts();
    assert_eq!((imported, refused, too_large), (1, 1, 1));
    let notices = [hq.poll_notice(), hq.poll_notice(), hq.poll_notice()];
    let [refused, too_large] = [1, 2].map(|index: usize| events[index].id);
    assert_eq!(notices, [Some(EventRelayNotice::Refused(refused)), Some(EventRelayNotice::TooLarge(too_large)), None]);
}

#[test]
fn first_site_keeps_a_contested_number() {
    let mut hq = relay("hq", 2, &["*"], &["*"]);
    let permitted = PermittedSubjects::all();
    hq.on_lan_message(at(0), all_shares(), &on_lan(&announcement(1, 1, Vec::new())), epoch(71), &permitted);
    for millis in [1, 2] {
        hq.on_hub_message(
            at(millis),
            all_shares(),
            &at_hub("plant1", &announcement(1, 2, vec![event(2, "a", 0)])),
            &HubSender::AnyClient,
        );
    }
    assert_eq!(hq.poll_lan(), None);
    let site = ServerSite::Other("plant1".into());
    let notice = EventRelayNotice::Conflict { server: SERVER, relayed: ServerSite::Own, other: site };
    assert_eq!((hq.poll_notice(), hq.poll_notice()), (Some(notice.clone()), None));
    assert_eq!(hq.conflict(at(3)), Some(notice.to_string()));
    assert_eq!(hq.conflict(at(40_000)), None, "the other site is silent");
}

#[test]
fn hostile_messages_of_the_hub_are_counted() {
    let mut hq = relay("hq", 2, &["*"], &["*"]);
    let valid = at_hub("plant1", &announcement(1, 2, vec![event(2, "a", 0)]));
    let with =
        |subject: &str| Message { subject: format!("{EVENT_PREFIX}{subject}").parse().unwrap(), ..valid.clone() };
    let mut messages: Vec<Message> = [
        "SERVER",
        "SERVER.plant1",
        "SERVER.plant1.x",
        "SERVER.plant1.07",
        "SERVER.plant1.8",
        "SERVER.plant2.7",
        "X.plant1.7",
        "PAGE.hq.7",
        "QUERY.hq.7",
        "SERVER.plant1.7.8",
        "FOLLOW",
    ]
    .map(with)
    .into();
    messages.push(Message { headers: Headers::new(), ..valid.clone() });
    messages.push(Message { payload: valid.payload.slice(1..), ..valid.clone() });
    let count = messages.len() as u64;
    for message in messages {
        hq.on_hub_message(at(0), all_shares(), &message, &HubSender::AnyClient);
    }
    assert_eq!((hq.counts().invalid, hq.poll_lan(), hq.poll_hub()), (count, None, None));
    let mut rng = Rng::new(9);
    for _ in 0..20_000 {
        let mut payload = valid.payload.to_vec();
        let index = rng.below(payload.len() as u64) as usize;
        payload[index] = rng.below(256) as u8;
        // Each is relayed or refused, without a panic.
        hq.on_hub_message(
            at(0),
            all_shares(),
            &Message { payload: payload.into(), ..valid.clone() },
            &HubSender::AnyClient,
        );
        drain(|| hq.poll_lan());
    }
}

#[test]
fn answers_reach_only_those_that_asked() {
    let mut hq = relay("hq", 2, &[], &["*"]);
    hq.on_hub_message(at(0), all_shares(), &at_hub("plant1", &announcement(9, 9, Vec::new())), &HubSender::AnyClient);
    drain(|| hq.poll_lan());
    let request = ReplicationRequest { after: position(1), types: types(&["*"]) };
    let ask = |reply: &str| Message {
        event: true,
        reply: Some(reply.parse().unwrap()),
        ..message_with(&format!("{REQUEST_PREFIX}{SERVER}"), Headers::new(), encode_request(&request))
    };
    let permitted = PermittedSubjects::all();
    let reply = format!("_INBOX.{}.1.4", epoch(80));
    hq.on_lan_message(at(1), all_shares(), &ask(&reply), epoch(81), &permitted);
    assert_eq!(hq.poll_hub(), None, "a peer asks for itself only");
    hq.on_lan_message(at(1), all_shares(), &ask(&reply), epoch(80), &permitted);
    let asked = hq.poll_hub().expect("the request crosses");
    assert_eq!(asked.subject.as_str(), format!("{EVENT_PREFIX}QUERY.plant1.{SERVER}"));
    let page = ReplicationPage { covered: position(9), more_follows: false, events: vec![event(2, "a", 0)] };
    let answer = |site: &str, value: &str| {
        let fields = [("Seqcast-Site", format!("{site} {}", epoch(70))), ("Seqcast-Link", value.to_owned())];
        let headers = Headers::from_pairs(fields.iter().map(|(key, value)| (*key, value.as_str()))).unwrap();
        message_with(&format!("{EVENT_PREFIX}PAGE.hq.{SERVER}"), headers, encode_page(&page))
    };
    let value = asked.headers.iter().next().unwrap().1.to_owned();
    let other_gateway = format!("hq {} 1", epoch(3));
    for wrong in [answer("plant2", &value), answer("plant1", &other_gateway), answer("plant1", "hq 1 1")] {
        hq.on_hub_message(at(2), all_shares(), &wrong, &HubSender::AnyClient);
        assert_eq!(hq.poll_lan(), None);
    }
    hq.on_hub_message(at(3), all_shares(), &answer("plant1", &value), &HubSender::AnyClient);
    let delivered = hq.poll_lan().expect("the answer");
    assert_eq!((delivered.subject.as_str(), read_page(delivered.payload.clone())), (reply.as_str(), Ok(page.clone())));
    hq.on_hub_message(at(4), all_shares(), &answer("plant1", &value), &HubSender::AnyClient);
    assert_eq!(hq.poll_lan(), None, "each request has one answer");
}

/// A server, its journal, and what it has announced.
struct Server {
    sequencer: EventSequencer,
    journal: Vec<Event>,
    head: Announcement,
    announce_at: u64,
    peer: u64,
}

impl Server {
    fn register(&mut self, rng: &mut Rng) -> Vec<Message> {
        let count = 1 + rng.below(3);
        let registration = |_| Registration {
            event_type: ["a/1", "b"][rng.below(2) as usize].parse().unwrap(),
            source_timestamp: None,
            payload: None,
        };
        let registrations = (0..count).map(registration).collect();
        let events = self.sequencer.register(Timestamp::MIN, registrations);
        let parts = split_session(&self.head, &events, 700, event_bytes);
        self.journal.extend(events);
        self.head = Announcement {
            since: parts.last().unwrap().until,
            until: parts.last().unwrap().until,
            ..self.head.clone()
        };
        parts.iter().map(on_lan).collect()
    }

    fn answer(&self, request: &ReplicationRequest) -> ReplicationPage {
        let after: Vec<Event> = self.journal.iter().filter(|event| request.after < event.id).cloned().collect();
        let found = QueryPage { more_follows: 5 < after.len(), events: after.into_iter().take(5).collect() };
        ReplicationPage::new(request, found, 1000, |event| Some(event_bytes(event)))
    }
}

/// The two sites of a history. Of the two gateways of a site, one carries all shares.
struct Sites {
    rng: Rng,
    now: u64,
    is_faulty: bool,
    server: Server,
    relays: [EventRelay; 4],
    /// Index of the gateway that carries the shares: of the first site, and of the second one.
    carrying: [usize; 2],
    hub: Vec<(u64, Message)>,
    follower: Follower,
    stored: Vec<EventId>,
}

impl Sites {
    fn shares(&self, relay: usize) -> CarriedShares {
        CarriedShares::new(|_| self.carrying.contains(&relay))
    }

    /// Delivers a message on the LAN of the server, or on that of the follower, unless it is lost.
    fn deliver_on_lan(&mut self, is_of_server: bool, from: u64, message: &Message) {
        let permitted = PermittedSubjects::all();
        for relay in if is_of_server { 0..2 } else { 2..4 } {
            let is_lost = self.is_faulty && self.rng.chance(0.05);
            if from != 100 + relay as u64 && !is_lost {
                let shares = self.shares(relay);
                self.relays[relay].on_lan_message(at(self.now), shares, message, epoch(from), &permitted);
            }
        }
        let origin = ServerOrigin::of_message(&message.headers, epoch(from));
        let Some(origin) = origin.filter(|_| !(self.is_faulty && self.rng.chance(0.05))) else { return };
        let subject = message.subject.as_str();
        if is_of_server {
            self.ask_server(message);
        } else if subject.starts_with(SERVER_PREFIX) {
            let read = read_announcement(message.payload.clone(), true).unwrap();
            self.follower.on_announcement(at(self.now), epoch(from), &origin, read);
        } else if let Some(number) = subject.strip_prefix("_INBOX.0000000000000050.1.") {
            let page = read_page(message.payload.clone()).unwrap();
            self.follower.on_page(at(self.now), epoch(from), &origin, number.parse().unwrap(), page);
        }
    }

    fn ask_server(&mut self, message: &Message) {
        if message.subject.as_str().starts_with(REQUEST_PREFIX) {
            let page = self.server.answer(&read_request(message.payload.clone()).unwrap());
            let reply = message.reply.clone().expect("an answer is wanted");
            let page = Message { event: true, ..Message::new(reply, encode_page(&page)) };
            self.deliver_on_lan(true, self.server.peer, &page);
        }
    }

    fn poll_follower(&mut self) {
        for _ in 0..100 {
            let now = at(self.now);
            match self.follower.poll(now) {
                None => return,
                Some(FollowerAction::Report(_)) => {}
                Some(FollowerAction::Store(events)) => {
                    self.stored.extend(events.iter().map(|event| event.id));
                    self.follower.on_stored(now, true);
                }
                Some(FollowerAction::Request { number, request }) => {
                    let subject = format!("{REQUEST_PREFIX}{SERVER}");
                    let reply = format!("_INBOX.{}.1.{number}", epoch(0x50)).parse().unwrap();
                    let message = message_with(&subject, Headers::new(), encode_request(&request));
                    self.deliver_on_lan(false, 0x50, &Message { event: true, reply: Some(reply), ..message });
                }
            }
        }
    }

    /// Passes on what the gateways send.
    fn poll_relays(&mut self) {
        for relay in 0..4 {
            for message in drain(|| self.relays[relay].poll_hub()) {
                for _ in 0..if self.is_faulty { self.rng.below(3) } else { 1 } {
                    let delay = if self.is_faulty { self.rng.below(400) } else { 20 };
                    self.hub.push((self.now + delay, message.clone()));
                }
            }
            for message in drain(|| self.relays[relay].poll_lan()) {
                self.deliver_on_lan(relay < 2, 100 + relay as u64, &message);
            }
        }
        let due: Vec<Message> =
            self.hub.extract_if(.., |(due, _)| *due <= self.now).map(|(_, message)| message).collect();
        for message in due {
            for relay in 0..4 {
                let shares = self.shares(relay);
                self.relays[relay].on_hub_message(at(self.now), shares, &message, &HubSender::AnyClient);
            }
        }
    }

    fn step(&mut self) {
        self.now += 50;
        if self.is_faulty && self.rng.chance(0.01) {
            let side = self.rng.below(2) as usize;
            self.carrying[side] = 2 * side + self.rng.below(2) as usize;
        }
        if self.is_faulty && self.rng.chance(0.005) {
            // A gateway restarts, and knows nothing.
            let index = self.rng.below(4) as usize;
            self.relays[index] = new_relay(index);
        }
        if self.rng.chance(0.1) && self.is_faulty {
            for message in self.server.register(&mut self.rng) {
                self.deliver_on_lan(true, self.server.peer, &message);
            }
        }
        if self.server.announce_at <= self.now {
            self.server.announce_at = self.now + 10_000;
            self.deliver_on_lan(true, self.server.peer, &on_lan(&self.server.head.clone()));
            let follower = Announcement { follows: true, ..announcement(1, 1, Vec::new()) };
            let id = EventId { server: ServerId(8), ..position(1) };
            self.deliver_on_lan(false, 0x50, &on_lan(&Announcement { since: id, until: id, ..follower }));
        }
        for relay in 0..4 {
            let shares = self.shares(relay);
            self.relays[relay].on_tick(at(self.now), shares);
        }
        self.poll_follower();
        self.poll_relays();
    }
}

fn new_relay(index: usize) -> EventRelay {
    match index {
        0 | 1 => relay("plant1", 100 + index as u64, &["a/*"], &[]),
        _ => relay("hq", 100 + index as u64, &[], &["*"]),
    }
}

/// Every exported event is stored once and in order, whatever is lost and whichever gateways restart.
#[test]
fn each_exported_event_is_stored_once_in_order() {
    for seed in 0..60 {
        let head = announcement(0, 0, Vec::new());
        let sequencer = EventSequencer::new(SERVER, 0, Timestamp::MIN);
        let mut sites = Sites {
            rng: Rng::new(seed),
            now: 0,
            is_faulty: true,
            server: Server { sequencer, journal: Vec::new(), head, announce_at: 0, peer: 70 },
            relays: std::array::from_fn(new_relay),
            carrying: [0, 2],
            hub: Vec::new(),
            follower: Follower::new(ServerId(8), types(&["*"]), []),
            stored: Vec::new(),
        };
        (0..1_200).for_each(|_| sites.step());
        sites.is_faulty = false;
        // A follower waits up to a minute before it repeats a request.
        (0..3_000).for_each(|_| sites.step());
        let exported = sites.server.journal.iter().filter(|event| event.event_type.to_string().starts_with("a/"));
        let expected: Vec<EventId> = exported.map(|event| event.id).collect();
        assert!(20 < expected.len(), "seed {seed}");
        assert_eq!(sites.stored, expected, "seed {seed}");
    }
}
