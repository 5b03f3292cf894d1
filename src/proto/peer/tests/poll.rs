//! Polls in text: the answer to a request on `_POLL.<peer>.<subject>` by a client of any protocol.

use super::*;
use crate::message::Headers;
use crate::proto::question::{Poll, Question};
use crate::subject::Subject;

/// Reply subject of B.test: a subject of its own inbox, which the group does not see.
const REPLY: &str = "_INBOX.0000000000000002.1.1";

/// Two peers: A.test in epoch 1, which publishes, and B.test in epoch 2, whose client asks.
struct Pair {
    hosts: [Host; 2],
    millis: u64,
    got: Vec<Message>,
    /// Number of complete answers to questions of B's client.
    answered: u64,
    multicast: Vec<Bytes>,
    /// True if directed data of A gets lost.
    is_directed_lost: bool,
}

impl Pair {
    fn new(change: impl Fn(&mut Settings)) -> Pair {
        let host = |name: &str, number| {
            let mut settings = Settings { reliability: Duration::from_secs(2), ..settings(name) };
            change(&mut settings);
            Host::of(settings, number, 0)
        };
        let mut pair = Pair {
            hosts: [host("A.test", 1), host("B.test", 2)],
            millis: 0,
            got: Vec::new(),
            answered: 0,
            multicast: Vec::new(),
            is_directed_lost: false,
        };
        pair.hosts[1].subscribe(0, REPLY);
        pair.run(1000);
        pair
    }

    /// Advances the time; every datagram arrives.
    fn run(&mut self, millis: u64) {
        let end = self.millis + millis;
        while self.millis < end {
            self.millis += 1;
            for from in 0..2 {
                self.hosts[from].peer.handle(at(self.millis), Input::Tick);
                self.settle(from);
            }
        }
    }

    fn settle(&mut self, from: usize) {
        let sender = self.hosts[from].address;
        for effect in self.hosts[from].drain() {
            let (path, bytes) = match effect {
                Effect::Multicast(bytes) => (Path::Multicast, bytes),
                Effect::Unicast { bytes, .. } => (Path::Unicast, bytes),
                Effect::Deliver { deliveries, .. } => {
                    self.got.extend(deliveries.map(|delivery| delivery.message));
                    continue;
                }
                Effect::Answer { answer, .. } => {
                    self.answered += u64::from(answer.expect("an answer").last);
                    continue;
                }
                Effect::Refuse { refusal, .. } => panic!("{refusal:?}"),
                _ => continue,
            };
            if path == Path::Multicast && bytes[4] == 0 {
                self.multicast.push(bytes.clone());
            }
            if self.is_directed_lost && (from, bytes[4]) == (0, 1) {
                continue;
            }
            self.hosts[1 - from].peer.handle(at(self.millis), Input::Datagram { from: sender, path, bytes });
        }
    }

    fn publish(&mut self, host: usize, message: Message) {
        let request = ClientRequest::Publish(message);
        self.hosts[host].peer.handle(at(self.millis), Input::ClientRequest { client: CLIENT, request });
    }

    /// Returns the answers to B's client: the fields without their prefix, and the payload.
    fn poll(&mut self, subject: &str, payload: &str, headers: &[(&str, &str)]) -> Vec<String> {
        let reply = Some(REPLY.parse().unwrap());
        let headers = Headers::from_pairs(headers.iter().copied()).unwrap();
        let message = Message::new(subject.parse().unwrap(), payload.to_owned());
        self.publish(1, Message { reply, headers, ..message });
        self.run(20);
        let text = |message: Message| {
            assert_eq!((message.subject.as_str(), message.reply), (REPLY, None));
            let fields = message.headers.iter().filter(|(key, _)| *key != "Seqcast-Time");
            let fields: Vec<String> =
                fields.map(|(key, value)| format!("{}={value}", key.trim_start_matches("Seqcast-"))).collect();
            format!("{} {}", fields.join(" "), String::from_utf8_lossy(&message.payload))
        };
        std::mem::take(&mut self.got).into_iter().map(text).collect()
    }
}

/// Returns the value of a field in an answer.
fn field<'a>(answer: &'a str, key: &str) -> &'a str {
    let start = answer.find(&format!("{key}=")).expect("the field is there") + key.len() + 1;
    answer[start..].split(' ').next().unwrap()
}

#[test]
fn text_poll_returns_event_none_or_recovery() {
    let mut pair = Pair::new(|_| {});
    for payload in ["one", "two", "three"] {
        let headers = Headers::from_pairs([("k", payload)]).unwrap();
        pair.publish(0, Message { headers, ..Message::new("x.y".parse().unwrap(), payload) });
    }
    pair.run(20);
    let by_name = "_POLL.A_test.x.y";
    let recovery = pair.poll(by_name, "", &[]).remove(0);
    assert!(recovery.starts_with("Case=recovery Epoch=0000000000000001 First="), "{recovery}");
    let (first, last): (u32, u32) =
        (field(&recovery, "First").parse().unwrap(), field(&recovery, "Last").parse().unwrap());
    assert_eq!(last, first.wrapping_add(2));
    let before = first.wrapping_sub(1).to_string();
    for subject in [by_name, "_POLL.0000000000000001.x.y"] {
        let event = pair.poll(subject, &before, &[]).remove(0);
        assert!(event.starts_with(&format!("Case=event Epoch=0000000000000001 Offset={first} Seq=0x")), "{event}");
        assert!(event.ends_with(" Remaining=0 k=one one"), "{event}");
    }
    let many = pair.poll(by_name, &format!(" {before}\n"), &[("Count", "9")]);
    let ends = [" Remaining=2 k=one one", " Remaining=1 k=two two", " Remaining=0 k=three three"];
    assert_eq!(many.len(), 3);
    assert!(many.iter().zip(ends).all(|(event, end)| event.ends_with(end)), "{many:?}");
    assert_eq!(pair.poll(by_name, &last.to_string(), &[]), ["Case=none Epoch=0000000000000001 "]);
    assert_eq!(pair.poll("_POLL.A_test.other", "", &[]), ["Case=none Epoch=0000000000000001 "]);
    assert_eq!(pair.poll("_POLL.B_test.x.y", "", &[]), ["Case=none Epoch=0000000000000002 "], "its own history");
}

#[test]
fn malformed_text_poll_gets_a_named_error() {
    let mut pair = Pair::new(|_| {});
    pair.multicast.clear();
    for (subject, payload, headers, error) in [
        ("_POLL.C_test.x", "", &[][..], "unknown-peer"),
        ("_POLL.0000000000000009.x", "", &[], "unknown-peer"),
        ("_POLL.A_test", "", &[], "subject"),
        ("_POLL.A_test.x", "4294967296", &[], "offset"),
        ("_POLL.A_test.x", "-1", &[], "offset"),
        ("_POLL.A_test.x", "\u{e9}", &[], "offset"),
        ("_POLL.A_test.x", "1", &[("count", "0")], "count"),
        ("_POLL.A_test.x", "1", &[("count", "257")], "count"),
        ("_POLL.A_test.x", "1", &[("count", "many")], "count"),
    ] {
        let answers = pair.poll(subject, payload, headers);
        assert!(answers.len() == 1 && answers[0].starts_with(&format!("Case=error Error={error} ")), "{answers:?}");
    }
    assert!(pair.multicast.is_empty(), "a poll is not multicast");
    assert_eq!(pair.hosts[1].peer.counters().messages_published, 9, "only the answers");
    // Without a reply subject the poll is an ordinary message.
    pair.publish(1, Message::new("_POLL.A_test.x".parse().unwrap(), ""));
    pair.run(1);
    assert_eq!(pair.multicast.len(), 1);
}

/// Proves: W41
#[test]
fn released_answer_is_published_in_the_next_epoch() {
    let mut pair = Pair::new(|settings| settings.frame_messages_max = 1);
    let reply: Subject = "replies.here".parse().unwrap();
    pair.hosts[0].subscribe(pair.millis, reply.as_str());
    pair.publish(0, Message::new("x".parse().unwrap(), "1"));
    assert_eq!(pair.poll("_POLL.A_test.x", "", &[]).len(), 1, "the address of B is proven now");
    // B publishes in the last frame.
    let now = ClockReading { wall: WallTime::from_nanos(4_611_686_018_000_000_000), ..at(pair.millis) };
    pair.hosts[1].peer.publish(now, CLIENT, &Message::new("y".parse().unwrap(), "1")).unwrap();
    // The first answer is lost. The second waits for it.
    for is_lost in [true, false] {
        pair.is_directed_lost = is_lost;
        let question = Message::new("_POLL.A_test.x".parse().unwrap(), "");
        pair.publish(1, Message { reply: Some(reply.clone()), ..question });
        pair.run(2);
    }
    assert!(pair.got.iter().all(|message| message.subject != reply), "no answer was handled yet");
    let epoch = pair.hosts[1].peer.epoch();
    pair.publish(1, Message::new("y".parse().unwrap(), "2"));
    assert_ne!(pair.hosts[1].peer.epoch(), epoch, "the frames have run out");
    pair.settle(1);
    assert!(
        pair.hosts[1].peer.poll_deadline().is_some_and(|due| due <= at(pair.millis).instant),
        "the peer is flushed at once"
    );
    pair.run(20);
    let answers = pair.got.iter().filter(|message| message.subject == reply).count();
    assert_eq!(answers, 1, "A gets the answer that arrived");
}

#[test]
fn questions_beyond_the_answer_rate_are_answered_later() {
    let mut pair = Pair::new(|_| {});
    pair.publish(0, Message::new("x".parse().unwrap(), "1"));
    assert_eq!(pair.poll("_POLL.A_test.x", "", &[]).len(), 1, "the address of B is proven now");
    // Each answer has 100 KB: more than the 16 MB that 64 MB/s allow at once.
    let polls = vec![Poll { subject: "x".parse().unwrap(), offset: 0, count: 1 }; 4096];
    let (peer, timeout, count) = (Epoch::new(1).unwrap(), Duration::from_secs(2), 180);
    for id in 0..count {
        let request = ClientRequest::QueryHistory { id, peer, question: Question::Poll(polls.clone()), timeout };
        pair.hosts[1].peer.handle(at(pair.millis), Input::ClientRequest { client: CLIENT, request });
    }
    pair.run(5);
    let answered = pair.answered;
    assert!(count - 16 <= answered && answered < count, "{answered} at once");
    pair.run(400);
    assert_eq!(pair.answered, count);
    assert_eq!(pair.hosts[0].peer.counters().history_refused, 0);
}

#[test]
fn poll_errors_name_disabled_history_and_silent_peer() {
    let mut pair = Pair::new(|settings| settings.recovery.history.count_max = 0);
    let answers = pair.poll("_POLL.A_test.x", "", &[]);
    assert!(answers[0].starts_with("Case=error Error=off "), "{answers:?}");
    let reply = Some(REPLY.parse().unwrap());
    pair.publish(1, Message { reply, ..Message::new("_POLL.A_test.x".parse().unwrap(), "") });
    pair.hosts[1].peer.handle(at(pair.millis + 1600), Input::Tick);
    let reports = pair.hosts[1].drain().into_iter().flat_map(delivered).next();
    assert!(reports.unwrap().message.headers.iter().any(|field| field == ("Seqcast-Error", "timeout")));
}
