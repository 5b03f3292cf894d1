//! `seqcast bench`: every figure adds up, and nothing is left behind. No test checks speed.

use crate::support::command::Place;
use crate::support::exit_code::{CONFIGURATION, DONE, FAILED, UNREACHABLE, USAGE};
use crate::support::wait::wait_until;
use serde_json::Value;

/// Runs a verb with `--json` and returns its answer.
#[track_caller]
fn bench(place: &Place, arguments: &[&str]) -> Value {
    let outcome = place.run(&[&["bench"], arguments, &["--json"]].concat()).exits(DONE);
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:#?}"))
}

#[track_caller]
fn rows<'a>(answer: &'a Value, key: &str) -> &'a Vec<Value> {
    answer[key].as_array().unwrap_or_else(|| panic!("no {key} in {answer}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Checks that all messages sent came, or are accounted for, at each of the receivers.
#[track_caller]
fn adds_up(row: &Value) {
    let [sent, receivers, received, unverified, dropped, lost, lost_max] =
        ["sent", "receivers", "received", "unverified", "dropped", "lost", "lost_max"].map(|key| number(&row[key]));
    let known = received + unverified + dropped;
    assert!(0 < sent && 0 < received, "{row}");
    assert!((known + lost..=known + lost_max).contains(&(sent * receivers)), "{row}");
    assert_eq!((&row["adds_up"], rows(row, "faults").len()), (&true.into(), 0), "{row}");
    assert!(0.0 < row["per_s"]["median"].as_f64().unwrap(), "{row}");
}

#[test]
fn throughput_is_compared_with_the_kernel() {
    let place = Place::new();
    let answer =
        bench(&place, &["throughput", "--size", "8,64,20kb", "--secs", "0.2", "--runs", "2", "--offloads-off"]);
    assert_eq!((&answer["verb"], &answer["ok"]), (&"throughput".into(), &true.into()));
    let names: Vec<_> = rows(&answer, "rows").iter().map(|row| (number(&row["size"]), row["what"].clone())).collect();
    let expected = [8, 64, 20 * 1024]
        .map(|size| ["raw_plain", "raw_gso", "raw_gso_gro", "library"].map(|what| (size, Value::from(what))));
    assert_eq!(names, expected.concat());
    rows(&answer, "rows").iter().filter(|row| row["unsupported"].is_null()).for_each(adds_up);
    assert_eq!(rows(&answer, "ratios").len(), 3);
    for ratios in rows(&answer, "ratios") {
        assert!(0.0 < ratios["to_raw_plain"]["median"].as_f64().unwrap() && ratios["void"].is_null(), "{ratios}");
    }
    let found = &answer["found"];
    assert!(!found["publisher"]["kernel"].as_str().unwrap().is_empty(), "{found}");
    assert!(0 < number(&found["receive_buffer"]) && number(&found["mtu"]) == 65_536, "{found}");
}

#[test]
fn messages_add_up_on_every_path() {
    let place = Place::new();
    for path in ["library", "threads", "daemon", "shm", "host"] {
        let answer = bench(&place, &["throughput", "--path", path, "--rate", "20000/s", "--secs", "0.3", "--no-raw"]);
        let [row] = &rows(&answer, "rows")[..] else { panic!("{answer}") };
        assert_eq!((row["what"].as_str(), answer["ratios"].as_array().map(Vec::len)), (Some(path), Some(0)));
        adds_up(row);
    }
    // The text form for people.
    let text = place.run(&["bench", "throughput", "--secs", "0.1", "--offloads-off"]).exits(DONE).stdout;
    for part in ["Linux ", "receive buffer", "UDP_GRO", "raw_gso_gro", "library", "to raw plain"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn latencies_are_ordered_and_compared() {
    let place = Place::new();
    for path in ["library", "threads", "daemon", "shm", "host"] {
        let answer = bench(&place, &["latency", "--path", path, "--secs", "0.2", "--rate", "2000/s", "--runs", "2"]);
        assert_eq!((&answer["verb"], &answer["path"], &answer["ok"]), (&"latency".into(), &path.into(), &true.into()));
        let names: Vec<&str> = rows(&answer, "rows").iter().map(|row| row["what"].as_str().unwrap()).collect();
        match path {
            "library" | "host" => {
                assert_eq!(
                    names,
                    [
                        "raw_blocking",
                        "raw_busy",
                        "blocking",
                        "busy",
                        "raw_one_way",
                        "raw_one_way",
                        "one_way",
                        "one_way"
                    ]
                );
            }
            _ => assert_eq!(names, ["raw_blocking", "blocking", "raw_one_way", "raw_one_way", "one_way", "one_way"]),
        }
        for row in rows(&answer, "rows") {
            assert!(0 < number(&row["count"]) && row["adds_up"] == true, "{row}");
            let quantiles = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"];
            let quantiles = quantiles.map(|key| row[key]["median"].as_f64().unwrap());
            assert!(0.0 < quantiles[0] && quantiles.is_sorted(), "{row}");
        }
        let compared: Vec<&Value> = rows(&answer, "ratios").iter().map(|ratio| &ratio["what"]).collect();
        match path {
            "library" | "host" => assert_eq!(compared, ["blocking", "busy", "one_way", "one_way"]),
            _ => assert_eq!(compared, ["blocking", "one_way", "one_way"]),
        }
    }
    let text = place.run(&["bench", "latency", "--secs", "0.1", "--rate", "1000", "--no-raw"]).exits(DONE).stdout;
    assert!(text.contains("p99.99") && text.contains("one_way to one_way_idle: p50 "), "{text}");
}

#[test]
fn keyed_peers_are_compared_with_open_ones() {
    let place = Place::new();
    let arguments = ["throughput", "--path", "daemon", "--rate", "20000/s", "--secs", "0.3", "--no-raw", "--keyed"];
    let answer = bench(&place, &arguments);
    let names: Vec<&Value> = rows(&answer, "rows").iter().map(|row| &row["what"]).collect();
    assert_eq!(names, ["daemon", "daemon_keyed"]);
    rows(&answer, "rows").iter().for_each(adds_up);
    let [ratio] = &rows(&answer, "keyed")[..] else { panic!("{answer}") };
    assert!(0.0 < ratio["to_open"]["median"].as_f64().unwrap(), "{ratio}");
    let answer = bench(&place, &["latency", "--secs", "0.1", "--rate", "2000/s", "--no-raw", "--keyed"]);
    let compared: Vec<&Value> = rows(&answer, "ratios").iter().map(|ratio| &ratio["what"]).collect();
    assert_eq!(compared, ["blocking_keyed", "busy_keyed", "one_way"]);
}

#[test]
fn fan_out_counts_all_receivers() {
    let place = Place::new();
    let arguments = ["fanout", "--subscribers", "3", "--rate", "20000/s", "--secs", "0.3", "--offloads-off"];
    let answer = bench(&place, &arguments);
    for row in rows(&answer, "rows").iter().filter(|row| row["unsupported"].is_null()) {
        adds_up(row);
        assert_eq!(number(&row["receivers"]), 3, "{row}");
    }
    assert_eq!((&answer["verb"], &rows(&answer, "rows")[3]["what"]), (&"fanout".into(), &"library".into()));
}

#[test]
fn programs_of_one_host_share_a_daemon() {
    let place = Place::new();
    for interest in ["interest=off", "interest=on"] {
        let load = ["fanout", "--subscribers", "3", "--rate", "20000/s", "--secs", "0.3", "--no-raw"];
        let answer = bench(&place, &[&load[..], &["--path", "host", "--size", "64,100kb", "--set", interest]].concat());
        for row in rows(&answer, "rows") {
            adds_up(row);
            assert_eq!(
                (&row["what"], number(&row["receivers"]), number(&row["lost"])),
                (&"host".into(), 3, 0),
                "{row}"
            );
        }
    }
    let answer =
        bench(&place, &["subjects", "--subjects", "10,300", "--secs", "0.3", "--rate", "5000/s", "--path", "host"]);
    rows(&answer, "rows").iter().for_each(adds_up);
}

#[test]
fn each_number_of_subjects_has_a_row() {
    let place = Place::new();
    for (how, path) in [("", "library"), ("--each", "library"), ("--each", "threads"), ("--each", "daemon")] {
        let mut arguments =
            vec!["subjects", "--subjects", "10,300", "--rate", "5000/s", "--secs", "0.3", "--path", path];
        arguments.extend(Some(how).filter(|how| !how.is_empty()));
        let answer = bench(&place, &arguments);
        assert_eq!((&answer["verb"], &answer["each"]), (&"subjects".into(), &(how == "--each").into()));
        for (row, subjects) in rows(&answer, "rows").iter().zip([10, 300]) {
            adds_up(row);
            assert_eq!(number(&row["subjects"]), subjects, "{row}");
            for window in ["publisher_window", "subscriber_window"] {
                assert_eq!(number(&row[window]["subjects"]), subjects, "{row}");
            }
            assert!(0.0 < row["to_first"]["median"].as_f64().unwrap(), "{row}");
            assert!(0 < number(&row["sender_rss_bytes"]) && 0 < number(&row["receiver_rss_bytes"]), "{row}");
        }
    }
    let text =
        place.run(&["bench", "subjects", "--subjects", "7", "--rate", "1000", "--secs", "0.1"]).exits(DONE).stdout;
    assert!(text.contains("to first"), "{text}");
}

#[test]
fn dropped_datagrams_are_repaired() {
    let place = Place::new();
    let loss = ["loss", "--rate", "20000/s", "--secs", "0.5"];
    for path in ["library", "threads", "daemon"] {
        let answer = bench(&place, &[&loss[..], &["--drop", "20%,5%", "--path", path]].concat());
        let drops: Vec<&Value> = rows(&answer, "rows").iter().map(|row| &row["drop"]).collect();
        assert_eq!(drops, [0.0, 0.2, 0.05]);
        for row in rows(&answer, "rows") {
            adds_up(row);
            let is_lossy = row["drop"] != 0.0;
            assert_eq!(
                (0 < number(&row["dropped_by_rule"]), 0 < number(&row["repaired"])),
                (is_lossy, is_lossy),
                "{row}"
            );
            assert_eq!(number(&row["repair_latency"]["count"]), number(&row["repaired"]), "{row}");
            assert_eq!(number(&row["latency"]["count"]), number(&row["received"]), "{row}");
        }
    }
    // The user's own commands make the loss, and always end it.
    let commands = ["--fault", "echo fault >> faults", "--heal", "echo heal >> faults", "--runs", "2"];
    let outcome = place.run(&[&["bench"], &loss[..], &commands].concat()).exits(DONE);
    assert!(outcome.stdout.contains("goodput") && outcome.stdout.contains("fault"), "{outcome:#?}");
    let faults = || std::fs::read_to_string(place.dir().join("faults")).unwrap();
    assert_eq!(faults(), "fault\nheal\n".repeat(2));
    let commands = ["--fault", "echo fault >> faults; false", "--heal", "echo heal >> faults"];
    place
        .run(&[&["bench"], &loss[..], &commands].concat())
        .exits(FAILED)
        .reports(&["'echo fault", "failed: exit status: 1"]);
    assert_eq!(faults(), "fault\nheal\n".repeat(3));
}

#[test]
fn wrong_arguments_are_refused_before_any_process_starts() {
    let place = Place::new();
    for (arguments, exit, parts) in [
        (&["bench"][..], USAGE, &["Usage: seqcast bench"][..]),
        (&["bench", "speed"], USAGE, &["'speed'"]),
        (&["bench", "throughput", "--size", "7"], USAGE, &["from 8 to"]),
        (&["bench", "throughput", "--rate", "0"], USAGE, &["above 0"]),
        (&["bench", "throughput", "--runs", "0"], USAGE, &["--runs"]),
        (&["bench", "throughput", "--path", "pigeon"], USAGE, &["library, threads, daemon, shm, host"]),
        (&["bench", "throughput", "--datagram", "9"], CONFIGURATION, &["--datagram 9", "576"]),
        (&["bench", "throughput", "--set", "heartbeet=1s"], CONFIGURATION, &["heartbeat"]),
        (&["bench", "throughput", "--interface", "nowhere9"], UNREACHABLE, &["subscriber", "nowhere9"]),
        (&["bench", "throughput", "--publisher-via", "false"], FAILED, &["publisher ended", "--publisher-via"]),
        (&["bench", "latency", "--size", "8"], USAGE, &["at least 16"]),
        (&["bench", "fanout", "--subscribers", "65"], USAGE, &["1 to 64"]),
        (&["bench", "subjects", "--subjects", "0"], USAGE, &["--subjects"]),
        (&["bench", "loss", "--drop", "100%"], USAGE, &["below 100"]),
        (&["bench", "loss", "--path", "host"], USAGE, &["no message passes a network"]),
        (&["bench", "loss", "--fault", "true"], USAGE, &["--heal"]),
        (&["bench", "role"], USAGE, &["no job on standard input"]),
    ] {
        place.run(arguments).exits(exit).reports(parts).prints("");
    }
}

#[test]
fn via_commands_start_the_programs() {
    let place = Place::new();
    let via = |side: &str| format!("env SIDE='of the {side}' sh -c 'echo \"$SIDE\" >> sides; exec \"$0\" \"$@\"'");
    let (publisher, subscriber) = (via("publisher"), via("subscriber"));
    let vias = ["--publisher-via", &publisher, "--subscriber-via", &subscriber];
    let answer = bench(&place, &[&["throughput", "--rate", "1000/s", "--secs", "0.1", "--no-raw"][..], &vias].concat());
    adds_up(&rows(&answer, "rows")[0]);
    assert_eq!(std::fs::read_to_string(place.dir().join("sides")).unwrap(), "of the subscriber\nof the publisher\n");
}

/// Returns the number of processes with the environment of this place.
fn processes(place: &Place) -> usize {
    let socket = place.socket();
    let socket = socket.as_os_str().as_encoded_bytes();
    let entries = std::fs::read_dir("/proc").expect("proc is mounted").filter_map(Result::ok);
    let environments = entries.filter_map(|entry| std::fs::read(entry.path().join("environ")).ok());
    environments.filter(|environment| environment.windows(socket.len()).any(|part| part == socket)).count()
}

#[test]
fn end_of_the_bench_ends_its_processes() {
    for (signal, path, running) in
        [("INT", "daemon", 5), ("TERM", "daemon", 5), ("KILL", "daemon", 5), ("INT", "host", 4), ("KILL", "host", 4)]
    {
        let place = Place::new();
        let mut command = place.command(&["bench", "throughput", "--path", path, "--rate", "10/s", "--secs", "1h"]);
        command.env("TMPDIR", place.dir());
        let mut bench = crate::support::command::RunningCommand::new(command.spawn().unwrap(), &["bench"]);
        wait_until("both programs and their daemons run", || processes(&place) == running);
        bench.signal(signal);
        let status = bench.ended();
        if signal != "KILL" {
            assert_eq!(status.code(), Some(FAILED));
            bench.await_report("interrupted");
        }
        wait_until("all have ended", || processes(&place) == 0);
        let left = std::fs::read_dir(place.dir()).unwrap().filter_map(Result::ok).map(|entry| entry.file_name());
        assert_eq!(left.filter(|name| name.to_string_lossy().starts_with("seqcast-bench")).count(), 0);
    }
}
