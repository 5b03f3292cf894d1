//! Counts of a gateway, and what it knows of the name of its site.

use super::site_name::SiteName;
use std::fmt;

/// Counts of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayCounts {
    /// Messages exported.
    pub exported: u64,
    /// Messages exported again at a take-over, or for the first time.
    pub taken_over: u64,
    /// Messages of clients of the cluster imported.
    pub of_clients: u64,
    /// Messages and manifests of the cluster that cannot be read.
    pub invalid: u64,
    /// Messages of sites beyond the limit.
    pub excess_sites: u64,
    /// Messages that were not exported because the cluster was too slow, or took none of this size. Importers report
    /// them as lost.
    pub unsent: u64,
    /// Messages of the LAN that the link was too slow to hear. Importers report those that their publishers have
    /// numbered as lost.
    pub unheard: u64,
    /// Messages of the cluster for which the LAN was too slow. Those of other sites count as lost.
    pub unread: u64,
    /// Messages of the cluster that are too large for the LAN, or whose subject the certificate of this host does not
    /// permit. Those of other sites count as lost.
    pub refused: u64,
}

/// Counts of what a gateway has imported from a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// Messages delivered to the LAN.
    pub imported: u64,
    /// Messages that came more than once.
    pub repeated: u64,
    /// Messages lost: the sum of the lower bounds.
    pub lost_min: u64,
    /// Messages lost: the sum of the upper bounds.
    pub lost_max: u64,
    /// Number of times that the last gateway of the site died; each time any number of messages may be lost.
    pub tails: u64,
}

/// Conflict of the name of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteConflict {
    /// A gateway of this LAN announces this other name.
    TwoNames(SiteName),
    /// A gateway of another LAN has the name of this site.
    TwoLans(SiteName),
}

impl fmt::Display for SiteConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SiteConflict::TwoNames(other) => write!(f, "another gateway of this LAN calls the site {other}"),
            SiteConflict::TwoLans(own) => write!(f, "another LAN is called {own}, too: its messages count as own ones"),
        }
    }
}
