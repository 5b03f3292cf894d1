//! Subjects that a gateway both exports and imports.
//!
//! The link itself makes no loop: a gateway exports nothing that came over a link, and imports nothing of its own site.
//! But a program that publishes again what it receives makes new messages, which cross again.

use super::Config;
use crate::subject::Pattern;
use std::fmt;

/// A pattern of exported subjects and one of imported subjects that have subjects in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOverlap {
    /// Key with the pattern of exported subjects.
    pub key: &'static str,
    /// The pattern of exported subjects.
    pub export: Pattern,
    /// The pattern of imported subjects, of the key `link-import`.
    pub import: Pattern,
    /// Pattern of exactly the subjects that both match.
    pub common: Pattern,
}

impl LinkOverlap {
    /// Consequence of an overlap, as a sentence without a full stop.
    pub const EFFECT: &'static str = "messages of several sites mix on these subjects; the link sends nothing back that \
        came over a link, but a program or a client of the cluster that publishes such messages again makes a loop";
    /// Remedy of an overlap, as a sentence without a full stop.
    pub const FIX: &'static str = "give each site subjects of its own, such as plant1.> and hq.>, or let no program of \
        any site and no client of the cluster copy messages to these subjects";
}

impl fmt::Display for LinkOverlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinkOverlap { key, export, import, common } = self;
        write!(f, "{key} '{export}' and link-import '{import}' overlap: both match '{common}'")
    }
}

impl Config {
    /// Returns the overlaps of exported and imported subjects, in the order of their patterns.
    pub fn link_overlaps(&self) -> Vec<LinkOverlap> {
        let exports = [("link-live", &self.link_live), ("link-durable", &self.link_durable)];
        let exports = exports.iter().flat_map(|(key, set)| set.patterns().iter().map(move |pattern| (*key, pattern)));
        let overlap = |(key, export): (&'static str, &Pattern), import: &Pattern| {
            let common = export.intersection(import)?;
            Some(LinkOverlap { key, export: export.clone(), import: import.clone(), common })
        };
        exports
            .flat_map(|export| self.link_import.patterns().iter().filter_map(move |import| overlap(export, import)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlaps(live: &str, import: &str) -> Vec<String> {
        let text = format!("parameters:\n  link-live: {live}\n  link-import: {import}\n");
        let config = Config::from_text("param.yaml", &text).unwrap();
        config.link_overlaps().iter().map(LinkOverlap::to_string).collect()
    }

    #[test]
    fn overlaps_of_exports_and_imports_are_exact() {
        for (live, import, common) in [
            ("plant.>", "hq.>", None),
            ("plant.>", "plant", None),
            ("plant.*", "plant.a.b", None),
            ("a.*.c", "a.b.>", Some("a.b.c")),
            ("plant.>", "'>'", Some("plant.>")),
            ("plant.>", "'*.alarm'", Some("plant.alarm")),
            ("'*.*.c'", "'a.>'", Some("a.*.c")),
            ("plant.press", "plant.press", Some("plant.press")),
        ] {
            let expected = common.map(|common| {
                let [live, import] = [live, import].map(|text| text.trim_matches('\''));
                format!("link-live '{live}' and link-import '{import}' overlap: both match '{common}'")
            });
            assert_eq!(overlaps(live, import), expected.into_iter().collect::<Vec<String>>());
        }
        assert_eq!(overlaps("a.> ; b.>", "a.x ; b.y ; c.>").len(), 2);
    }
}
