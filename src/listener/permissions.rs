//! Permissions of accounts: the subjects on which their clients may publish, and to which they may subscribe.
//!
//! Every listener maps what a client does to one of the two, and asks here. Nothing else decides.

use crate::subject::event_type::TypePattern;
use crate::subject::pattern_set::PatternSet;
use crate::subject::permitted_subjects::{HostPermissions, PermittedSubjects};
use crate::subject::{Pattern, Subject};
use std::fmt;

/// Maximum number of patterns that an account may have in one direction. Each subject is compared with all of them.
pub const PATTERNS_MAX: usize = 128;

/// Subjects that an account may use in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SubjectPermission {
    /// Every subject.
    #[default]
    All,
    /// Subjects that these patterns match, and those that requests need: the inboxes of a client, and the reply
    /// subjects of requests that it has received.
    Only(PatternSet),
    /// No subject.
    Nothing,
}

impl SubjectPermission {
    /// Returns the permission for the subjects that this one and the certificate of the host permit.
    fn within(&self, host: Option<&PatternSet>) -> SubjectPermission {
        match (self, host) {
            (permission, None) => permission.clone(),
            (SubjectPermission::All, Some(set)) => SubjectPermission::Only(set.clone()),
            (SubjectPermission::Only(own), Some(set)) => SubjectPermission::Only(own.intersection(set)),
            (SubjectPermission::Nothing, Some(_)) => SubjectPermission::Nothing,
        }
    }

    /// Returns whether any subject is permitted by its name.
    pub fn permits_any(&self) -> bool {
        match self {
            SubjectPermission::All => true,
            SubjectPermission::Only(set) => !set.patterns().is_empty(),
            SubjectPermission::Nothing => false,
        }
    }

    /// Returns whether the subject is permitted by its name.
    pub fn permits(&self, subject: &Subject) -> bool {
        match self {
            SubjectPermission::All => true,
            SubjectPermission::Only(set) => set.matches(subject),
            SubjectPermission::Nothing => false,
        }
    }

    /// Returns whether every subject that the pattern matches is permitted by its name.
    pub fn permits_pattern(&self, pattern: &Pattern) -> bool {
        match self {
            SubjectPermission::All => true,
            SubjectPermission::Only(set) => set.contains(pattern),
            SubjectPermission::Nothing => false,
        }
    }

    /// Returns whether some subject that the pattern matches is permitted by its name.
    pub fn permits_part(&self, pattern: &Pattern) -> bool {
        match self {
            SubjectPermission::All => true,
            SubjectPermission::Only(set) => set.intersects(pattern),
            SubjectPermission::Nothing => false,
        }
    }

    /// Returns whether the subjects of all event types that the pattern matches are permitted.
    pub fn permits_types(&self, pattern: &TypePattern) -> bool {
        pattern.subject_patterns().all(|pattern| self.permits_pattern(&pattern))
    }
}

/// Permissions of an account. By default it may do everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Subjects on which its clients may publish.
    pub publish: SubjectPermission,
    /// Subjects to which its clients may subscribe.
    pub subscribe: SubjectPermission,
}

impl Permissions {
    /// Returns the permissions that these and the certificate of the host give.
    pub fn within(&self, host: &HostPermissions) -> Permissions {
        let HostPermissions { publish, subscribe } = host;
        let with = |host: &PermittedSubjects, own: &str| -> Option<PatternSet> {
            let own: Pattern = own.parse().expect("a pattern");
            host.patterns().map(|set| set.patterns().iter().cloned().chain([own]).collect())
        };
        // The peer itself handles polls and publishes advisories. It checks what a poll asks for.
        Permissions {
            publish: self.publish.within(with(publish, "_POLL.>").as_ref()),
            subscribe: self.subscribe.within(with(subscribe, "_RV.>").as_ref()),
        }
    }

    /// Returns whether the account may do everything.
    pub fn are_unlimited(&self) -> bool {
        matches!((&self.publish, &self.subscribe), (SubjectPermission::All, SubjectPermission::All))
    }
}

/// Kind of an action that permissions can deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedAction {
    /// A message is to be published.
    Publish,
    /// Answers to a message are to be sent to this subject.
    Reply,
    /// A subscription is to begin, or retained messages or events are to be read.
    Subscribe,
    /// A command is to act upon other clients.
    Command,
}

/// An action of a client that its account, or the certificate of this host, does not permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Kind of the action.
    pub action: DeniedAction,
    /// The subject, the pattern, the name in the client's protocol, or the command.
    pub subject: String,
}

impl Denial {
    /// Creates the denial of an action on this subject or pattern.
    pub fn new(action: DeniedAction, subject: impl fmt::Display) -> Denial {
        Denial { action, subject: subject.to_string() }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Denial { action, subject } = self;
        match action {
            DeniedAction::Publish => write!(f, "this client may not publish on {subject}"),
            DeniedAction::Reply => write!(f, "this client may not request answers on {subject}"),
            DeniedAction::Subscribe => write!(f, "this client may not subscribe to {subject}"),
            DeniedAction::Command => write!(f, "this client may not run {subject}"),
        }
    }
}

impl std::error::Error for Denial {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_of_the_host_limits_accounts() {
        let only = |texts: &[&str]| SubjectPermission::Only(texts.iter().map(|text| text.parse().unwrap()).collect());
        let host: PatternSet = ["line.>", "*.state"].into_iter().map(|text| text.parse::<Pattern>().unwrap()).collect();
        for (account, expected) in [
            (SubjectPermission::All, only(&["line.>", "*.state"])),
            (only(&["line.7"]), only(&["line.7"])),
            (only(&["*.*"]), only(&["*.state", "line.*"])),
            (only(&["line.*.a", "cmd"]), only(&["line.*.a"])),
            (only(&["cmd"]), only(&[])),
            (SubjectPermission::Nothing, SubjectPermission::Nothing),
        ] {
            assert_eq!(account.within(Some(&host)), expected, "{account:?}");
            assert_eq!(account.within(None), account);
        }
        let permitted = PermittedSubjects::of(["line.>".parse().unwrap()]);
        let host = HostPermissions { publish: permitted.clone(), subscribe: permitted };
        let limited = Permissions::default().within(&host);
        assert_eq!(
            limited,
            Permissions { publish: only(&["line.>", "_POLL.>"]), subscribe: only(&["line.>", "_RV.>"]) }
        );
        assert!(Permissions::default().within(&HostPermissions::default()).are_unlimited());
    }

    #[test]
    fn permission_decides_on_subjects_and_patterns() {
        let only = |texts: &[&str]| SubjectPermission::Only(texts.iter().map(|text| text.parse().unwrap()).collect());
        for (permission, subject, expected) in [
            (SubjectPermission::All, "a.b", [true, true]),
            (SubjectPermission::Nothing, "a.b", [false, false]),
            (only(&[]), "a.b", [false, false]),
            (only(&["a.b"]), "a.b", [true, false]),
            (only(&["b", "a.*"]), "a.b", [true, true]),
            (only(&[">"]), "a.b", [true, true]),
        ] {
            let pattern: Pattern = "a.*".parse().unwrap();
            let decided = [permission.permits(&subject.parse().unwrap()), permission.permits_pattern(&pattern)];
            assert_eq!(decided, expected, "{permission:?} {subject} {pattern}");
        }
        // `a/*` matches the type `a`, too.
        let types: TypePattern = "a/*".parse().unwrap();
        assert!(only(&["a", "a.>"]).permits_types(&types) && !only(&["a.>"]).permits_types(&types));
    }
}
