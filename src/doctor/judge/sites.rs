//! The check of the link to other sites.

use crate::doctor::host::HostState;
use crate::doctor::outcome::{CheckOutcome, HostCheck};
use serde_json::Value;
use std::collections::BTreeMap;

/// Consequence of a missing connection.
const NOTHING_CROSSES: &str = "no message crosses to other sites, or comes from them";

pub(super) fn check_sites(state: &HostState) -> Vec<CheckOutcome> {
    let mut outcomes = check_hubs(state);
    if let Some(peer) = state.peer.running() {
        if !peer.link.is_null() {
            outcomes.extend(check_link(&peer.link));
            outcomes.extend(COUNTS.iter().filter_map(|count| count.check(&peer.link)));
        }
        outcomes.extend(check_losses(&peer.site_losses));
        if outcomes.is_empty() && !peer.link.is_null() {
            outcomes.push(CheckOutcome::well(HostCheck::Sites, connected_text(&peer.link)));
        }
    }
    outcomes
}

/// Returns what the link does, as a phrase.
fn connected_text(link: &Value) -> String {
    let patterns = |direction: &str| {
        let patterns: Vec<&str> = link[direction].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if patterns.is_empty() { "nothing".to_owned() } else { patterns.join(", ") }
    };
    format!(
        "site {} is connected with the cluster; it exports {} and imports {}",
        text(link, "site"),
        patterns("exports"),
        patterns("imports")
    )
}

/// Names the servers of the cluster that this host does not reach.
fn check_hubs(state: &HostState) -> Vec<CheckOutcome> {
    let is_any_reached = state.hubs.iter().any(|hub| hub.failure.is_none());
    let unreached = state.hubs.iter().filter_map(|hub| {
        let found = format!("the server {} of the cluster is not reached: {}", hub.address, hub.failure.as_ref()?);
        let effect = if is_any_reached { "the link depends on the other servers" } else { NOTHING_CROSSES };
        let fix = "start the server, look at its firewall, or correct its address (key link)".to_owned();
        Some(CheckOutcome::warning(HostCheck::Sites, found, effect, fix))
    });
    let reached = state.hubs.iter().filter(|hub| hub.failure.is_none() && state.peer.running().is_none());
    let reached = reached.map(|hub| {
        let found = format!("the server {} of the cluster accepts connections", hub.address);
        CheckOutcome::well(HostCheck::Sites, found)
    });
    reached.chain(unreached).collect()
}

/// Judges the connection of a gateway, and the name of its site.
fn check_link(link: &Value) -> Vec<CheckOutcome> {
    let (connection, fault) = (text(link, "state"), text(link, "fault"));
    let mut outcomes = Vec::new();
    if connection != "connected" {
        let is_refused = ["authorization", "authentication"].iter().any(|word| fault.to_lowercase().contains(word));
        let fix = match (connection, is_refused) {
            (_, true) => "give the gateway an account of the cluster: key link-credentials, then restart the peer",
            ("failed", _) => "mend that, then restart the peer; its log has more",
            _ => "see the servers above, and the log of the peer with: seqcast log level debug",
        };
        let found = match (fault, is_refused) {
            ("", _) => format!("the link is {connection}: no server of the cluster answers"),
            (fault, true) => format!("the cluster refuses the credentials of the gateway: {fault}"),
            (fault, false) => format!("the link is {connection}: {fault}"),
        };
        outcomes.push(CheckOutcome::warning(HostCheck::Sites, found, NOTHING_CROSSES, fix.to_owned()));
    } else if !fault.is_empty() {
        let fix = "see docs/links.md, and the log of the cluster".to_owned();
        let effect = "a part of the messages may not cross";
        outcomes.push(CheckOutcome::warning(HostCheck::Sites, format!("the cluster refuses: {fault}"), effect, fix));
    }
    let stream_fault = text(&link["durable"], "fault");
    if !stream_fault.is_empty() {
        let found = format!("durable messages: {stream_fault}");
        let effect = match &link["durable"]["open"] {
            Value::Bool(true) => "durable messages may not be stored, or not for as long as configured",
            _ => "durable messages of this LAN wait in memory, and those of other sites at the cluster",
        };
        let fix = "see docs/links.md, 'Durable messages', and the log of the cluster".to_owned();
        outcomes.push(CheckOutcome::warning(HostCheck::Sites, found, effect, fix));
    }
    let conflict = text(link, "conflict");
    if !conflict.is_empty() {
        outcomes.push(CheckOutcome::warning(
            HostCheck::Sites,
            conflict,
            "messages of the one LAN do not reach the other, or the gateways of one LAN both carry them",
            "give each LAN one name of its own: key site, the same at all its gateways".to_owned(),
        ));
    }
    outcomes
}

/// A counter of a link that should be 0.
struct LinkCount {
    /// Its place in the report.
    pointer: &'static str,
    /// The counted messages, as a clause.
    property: &'static str,
    effect: &'static str,
    fix: &'static str,
}

const COUNTS: [LinkCount; 10] = [
    LinkCount {
        pointer: "/unsent",
        property: "were not exported: the cluster was too slow, away, or takes none of this size",
        effect: "other sites lack them, and report them as lost",
        fix: "look at the connection and the load of the cluster, and at its max_payload",
    },
    LinkCount {
        pointer: "/unread",
        property: "of the cluster were dropped: this LAN was too slow",
        effect: "those of other sites are lost",
        fix: "divide the subjects among several gateways, and look at: seqcast show clients",
    },
    LinkCount {
        pointer: "/unheard",
        property: "of this LAN were dropped: the gateway was too slow",
        effect: "other sites lack them",
        fix: "divide the subjects among several gateways, or export fewer (key link-live)",
    },
    LinkCount {
        pointer: "/refused",
        property: "of the cluster were refused here: too large, or not permitted by the certificate of this host",
        effect: "those of other sites are lost",
        fix: "raise message-size, permit the subjects in the certificate, or import fewer (key link-import)",
    },
    LinkCount {
        pointer: "/invalid",
        property: "of the cluster could not be read",
        effect: "they are not delivered",
        fix: "run the same version of seqcast at all sites, and permit the gateways alone on _SEQCAST.LINK.>",
    },
    LinkCount {
        pointer: "/excess_sites",
        property: "came from sites beyond the limit of 256",
        effect: "they are not delivered",
        fix: "import from fewer sites (key link-import), or join them over several clusters",
    },
    LinkCount {
        pointer: "/requests_dropped",
        property: "that are requests or replies were dropped: there was no room, the reply subject is not allowed, or the cluster repeated a request",
        effect: "the programs that sent these requests had no reply",
        fix: "divide the subjects among several gateways; let programs await replies in their inboxes (_INBOX.)",
    },
    LinkCount {
        pointer: "/events/too_large",
        property: "with events were not relayed: too large for the cluster or for this LAN",
        effect: "followers in another site lack these events",
        fix: "raise the max_payload of the cluster, or message-size at the importing site",
    },
    LinkCount {
        pointer: "/durable/unstored",
        property: "on durable subjects were not stored: the spool was full, or the stream never takes them",
        effect: "other sites lack them, and report them as lost",
        fix: "raise link-spool-size, and look at the limits of the stream and at the max_payload of the cluster",
    },
    LinkCount {
        pointer: "/durable/invalid",
        property: "of the stream could not be read",
        effect: "they are not delivered",
        fix: "run the same version of seqcast at all sites, and see who else publishes on durable subjects",
    },
];

impl LinkCount {
    fn check(&self, link: &Value) -> Option<CheckOutcome> {
        let count = link.pointer(self.pointer)?.as_u64().filter(|count| 0 < *count)?;
        let found = format!("{count} messages {}", self.property);
        Some(CheckOutcome::warning(HostCheck::Sites, found, self.effect, self.fix.to_owned()))
    }
}

/// Names the sites of which messages were lost on the way. `rows` are those of `show loss`.
fn check_losses(rows: &[Value]) -> Vec<CheckOutcome> {
    let mut sites: BTreeMap<&str, SiteSum> = BTreeMap::new();
    for row in rows {
        let sum = sites.entry(text(row, "site")).or_default();
        let bound = |name: &str| row["lost"].as_u64().or(row["lost"][name].as_u64());
        sum.min = sum.min.saturating_add(bound("min").unwrap_or(0));
        sum.is_exact &= row["lost"].is_u64();
        sum.tails = sum.tails.saturating_add(row["tails"].as_u64().unwrap_or(0));
    }
    let outcome = |(site, sum): (&str, SiteSum)| {
        let at_least = if sum.is_exact { "" } else { "at least " };
        let tails = match sum.tails {
            0 => String::new(),
            tails => format!("; its last gateway ended {tails} times without an account"),
        };
        CheckOutcome::warning(
            HostCheck::Sites,
            format!("{at_least}{} messages of site {site} were lost on the way{tails}", sum.min),
            "the programs of this LAN did not get them",
            "see: seqcast show loss --by-subject; run several gateways at each site, and look at the cluster"
                .to_owned(),
        )
    };
    sites.into_iter().map(outcome).collect()
}

/// Losses of one site.
struct SiteSum {
    min: u64,
    /// True if `min` is the number.
    is_exact: bool,
    tails: u64,
}

impl Default for SiteSum {
    fn default() -> SiteSum {
        SiteSum { min: 0, is_exact: true, tails: 0 }
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}
