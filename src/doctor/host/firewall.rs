//! The rules of the firewall that concern the group, found in the texts of `nft` and `iptables-save`.

use nix::unistd::geteuid;
use std::io::Read;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Rules of the firewall, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FirewallState {
    /// Only root may list the rules.
    NeedsRoot,
    /// No program that lists rules is installed, or it failed.
    Unreadable,
    /// The rules, as far as they concern the group.
    Rules(FirewallRules),
}

/// Rules that concern the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FirewallRules {
    /// Rules that drop or reject multicasts, IGMP or the port; at most [`RULES_MAX`].
    pub(crate) drops: Vec<String>,
    /// True if incoming packets that no rule accepts are dropped.
    pub(crate) is_closed: bool,
    /// True if a rule accepts the port or the group.
    pub(crate) accepts_group: bool,
}

/// Commands that list rules.
const LISTINGS: [&[&str]; 2] = [&["nft", "-nn", "list", "ruleset"], &["iptables-save"]];
/// Maximum time that a listing may take.
const LISTING_TIME: Duration = Duration::from_millis(1500);
/// Interval between checks whether a listing has ended.
const LISTING_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum bytes of a listing that are read.
const LISTING_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of rules that are quoted.
const RULES_MAX: usize = 3;
/// Maximum number of characters of a quoted rule.
const RULE_CHARS_MAX: usize = 120;

/// Lists the rules that concern a group.
pub(super) fn read(group: IpAddr, port: u16) -> FirewallState {
    if !geteuid().is_root() {
        return FirewallState::NeedsRoot;
    }
    let listings: Vec<String> = LISTINGS.iter().filter_map(|listing| output_of(listing)).collect();
    match listings.is_empty() {
        true => FirewallState::Unreadable,
        false => FirewallState::Rules(parse_rules(&listings.concat(), group, port)),
    }
}

/// Runs a command for a bounded time and returns its output; `None` if it fails, or prints more than the maximum.
fn output_of(command: &[&str]) -> Option<String> {
    let (program, arguments) = command.split_first()?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let stdout = child.stdout.take()?;
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stdout.take(LISTING_BYTES_MAX).read_to_end(&mut bytes);
        read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).ok()
    });
    let mut left = LISTING_TIME;
    let status = loop {
        match child.try_wait() {
            Ok(None) if !left.is_zero() => {
                thread::sleep(LISTING_CHECK_INTERVAL);
                left = left.saturating_sub(LISTING_CHECK_INTERVAL);
            }
            Ok(status) => break status,
            Err(_) => break None,
        }
    };
    if status.is_none() {
        // The child may have ended by itself; then there is nothing to kill.
        drop(child.kill());
        drop(child.wait());
    }
    let text = reader.join().ok()??;
    status?.success().then_some(text)
}

/// Finds the rules that concern a group in listings of either form.
fn parse_rules(listing: &str, group: IpAddr, port: u16) -> FirewallRules {
    let mut rules = FirewallRules::default();
    let group_text = group.to_string();
    for line in listing.lines() {
        let line = line.trim();
        let lower = line.to_lowercase();
        let words: Vec<&str> = lower.split([' ', ';', '\t', ',', '{', '}']).filter(|word| !word.is_empty()).collect();
        let has = |word: &str| words.contains(&word);
        if (lower.contains("hook input") && lower.contains("policy drop")) || lower.starts_with(":input drop") {
            rules.is_closed = true;
            continue;
        }
        let is_multicast = lower.contains("pkttype multicast") || lower.contains("pkt-type multicast");
        let names_group = has(&group_text) || is_multicast || is_in_prefix(&words, group);
        let port_match = names_port(&words, port);
        let names_udp = has("udp") || has("17");
        let names_igmp = lower.contains("igmp") || lower.contains("ip protocol 2 ") || lower.contains("-p 2 ");
        let concerns = match port_match {
            Some(is_ours) => is_ours && !has("tcp"),
            None => names_group || names_udp || names_igmp,
        };
        if !concerns {
            continue;
        }
        if has("drop") || has("reject") {
            if rules.drops.len() < RULES_MAX {
                rules.drops.push(line.chars().take(RULE_CHARS_MAX).collect());
            }
        } else if has("accept") && !names_igmp {
            rules.accepts_group = true;
        }
    }
    rules
}

/// Returns whether a rule for destination ports applies to this one; `None` if the rule names no destination port.
fn names_port(words: &[&str], port: u16) -> Option<bool> {
    let at = words.iter().position(|word| matches!(*word, "dport" | "--dport" | "--dports"))?;
    let is_negated = words.get(at + 1) == Some(&"!=") || words[..at].last() == Some(&"!");
    let span = |word: &str| {
        let (first, last) = word.split_once(['-', ':']).unwrap_or((word, word));
        Some(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?)
    };
    let spans = words[at + 1..].iter().skip_while(|word| **word == "!=").map_while(|word| span(word));
    let mut spans = spans.peekable();
    // The rule does not contain the ports of a named set.
    let is_known = spans.peek().is_some();
    Some(is_known && spans.any(|ports| ports.contains(&port)) != is_negated)
}

/// Returns whether a word of the rule is a network of multicast addresses that contains the group.
fn is_in_prefix(words: &[&str], group: IpAddr) -> bool {
    words.iter().any(|word| {
        let network = word.split_once('/').and_then(|(address, prefix)| {
            Some(crate::config::Subnet { address: address.parse().ok()?, prefix: prefix.parse().ok()? })
        });
        network
            .is_some_and(|network| network.address.is_multicast() && network.prefix <= 128 && network.contains(group))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listing: &str, drops: &[&str], is_closed: bool, accepts_group: bool) {
        let drops = drops.iter().map(|rule| (*rule).to_owned()).collect();
        let rules = parse_rules(listing, "239.255.83.67".parse().unwrap(), 7500);
        assert_eq!(rules, FirewallRules { drops, is_closed, accepts_group }, "{listing}");
    }

    #[test]
    fn rules_about_the_group_are_found() {
        check("", &[], false, false);
        check("\t\tudp dport 7500 drop\n", &["udp dport 7500 drop"], false, false);
        check(
            "udp dport { 53, 7000-8000 } counter packets 0 bytes 0 drop",
            &["udp dport { 53, 7000-8000 } counter packets 0 bytes 0 drop"],
            false,
            false,
        );
        check("udp dport 53 drop\ntcp dport 7500 drop\nip saddr 10.0.0.1 drop\n", &[], false, false);
        check("meta pkttype multicast drop", &["meta pkttype multicast drop"], false, false);
        check("ip daddr 224.0.0.0/4 drop", &["ip daddr 224.0.0.0/4 drop"], false, false);
        check("ip protocol igmp reject", &["ip protocol igmp reject"], false, false);
        check(
            "type filter hook input priority filter; policy drop;\nip daddr 239.255.83.67 udp dport 7500 accept",
            &[],
            true,
            true,
        );
        check(
            ":INPUT DROP [0:0]\n-A INPUT -p udp -m udp --dport 7500 -j DROP\n\
             -A INPUT -p udp -m multiport --dports 1:9000 -j ACCEPT",
            &["-A INPUT -p udp -m udp --dport 7500 -j DROP"],
            true,
            true,
        );
        check("type filter hook forward priority 0; policy drop;", &[], false, false);
    }

    #[test]
    fn rules_about_other_groups_and_ports_are_ignored() {
        check("ip daddr 239.255.83.6 tcp dport 7500 drop\nip daddr 239.255.83.670 drop", &[], false, false);
        check("udp dport != 7500 drop\n-A INPUT -p udp -m udp ! --dport 7500 -j DROP", &[], false, false);
        check("udp dport != { 53, 80 } drop", &["udp dport != { 53, 80 } drop"], false, false);
        check(
            "ip daddr { 239.1.1.1, 239.255.83.67 } drop",
            &["ip daddr { 239.1.1.1, 239.255.83.67 } drop"],
            false,
            false,
        );
        check("udp dport @open accept", &[], false, false);
    }

    #[test]
    fn listing_that_hangs_or_fails_is_given_up() {
        assert_eq!(output_of(&["sh", "-c", "echo rules"]).as_deref(), Some("rules\n"));
        assert_eq!(output_of(&["sh", "-c", "echo rules; exit 1"]), None);
        assert_eq!(output_of(&["tail", "-f", "/dev/null"]), None);
        assert_eq!(output_of(&["no such program"]), None);
    }
}
