//! Formats of the keys of links between sites.

use super::host_defaults::HostDefaults;
use super::value_error::{HUBS_MAX, LINK_PATTERNS_MAX, STREAM_NAME_BYTES_MAX, ValueError};
use super::value_format::{ValueFormat, split_list};
use crate::link::local_subjects::stays_local;
use crate::link::site_name::SiteName;
use crate::subject::Pattern;
use crate::subject::pattern_set::PatternSet;
use std::fmt;
use std::net::Ipv6Addr;

/// Address of a server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubAddress(String);

impl HubAddress {
    /// Returns the URL, such as `nats://hub1:4222`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the connection to it is always encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.0.starts_with("tls://")
    }

    fn parse(text: &str) -> Option<HubAddress> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("nats", text));
        if !["nats", "tls"].contains(&scheme) {
            return None;
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (rest, "4222"),
        };
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port != 0);
        let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(ipv6) => ipv6.parse::<Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(is_host_byte),
        };
        (is_host && is_port).then(|| HubAddress(format!("{scheme}://{host}:{port}")))
    }
}

impl fmt::Display for HubAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a site, or `none`.
pub(super) struct SiteFormat;

impl ValueFormat for SiteFormat {
    type Value = Option<SiteName>;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<Option<SiteName>, ValueError> {
        if text == "none" { Ok(None) } else { text.parse().map(Some).map_err(ValueError::Site) }
    }

    fn show(&self, value: &Option<SiteName>) -> String {
        value.as_ref().map_or_else(|| "none".into(), SiteName::to_string)
    }

    fn range(&self) -> String {
        format!("none, or 1 to {} of A-Z a-z 0-9 _ -", SiteName::BYTES_MAX)
    }
}

/// The name of a stream of the cluster. The servers use it as the name of a directory, and as a part of subjects.
pub(super) struct StreamNameFormat;

impl ValueFormat for StreamNameFormat {
    type Value = String;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<String, ValueError> {
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let is_name = (1..=STREAM_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_name_byte);
        if is_name { Ok(text.to_owned()) } else { Err(ValueError::StreamName) }
    }

    fn show(&self, value: &String) -> String {
        value.clone()
    }

    fn range(&self) -> String {
        format!("1 to {STREAM_NAME_BYTES_MAX} of A-Z a-z 0-9 _ -")
    }
}

/// The servers of a cluster, or `none`.
pub(super) struct HubsFormat;

impl ValueFormat for HubsFormat {
    type Value = Vec<HubAddress>;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<Vec<HubAddress>, ValueError> {
        if text == "none" {
            return Ok(Vec::new());
        }
        let addresses: Option<Vec<HubAddress>> = text.split(',').map(|part| HubAddress::parse(part.trim())).collect();
        let addresses = addresses.filter(|addresses| addresses.len() <= HUBS_MAX).ok_or(ValueError::Hubs)?;
        // One that is not encrypted would betray the credentials for the others.
        let encrypted = addresses.iter().filter(|address| address.is_encrypted()).count();
        if 0 < encrypted && encrypted < addresses.len() { Err(ValueError::MixedHubs) } else { Ok(addresses) }
    }

    fn show(&self, value: &Vec<HubAddress>) -> String {
        if value.is_empty() {
            return "none".into();
        }
        value.iter().map(HubAddress::to_string).collect::<Vec<String>>().join(", ")
    }

    fn range(&self) -> String {
        format!("none, or up to {HUBS_MAX} addresses nats://HOST:PORT or tls://HOST:PORT with , between two")
    }
}

/// Patterns of subjects that cross a link, or `none`.
pub(super) struct LinkPatternsFormat;

impl ValueFormat for LinkPatternsFormat {
    type Value = PatternSet;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<PatternSet, ValueError> {
        if text == "none" {
            return Ok(PatternSet::default());
        }
        let patterns = split_list(text, &[])?.into_iter().map(|words| match words[..] {
            [pattern] => pattern.parse::<Pattern>().map_err(ValueError::LinkPattern),
            _ => Err(ValueError::LinkPatterns),
        });
        let patterns = patterns.collect::<Result<Vec<Pattern>, ValueError>>()?;
        if LINK_PATTERNS_MAX < patterns.len() {
            return Err(ValueError::LinkPatterns);
        }
        match patterns.iter().find(|pattern| stays_local(pattern.as_str().as_bytes())) {
            Some(pattern) => Err(ValueError::SystemPattern(pattern.to_string())),
            None => Ok(patterns.into_iter().collect()),
        }
    }

    fn show(&self, value: &PatternSet) -> String {
        if value.patterns().is_empty() {
            return "none".into();
        }
        value.patterns().iter().map(Pattern::to_string).collect::<Vec<String>>().join(" ; ")
    }

    fn range(&self) -> String {
        format!("none, or up to {LINK_PATTERNS_MAX} patterns of subjects with ; between two")
    }

    fn is_list(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> HostDefaults {
        HostDefaults { host: "h".into(), runtime_dir: None, state_dir: None, uid: 1 }
    }

    #[test]
    fn servers_are_read_back_or_refused() {
        for (text, expected) in [
            ("none", Some("none")),
            ("nats://hub1:4222", Some("nats://hub1:4222")),
            ("hub1", Some("nats://hub1:4222")),
            ("hub1:4223,10.0.0.7", Some("nats://hub1:4223, nats://10.0.0.7:4222")),
            ("tls://10.0.0.7", Some("tls://10.0.0.7:4222")),
            ("hub1:4223,tls://10.0.0.7", None),
            ("nats://[fe80::1]:4222", Some("nats://[fe80::1]:4222")),
            ("nats://[fe80::1]", Some("nats://[fe80::1]:4222")),
            ("nats://user:password@hub1:4222", None),
            ("http://hub1:4222", None),
            ("hub1:0", None),
            ("hub1:x", None),
            ("hub1:+4222", None),
            ("[hub]", None),
            ("[]", None),
            ("fe80::1", None),
            ("hub 1", None),
            (",", None),
        ] {
            let parsed = HubsFormat.parse(text, &defaults()).ok();
            assert_eq!(parsed.map(|hubs| HubsFormat.show(&hubs)).as_deref(), expected, "{text}");
        }
        assert!(HubsFormat.parse(&vec!["a"; HUBS_MAX + 1].join(","), &defaults()).is_err());
    }

    #[test]
    fn names_of_streams_are_read_or_refused() {
        assert_eq!(StreamNameFormat.parse("Plants_1-a", &defaults()).ok().as_deref(), Some("Plants_1-a"));
        let long = "a".repeat(STREAM_NAME_BYTES_MAX + 1);
        for text in ["", "a.b", "a b", "a/b", "ä", long.as_str()] {
            let refused = StreamNameFormat.parse(text, &defaults()).unwrap_err();
            assert!(refused.suggestion(text).is_some_and(|fix| fix.contains("SEQCAST")), "{text}: {refused}");
        }
    }

    #[test]
    fn link_patterns_are_read_back_or_refused() {
        for text in ["none", "plant.>", "plant.> ; orders.*.new"] {
            let parsed = LinkPatternsFormat.parse(text, &defaults()).unwrap();
            assert_eq!(LinkPatternsFormat.show(&parsed), text);
        }
        for (text, part) in
            [("_INBOX.>", "_INBOX.>"), ("a..b", "empty"), ("a b", "256"), ("a ;", "256"), ("a.>;b.>", "space")]
        {
            let refused = LinkPatternsFormat.parse(text, &defaults()).unwrap_err();
            assert!(refused.to_string().contains(part), "{text}: {refused}");
            assert!(refused.suggestion(text).is_some(), "{text}");
        }
    }
}
