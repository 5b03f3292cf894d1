//! Summary of what the programs of a site subscribe to. Other sites send their requests by it.
//!
//! A summary has a bounded size. If a LAN has more patterns, the summary has wider ones. So it may match subjects without
//! a subscription, but it never lacks one.

use super::envelope::parse_epoch;
use super::site_name::SiteName;
use crate::message::Epoch;
use crate::subject::pattern_set::PatternSet;
use crate::subject::{Pattern, Subject};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of patterns of each kind in a summary.
pub const SUMMARY_PATTERNS_MAX: usize = 256;
/// Maximum size of the JSON of a summary in bytes.
const SUMMARY_BYTES_MAX: usize = 1 << 20;

/// Patterns of the subscriptions on a LAN, without those of its gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LanInterest {
    /// Patterns of subscriptions in no queue group.
    pub plain: BTreeSet<Pattern>,
    /// Patterns of the members of queue groups.
    pub groups: BTreeSet<Pattern>,
}

/// Subscriptions on a LAN that match a subject, without those of its gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanReceivers {
    /// Number of subscriptions in no queue group.
    pub plain: u64,
    /// Number of queue groups.
    pub groups: u64,
    /// True if the subscriptions of the whole LAN are known.
    pub is_certain: bool,
}

impl LanReceivers {
    /// Returns whether there is a subscription.
    pub fn is_any(&self) -> bool {
        0 < self.plain + self.groups
    }
}

/// Summary of the interest of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterestSummary {
    /// Patterns that match whatever a subscription in no queue group matches.
    plain: PatternSet,
    /// The same for the members of queue groups.
    groups: PatternSet,
}

/// A summary as a gateway announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryAnnouncement {
    /// Site of the gateway.
    pub site: SiteName,
    /// Epoch of the gateway.
    pub gateway: Epoch,
    /// True if the other gateways should announce theirs at once.
    pub asks: bool,
    /// The summary.
    pub summary: InterestSummary,
}

/// The JSON of an announcement.
#[derive(Serialize, Deserialize)]
struct SummaryText {
    site: String,
    gateway: String,
    #[serde(default)]
    asks: bool,
    plain: Vec<String>,
    groups: Vec<String>,
}

impl InterestSummary {
    /// Returns the summary of the interest in subjects that the site imports.
    pub fn new(interest: &LanInterest, imports: &PatternSet) -> InterestSummary {
        InterestSummary { plain: summarized(&interest.plain, imports), groups: summarized(&interest.groups, imports) }
    }

    /// Returns whether a subscription of the site may match the subject.
    pub fn matches(&self, subject: &Subject) -> bool {
        self.plain.matches(subject) || self.groups.matches(subject)
    }

    /// Returns whether the member of a queue group in the site may match the subject.
    pub fn matches_group(&self, subject: &Subject) -> bool {
        self.groups.matches(subject)
    }

    /// Returns the number of patterns, and their bytes.
    pub fn size(&self) -> (usize, usize) {
        let patterns = || self.plain.patterns().iter().chain(self.groups.patterns());
        (patterns().count(), patterns().map(|pattern| pattern.as_str().len()).sum())
    }
}

impl SummaryAnnouncement {
    /// Returns the announcement as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let texts = |set: &PatternSet| set.patterns().iter().map(ToString::to_string).collect();
        let text = SummaryText {
            site: self.site.to_string(),
            gateway: self.gateway.to_string(),
            asks: self.asks,
            plain: texts(&self.summary.plain),
            groups: texts(&self.summary.groups),
        };
        serde_json::to_vec(&text).expect("strings can be written")
    }

    /// Parses an announcement. Returns `None` if the bytes are too many or are none.
    pub fn from_json(bytes: &[u8]) -> Option<SummaryAnnouncement> {
        if SUMMARY_BYTES_MAX < bytes.len() {
            return None;
        }
        let text: SummaryText = serde_json::from_slice(bytes).ok()?;
        Some(SummaryAnnouncement {
            site: text.site.parse().ok()?,
            gateway: parse_epoch(&text.gateway)?,
            asks: text.asks,
            summary: InterestSummary { plain: parse_patterns(&text.plain)?, groups: parse_patterns(&text.groups)? },
        })
    }
}

fn parse_patterns(texts: &[String]) -> Option<PatternSet> {
    if SUMMARY_PATTERNS_MAX < texts.len() {
        return None;
    }
    texts.iter().map(|text| text.parse::<Pattern>().ok()).collect()
}

/// Returns at most [`SUMMARY_PATTERNS_MAX`] patterns that match every subject that both a pattern and an import match.
fn summarized(patterns: &BTreeSet<Pattern>, imports: &PatternSet) -> PatternSet {
    let imported = |pattern: &Pattern| {
        let common = imports.patterns().iter().filter_map(|import| pattern.intersection(import));
        common.collect::<Vec<Pattern>>()
    };
    let mut summary: BTreeSet<Pattern> = patterns.iter().flat_map(imported).collect();
    let mut depth = summary.iter().map(|pattern| pattern.tokens().count()).max().unwrap_or(0);
    while SUMMARY_PATTERNS_MAX < summary.len() && 0 < depth {
        depth -= 1;
        summary = summary.iter().map(|pattern| widened(pattern, depth)).collect();
    }
    summary.into_iter().collect()
}

/// Returns the pattern, with `>` for all tokens behind the first `depth` ones.
fn widened(pattern: &Pattern, depth: usize) -> Pattern {
    if pattern.tokens().count() <= depth {
        return pattern.clone();
    }
    let tokens: Vec<&str> = pattern.as_str().split('.').take(depth).chain([">"]).collect();
    tokens.join(".").parse().expect("the first tokens of a pattern are tokens")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn set(patterns: &[&str]) -> PatternSet {
        patterns.iter().map(|text| text.parse::<Pattern>().unwrap()).collect()
    }

    fn interest(plain: &[&str], groups: &[&str]) -> LanInterest {
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse::<Pattern>().unwrap()).collect();
        LanInterest { plain: all(plain), groups: all(groups) }
    }

    #[test]
    fn summary_has_imported_subjects_only() {
        let imports = set(&["plant.>", "hq.orders"]);
        let summary = InterestSummary::new(&interest(&[">", "lab.x", "plant.7.*"], &["*.orders"]), &imports);
        let expected = interest(&["plant.>", "hq.orders", "plant.7.*"], &["hq.orders", "plant.orders"]);
        assert_eq!(summary.plain.patterns().iter().cloned().collect::<BTreeSet<_>>(), expected.plain);
        assert_eq!(summary.groups.patterns().iter().cloned().collect::<BTreeSet<_>>(), expected.groups);
        let of = |subject: &str| {
            let subject = subject.parse().unwrap();
            (summary.matches(&subject), summary.matches_group(&subject))
        };
        assert_eq!([of("hq.orders"), of("plant.x"), of("lab.x")], [(true, true), (true, false), (false, false)]);
    }

    #[test]
    fn random_interest_is_never_missing_and_bounded() {
        let imports = set(&["a.>", "*.b", "c.*.d.>"]);
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let count = rng.below(1_200) as usize;
            let plain: BTreeSet<Pattern> = (0..count).map(|_| random_text(&mut rng, true).parse().unwrap()).collect();
            let summary = InterestSummary::new(&LanInterest { plain: plain.clone(), ..Default::default() }, &imports);
            assert!(summary.size().0 <= SUMMARY_PATTERNS_MAX, "seed {seed}");
            for _ in 0..200 {
                let subject: Subject = random_text(&mut rng, false).parse().unwrap();
                let is_wanted = imports.matches(&subject) && plain.iter().any(|pattern| pattern.matches(&subject));
                assert!(!is_wanted || summary.matches(&subject), "seed {seed}: {subject} is missing");
            }
        }
    }

    /// Returns a random subject, or a pattern.
    fn random_text(rng: &mut Rng, is_pattern: bool) -> String {
        let count = 1 + rng.below(6);
        let mut tokens = Vec::new();
        for index in 0..count {
            tokens.push(match rng.below(8) {
                0 if is_pattern => "*".to_owned(),
                1 if is_pattern && index + 1 == count => ">".to_owned(),
                2 => rng.below(400).to_string(),
                _ => ["a", "b", "c", "d"][rng.below(4) as usize].to_owned(),
            });
        }
        tokens.join(".")
    }

    #[test]
    fn announcement_is_read_as_written() {
        let summary = InterestSummary::new(&interest(&["plant.>"], &["plant.7"]), &set(&[">"]));
        let site: SiteName = "hq".parse().unwrap();
        let announcement = SummaryAnnouncement { site, gateway: Epoch::new(7).unwrap(), asks: true, summary };
        assert_eq!(SummaryAnnouncement::from_json(&announcement.to_json()), Some(announcement));
    }

    #[test]
    fn hostile_announcements_are_refused() {
        let text = |patterns: &str| {
            format!(r#"{{"site":"hq","gateway":"0000000000000007","plain":[{patterns}],"groups":[]}}"#).into_bytes()
        };
        assert!(SummaryAnnouncement::from_json(&text(r#""a.>""#)).is_some());
        let many = vec![r#""a""#; SUMMARY_PATTERNS_MAX + 1].join(",");
        for bytes in [text(&many), text(r#""a..b""#), text("7"), b"x".to_vec(), vec![b' '; SUMMARY_BYTES_MAX + 1]] {
            assert_eq!(SummaryAnnouncement::from_json(&bytes), None);
        }
    }
}
