//! The reports of a peer to attached programs: tables, advisories, and the losses of others.

use crate::support::bus::{PATIENCE, config_with_socket, message, serve, two_configs, wait_for};
use crate::support::command::Place;
use crate::support::exit_code::DONE;
use crate::support::wait::{wait_until, wait_until_some};
use seqcast::bus::{Bus, DropRule, HistoryError, Notice, Options, Refused};
use seqcast::message::PeerRef;
use serde_json::Value;
use std::time::Duration;

#[test]
fn reports_have_the_documented_fields() {
    let (config, directory) = config_with_socket("show");
    let mut other = config.clone();
    other.socket = directory.path().join("other.sock");
    other.name = "other".parse().unwrap();
    let (peer, second) = (serve(&config), serve(&other));
    wait_for(&peer, &second);
    let _subscription = peer.subscribe("a.>".parse().unwrap()).unwrap();
    second.publish(message("a.b", "1")).unwrap();
    peer.publish(message("c", "1")).unwrap();
    wait_until("the message is counted", || 2 == peer.show("seqno").unwrap()["rows"].as_array().unwrap().len());
    let page = std::fs::read_to_string(crate::support::root().join("docs/local-protocol.md")).unwrap();
    let attached = Bus::attach(&config.socket).unwrap();
    wait_until("the other says what it missed", || {
        !peer.show("outbound").unwrap()["rows"].as_array().unwrap().is_empty()
    });
    let _wanted = second.subscribe("w".parse().unwrap()).unwrap();
    wait_until("what the other wants is known", || {
        !peer.show("interest").unwrap()["rows"].as_array().unwrap().is_empty()
    });
    for what in seqcast::daemon::show::REPORTS {
        let answer = attached.show(what).unwrap();
        assert_eq!(answer["show"], what);
        let object = match answer["rows"].as_array() {
            // Nothing is lost here: `subject_losses_add_up_to_the_publisher` checks the fields of this report.
            Some(_) if what == "loss_by_subject" => continue,
            // This peer is no gateway: `reports_of_links_have_the_documented_fields` checks the fields.
            None if what == "links" => continue,
            Some(rows) => rows.last().unwrap_or_else(|| panic!("{what} has no rows")),
            None => &answer[what],
        };
        let chapter = page.split("\n### ").find(|part| part.starts_with(&format!("`{what}`"))).expect(what);
        for field in object.as_object().unwrap().keys() {
            assert!(chapter.contains(&format!("`{field}`")), "docs/local-protocol.md: {what} does not name {field}");
        }
    }
    let wrong = attached.query(serde_json::json!({ "show": "history", "pattern": "a..b" })).unwrap();
    assert!(wrong["error"].as_str().unwrap().contains("empty token"), "{wrong}");
    let limited = attached.query(serde_json::json!({ "show": "history", "limit": 0 })).unwrap();
    assert_eq!((&limited["rows"], &limited["omitted"]), (&Value::Array(Vec::new()), &1.into()));
    let limited = attached.query(serde_json::json!({ "show": "seqno", "limit": 0 })).unwrap();
    assert_eq!(limited["rows"], Value::Array(Vec::new()));
    assert!(attached.show("nothing").unwrap()["error"].as_str().unwrap().contains("status, health, loss"));
    assert!(attached.query(Value::Null).unwrap()["error"].is_string());
}

#[test]
fn advisories_reach_attached_programs_as_json() {
    let (mut config, _directory) = config_with_socket("advice");
    // Nothing is requested again.
    config.reliability = Duration::from_millis(5);
    let options =
        Options { serve: true, drop: Some(DropRule { seed: 3, chance: 0.2, burst: 1 }), ..Options::default() };
    let _peer = Bus::embed_with(&config, &options).unwrap();
    let bus = Bus::attach(&config.socket).unwrap();
    let advisories = bus.subscribe("_RV.ERROR.SYSTEM.DATALOSS.>".parse().unwrap()).unwrap();
    let _data = bus.subscribe("x".parse().unwrap()).unwrap();
    let publisher = serve_in_group_of(&config);
    wait_for(&bus, &publisher);
    let mut advisory = None;
    wait_until("a loss is advised", || {
        for _ in 0..10 {
            publisher.publish_blocking(message("x", "data")).unwrap();
            publisher.flush(PATIENCE).unwrap();
        }
        while let Ok(event) = advisories.try_recv() {
            if let Notice::Message(delivery) = event {
                let json: Value = serde_json::from_slice(&delivery.message.payload).unwrap();
                if json["lost"].as_u64().is_some_and(|lost| 0 < lost) {
                    assert_eq!(delivery.message.headers.iter().collect::<Vec<_>>(), [("mtype", "A")]);
                    advisory = Some(json);
                }
            }
        }
        advisory.is_some()
    });
    let advisory = advisory.unwrap();
    assert_eq!(
        (&advisory["sub1"], &advisory["sub_cnt"], &advisory["scid"]),
        (&"x".into(), &1.into(), &config.port.into())
    );
    assert_eq!(advisory["host"], "127.0.0.1");
    assert_eq!(advisory["publisher"], "source");
    assert_eq!(advisory["epoch"], publisher.info().epoch.to_string());
}

#[test]
fn publisher_sees_the_losses_of_others() {
    let (mut config, _directory) = config_with_socket("outbound");
    let publisher = serve(&config);
    let bus = Bus::attach(&config.socket).unwrap();
    let advisories = bus.subscribe("_RV.ERROR.SYSTEM.DATALOSS.OUTBOUND.BCAST".parse().unwrap()).unwrap();
    config.name = "lossy.receiver".parse().unwrap();
    // Nothing is requested again.
    config.reliability = Duration::from_millis(5);
    let options = Options { drop: Some(DropRule { seed: 3, chance: 0.2, burst: 1 }), ..Options::default() };
    let receiver = Bus::embed_with(&config, &options).unwrap();
    let _data = receiver.subscribe("x".parse().unwrap()).unwrap();
    wait_for(&receiver, &publisher);
    let mut advisory = None;
    wait_until("a loss is advised to the publisher", || {
        for _ in 0..10 {
            bus.publish_blocking(message("x", "data")).unwrap();
            bus.flush(PATIENCE).unwrap();
        }
        while let Ok(event) = advisories.try_recv() {
            if let Notice::Message(delivery) = event {
                let json: Value = serde_json::from_slice(&delivery.message.payload).unwrap();
                advisory =
                    Some(json).filter(|json| json["lost"].as_u64().is_some_and(|lost| 0 < lost)).or(advisory.take());
            }
        }
        advisory.is_some()
    });
    let advisory = advisory.unwrap();
    assert_eq!((&advisory["ADV_NAME"], &advisory["reason"]), (&"DATALOSS.OUTBOUND.BCAST".into(), &"REPORTED".into()));
    assert_eq!((&advisory["publisher"], &advisory["sub_cnt"]), (&"lossy.receiver".into(), &0.into()));
    assert_eq!(advisory["epoch"], receiver.info().epoch.to_string());
    let rows = bus.show("outbound").unwrap()["rows"].take();
    let row = rows.as_array().unwrap().iter().find(|row| row["publisher"] == "lossy.receiver").unwrap();
    let count = |name: &str| row[name].as_u64().unwrap();
    // If a number is not certain yet, it is reported as a range.
    let most = row["lost"].as_u64().or(row["lost"]["max"].as_u64());
    assert!(advisory["lost"].as_u64() <= most, "{advisory} and {row}");
    assert!(count("repaired") == 0 && count("pending") + count("unverified") <= count("missing"), "{row}");
}

#[test]
fn subject_losses_add_up_to_the_publisher() {
    let (mut config, _directory) = config_with_socket("subjects");
    // Nothing is requested again.
    config.reliability = Duration::from_millis(5);
    let drop = Some(DropRule { seed: 5, chance: 0.2, burst: 1 });
    let _peer = Bus::embed_with(&config, &Options { serve: true, drop, ..Options::default() }).unwrap();
    let bus = Bus::attach(&config.socket).unwrap();
    let _data = bus.subscribe("s.>".parse().unwrap()).unwrap();
    let publisher = serve_in_group_of(&config);
    wait_for(&bus, &publisher);
    let rows = |report: &str| bus.show(report).unwrap()["rows"].as_array().unwrap().clone();
    let bounds = |lost: &Value| [&lost["min"], &lost["max"]].map(|bound| bound.as_u64().or(lost.as_u64()).unwrap());
    let sum = |rows: &[Value]| {
        let parts = rows.iter().filter(|row| row["kind"] != "inbox").map(|row| bounds(&row["lost"]));
        parts.fold([0, 0], |sum, part| [sum[0] + part[0], sum[1] + part[1]])
    };
    wait_until("each subject has lost messages", || {
        for subject in ["s.a", "s.a", "s.a", "s.b", "s.c"] {
            publisher.publish_blocking(message(subject, "data")).unwrap();
            publisher.flush(PATIENCE).unwrap();
        }
        let lost =
            rows("loss_by_subject").into_iter().filter(|row| row["kind"] == "subject" && 4 < bounds(&row["lost"])[0]);
        lost.count() == 3
    });
    // No message is under way while the two reports are compared, but a datagram may just have been given up.
    wait_until("both reports agree", || {
        let [before, by_subject, after] = ["loss", "loss_by_subject", "loss"].map(rows);
        let row = |rows: &[Value]| rows.iter().find(|row| row["publisher"] == "source").unwrap().clone();
        row(&before) == row(&after) && sum(&by_subject) == bounds(&row(&after)["lost"])
    });
    let by_subject = rows("loss_by_subject");
    assert!(by_subject.is_sorted_by_key(|row| std::cmp::Reverse(bounds(&row["lost"])[1])), "{by_subject:?}");
    let of = |subject: &str| by_subject.iter().find(|row| row["subject"] == subject).unwrap();
    assert_eq!((&of("s.a")["reason"], &of("s.a")["cause"]), (&"DISABLED".into(), &"NETWORK".into()));
    assert!(bounds(&of("s.b")["lost"])[0] < bounds(&of("s.a")["lost"])[0], "{by_subject:?}");
    let page = std::fs::read_to_string(crate::support::root().join("docs/local-protocol.md")).unwrap();
    let chapter = page.split("\n### ").find(|part| part.starts_with("`loss_by_subject`")).unwrap();
    for field in of("s.a").as_object().unwrap().keys() {
        assert!(chapter.contains(&format!("`{field}`")), "{field}");
    }
    let socket = config.socket.display().to_string();
    let text = Place::new().run(&["show", "loss", "--by-subject", "--socket", &socket]).exits(DONE).stdout;
    assert!(text.contains("| s.a") && text.contains("| repair is off | lost in the network"), "{text}");
    let text = Place::new().run(&["show", "loss", "--socket", &socket]).exits(DONE).stdout;
    assert!(text.contains("| missed |  repaired |") && text.contains(" %)"), "{text}");
}

fn serve_in_group_of(config: &seqcast::config::Config) -> Bus {
    let mut config = config.clone();
    config.name = "source".parse().unwrap();
    Bus::embed(&config).unwrap()
}

/// Asks a peer for a report. On a slow machine one report may use up the time that the peer has for others.
fn report_of(bus: &Bus, of: impl Into<PeerRef>, query: &Value) -> Value {
    let of = of.into();
    let ask = || match bus.query_peer(of.clone(), query, PATIENCE) {
        Err(HistoryError::Refused(Refused::Busy)) => None,
        report => Some(report.expect("a report")),
    };
    wait_until_some(|| "the peer reports".to_owned(), ask)
}

#[test]
fn report_of_another_peer_equals_its_own() {
    let (config, directory) = config_with_socket("remote");
    let mut other = config.clone();
    other.socket = directory.path().join("other.sock");
    other.name = "other".parse().unwrap();
    let (peer, second) = (serve(&config), serve(&other));
    wait_for(&peer, &second);
    // The report of the subscriptions takes several parts.
    let patterns = (0..1_000).map(|number| format!("long.names.make.large.reports.{number}.>").parse().unwrap());
    let _subscriptions: Vec<_> = patterns.map(|pattern| second.subscribe(pattern).unwrap()).collect();
    let attached = Bus::attach(&config.socket).unwrap();
    let name = |text: &str| text.parse::<PeerRef>().unwrap();
    for (bus, of) in [(&attached, "other"), (&peer, "other"), (&second, "other")] {
        let report = report_of(bus, name(of), &serde_json::json!({ "show": "subs" }));
        assert_eq!(report, second.show("subs").unwrap());
        assert!(48 * 1024 < report.to_string().len());
    }
    let subject = serde_json::json!({ "show": "subject", "subject": "long.names.make.large.reports.7.x" });
    let report = report_of(&peer, name("other"), &subject);
    assert_eq!((&report["subject"]["clients"], &report["subject"]["subscriptions"]), (&1.into(), &1.into()));
    let wrong = report_of(&peer, name("other"), &serde_json::json!({ "show": "nothing" }));
    assert!(wrong["error"].as_str().unwrap().contains("no report 'nothing'"), "{wrong}");
    let unknown = peer.query_peer(name("nobody"), &serde_json::json!({ "show": "status" }), PATIENCE);
    assert_eq!(unknown, Err(HistoryError::UnknownPeer));
}

#[test]
fn commands_of_other_peers_are_refused() {
    let (config, directory) = config_with_socket("commands");
    let mut other = config.clone();
    other.socket = directory.path().join("other.sock");
    other.name = "other".parse().unwrap();
    let (peer, second) = (serve(&config), serve(&other));
    wait_for(&peer, &second);
    for command in ["log", "reload", "debug"] {
        let command = serde_json::json!({ command: {} });
        let answer = report_of(&peer, second.info().epoch, &command);
        assert!(answer["error"].as_str().unwrap().starts_with("a question is a JSON object"), "{command}: {answer}");
    }
    let answer = second.query(serde_json::json!({ "debug": {} })).unwrap();
    assert!(answer["debug"]["config"].is_array(), "programs of its host may: {answer}");
}

#[test]
fn peer_without_permission_refuses_remote_reports() {
    let (config, directory) = config_with_socket("private");
    let mut other = config.clone();
    other.socket = directory.path().join("other.sock");
    other.name = "other".parse().unwrap();
    other.remote_reports = false;
    let (peer, second) = (serve(&config), serve(&other));
    wait_for(&peer, &second);
    let query = serde_json::json!({ "show": "status" });
    let refused = peer.query_peer(second.info().epoch, &query, PATIENCE);
    assert_eq!(refused, Err(HistoryError::Refused(Refused::NoReports)));
    assert!(refused.unwrap_err().to_string().contains("remote-reports is 'no' there"));
    let own = second.query_peer(second.info().epoch, &query, PATIENCE).unwrap();
    assert_eq!(own["status"]["name"], "other", "clients of a host get its reports");
}

#[test]
fn one_query_gives_several_reports() {
    let (one, two, _directory) = two_configs();
    let (peer, second) = (serve(&one), serve(&two));
    wait_for(&peer, &second);
    wait_for(&second, &peer);
    let query = |names: &[&str]| serde_json::json!({ "show": names, "limit": 1 });
    let ask = |names: &[&str]| report_of(&peer, second.info().epoch, &query(names));
    let answer = ask(&["status", "summary", "peers", "none"]);
    let reports = answer["reports"].as_array().unwrap();
    assert_eq!((&reports[0]["status"]["name"], &reports[1]["summary"]["name"]), (&"two".into(), &"two".into()));
    assert_eq!(reports[1]["summary"]["clients"], reports[0]["status"]["clients"]);
    assert_eq!((&reports[1]["summary"]["peers_up"], &reports[2]["rows"][0]["state"]), (&1.into(), &"up".into()));
    assert!(reports[3]["error"].as_str().unwrap().starts_with("no report 'none'"), "{answer}");
    assert_eq!(ask(&["status"; 9])["error"], "one question asks for at most 8 reports");
    let request = || peer.request_report(second.info().epoch, &query(&["status"]), PATIENCE).unwrap();
    let mut pending = request();
    let take = || match pending.try_recv() {
        Err(HistoryError::Refused(Refused::Busy)) => {
            pending = request();
            None
        }
        report => report.expect("a report"),
    };
    let waited = wait_until_some(|| "the report comes".to_owned(), take);
    assert_eq!(waited["reports"][0]["status"]["name"], "two");
}
