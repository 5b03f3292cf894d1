//! Keys of the configuration: each has a test in which its value changes an outcome.
//!
//! `tests/config.rs` shows that the value of a key of the core reaches its setting. A test of the setting is then a
//! test of the key, and may name the setting's field instead.

use super::source::{bodies, code, tests, without_tests};
use super::{File, assert_tidy, is_test, rust};
use seqcast::config::KEYS;
use std::collections::{BTreeMap, BTreeSet};

/// A key, a file, and the test in it in which the value of the key changes an outcome.
type Proof<'a> = (&'a str, &'a str, &'a str);

/// The proof of each key, in the order of the configuration.
const PROOFS: &[Proof<'_>] = &[
    ("name", "src/proto/peer/tests/settings.rs", "name_in_use_by_another_peer_is_reported"),
    ("security", "tests/security.rs", "open_and_keyed_peers_ignore_each_other"),
    ("cipher", "tests/security.rs", "members_of_a_realm_exchange_messages"),
    ("origin", "tests/security.rs", "members_of_a_realm_exchange_messages"),
    ("origin-check", "tests/attack.rs", "member_that_forges_is_reported"),
    ("key-log", "tests/netns/keys.rs", "logged_keys_open_a_capture"),
    ("group", "tests/bus/multicast.rs", "groups_on_one_port_do_not_mix"),
    ("port", "src/proto/peer/tests/settings.rs", "datagrams_of_another_port_are_discarded"),
    ("interface", "tests/cli/peer.rs", "unusable_interface_and_port_are_named"),
    ("inbox-port", "tests/cli/peer.rs", "unusable_interface_and_port_are_named"),
    ("ttl", "tests/bus/multicast.rs", "multicasts_carry_the_ttl"),
    ("peers", "tests/netns/copies.rs", "lan_without_multicast_works_by_unicast"),
    ("beacon", "tests/netns/beacon.rs", "peer_of_another_port_is_named_until_corrected"),
    ("path-tests", "tests/netns/doctor.rs", "running_peer_answers_the_doctor_unless_forbidden"),
    ("socket", "tests/bus/attached.rs", "poll_continues_from_a_delivered_offset"),
    ("socket-mode", "tests/cli/peer.rs", "local_socket_has_the_configured_access"),
    ("socket-group", "tests/cli/peer.rs", "local_socket_has_the_configured_access"),
    ("heartbeat", "src/proto/peer/tests/settings.rs", "silence_follows_the_publishers_heartbeat"),
    ("reliability", "src/proto/peer/tests/repair/settings.rs", "loss_is_reported_after_the_reliability_time"),
    ("delivery", "tests/bus/polls.rs", "delivery_mode_decides_about_missing_messages"),
    ("resend-size", "src/proto/peer/tests/repair/settings.rs", "datagram_within_the_resend_size_is_resent"),
    ("resend-time", "src/proto/resend/tests.rs", "datagram_is_retained_for_the_resend_time"),
    ("resend-rate", "src/proto/resend/tests.rs", "answers_without_live_data_keep_the_resend_rate"),
    ("pace", "tests/bus/misbehaviour.rs", "idle_client_is_served_while_publishers_wait"),
    ("pace-floor", "src/proto/pace/tests.rs", "receiver_below_the_floor_is_excluded"),
    ("interest", "src/proto/peer/tests/repair/suppression.rs", "unwanted_messages_are_sent_without_interest"),
    ("history-count", "src/proto/history/tests.rs", "history_count_limits_retained_events"),
    ("history-subject-size", "src/proto/history/tests.rs", "history_subject_size_limits_retained_events"),
    ("history-time", "src/proto/history/tests.rs", "events_are_retained_for_the_history_time"),
    ("history-rules", "src/proto/history/tests.rs", "first_matching_history_rule_applies"),
    ("history-size", "src/proto/history/tests.rs", "history_size_limits_all_subjects_together"),
    ("busy-poll", "tests/cli/peer.rs", "idle_busy_poll_uses_the_processor"),
    ("linger", "src/proto/peer/tests/repair/settings.rs", "stopping_peer_answers_until_its_linger_time"),
    ("forget", "src/proto/peer/tests/settings.rs", "silent_peer_is_given_up_after_forget_time"),
    ("pub-window-size", "src/proto/window/tests.rs", "idle_published_subject_stays_in_a_small_window"),
    ("pub-window-time", "src/proto/window/tests.rs", "idle_published_subject_stays_for_the_time"),
    ("pub-window-max", "src/proto/window/tests.rs", "published_subjects_are_numbered_up_to_the_limit"),
    ("sub-window-size", "src/proto/window/tests.rs", "idle_subscribed_subject_stays_in_a_small_window"),
    ("sub-window-time", "src/proto/window/tests.rs", "idle_subscribed_subject_stays_for_the_time"),
    ("sub-window-max", "src/proto/window/tests.rs", "subscribed_subjects_are_entered_up_to_the_limit"),
    ("message-size", "src/proto/peer/tests/settings.rs", "message_above_the_size_limit_is_refused"),
    ("datagram-size", "src/proto/peer/tests/settings.rs", "large_message_takes_fewer_large_datagrams"),
    ("receive-buffer", "tests/bus/multicast.rs", "buffers_have_the_wanted_sizes"),
    ("send-buffer", "tests/bus/multicast.rs", "buffers_have_the_wanted_sizes"),
    ("hold-size", "src/proto/peer/tests/settings.rs", "gap_ends_early_above_the_hold_limit"),
    ("reassembly-size", "src/proto/peer/tests/settings.rs", "incomplete_message_above_reassembly_limit_is_given_up"),
    ("gaps-max", "src/proto/peer/tests/settings.rs", "oldest_gap_ends_early_above_the_limit"),
    ("peers-max", "src/proto/peer/tests/settings.rs", "peers_are_followed_up_to_the_limit"),
    ("interest-max", "src/proto/peer/tests/repair/interest.rs", "subscriptions_beyond_the_limit_are_not_known"),
    ("client-max", "tests/bus/misbehaviour.rs", "excess_clients_and_subscriptions_name_their_key"),
    ("client-queue-size", "src/daemon/subscription_queue.rs", "messages_beyond_the_queue_size_are_dropped"),
    ("client-queue-count", "tests/bus/library.rs", "slow_subscription_loses_only_its_own_messages"),
    ("shared-memory", "tests/bus/shared_memory.rs", "programs_without_shared_memory_use_the_socket"),
    ("shared-memory-max", "tests/bus/shared_memory.rs", "programs_without_shared_memory_use_the_socket"),
    ("subscriptions-max", "src/proto/interest.rs", "excess_subscriptions_are_refused_and_repeated_ids_ignored"),
    ("client-subscriptions-max", "tests/bus/misbehaviour.rs", "excess_clients_and_subscriptions_name_their_key"),
    ("match-cache", "src/proto/interest.rs", "matches_are_cached_up_to_the_cache_size"),
    ("server-id", "tests/events/registration.rs", "events_of_another_peer_reach_subscribers"),
    ("data-dir", "tests/events/registration.rs", "unusable_journal_is_reported"),
    ("event-retention", "tests/events/registration.rs", "expired_events_are_removed_without_reusing_sessions"),
    ("event-follow", "tests/events/follow.rs", "followed_events_are_stored_including_missed_ones"),
    ("site", "tests/links/mod.rs", "messages_cross_once_with_their_publisher"),
    ("link", "tests/links/mod.rs", "messages_cross_once_with_their_publisher"),
    ("link-credentials", "tests/links/mod.rs", "wrong_credentials_are_named"),
    ("link-tls-ca", "tests/links/mod.rs", "cluster_of_another_authority_is_refused"),
    ("link-live", "tests/links/mod.rs", "clients_of_the_cluster_take_part"),
    ("link-durable", "tests/links/durable.rs", "durable_messages_outlast_an_outage"),
    ("link-stream", "tests/links/durable.rs", "stream_with_other_settings_is_named"),
    ("link-stream-time", "tests/links/durable.rs", "stream_with_other_settings_is_named"),
    ("link-stream-size", "tests/links/durable.rs", "stream_with_other_settings_is_named"),
    ("link-stream-copies", "tests/links/durable.rs", "stream_with_other_settings_is_named"),
    ("link-spool-size", "tests/links/durable.rs", "full_spool_is_reported_exactly"),
    ("link-rate", "tests/links/durable.rs", "catching_up_keeps_to_the_rate"),
    ("link-import", "tests/links/mod.rs", "clients_of_the_cluster_take_part"),
    ("link-import-clients", "tests/links/security.rs", "clients_publish_on_named_subjects_only"),
    ("link-services", "tests/links/requests.rs", "clients_of_the_cluster_ask_and_answer"),
    ("link-events", "tests/links/events.rs", "types_that_are_not_named_do_not_cross"),
    ("link-events-import", "tests/links/events.rs", "types_that_are_not_named_do_not_cross"),
    ("nats", "tests/listeners/limits.rs", "occupied_port_is_named_with_the_remedy"),
    ("nats-open", "tests/config.rs", "open_listener_without_accounts_needs_permission"),
    ("nats-tls", "tests/cli/peer.rs", "unreadable_tls_files_of_each_listener_are_reported"),
    ("nats-tls-first", "tests/listeners/tls_first.rs", "handshake_before_info_works_with_published_clients"),
    ("nats-headers", "src/listener/nats/tests.rs", "annotated_client_receives_the_metadata"),
    ("nats-ws", "tests/listeners/websocket.rs", "published_client_in_node_uses_the_bus"),
    ("nats-ws-open", "tests/config.rs", "open_listener_without_accounts_needs_permission"),
    ("nats-ws-tls", "tests/listeners/websocket.rs", "encrypted_websockets_work_with_the_published_client"),
    ("nats-ws-origins", "tests/listeners/websocket.rs", "browser_client_needs_a_listed_site"),
    ("redis", "tests/listeners/limits.rs", "occupied_port_is_named_with_the_remedy"),
    ("redis-open", "tests/config.rs", "open_listener_without_accounts_needs_permission"),
    ("redis-tls", "tests/cli/peer.rs", "unreadable_tls_files_of_each_listener_are_reported"),
    ("hat", "tests/listeners/hat.rs", "published_client_registers_receives_and_queries"),
    ("hat-open", "tests/config.rs", "open_listener_without_accounts_needs_permission"),
    ("hat-tls", "tests/listeners/hat.rs", "unencrypted_clients_are_refused_unless_encryption_is_optional"),
    ("hat-events", "src/listener/hat/tests.rs", "connection_event_equals_that_of_hat"),
    ("rv", "tests/listeners/rv.rs", "messages_reach_clients_of_both_peers"),
    ("rv-open", "tests/config.rs", "open_listener_without_accounts_needs_permission"),
    ("rv-tls", "tests/cli/peer.rs", "unreadable_tls_files_of_each_listener_are_reported"),
    ("ftn18", "tests/cli/streams.rs", "wrong_arguments_are_refused_with_a_remedy"),
    ("ftn18-open", "tests/config.rs", "open_listener_without_accounts_needs_permission"),
    ("ftn18-tls", "tests/listeners/streams/mod.rs", "required_encryption_works_with_published_clients"),
    ("ftn18-trusted", "tests/listeners/streams/mod.rs", "clear_events_need_a_trusted_listener"),
    ("http", "tests/web/health.rs", "healthy_peer_is_live_and_ready"),
    ("http-open", "tests/config.rs", "open_listener_without_accounts_needs_permission"),
    ("http-publish", "tests/web/messages.rs", "pages_publish_only_if_they_may"),
    ("http-origins", "tests/web/bus_api/publish.rs", "foreign_pages_publish_only_from_listed_sites"),
    ("http-tls", "tests/web/access.rs", "encryption_is_required_unless_optional"),
    ("streams", "tests/cli/streams.rs", "events_are_added_polled_and_accepted"),
    ("stream-store", "tests/listeners/streams/postgres.rs", "peers_share_the_streams_of_one_database"),
    ("stream-delay", "src/event/stream/pusher/tests.rs", "group_waits_for_other_events_during_the_delay"),
    ("stream-groups", "src/event/stream/pusher/tests.rs", "unaccepted_groups_are_limited"),
    ("accounts", "tests/listeners/streams/mod.rs", "published_clients_add_register_and_poll"),
    ("listener-client-max", "tests/listeners/limits.rs", "connections_beyond_the_limit_are_refused_and_counted"),
    (
        "listener-unauthenticated-max",
        "tests/listeners/limits.rs",
        "unauthenticated_flood_leaves_room_for_authenticated_clients",
    ),
    ("tls-timeout", "tests/listeners/tls_first.rs", "silent_client_is_closed_after_the_tls_timeout"),
    ("listener-memory", "tests/listeners/memory.rs", "largest_holder_of_incomplete_commands_is_closed"),
    ("slow-client", "tests/listeners/slow.rs", "slow_client_is_closed_if_configured"),
    ("advisory-subjects", "src/proto/peer/tests/settings.rs", "advisory_names_subjects_up_to_the_limit"),
    ("remote-reports", "tests/bus/reports.rs", "peer_without_permission_refuses_remote_reports"),
    ("log-level", "tests/cli/log.rs", "less_severe_events_are_not_logged"),
    ("log-format", "tests/cli/log.rs", "log_lines_have_the_format"),
    ("log-file", "tests/cli/log.rs", "moved_log_continues_in_a_new_file"),
];

/// Keys whose value changes no outcome in any test, and the reason. The list may only become shorter.
const UNPROVEN: [(&str, &str); 0] = [];

/// The parts of one file that the check reads.
struct Parsed {
    tests: BTreeSet<String>,
    bodies: BTreeMap<String, String>,
}

impl Parsed {
    fn new(text: &str) -> Parsed {
        Parsed { tests: tests(text).into_iter().map(|test| test.name).collect(), bodies: bodies(text) }
    }

    /// Returns whether the test, or a function of the file that it calls, has one of these words.
    fn mentions(&self, test: &str, words: &BTreeSet<String>) -> bool {
        let has_word = |body: &str| words.iter().any(|word| has(body, word));
        let Some(body) = self.bodies.get(test) else { return false };
        let mut called = self.bodies.iter().filter(|(name, _)| has(body, name) && body.contains(&format!("{name}(")));
        has_word(body) || called.any(|(_, body)| has_word(body))
    }
}

/// Returns whether `text` has the word. Hyphens belong to words, unless two of them begin an option.
fn has(text: &str, word: &str) -> bool {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        (!before.ends_with(is_of_word) || before.ends_with("--")) && !after.starts_with(is_of_word)
    })
}

/// Returns the names under which a test may mention a key: the key, its field, and the fields of settings to which
/// the product assigns it.
fn names_of(key: &str, product: &[(&str, String)]) -> BTreeSet<String> {
    let field = key.replace('-', "_");
    let mut names = BTreeSet::from([key.to_owned(), field.clone()]);
    for (path, code) in product {
        let access = format!("{}.{field}", if path.starts_with("src/config/") { "self" } else { "config" });
        for line in code.lines().filter(|line| has(line, &access)) {
            let (before, _) = line.split_once(&access).expect("the line has it");
            let assigned = before.rsplit(['{', ',']).next().and_then(|rest| rest.trim_start().split_once(": "));
            let is_field = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
            names.extend(assigned.map(|(name, _)| name).filter(is_field).map(str::to_owned));
        }
    }
    names
}

/// Complains about keys without a proof or with several, proofs of no key, and proofs that show nothing.
fn check_proofs(keys: &[&str], proofs: &[Proof<'_>], unproven: &[(&str, &str)], files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    let listed: Vec<&str> = proofs.iter().map(|(key, ..)| *key).chain(unproven.iter().map(|(key, _)| *key)).collect();
    for key in keys {
        match listed.iter().filter(|listed| *listed == key).count() {
            0 => complaints.push(format!("{key}: no test is named in which its value changes an outcome")),
            1 => {}
            _ => complaints.push(format!("{key}: is listed more than once")),
        }
    }
    complaints.extend(listed.iter().filter(|key| !keys.contains(key)).map(|key| format!("{key}: is no key")));
    let is_product =
        |file: &&File| file.path.starts_with("src/") && !is_test(&file.path) && file.path != "src/config/keys.rs";
    let product: Vec<(&str, String)> =
        files.iter().filter(is_product).map(|file| (file.path.as_str(), without_tests(&code(&file.text)))).collect();
    let mut parsed: BTreeMap<&str, Parsed> = BTreeMap::new();
    for (key, path, test) in proofs {
        let Some(file) = files.iter().find(|file| file.path == *path) else {
            complaints.push(format!("{key}: there is no file {path}"));
            continue;
        };
        let parsed = parsed.entry(path).or_insert_with(|| Parsed::new(&file.text));
        let names = names_of(key, &product);
        if !parsed.tests.contains(*test) {
            complaints.push(format!("{key}: {path} has no test {test}"));
        } else if !parsed.mentions(test, &names) {
            complaints.push(format!("{key}: {test} in {path} mentions none of {names:?}"));
        }
    }
    complaints
}

#[test]
fn every_key_has_a_test_of_its_value() {
    let keys: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    assert_tidy(check_proofs(&keys, PROOFS, &UNPROVEN, &rust()));
}

#[test]
fn proof_check_reports_each_mistake() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let config = "fn settings(&self) {\n    Ring { size: self.a_size, time: limit(self.a_time) };\n}\n";
    let text = "#[test]\nfn shows() { assert!(\"a-size=1\"); }\n\
                #[test]\nfn shows_by_helper() { helper(1) }\nfn helper(x: u8) { Ring { time: x } }\n\
                #[test]\nfn is_empty() { /* a-size */ other }\nfn other() { \"a-size\" }\n";
    let files = [file("src/config/mod.rs", config), file("tests/a.rs", text)];
    let check = |proofs: &[Proof<'_>], unproven: &[(&str, &str)], expected: &[&str]| {
        assert_eq!(check_proofs(&["a-size", "a-time"], proofs, unproven, &files), expected);
    };
    let (size, time) = (("a-size", "tests/a.rs", "shows"), ("a-time", "tests/a.rs", "shows_by_helper"));
    check(&[size, time], &[], &[]);
    check(&[size], &[("a-time", "It has one value only.")], &[]);
    check(&[size], &[], &["a-time: no test is named in which its value changes an outcome"]);
    check(&[size, time], &[("a-time", "")], &["a-time: is listed more than once"]);
    check(&[size, time], &[("a", "")], &["a: is no key"]);
    check(&[size, ("a-time", "tests/b.rs", "shows")], &[], &["a-time: there is no file tests/b.rs"]);
    check(&[size, ("a-time", "tests/a.rs", "helper")], &[], &["a-time: tests/a.rs has no test helper"]);
    let empty = "mentions none of {\"a-size\", \"a_size\", \"size\"}";
    check(&[("a-size", "tests/a.rs", "is_empty"), time], &[], &[&format!("a-size: is_empty in tests/a.rs {empty}")]);
    check(
        &[size, ("a-time", "tests/a.rs", "shows")],
        &[],
        &["a-time: shows in tests/a.rs mentions none of {\"a-time\", \"a_time\", \"time\"}"],
    );
}

#[test]
fn words_end_at_other_characters() {
    for (text, expected) in [("a-size=1", true), ("--a-size 1", true), ("x-a-size", false), ("a-size-max", false)] {
        assert_eq!(has(text, "a-size"), expected, "{text}");
    }
}
