//! Reports about the peer: `show status` and its counters.

use super::Engine;
use crate::daemon::engine_core::Phase;
use crate::daemon::show::{self, CounterRow, LIMIT_MAX, ReportInput};
use crate::message::Count;
use crate::proto::peer::Peer;
use crate::proto::stats::MemberState;
use crate::time::ClockReading;
use serde_json::{Value, json};

/// Returns the state of a peer in a few words: `4 peers, 0 lost`. The peers are the others that it hears; the lost
/// messages are those since its start.
pub(super) fn summary(peer: &Peer, now: ClockReading) -> String {
    let peers = peer.member_rows(now).iter().filter(|row| row.state == MemberState::Up).count();
    let rows = peer.loss_rows();
    let sum = |lost: fn(Count) -> u64| rows.iter().map(|row| lost(row.lost()).saturating_add(row.ibx_loss.count)).sum();
    let lost = Count::from_bounds(sum(Count::min), sum(Count::max));
    format!("{peers} {}, {lost} lost", if peers == 1 { "peer" } else { "peers" })
}

impl Engine {
    /// Answers a `show` query about the peer.
    pub(crate) fn show(&mut self, now: ClockReading, query: &Value) -> Value {
        self.show_limited(now, query, LIMIT_MAX)
    }

    /// Answers a `show` query with at most `rows_max` rows.
    pub(super) fn show_limited(&mut self, now: ClockReading, query: &Value, rows_max: usize) -> Value {
        self.core.peer.settle();
        if query["show"] == "subject" {
            return show::subject(&mut self.core.peer, query);
        }
        self.core.count_published();
        let counters = self.counters();
        let clients = self.core.clients.rows(now);
        let (status, health) = (self.status(now), self.health.report());
        let (peer, subject_losses) = (&mut self.core.peer, &self.core.subject_losses);
        let address = self.core.sockets.inbox_address().ip();
        let copies_to = self.core.transmit_queue.copies_to();
        // Several reports together have as many rows as one.
        let rows_max = rows_max / query["show"].as_array().map_or(1, |names| names.len().max(1));
        let mut input = ReportInput {
            peer,
            now,
            status,
            health,
            clients,
            counters,
            subject_losses,
            site_losses: self.site_losses.losses(),
            origin_of: &|epoch| self.core.protection.origin_of(epoch),
            address,
            copies_to,
            rows_max,
        };
        match query["show"].as_array() {
            None => show::answer(query, &mut input),
            Some(names) => show::answer_several(names, query, &mut input),
        }
    }

    fn status(&self, now: ClockReading) -> Value {
        let mut status = self.static_status.clone();
        status["epoch"] = json!(self.core.peer.epoch().to_string());
        status["security"] = json!(self.core.protection.mode());
        let is_reached = self.interface.current().is_reached_by_other_hosts();
        status["open_to_network"] = json!(self.core.protection.is_open() && is_reached);
        status["realm"] = json!(self.core.protection.realm());
        status["cipher"] = json!(self.core.protection.cipher());
        status["origin"] = json!(self.core.protection.origin());
        let (revision, hosts) = self.core.protection.revocations().unzip();
        status["revocations"] = json!(revision);
        status["revoked_hosts"] = json!(hosts);
        status["uptime_ms"] = json!(now.instant.since(self.core.started.instant).as_millis() as u64);
        status["clients"] = json!(self.core.clients.len());
        let [gso, gro] = self.core.sockets.offloads();
        self.services.add_status(&self.core, &mut status);
        status["offloads"] = json!({ "gso": gso, "gro": gro, "filter": self.core.sockets.truncates_own_data() });
        let rows = self.core.peer.member_rows(now);
        let excluded = rows.iter().filter(|row| row.flow_exclusion.is_some()).map(|row| row.publisher.to_string());
        status["flow_excluded"] = excluded.collect();
        status["datagram_bytes"] = json!(self.core.peer.settings().datagram_bytes_max);
        status["send_queue"] = json!(self.core.transmit_queue.len());
        self.running_config.add_status(&mut status);
        status["phase"] = json!(match self.core.phase {
            Phase::Running => "running",
            _ => "stopping",
        });
        status
    }

    fn counters(&self) -> Vec<CounterRow> {
        let by_rule = self.core.dropper.as_ref().map_or(0, |dropper| dropper.dropped);
        let [registered, refused, followed, too_deep, denied] = self.services.event_counts();
        let [beacons_sent, beacons_received, beacons_discarded] = self.health.beacon_counts();
        let [path_tests_received, path_tests_discarded] = self.core.path_test_counts();
        let mut rows = vec![
            ("events_registered", registered, "Events registered here."),
            ("events_refused", refused, "Requests about events that were refused."),
            ("events_followed", followed, "Events of other servers stored here."),
            (
                "events_too_deep",
                too_deep,
                "Events of other servers that were not stored because their JSON is nested deeper than 900 levels.",
            ),
            (
                "events_denied",
                denied,
                "Events of other servers that were not stored because the certificates of their hosts do not permit the types.",
            ),
            ("recv_errors", self.core.recv_errors, "Errors that the system reported on receiving datagrams."),
            (
                "send_errors",
                self.core.transmit_queue.errors,
                "Datagrams that the system refused to send, or that waited when the address of the peer changed.",
            ),
            (
                "send_overflow",
                self.core.transmit_queue.overflow,
                "Answers to other peers discarded because the transmit queue was full.",
            ),
            ("clients_refused", self.core.clients_refused, "Clients refused because there were too many."),
            (
                "shared_memory_refused",
                self.core.segments.refused,
                "Requests of attached programs for shared memory that were refused; they use the socket.",
            ),
            (
                "payloads_lent",
                self.core.segments.payloads_lent,
                "Large payloads that attached programs published in lent memory.",
            ),
            (
                "subscriptions_unconfirmed",
                self.core.unconfirmed_reported,
                "Subscriptions reported as established although a suppressing peer had not confirmed them in time.",
            ),
            (
                "listener_dropped",
                self.core.clients.dropped_at_listeners(),
                "Messages dropped because clients of listeners did not read fast enough.",
            ),
            ("beacons_sent", beacons_sent, "Beacons sent, which announce the group to peers of other groups."),
            ("beacons_received", beacons_received, "Beacons received from other peers, of this group and of others."),
            ("beacons_discarded", beacons_discarded, "Datagrams received at the port of beacons that are no beacon."),
            ("path_tests_received", path_tests_received, "Datagrams received from 'doctor --with' of other hosts."),
            (
                "path_tests_discarded",
                path_tests_discarded,
                "Those that were not answered, because there were too many.",
            ),
        ];
        rows.extend(self.loss_counters());
        rows.push(("dropped_by_rule", by_rule, "Received datagrams dropped on purpose by a drop rule."));
        rows.extend(self.core.protection.counters());
        rows
    }

    /// Returns the counters of losses that have no row of their own in `show loss`.
    fn loss_counters(&self) -> [CounterRow; 3] {
        [
            (
                "subject_losses_unlisted",
                self.core.subject_losses.unlisted,
                "Losses and repairs that 'show loss --by-subject' counts together: there are too many subjects.",
            ),
            (
                "link_repeats_dropped",
                self.core.clients.dropped_repeats(),
                "Messages of other sites dropped because another gateway had delivered them before.",
            ),
            (
                "site_losses_unlisted",
                self.site_losses.losses().unlisted,
                "Reports of losses of other sites that 'show loss' counts together or not at all: there are too many.",
            ),
        ]
    }
}
