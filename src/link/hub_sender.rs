//! Senders of messages of the cluster, and what they may say.
//!
//! In a realm the certificate of a gateway names the sites for which it speaks: by the permission to publish on
//! `_SEQCAST.LINK.SITE.<site>`, or on `_SEQCAST.LINK.SITE.<site>.<subject>` for some subjects only. No message has such a
//! subject.

use super::site_name::SiteName;
use crate::subject::pattern_set::PatternSet;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::subject::{Pattern, Subject};

/// Prefix of the subjects that stand for sites in certificates, followed by the site.
pub const SITE_PREFIX: &str = "_SEQCAST.LINK.SITE.";

/// The sender of a message of the cluster, as far as it is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubSender {
    /// There is no realm: any client may speak for any site.
    AnyClient,
    /// A client of the cluster that signs nothing, in a realm.
    Client,
    /// A gateway whose signature was verified.
    Gateway {
        /// Site in whose name the message is sent; `None` if it names none.
        site: Option<SiteName>,
        /// Subjects on which the gateway may publish in the name of that site.
        permitted: PermittedSubjects,
    },
}

impl HubSender {
    /// Returns whether the sender may act for this site.
    pub fn may_act_for(&self, site: &SiteName) -> bool {
        match self {
            HubSender::AnyClient => true,
            HubSender::Client => false,
            HubSender::Gateway { site: own, .. } => own.as_ref() == Some(site),
        }
    }

    /// Returns whether the sender may publish on the subject in the name of its site.
    pub fn may_publish(&self, subject: &Subject) -> bool {
        match self {
            HubSender::AnyClient => true,
            HubSender::Client => false,
            HubSender::Gateway { permitted, .. } => permitted.permits(subject),
        }
    }
}

/// Returns the subjects on which a host with the permission `publish` may publish at the cluster in the name of a site;
/// `None` if it may not speak for that site.
pub fn site_publications(publish: &PermittedSubjects, site: &SiteName) -> Option<PermittedSubjects> {
    let own = format!("{SITE_PREFIX}{site}");
    if publish.permits(&own.parse().expect("the name of a site is a token of a subject")) {
        return Some(publish.clone());
    }
    let below: Pattern = format!("{own}.>").parse().expect("the name of a site is a token of a pattern");
    let all = publish.patterns()?;
    let named = all.intersection(&PatternSet::from_iter([below]));
    let subject = |pattern: &Pattern| pattern.as_str().strip_prefix(&own)?.strip_prefix('.')?.parse::<Pattern>().ok();
    let named: PatternSet = named.patterns().iter().filter_map(subject).collect();
    let named = named.intersection(all);
    (!named.patterns().is_empty()).then(|| PermittedSubjects::of(named.patterns().iter().cloned()))
}

/// Returns whether a host with the permission `publish` may speak for any site.
pub fn speaks_for_any_site(publish: &PermittedSubjects) -> bool {
    let any: Pattern = format!("{SITE_PREFIX}>").parse().expect("words and a wildcard");
    publish.patterns().is_none_or(|patterns| patterns.intersects(&any))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a host with these patterns may publish on the subject in the name of plant1.
    fn may_publish(patterns: &[&str], subject: &str) -> Option<bool> {
        let publish = PermittedSubjects::of(patterns.iter().map(|text| text.parse::<Pattern>().unwrap()));
        let permitted = site_publications(&publish, &"plant1".parse().unwrap())?;
        Some(permitted.permits(&subject.parse().unwrap()))
    }

    #[test]
    fn certificates_name_sites_and_their_subjects() {
        for (patterns, subject, expected) in [
            (&[">"][..], "hq.x", Some(true)),
            (&["plant.>"], "plant.x", None),
            (&["plant.>", "_SEQCAST.LINK.*"], "plant.x", None),
            (&["plant.>", "_SEQCAST.LINK.SITE.plant2"], "plant.x", None),
            (&["plant.>", "_SEQCAST.LINK.SITE.plant1"], "plant.x", Some(true)),
            (&["plant.>", "_SEQCAST.LINK.SITE.*"], "plant.x", Some(true)),
            (&["plant.>", "_SEQCAST.LINK.>"], "plant.x", Some(true)),
            (&["plant.>", "_SEQCAST.LINK.SITE.plant1"], "hq.x", Some(false)),
            (&["plant.>", "hq.>", "_SEQCAST.LINK.SITE.plant1.plant.>"], "plant.x", Some(true)),
            (&["plant.>", "hq.>", "_SEQCAST.LINK.SITE.plant1.plant.>"], "hq.x", Some(false)),
            (&["plant.a", "_SEQCAST.LINK.SITE.plant1.plant.>"], "plant.b", Some(false)),
            (&["plant.a", "_SEQCAST.LINK.SITE.plant1.hq.>"], "plant.a", None),
            (&["plant.>", "_SEQCAST.LINK.SITE.plant2.plant.>"], "plant.x", None),
        ] {
            assert_eq!(may_publish(patterns, subject), expected, "{patterns:?} {subject}");
        }
    }

    #[test]
    fn gateways_speak_for_their_sites_only() {
        let permitted = PermittedSubjects::of(["plant.>".parse::<Pattern>().unwrap()]);
        let [plant, hq]: [SiteName; 2] = ["plant1", "hq"].map(|name| name.parse().unwrap());
        let gateway = HubSender::Gateway { site: Some(plant.clone()), permitted };
        let subject = |text: &str| text.parse::<Subject>().unwrap();
        assert_eq!([&plant, &hq].map(|site| gateway.may_act_for(site)), [true, false]);
        assert_eq!(["plant.x", "hq.x"].map(|text| gateway.may_publish(&subject(text))), [true, false]);
        assert!(HubSender::AnyClient.may_act_for(&hq) && HubSender::AnyClient.may_publish(&subject("hq.x")));
        assert!(!HubSender::Client.may_act_for(&hq) && !HubSender::Client.may_publish(&subject("hq.x")));
        let any = |text: &str| speaks_for_any_site(&PermittedSubjects::of([text.parse::<Pattern>().unwrap()]));
        assert_eq!([">", "_SEQCAST.LINK.SITE.a.b", "a.>"].map(any), [true, true, false]);
    }
}
