//! Settings of a gateway: the subjects that cross, and the limits of its LAN.

use super::durable::DurableSettings;
use super::site_name::SiteName;
use super::system_messages::GATEWAY_SUBJECTS;
use crate::subject::Pattern;
use crate::subject::pattern_set::PatternSet;
use crate::subject::permitted_subjects::PermittedSubjects;

/// Subjects that a gateway exchanges, and the name of its site.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Name of the site.
    pub site: SiteName,
    /// Subjects whose messages it exports.
    pub exports: PatternSet,
    /// Durable messages.
    pub durable: DurableSettings,
    /// Subjects whose messages it imports.
    pub imports: PatternSet,
    /// Subjects on which clients of the cluster answer requests of this site.
    pub services: PatternSet,
    /// Prefix of the subjects of the LAN on which replies to requests of other sites come.
    pub inbox: String,
    /// Maximum size of a message on the LAN, in bytes of payload and headers.
    pub message_bytes_max: usize,
    /// Subjects on which the certificate of this host permits it to publish.
    pub permitted: PermittedSubjects,
}

impl GatewaySettings {
    /// Returns the patterns to which the gateway subscribes on its LAN.
    pub fn of_lan(&self) -> Vec<Pattern> {
        let pattern = |text: &str| text.parse::<Pattern>().expect("the prefix of subjects, and a wildcard");
        let inbox = pattern(&format!("{}>", self.inbox));
        let crossing = self.exchanged(self.services.patterns().iter().cloned().chain([inbox]));
        // Other peers know a gateway by this pattern, even if an exported one contains it.
        std::iter::once(pattern(GATEWAY_SUBJECTS)).chain(crossing).collect()
    }

    /// Returns the patterns of the subjects that cross in one direction or the other, and `also`, without those that
    /// another one contains.
    pub fn exchanged(&self, also: impl IntoIterator<Item = Pattern>) -> Vec<Pattern> {
        let sets = [&self.exports, &self.durable.exports, &self.imports];
        let all: Vec<Pattern> = sets.into_iter().flat_map(PatternSet::patterns).cloned().chain(also).collect();
        let is_needed = |index: &usize| {
            let contains = |other: usize| PatternSet::from_iter([all[other].clone()]).contains(&all[*index]);
            // Of two equal patterns the first is needed.
            !(0..all.len())
                .any(|other| other != *index && contains(other) && (other < *index || all[other] != all[*index]))
        };
        (0..all.len()).filter(is_needed).map(|index| all[index].clone()).collect()
    }
}
