//! Requests between the gateways of several sites, without I/O.

use super::super::durable::DurableSettings;
use super::super::envelope::LinkEnvelope;
use super::super::gateway_settings::GatewaySettings;
use super::super::hub_sender::HubSender;
use super::super::interest_summary::{LanInterest, LanReceivers};
use super::super::pending_request::{PENDING_MAX, REPLY_TIMEOUT, RequestOrigin};
use super::super::position::StreamPoint;
use super::super::request_relay::RequestRelay;
use super::super::system_messages::{CALL_PREFIX, INTEREST_PREFIX, REPLY_PREFIX};
use super::exports::{carrier, delivery, seq};
use super::{at, epoch};
use crate::message::{Count, Headers, Message, Verdict};
use crate::subject::pattern_set::PatternSet;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::subject::{Pattern, Subject};
use crate::time::{Instant, WallTime};
use std::time::Duration;

const NOBODY: LanReceivers = LanReceivers { plain: 0, groups: 0, is_certain: true };
const ONE: LanReceivers = LanReceivers { plain: 1, ..NOBODY };
const GROUP: LanReceivers = LanReceivers { groups: 1, ..NOBODY };
const INBOX: &str = "_INBOX.0000000000000001.link.";

/// The gateways of several sites, and the messages between them.
struct Hub {
    sites: Vec<RequestRelay>,
    now: Instant,
    /// Number of times that a request, or a reply, is delivered.
    copies: usize,
}

impl Hub {
    /// Connects sites that export and import `plant.>`. Each has these patterns of plain subscriptions and of members of
    /// queue groups.
    fn new(interests: &[[&[&str]; 2]]) -> Hub {
        let sites = (0..interests.len()).map(|site| RequestRelay::new(settings(site), epoch(site as u64 + 1), at(0)));
        let mut hub = Hub { sites: sites.collect(), now: at(0), copies: 1 };
        for (relay, [plain, groups]) in hub.sites.iter_mut().zip(interests) {
            let patterns = |texts: &[&str]| texts.iter().map(|text| text.parse::<Pattern>().unwrap()).collect();
            relay.on_link(at(0), true);
            relay.on_lan_interest(at(0), &LanInterest { plain: patterns(plain), groups: patterns(groups) });
        }
        hub.pass(Duration::from_secs(1));
        hub
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now <= end {
            self.sites.iter_mut().for_each(|relay| relay.on_tick(self.now));
            assert_eq!(self.exchange(), [""; 0], "only announcements are sent");
            self.now = self.now + Duration::from_millis(50);
        }
    }

    /// Delivers what the gateways send to each other, as a NATS server does. Returns the subjects of other messages.
    fn exchange(&mut self) -> Vec<String> {
        let mut others = Vec::new();
        while let Some((from, message)) =
            (0..self.sites.len()).find_map(|from| Some((from, self.sites[from].poll_hub()?)))
        {
            let subject = message.subject.to_string();
            let site = |prefix: &str| {
                let name = subject.strip_prefix(prefix)?.split('.').next()?;
                name.strip_prefix("site")?.parse::<usize>().ok()
            };
            if subject.starts_with(INTEREST_PREFIX) {
                for to in (0..self.sites.len()).filter(|to| *to != from) {
                    assert!(self.sites[to].on_hub_message(self.now, message.clone(), false, &HubSender::AnyClient));
                }
            } else if let Some(to) = site(CALL_PREFIX).or_else(|| site(REPLY_PREFIX)) {
                for _ in 0..self.copies {
                    assert!(self.sites[to].on_hub_message(self.now, message.clone(), false, &HubSender::AnyClient));
                }
            } else {
                others.push(subject);
            }
        }
        others
    }

    /// Sends a request of a program of the first site. `receivers` are those on the LAN of each site.
    fn ask(&mut self, receivers: &[LanReceivers]) {
        self.sites[0].on_request(self.now, RequestOrigin::Lan, request("plant.x", "_INBOX.asker.1"));
        self.settle(receivers);
    }

    /// Counts receivers and delivers messages until nothing more follows.
    fn settle(&mut self, receivers: &[LanReceivers]) {
        for _ in 0..20 {
            for (relay, receivers) in self.sites.iter_mut().zip(receivers) {
                while let Some((number, subject)) = relay.poll_lookup() {
                    assert!(subject.as_bytes().starts_with(b"plant."));
                    relay.on_receivers(number, *receivers);
                }
            }
            assert_eq!(self.exchange(), [""; 0]);
        }
    }

    /// Returns what a gateway publishes on its LAN.
    fn lan(&mut self, site: usize) -> Vec<Message> {
        std::iter::from_fn(|| self.sites[site].poll_lan()).take(1_000).collect()
    }

    /// Lets a program of the site reply to the request that its gateway has published.
    fn reply(&mut self, site: usize, request: &Message, payload: &'static str) {
        let reply = Message::new(request.reply.clone().expect("a request"), payload);
        assert!(self.sites[site].on_lan_reply(self.now, &reply));
        assert_eq!(self.exchange(), [""; 0]);
    }
}

fn settings(site: usize) -> GatewaySettings {
    let set = |text: &str| PatternSet::from_iter([text.parse::<Pattern>().unwrap()]);
    GatewaySettings {
        site: format!("site{site}").parse().unwrap(),
        exports: set("plant.>"),
        imports: set("plant.>"),
        services: set("erp.>"),
        inbox: INBOX.to_owned(),
        durable: DurableSettings::default(),
        message_bytes_max: 1 << 20,
        permitted: PermittedSubjects::all(),
    }
}

fn request(subject: &str, reply: &str) -> Message {
    let headers = Headers::from_pairs([("unit", "mm")]).unwrap();
    Message { reply: Some(reply.parse().unwrap()), headers, ..Message::new(subject.parse().unwrap(), "question") }
}

fn is_no_responders(message: &Message) -> bool {
    message.headers.is_no_responders() && message.subject.as_str() == "_INBOX.asker.1"
}

fn fields(message: &Message) -> Vec<(&str, &str)> {
    message.headers.iter().collect()
}

#[test]
fn own_site_answers_without_crossing() {
    let mut hub = Hub::new(&[[&["plant.x"], &[]], [&["plant.x"], &[]]]);
    hub.ask(&[ONE, ONE]);
    assert_eq!((hub.lan(0), hub.lan(1)), (vec![], vec![]));
    assert_eq!(hub.sites[0].counts.sent, 0);
}

#[test]
fn own_queue_group_answers_without_crossing() {
    let mut hub = Hub::new(&[[&[], &["plant.x"]], [&[], &["plant.x"]]]);
    hub.ask(&[GROUP, GROUP]);
    assert_eq!((hub.lan(0), hub.lan(1)), (vec![], vec![]));
    assert_eq!(hub.sites[0].counts.sent, 0);
}

#[test]
fn another_site_answers_several_times() {
    let mut hub = Hub::new(&[[&[], &[]], [&[], &["plant.*"]]]);
    hub.ask(&[NOBODY, GROUP]);
    let asked = hub.lan(1);
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].subject.as_str(), &*asked[0].payload), ("plant.x", &b"question"[..]));
    assert_eq!(fields(&asked[0]), [("Seqcast-Origin", "site0"), ("unit", "mm")]);
    for payload in ["first", "second"] {
        hub.reply(1, &asked[0], payload);
        hub.pass(REPLY_TIMEOUT / 2);
        let replies = hub.lan(0);
        assert_eq!((replies.len(), &*replies[0].payload), (1, payload.as_bytes()));
        assert_eq!(replies[0].subject.as_str(), "_INBOX.asker.1");
        assert_eq!(fields(&replies[0]), [("Seqcast-Origin", "site1")]);
    }
    hub.pass(REPLY_TIMEOUT);
    hub.reply(1, &asked[0], "too late");
    assert_eq!(hub.lan(0), []);
}

#[test]
fn wrong_summary_leads_to_the_next_site() {
    let mut hub = Hub::new(&[[&[], &[]], [&[">"], &[]], [&["plant.>"], &[]], [&["plant.y"], &[]]]);
    let asked = |hub: &mut Hub, site| hub.lan(site).len();
    for _ in 0..4 {
        hub.ask(&[NOBODY, NOBODY, ONE, ONE]);
        assert_eq!([1, 2, 3].map(|site| asked(&mut hub, site)), [0, 1, 0]);
    }
    hub.ask(&[NOBODY; 4]);
    let answers = hub.lan(0);
    assert!(answers.len() == 1 && is_no_responders(&answers[0]), "{answers:?}");
}

#[test]
fn repeated_messages_of_a_hub_change_nothing() {
    let mut hub = Hub::new(&[[&[], &[]], [&["plant.x"], &[]], [&["plant.x"], &[]]]);
    hub.copies = 3;
    // One of the two sites has nobody. It is asked first once, and its status comes three times.
    for _ in 0..2 {
        hub.ask(&[NOBODY, NOBODY, ONE]);
        let requests = hub.lan(2);
        assert_eq!(requests.len(), 1, "the programs get it once");
        assert_eq!(hub.lan(0), [], "no 503 comes while a site may answer");
        hub.reply(2, &requests[0], "answer");
        let replies = hub.lan(0);
        assert!(!replies.is_empty() && replies.iter().all(|reply| reply.payload == "answer"), "{replies:?}");
    }
    assert_eq!((hub.sites[0].counts.sent, hub.sites[2].counts.delivered), (3, 2));
    hub.ask(&[NOBODY; 3]);
    let answers = hub.lan(0);
    assert!(answers.len() == 1 && is_no_responders(&answers[0]), "{answers:?}");
    // The cluster repeats a request after its end, too: it is one more request, and its reply reaches nobody.
    hub.copies = 1;
    hub.pass(REPLY_TIMEOUT * 2);
    hub.ask(&[NOBODY, ONE, ONE]);
    assert_eq!(hub.lan(1).len() + hub.lan(2).len(), 1);
}

#[test]
fn request_without_any_responder_is_answered() {
    let mut hub = Hub::new(&[[&[], &[]], [&["plant.y"], &[]]]);
    hub.ask(&[NOBODY, NOBODY]);
    let answers = hub.lan(0);
    assert!(answers.len() == 1 && is_no_responders(&answers[0]), "{answers:?}");
    assert_eq!((hub.sites[0].counts.no_responders, hub.sites[0].counts.sent), (1, 0));
    // The LAN may have somebody.
    hub.ask(&[LanReceivers { is_certain: false, ..NOBODY }, NOBODY]);
    assert_eq!(hub.lan(0), []);
    // Without the cluster there is no other site.
    hub.sites[0].on_link(hub.now, false);
    hub.ask(&[NOBODY, ONE]);
    assert!(hub.lan(0).iter().all(is_no_responders));
}

#[test]
fn request_waits_for_the_interest_of_others() {
    let mut hub = Hub::new(&[[&[], &[]], [&["plant.x"], &[]]]);
    let mut restarted = RequestRelay::new(settings(0), epoch(9), hub.now);
    restarted.on_link(hub.now, true);
    hub.sites[0] = restarted;
    hub.ask(&[NOBODY, ONE]);
    assert_eq!((hub.lan(0), hub.lan(1)), (vec![], vec![]), "the gateway knows no other site yet");
    hub.pass(Duration::from_secs(1));
    hub.settle(&[NOBODY, ONE]);
    assert_eq!(hub.lan(1).len(), 1);
}

#[test]
fn clients_of_the_cluster_answer_named_subjects() {
    let mut hub = Hub::new(&[[&[], &[]], [&[], &[]]]);
    hub.sites[0].on_request(hub.now, RequestOrigin::Lan, request("erp.orders", "_INBOX.asker.1"));
    let (number, _) = hub.sites[0].poll_lookup().expect("a request");
    hub.sites[0].on_receivers(number, NOBODY);
    let sent = hub.sites[0].poll_hub().expect("a request");
    assert_eq!(sent.subject.as_str(), "erp.orders");
    let reply: Subject = sent.reply.clone().expect("a reply subject");
    assert!(
        hub.sites[0].on_hub_message(hub.now, Message::new(reply.clone(), ""), true, &HubSender::AnyClient),
        "the server says 503"
    );
    assert!(hub.lan(0).iter().all(is_no_responders));
    assert_eq!(hub.sites[0].counts.no_responders, 1);
    // The request has ended.
    assert!(hub.sites[0].on_hub_message(hub.now, Message::new(reply, "late"), false, &HubSender::AnyClient));
    assert_eq!(hub.lan(0), []);
}

#[test]
fn one_site_takes_a_request_for_queue_groups() {
    let mut hub = Hub::new(&[[&[], &["plant.x"]], [&[], &["plant.x"]], [&["plant.x"], &[]]]);
    let mut taken = [0; 3];
    for asker in 0..60 {
        for relay in &mut hub.sites {
            relay.on_request(hub.now, RequestOrigin::Client, request("plant.x", &format!("_INBOX.client.{asker}")));
        }
        hub.settle(&[GROUP, GROUP, ONE]);
        let counts = [0, 1, 2].map(|site| hub.lan(site).len());
        assert_eq!((counts[0] + counts[1], counts[2]), (1, 1), "one group, and the plain subscription");
        (0..3).for_each(|site| taken[site] += counts[site]);
    }
    assert!(taken.iter().all(|count| 10 < *count), "{taken:?}");
}

#[test]
fn hostile_requests_and_replies_are_bounded() {
    let mut hub = Hub::new(&[[&[], &[]], [&["plant.x"], &[]]]);
    for reply in ["_SEQCAST.LINK.GATEWAY", "_RV.x", "$SYS.x"] {
        for origin in [RequestOrigin::Lan, RequestOrigin::Client, RequestOrigin::Site] {
            hub.sites[0].on_request(hub.now, origin, request("plant.x", reply));
        }
    }
    hub.sites[0].on_request(hub.now, RequestOrigin::Client, request("lab.x", "_INBOX.x"));
    assert_eq!((hub.sites[0].counts.dropped, hub.sites[0].poll_lookup()), (10, None));
    for subject in ["_SEQCAST.LINK.REPLY.site0.0000000000000001.x", "_SEQCAST.LINK.REPLY.site0.0000000000000009.1"] {
        assert!(!hub.sites[0].on_hub_message(
            hub.now,
            Message::new(subject.parse().unwrap(), ""),
            false,
            &HubSender::AnyClient
        ));
    }
    for _ in 0..PENDING_MAX + 1_000 {
        hub.sites[0].on_request(hub.now, RequestOrigin::Lan, request("plant.x", "_INBOX.asker.1"));
        if let Some((number, _)) = hub.sites[0].poll_lookup() {
            hub.sites[0].on_receivers(number, NOBODY);
        }
    }
    assert_eq!(hub.sites[0].counts.dropped, 1_010);
    hub.pass(Duration::ZERO);
    hub.pass(REPLY_TIMEOUT);
    hub.ask(&[NOBODY, ONE]);
    assert!(!hub.lan(1).is_empty(), "there is room again");
}

#[test]
fn replies_go_to_the_asking_site_only() {
    let mut hub = Hub::new(&[[&["plant.x"], &[]], [&[], &[]]]);
    let gateway = |name: &str| {
        let site = Some(name.parse().unwrap());
        HubSender::Gateway { site, permitted: PermittedSubjects::all() }
    };
    let call = |origin: &str, reply: &str| {
        let headers = Headers::from_pairs([("Seqcast-Origin", origin), ("Seqcast-Subject", "plant.x")]).unwrap();
        let subject = format!("{CALL_PREFIX}site0").parse().unwrap();
        Message { reply: Some(reply.parse().unwrap()), headers, ..Message::new(subject, "question") }
    };
    for (origin, reply, expected) in [
        ("site1", "_SEQCAST.LINK.REPLY.site1.0000000000000001.7", true),
        ("site1", "_SEQCAST.LINK.REPLY.site2.0000000000000001.7", false),
        ("site1", "_SEQCAST.LINK.REPLY.site1x.0000000000000001.7", false),
        ("site1", "_SEQCAST.LINK.REPLY.site1", false),
        ("site1", "_INBOX.site1.7", false),
        ("site2", "_SEQCAST.LINK.REPLY.site2.0000000000000001.7", false),
        ("-", "_SEQCAST.LINK.REPLY.site1.0000000000000001.7", false),
    ] {
        let is_request = hub.sites[0].on_hub_message(hub.now, call(origin, reply), false, &gateway("site1"));
        assert_eq!((is_request, hub.sites[0].poll_lookup().is_some()), (expected, expected), "{origin} {reply}");
    }
}

#[test]
fn requests_of_a_stream_are_no_loss() {
    let mut exporter = carrier(1);
    let message = |count: u64, verdict: Verdict| delivery(seq(0, count), None, verdict);
    let mut points: Vec<StreamPoint> = Vec::new();
    for (count, verdict) in
        [(1, Verdict::Start(WallTime::EPOCH)), (4, Verdict::Next), (6, Verdict::Skip(Count::Exact(1)))]
    {
        let export = exporter.on_delivery(at(0), &message(count, verdict));
        points.extend(export.map(|export| export.envelope.point));
        if count == 1 {
            [2, 3].iter().for_each(|request| exporter.on_unexported(&message(*request, Verdict::Next)));
        }
    }
    let ordinals: Vec<u64> = points.iter().map(|point| point.ordinal).collect();
    assert_eq!(ordinals, [1, 2, 4], "only the message counts that the LAN has lost");
    assert_eq!(points[1].missing_since(&points[0]), None);
    // The publisher's numbers do not show which messages are requests and which are lost.
    let of_another = StreamPoint { gateway: epoch(2), ..points[1] };
    assert_eq!(of_another.missing_since(&points[0]), Some(Count::Between { min: 0, max: 2 }));
}

#[test]
fn numbers_with_requests_are_read_as_written() {
    let mut envelope = super::envelope();
    envelope.point.position.is_sparse = true;
    let value = "plant1 6b1f90a2c3d4e5f6 3 1207 1102 18 b41c09e2aa70d355 A.test 5c19adc000000007 sparse b8335b8";
    assert_eq!(envelope.to_value(), value);
    let read = LinkEnvelope::from_value(value).expect("an envelope");
    assert!(read.point.position.is_sparse && read.point.position.offset.is_none());
    assert_eq!(read.to_value(), value);
}
