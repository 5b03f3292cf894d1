//! The subjects that the certificate of a host permits in one direction.

use super::pattern_set::PatternSet;
use super::{Pattern, Subject};

/// Prefixes of the subjects that every host may use. The first one is that of answers: a host that may not publish
/// anything still answers the requests that it receives. Peers replicate their journals on the second one. Requests on
/// the third one are polls, which a peer handles for its own clients.
const SHARED_PREFIXES: [&str; 3] = ["_INBOX.", "_EVENT.", "_POLL."];
/// Prefix of the advisories of a peer to its own clients. A peer whose host may publish everything announces Rendezvous
/// listens on it to the LAN.
const ADVISORY_PREFIX: &str = "_RV.";

/// Subjects that a host may use in one direction. Cloning copies a reference only.
///
/// ```
/// use seqcast::subject::permitted_subjects::PermittedSubjects;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let permitted = PermittedSubjects::of(["line.>".parse()?]);
/// assert!(permitted.permits(&"line.7.state".parse()?));
/// assert!(permitted.permits(&"_INBOX.Xk3v7Q9mZ2b8Lw4N1c6R5t.1".parse()?));
/// assert!(!permitted.permits(&"cmd.stop".parse()?));
/// assert!(PermittedSubjects::all().permits(&"cmd.stop".parse()?));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermittedSubjects {
    /// `None` for every subject.
    only: Option<PatternSet>,
}

impl PermittedSubjects {
    /// Returns the permission for every subject.
    pub fn all() -> PermittedSubjects {
        PermittedSubjects { only: None }
    }

    /// Returns the permission for the subjects that the patterns match, and for those that every host may use.
    pub fn of(patterns: impl IntoIterator<Item = Pattern>) -> PermittedSubjects {
        let set: PatternSet = patterns.into_iter().collect();
        let every: Pattern = ">".parse().expect("'>' is a pattern");
        PermittedSubjects { only: Some(set).filter(|set| !set.contains(&every)) }
    }

    /// Returns whether every subject is permitted.
    #[inline]
    pub fn is_all(&self) -> bool {
        self.only.is_none()
    }

    /// Returns the patterns, without the subjects that every host may use; `None` for every subject.
    pub fn patterns(&self) -> Option<&PatternSet> {
        self.only.as_ref()
    }

    /// Returns whether the subject is permitted.
    #[inline]
    pub fn permits(&self, subject: &Subject) -> bool {
        let Some(set) = &self.only else { return true };
        is_shared(subject.as_str()) || set.matches(subject)
    }

    /// Returns whether every subject that the pattern matches is permitted to a local subscription.
    pub fn permits_pattern(&self, pattern: &Pattern) -> bool {
        let Some(set) = &self.only else { return true };
        let text = pattern.as_str();
        is_shared(text) || text.starts_with(ADVISORY_PREFIX) || set.contains(pattern)
    }
}

/// Permissions of the programs of a host, by its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPermissions {
    /// Subjects on which they may publish.
    pub publish: PermittedSubjects,
    /// Subjects to which they may subscribe.
    pub subscribe: PermittedSubjects,
}

/// Returns whether every host may use the subject, or those of the pattern.
fn is_shared(text: &str) -> bool {
    SHARED_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted(patterns: &[&str]) -> PermittedSubjects {
        PermittedSubjects::of(patterns.iter().map(|text| text.parse().unwrap()))
    }

    #[test]
    fn patterns_and_shared_subjects_are_permitted() {
        for (patterns, text, expected) in [
            (&["line.>"][..], "line.a", [true, true]),
            (&["line.>"], "cmd", [false, false]),
            (&["line.>"], "_INBOX.0000000000000001.1", [true, true]),
            (&[], "_INBOX.Xk3v7Q9mZ2b8Lw4N1c6R5t.1", [true, true]),
            (&[], "_EVENT.SERVER.7", [true, true]),
            (&[], "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST", [false, true]),
            (&[], "_INBOX", [false, false]),
            (&[], "a", [false, false]),
            (&["a", ">"], "b", [true, true]),
            (&["*", "*.>"], "b.c", [true, true]),
        ] {
            let permitted = permitted(patterns);
            let decided =
                [permitted.permits(&text.parse().unwrap()), permitted.permits_pattern(&text.parse().unwrap())];
            assert_eq!(decided, expected, "{patterns:?} {text}");
        }
        assert!(permitted(&["a.*"]).permits_pattern(&"_INBOX.0000000000000001.>".parse().unwrap()));
        assert!(!permitted(&["a.*"]).permits_pattern(&"a.>".parse().unwrap()));
        assert!(permitted(&["*", "*.>"]).is_all() && !permitted(&["*"]).is_all());
    }
}
