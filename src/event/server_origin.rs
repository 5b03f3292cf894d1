//! Origin of the announcements and pages of a server: a peer of this LAN, or of another site, for which a gateway relays
//! them. Relayed messages name the origin in a header field.
//!
//! Two servers of one number would mix their events in the journals of followers. A number therefore belongs to the site
//! in which it was heard first, as long as it is heard there. If it is heard in two sites at the same time, it is in
//! conflict, and belongs to the first one for good.

use super::model::ServerId;
use super::replication::SERVER_TIMEOUT;
use crate::message::{Epoch, Headers};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Name of the header field of relayed messages: the site, and the epoch of the server's peer.
pub const SITE_HEADER: &str = "Seqcast-Site";
/// Maximum bytes of the name of a site.
const SITE_BYTES_MAX: usize = 32;
/// Maximum number of remembered servers.
const SERVERS_MAX: usize = 4096;

/// Site of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerSite {
    /// The own site: the server is a peer of this LAN.
    Own,
    /// Another site, by its name.
    Other(Arc<str>),
}

impl ServerSite {
    /// Returns the name of the other site.
    pub fn other(&self) -> Option<&str> {
        match self {
            ServerSite::Own => None,
            ServerSite::Other(name) => Some(name),
        }
    }
}

impl fmt::Display for ServerSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerSite::Own => write!(f, "this site"),
            ServerSite::Other(name) => write!(f, "site {name}"),
        }
    }
}

/// Site of a server, and the run of its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOrigin {
    /// The site.
    pub site: ServerSite,
    /// Epoch of the server's peer.
    pub peer: Epoch,
}

impl ServerOrigin {
    /// Returns the origin of a message that the peer in this epoch has published: the peer itself, or what the header
    /// field says. Returns `None` if there are other fields, or if the field is invalid.
    pub fn of_message(headers: &Headers, publisher: Epoch) -> Option<ServerOrigin> {
        match headers.iter().count() {
            0 => Some(ServerOrigin { site: ServerSite::Own, peer: publisher }),
            1 => ServerOrigin::of_relayed(headers),
            _ => None,
        }
    }

    /// Returns the origin that the header field says; `None` if it is absent or invalid.
    pub fn of_relayed(headers: &Headers) -> Option<ServerOrigin> {
        let (_, value) = headers.iter().find(|(key, _)| *key == SITE_HEADER)?;
        ServerOrigin::from_value(value)
    }

    /// Returns the header of a relayed message of a server of the site with this name.
    ///
    /// # Panics
    /// Panics if the name has control characters. The caller has checked it.
    pub fn relayed_headers(site: &str, peer: Epoch) -> Headers {
        Headers::from_pairs([(SITE_HEADER, format!("{site} {peer}").as_str())]).expect("a name and a number")
    }

    fn from_value(value: &str) -> Option<ServerOrigin> {
        let (site, peer) = value.split_once(' ')?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if site.is_empty() || SITE_BYTES_MAX < site.len() || !site.bytes().all(is_name) || peer.len() != 16 {
            return None;
        }
        let peer = Epoch::new(u64::from_str_radix(peer, 16).ok()?)?;
        Some(ServerOrigin { site: ServerSite::Other(site.into()), peer })
    }
}

/// Decision about an announcement from a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteVerdict {
    /// The number belongs to this site.
    Accepted,
    /// The number belongs to another site, which is named if this was not known before.
    Conflict(Option<ServerSite>),
}

/// Site to which the number of a server belongs.
#[derive(Debug)]
struct ServerEntry {
    site: ServerSite,
    /// Time of the last announcement from that site.
    heard: Instant,
    /// Another site with a server of this number, and the time of its last announcement.
    rival: Option<(ServerSite, Instant)>,
}

/// Sites to which the numbers of servers belong.
#[derive(Debug, Default)]
pub struct ServerSites(BTreeMap<ServerId, ServerEntry>);

impl ServerSites {
    /// Notes an announcement of a server from a site. Returns whether the number belongs to that site.
    pub fn on_announcement(&mut self, now: Instant, server: ServerId, site: &ServerSite) -> SiteVerdict {
        let is_silent = |entry: &ServerEntry| entry.rival.is_none() && SERVER_TIMEOUT <= now.since(entry.heard);
        if SERVERS_MAX <= self.0.len() && !self.0.contains_key(&server) {
            self.0.retain(|_, entry| !is_silent(entry));
            if SERVERS_MAX <= self.0.len() {
                return SiteVerdict::Conflict(None);
            }
        }
        let new = || ServerEntry { site: site.clone(), heard: now, rival: None };
        let entry = self.0.entry(server).or_insert_with(new);
        if entry.site == *site || is_silent(entry) {
            (entry.site, entry.heard) = (site.clone(), now);
            return SiteVerdict::Accepted;
        }
        let is_new = match &entry.rival {
            Some((rival, _)) if rival == site => false,
            // One other site at a time is enough to name.
            Some((_, heard)) if now.since(*heard) < SERVER_TIMEOUT => return SiteVerdict::Conflict(None),
            _ => true,
        };
        entry.rival = Some((site.clone(), now));
        SiteVerdict::Conflict(is_new.then(|| entry.site.clone()))
    }

    /// Returns the site to which the number belongs, if it is known.
    pub fn site(&self, server: ServerId) -> Option<&ServerSite> {
        self.0.get(&server).map(|entry| &entry.site)
    }

    /// Returns the servers whose numbers are in conflict now, with the site to which each belongs, and the other one.
    pub fn conflicts(&self, now: Instant) -> impl Iterator<Item = (ServerId, &ServerSite, &ServerSite)> {
        self.0.iter().filter_map(move |(server, entry)| {
            let (rival, heard) = entry.rival.as_ref()?;
            (now.since(*heard) < SERVER_TIMEOUT).then_some((*server, &entry.site, rival))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn other(name: &str) -> ServerSite {
        ServerSite::Other(name.into())
    }

    #[test]
    fn number_belongs_to_its_first_site() {
        let (mut sites, server) = (ServerSites::default(), ServerId(7));
        assert_eq!(sites.on_announcement(at(0), server, &other("a")), SiteVerdict::Accepted);
        assert_eq!(sites.on_announcement(at(30), server, &other("a")), SiteVerdict::Accepted);
        // The peer has moved to another site with its journal.
        assert_eq!(sites.on_announcement(at(65), server, &ServerSite::Own), SiteVerdict::Accepted);
        assert_eq!(sites.conflicts(at(65)).count(), 0);
        let known = SiteVerdict::Conflict(Some(ServerSite::Own));
        assert_eq!(sites.on_announcement(at(90), server, &other("a")), known);
        assert_eq!(sites.on_announcement(at(95), server, &other("a")), SiteVerdict::Conflict(None));
        assert_eq!(sites.conflicts(at(99)).collect::<Vec<_>>(), [(server, &ServerSite::Own, &other("a"))]);
        // A number that was in conflict does not change its site any more.
        assert_eq!(sites.on_announcement(at(900), server, &other("a")), SiteVerdict::Conflict(None));
        assert_eq!(sites.on_announcement(at(901), server, &other("b")), SiteVerdict::Conflict(None));
        assert_eq!(sites.on_announcement(at(940), server, &other("b")), known);
        assert_eq!(sites.on_announcement(at(941), server, &ServerSite::Own), SiteVerdict::Accepted);
        assert_eq!((sites.site(server), sites.conflicts(at(980)).count()), (Some(&ServerSite::Own), 0));
    }

    #[test]
    fn numbers_beyond_the_limit_are_refused() {
        let mut sites = ServerSites::default();
        for server in (0..).map(ServerId).take(SERVERS_MAX) {
            assert_eq!(sites.on_announcement(at(0), server, &other("a")), SiteVerdict::Accepted);
        }
        let next = ServerId(SERVERS_MAX as u32);
        assert_eq!(sites.on_announcement(at(1), next, &ServerSite::Own), SiteVerdict::Conflict(None));
        assert_eq!(
            sites.on_announcement(at(40), next, &ServerSite::Own),
            SiteVerdict::Accepted,
            "the others are silent"
        );
    }

    #[test]
    fn origin_is_read_from_its_header() {
        let epoch = |bits| Epoch::new(bits).unwrap();
        let headers = ServerOrigin::relayed_headers("plant1", epoch(5));
        let expected = ServerOrigin { site: other("plant1"), peer: epoch(5) };
        assert_eq!(ServerOrigin::of_message(&headers, epoch(9)), Some(expected));
        let own = ServerOrigin { site: ServerSite::Own, peer: epoch(9) };
        assert_eq!(ServerOrigin::of_message(&Headers::new(), epoch(9)), Some(own));
        let long = format!("{} 0000000000000005", "x".repeat(33));
        for value in [
            "",
            "plant1",
            "plant1 5",
            "plant 1 0000000000000005",
            "a.b 0000000000000005",
            "a 0000000000000000",
            " 0000000000000005",
            long.as_str(),
        ] {
            let headers = Headers::from_pairs([(SITE_HEADER, value)]).unwrap();
            assert_eq!(ServerOrigin::of_message(&headers, epoch(9)), None, "{value}");
        }
        let fields = [(SITE_HEADER, "a 0000000000000005"), ("Other", "x")];
        for fields in [&fields[..], &fields[1..]] {
            let headers = Headers::from_pairs(fields.iter().copied()).unwrap();
            assert_eq!(ServerOrigin::of_message(&headers, epoch(9)), None);
        }
    }
}
