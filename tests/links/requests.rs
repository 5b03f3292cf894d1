//! Requests between sites: programs of the LANs and clients of the cluster ask and answer.

use super::{Gateway, Sites, subscribe};
use crate::listeners::client::{ListenerClient, Nats};
use crate::support::bus::message;
use crate::support::command::{Place, now};
use crate::support::exit_code::UNREACHABLE;
use crate::support::nats_server::NatsServer;
use crate::support::wait::{let_time_pass, wait_until};
use crate::web::client::send;
use bytes::Bytes;
use seqcast::bus::{Bus, Notice, RequestError, RequestOptions, SubscribeOptions, Subscription};
use seqcast::subject::Pattern;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum time of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// A program that answers every request with its name. It ends when this is dropped.
pub(super) struct Responder {
    ends: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    fn start(bus: Bus, subscription: Subscription, name: &'static str) -> Responder {
        let (ends, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (has_ended, count) = (Arc::clone(&ends), Arc::clone(&answered));
        let run = move || {
            while !has_ended.load(Ordering::Relaxed) {
                if let Ok(Notice::Message(delivery)) = subscription.recv_timeout(Duration::from_millis(50)) {
                    bus.reply_to(&delivery, name).expect("a request");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        Responder { ends, answered, thread: Some(std::thread::spawn(run)) }
    }

    /// Starts a responder on the LAN of a gateway.
    pub(super) fn plain(gateway: &Gateway, pattern: &str, name: &'static str) -> Responder {
        let bus = gateway.attach();
        let subscription = subscribe(&bus, pattern);
        Responder::start(bus, subscription, name)
    }

    /// Starts a member of the queue group `workers`.
    fn member(gateway: &Gateway, pattern: &str, name: &'static str) -> Responder {
        let bus = gateway.attach();
        let options = SubscribeOptions { queue: "workers".parse().ok(), ..SubscribeOptions::default() };
        let patterns = [pattern.parse::<Pattern>().expect("a pattern")];
        let subscription = bus.subscribe_with(patterns, &options).expect("subscribed");
        Responder::start(bus, subscription, name)
    }

    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Sends a request. Returns the reply.
fn ask(bus: &Bus, subject: &str) -> Result<Bytes, RequestError> {
    let reply = bus.request(subject.parse().expect("a subject"), "question", PATIENCE)?;
    Ok(reply.message.payload)
}

/// Sends requests until one is answered; the interest of a site takes a moment to reach the others.
pub(super) fn ask_until_answered(bus: &Bus, subject: &str) -> Bytes {
    let mut answer = Bytes::new();
    wait_until("a responder is known", || match ask(bus, subject) {
        Ok(reply) => {
            answer = reply;
            true
        }
        Err(RequestError::NoResponders) => false,
        Err(error) => panic!("{error}"),
    });
    answer
}

#[test]
fn another_site_answers_requests_once() {
    let hub = NatsServer::start(&[]);
    let sites = Sites::start(&hub, 2);
    let asker = sites.plant[0].attach();
    let responder = Responder::plain(&sites.hq, "plant.service.>", "hq");
    assert_eq!(ask_until_answered(&asker, "plant.service.first"), "hq");
    let before = responder.answered();
    for number in 0..40 {
        let subject = format!("plant.service.{number}");
        let request = message(&subject, "question");
        let answers = asker.request_many(request, 2, Duration::from_millis(300)).expect("answers");
        assert_eq!(answers.len(), 1, "one of the two gateways carries {subject}");
    }
    assert_eq!(responder.answered() - before, 40);
    // Requests are no part of the accounts of live messages.
    asker.publish(message("plant.service.x", "no request")).expect("published");
    wait_until("the message crosses", || sites.hq.site("plant1")["imported"] == 1);
    let row = sites.hq.site("plant1");
    assert_eq!((&row["lost_min"], &row["lost_max"]), (&0.into(), &0.into()), "{row}");
    let sent: u64 = sites.plant.iter().map(|gateway| gateway.number("requests_sent")).sum();
    assert!(41 <= sent && 41 <= sites.hq.number("requests_delivered"), "{sent}");
}

#[test]
fn own_site_answers_before_others() {
    let hub = NatsServer::start(&[]);
    let sites = Sites::start(&hub, 2);
    let of_hq = Responder::plain(&sites.hq, "plant.service", "hq");
    let asker = sites.plant[0].attach();
    assert_eq!(ask_until_answered(&asker, "plant.service"), "hq");
    let before = of_hq.answered();
    let of_plant = Responder::plain(&sites.plant[1], "plant.service", "plant");
    wait_until("the own responder is known", || ask(&asker, "plant.service").is_ok_and(|reply| reply == "plant"));
    let crossed = of_hq.answered() - before;
    for _ in 0..20 {
        assert_eq!(ask(&asker, "plant.service").expect("a reply"), "plant");
    }
    let_time_pass(Duration::from_millis(300), "a request that crosses would have arrived");
    assert_eq!(of_hq.answered() - before, crossed, "no request crosses");
    drop(of_plant);
    assert_eq!(ask_until_answered(&asker, "plant.service"), "hq", "the other site answers again");
}

#[test]
fn request_without_responder_fails_at_once() {
    let hub = NatsServer::start(&[]);
    let sites = Sites::start(&hub, 2);
    for gateway in [&sites.plant[0], &sites.plant[1], &sites.hq] {
        for subject in ["plant.nobody", "hq.nobody"] {
            let asked = now();
            let outcome = ask(&gateway.attach(), subject);
            assert!(matches!(outcome, Err(RequestError::NoResponders)), "{subject}: {outcome:?}");
            let time = now().since(asked);
            assert!(time < PATIENCE / 2, "{subject}: {time:?}");
        }
    }
    // The gateways of the plant have answered four requests of their LAN, and that of the other site two.
    wait_until("the gateways report them", || {
        let of_plant: u64 = sites.plant.iter().map(|gateway| gateway.number("no_responders")).sum();
        (of_plant, sites.hq.number("no_responders")) == (4, 2)
    });
}

#[test]
fn patient_request_finds_a_responder_that_appears() {
    let hub = NatsServer::start(&[]);
    let sites = Sites::start(&hub, 1);
    let asker = sites.plant[0].attach();
    let options = RequestOptions { patient: true };
    let mut replies =
        asker.request_with(message("plant.late", "question"), &options, Duration::from_secs(30)).expect("requested");
    let early = replies.recv_timeout(Duration::from_secs(1));
    assert!(matches!(early, Err(RequestError::Timeout)), "{early:?}");
    let _responder = Responder::plain(&sites.hq, "plant.late", "late");
    match replies.recv_timeout(Duration::from_secs(20)) {
        Ok(Notice::Message(reply)) => assert_eq!(reply.message.payload, "late"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn queue_group_of_several_sites_answers_once() {
    let hub = NatsServer::start(&[]);
    let address = format!("link={}", hub.address());
    let gateway = |name: &str, site: &str, live: &str, import: &str| {
        let [site, live, import] =
            [("site", site), ("link-live", live), ("link-import", import)].map(|(key, value)| format!("{key}={value}"));
        Gateway::start(name, Place::new().port(), &[&site, &address, &live, &import])
    };
    let asking = gateway("P.test", "plant1", "plant.>", "none");
    let others = [gateway("A.test", "a", "none", "plant.>"), gateway("B.test", "b", "none", "plant.>")];
    wait_until("all gateways carry shares", || {
        asking.number("shares") == 16 && others.iter().all(|gateway| gateway.number("shares") == 16)
    });
    let members = [Responder::member(&others[0], "plant.job", "a"), Responder::member(&others[1], "plant.job", "b")];
    let asker = asking.attach();
    ask_until_answered(&asker, "plant.job");
    // The gateway of the asking site hears of both.
    let mut client = ListenerClient::connect(Nats, hub.port());
    client.enter();
    client.subscribe("answers.*", 1);
    let_time_pass(Duration::from_secs(3), "the summaries of both sites arrive");
    let count = || members.iter().map(Responder::answered).collect::<Vec<u64>>();
    let before = count();
    for number in 0..20 {
        ask(&asker, "plant.job").expect("a reply");
        client.send(format!("PUB plant.job answers.{number} 8\r\nquestion\r\n"));
        let (subject, _) = client.message();
        assert_eq!(subject, format!("answers.{number}"));
    }
    let_time_pass(Duration::from_millis(500), "second answers would have arrived");
    let served: Vec<u64> = count().iter().zip(&before).map(|(after, before)| after - before).collect();
    assert_eq!(served.iter().sum::<u64>(), 40, "each request goes to one member");
    assert!(served.iter().all(|served| 0 < *served), "both sites serve: {served:?}");
}

#[test]
fn clients_of_the_cluster_ask_and_answer() {
    let hub = NatsServer::start(&[]);
    let address = format!("link={}", hub.address());
    let settings = ["site=plant1", &address, "link-import=hq.>", "link-services=erp.>"];
    let gateway = Gateway::start("P.test", Place::new().port(), &settings);
    wait_until("it carries all shares", || gateway.number("shares") == 16);
    let asker = gateway.attach();
    let nobody = ask(&asker, "erp.stock");
    assert!(matches!(nobody, Err(RequestError::NoResponders)), "the server itself reports it: {nobody:?}");
    let mut client = ListenerClient::connect(Nats, hub.port());
    client.enter();
    client.subscribe("erp.>", 1);
    client.subscribe("answers.>", 2);
    let asking = std::thread::spawn(move || ask(&asker, "erp.stock"));
    let request = client.line();
    let words: Vec<&str> = request.split(' ').collect();
    assert_eq!((words[0], words[1]), ("HMSG", "erp.stock"), "{request}");
    client.send(Nats.publish(words[3], "7 pieces"));
    assert_eq!(asking.join().expect("it ends").expect("a reply"), "7 pieces");
    // A stock client asks a program of the LAN.
    let _responder = Responder::plain(&gateway, "hq.service", "plant");
    let mut client = ListenerClient::connect(Nats, hub.port());
    client.enter();
    client.subscribe("answers.>", 2);
    client.send("PUB hq.service answers.1 8\r\nquestion\r\n");
    assert_eq!(client.message(), ("answers.1".into(), b"plant".into()));
}

#[test]
fn listener_client_hears_of_no_responder() {
    let hub = NatsServer::start(&[]);
    let settings = ["site=plant1", &format!("link={}", hub.address()), "link-live=plant.>", "nats=127.0.0.1:0"];
    let gateway = Gateway::start("P.test", Place::new().port(), &settings);
    wait_until("it carries all shares", || gateway.number("shares") == 16);
    let status = gateway.place.show("status");
    let address = status["status"]["listeners"][0]["address"].as_str();
    let mut client = ListenerClient::connect_to(Nats, address.expect("a listener").parse().expect("an address"));
    client.enter();
    client.subscribe("_INBOX.me.*", 1);
    client.send("PUB plant.nobody _INBOX.me.1 0\r\n\r\n");
    client.expect("HMSG _INBOX.me.1 1 16 16");
    client.expect("NATS/1.0 503");
}

#[test]
fn web_and_command_report_no_responder() {
    let hub = NatsServer::start(&[]);
    let web = SocketAddr::from(([127, 0, 0, 1], Place::new().port()));
    let settings = ["site=plant1", &format!("link={}", hub.address()), "link-live=plant.>", &format!("http={web}")];
    let gateway = Gateway::start("P.test", Place::new().port(), &settings);
    wait_until("it carries all shares", || gateway.number("shares") == 16);
    // Only the gateway knows that no other site has a responder.
    let head = format!("POST /req/plant.nobody?timeout=20s HTTP/1.1\r\nHost: {web}\r\nContent-Length: 1\r\n");
    let answer = send(web, format!("{head}Connection: close\r\n\r\nx").as_bytes());
    assert_eq!(answer.clone().has_status(503).header("seqcast-reason"), Some("no-responders"));
    assert_eq!(answer.body, "no program on the LAN or in another site subscribes to plant.nobody\n");
    let asked = gateway.place.run(&["req", "plant.nobody", "x", "--wait", "20s"]).exits(UNREACHABLE);
    asked.reports(&["no client on the LAN or in another site subscribes to plant.nobody", "--patient"]);
    wait_until("the gateway counts them", || gateway.number("no_responders") == 2);
}
