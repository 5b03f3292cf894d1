//! The receivers that the local peer knows, and advice for a peer that knows no other one.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::bus::Bus;
use crate::message::SubscriptionFilter;
use crate::subject::glob::Glob;
use crate::subject::{Pattern, Subject};
use crate::terminal::exit::CommandFailure;
use crate::terminal::peer;

/// Maximum number of subscriptions that are counted. More are not worth the work for each command that publishes.
const SUBSCRIPTIONS_MAX: usize = 1000;

/// The receivers that the local peer knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownReceivers {
    /// True if no other peer is up, and no program here subscribes to the subject (to any subject if there is none).
    pub is_nobody_there: bool,
    /// Number of subscriptions on the LAN that match the subject, with one for each queue group. `None` without a
    /// subject, or if there are too many to count.
    pub count: Option<u64>,
}

impl KnownReceivers {
    /// Asks the peer for the receivers of a subject.
    ///
    /// # Errors
    /// The peer is stuck or gone.
    pub fn of(bus: &Bus, subject: Option<&Subject>) -> Result<KnownReceivers, CommandFailure> {
        let report = |what: &str| peer::show(bus, json!({ "show": what, "limit": SUBSCRIPTIONS_MAX }));
        Ok(KnownReceivers::of_reports(&report("peers")?, &report("subs")?, &report("interest")?, subject))
    }

    fn of_reports(peers: &Value, subs: &Value, interest: &Value, subject: Option<&Subject>) -> KnownReceivers {
        let is_alone = rows(peers).iter().all(|row| row["state"] != "up");
        let is_complete = [subs, interest].iter().all(|report| report["omitted"].is_null());
        let Some(subject) = subject else {
            return KnownReceivers { is_nobody_there: is_alone && rows(subs).is_empty(), count: None };
        };
        let matches = |row: &&Value| filter(row).is_some_and(|filter| filter.matches(subject));
        let (mut count, mut groups) = (0, BTreeSet::new());
        for row in rows(subs).iter().chain(rows(interest)).filter(matches) {
            match row["queue"].as_str() {
                Some(group) => count += u64::from(groups.insert(group)),
                None => count += row["subscriptions"].as_u64().unwrap_or(1),
            }
        }
        KnownReceivers {
            is_nobody_there: is_alone && is_complete && !rows(subs).iter().any(|row| matches(&row)),
            count: is_complete.then_some(count),
        }
    }
}

fn rows(report: &Value) -> &[Value] {
    report["rows"].as_array().map_or(&[][..], Vec::as_slice)
}

/// Returns the filter of a subscription in a report.
fn filter(row: &Value) -> Option<SubscriptionFilter> {
    let pattern: Pattern = row["pattern"].as_str()?.parse().ok()?;
    let glob = row["glob"].as_str().and_then(|text| Glob::new(text.as_bytes()).ok());
    Some(SubscriptionFilter { glob, ..pattern.into() })
}

/// Advice for a peer that knows no other one: what its messages reach, and how to reach more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LonePeerAdvice {
    interface: String,
    group: String,
    /// True if the multicasts of the peer do not leave its host.
    is_local: bool,
    /// True if that is due to `ttl`.
    is_ttl_zero: bool,
}

impl LonePeerAdvice {
    /// Asks the peer for its interface and its group.
    ///
    /// # Errors
    /// The peer is stuck or gone.
    pub fn of(bus: &Bus) -> Result<LonePeerAdvice, CommandFailure> {
        let answer = peer::show(bus, json!({ "show": "status" }))?;
        Ok(LonePeerAdvice::of_status(&answer["status"]))
    }

    fn of_status(status: &Value) -> LonePeerAdvice {
        let text = |field: &str| status[field].as_str().unwrap_or("?").to_owned();
        let is_loopback = text("address").parse().is_ok_and(|address: IpAddr| address.is_loopback());
        let is_ttl_zero = status["ttl"] == 0 && !is_loopback;
        LonePeerAdvice {
            interface: text("interface"),
            group: format!("group {} port {}", text("group"), status["port"]),
            is_local: is_loopback || is_ttl_zero,
            is_ttl_zero,
        }
    }
}

impl fmt::Display for LonePeerAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LonePeerAdvice { interface, group, .. } = self;
        match (self.is_local, self.is_ttl_zero) {
            (_, true) => write!(
                f,
                "its ttl is 0, which keeps its messages on this host\n  fix: start the peer with --set ttl=1 to reach \
                 the LAN behind {interface}"
            ),
            (true, false) => write!(
                f,
                "its interface is {interface}, which reaches this host only\n  fix: start the peer with --interface \
                 NAME, such as eth0, to reach the LAN behind that interface"
            ),
            (false, false) => write!(
                f,
                "it uses {group} on {interface}\n  fix: start a peer with this group and port on another host; \
                 'seqcast doctor' says why nothing arrives from there"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matching_subscriptions_are_counted_once_each_group() {
        let subs = json!({ "rows": [
            { "pattern": "a.>", "glob": null, "queue": null },
            { "pattern": "a.*", "glob": "a.[bc]", "queue": null },
            { "pattern": "a.b", "glob": null, "queue": "q" },
            { "pattern": "b.>", "glob": null, "queue": null },
        ] });
        let interest = json!({ "rows": [
            { "pattern": "a.b", "glob": null, "queue": "q", "subscriptions": 7 },
            { "pattern": "a.*", "glob": null, "queue": "r", "subscriptions": 2 },
            { "pattern": ">", "glob": null, "queue": null, "subscriptions": 3 },
        ] });
        let up = json!({ "rows": [{ "state": "left" }, { "state": "up" }] });
        let left = json!({ "rows": [{ "state": "left" }, { "state": "crashed" }] });
        let none = json!({ "rows": [] });
        let check = |reports: [&Value; 3], subject: &str, is_nobody_there, count| {
            let subject: Option<Subject> = subject.parse().ok();
            let [peers, subs, interest] = reports;
            let known = KnownReceivers::of_reports(peers, subs, interest, subject.as_ref());
            assert_eq!(known, KnownReceivers { is_nobody_there, count }, "{reports:?} {subject:?}");
        };
        check([&up, &subs, &interest], "a.b", false, Some(7));
        check([&up, &subs, &interest], "a.d", false, Some(5));
        check([&up, &none, &none], "a.b", false, Some(0));
        check([&left, &none, &none], "a.b", true, Some(0));
        check([&left, &subs, &none], "c", true, Some(0));
        check([&left, &subs, &none], "a.b", false, Some(3));
        check([&left, &subs, &none], "", false, None);
        check([&none, &none, &none], "", true, None);
        check([&left, &json!({ "rows": [], "omitted": 3 }), &none], "c", false, None);
    }

    #[test]
    fn advice_depends_on_the_reach_of_the_peer() {
        let check = |address: &str, interface: &str, ttl: u32, parts: &[&str]| {
            let status =
                json!({ "address": address, "interface": interface, "ttl": ttl, "group": "239.1.2.3", "port": 7500 });
            let text = LonePeerAdvice::of_status(&status).to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        };
        check(
            "127.0.0.1",
            "lo",
            1,
            &["its interface is lo, which reaches this host only", "fix: ", "--interface NAME"],
        );
        check("::1", "lo", 0, &["this host only", "--interface NAME"]);
        check("10.0.0.7", "eth0", 0, &["its ttl is 0", "--set ttl=1", "the LAN behind eth0"]);
        check("10.0.0.7", "eth0", 1, &["group 239.1.2.3 port 7500 on eth0", "another host", "seqcast doctor"]);
    }
}
