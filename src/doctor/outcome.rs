//! The outcome of a check: a row of the report.

use crate::daemon::health::finding::{Finding, Severity};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;

/// A check of this host, or of the path to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostCheck {
    /// The peer of this host, and its own findings.
    Peer,
    /// Choice of the interface.
    Interface,
    /// Kind of the interface, such as a radio network.
    Link,
    /// Container without the network of its host.
    Container,
    /// Other programs on the port of the group.
    Port,
    /// Route to the group.
    Route,
    /// Multicasts to the group that come back.
    SelfTest,
    /// Reach of multicasts.
    Ttl,
    /// Size of datagrams.
    Mtu,
    /// Membership in the group.
    Igmp,
    /// Limit of memberships.
    Memberships,
    /// Socket buffers.
    Buffers,
    /// Datagrams that the kernel dropped.
    Drops,
    /// Filter of source addresses.
    ReversePath,
    /// Rules of the firewall.
    Firewall,
    /// Datagrams of other programs in the group.
    Traffic,
    /// Received datagrams that the peer cannot use.
    Datagrams,
    /// Identities of peers.
    Identity,
    /// Wall clock of this host.
    Clock,
    /// Link to other sites.
    Sites,
    /// Unicasts to and from another host.
    Unicast,
    /// Multicasts to and from another host.
    Multicast,
    /// Packets as large as the MTU to and from another host.
    PathMtu,
    /// Packets in fragments to and from another host.
    Fragments,
    /// Travel times to and from another host, and the offset of its clock.
    Delay,
}

impl HostCheck {
    /// Returns the name in JSON and in text.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            HostCheck::Peer => "peer",
            HostCheck::Interface => "interface",
            HostCheck::Link => "link",
            HostCheck::Container => "container",
            HostCheck::Port => "port",
            HostCheck::Route => "route",
            HostCheck::SelfTest => "self_test",
            HostCheck::Ttl => "ttl",
            HostCheck::Mtu => "mtu",
            HostCheck::Igmp => "igmp",
            HostCheck::Memberships => "memberships",
            HostCheck::Buffers => "buffers",
            HostCheck::Drops => "drops",
            HostCheck::ReversePath => "reverse_path",
            HostCheck::Firewall => "firewall",
            HostCheck::Traffic => "traffic",
            HostCheck::Datagrams => "datagrams",
            HostCheck::Identity => "identity",
            HostCheck::Clock => "clock",
            HostCheck::Sites => "sites",
            HostCheck::Unicast => "unicast",
            HostCheck::Multicast => "multicast",
            HostCheck::PathMtu => "path_mtu",
            HostCheck::Fragments => "fragments",
            HostCheck::Delay => "delay",
        }
    }
}

/// State that a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OutcomeState {
    /// Nothing is wrong.
    Well,
    /// The check could not read what it judges.
    Unknown,
    /// Something is wrong, or worth a look.
    Defect(Severity),
}

impl OutcomeState {
    /// Returns the name in JSON.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            OutcomeState::Well => "ok",
            OutcomeState::Unknown => "unknown",
            OutcomeState::Defect(severity) => severity.as_str(),
        }
    }

    /// Returns the sign at the beginning of a line.
    pub(crate) fn sign(self) -> char {
        match self {
            OutcomeState::Well => '✓',
            OutcomeState::Unknown => '?',
            OutcomeState::Defect(Severity::Notice | Severity::Warning) => '!',
            OutcomeState::Defect(Severity::Broken) => '✗',
        }
    }
}

impl Serialize for OutcomeState {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A command that mends a defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// A command for a shell. Only a person may run it: it changes the network of the host, or the peer.
    Command(String),
    /// A kernel limit that must be at least this value. Raising it takes nothing from other programs.
    RaiseLimit {
        /// Name of the limit, such as `net.core.rmem_max`.
        key: &'static str,
        /// Minimum value, in the unit of the limit.
        value: u64,
    },
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remedy::Command(command) => f.write_str(command),
            Remedy::RaiseLimit { key, value } => write!(f, "sysctl -w {key}={value}"),
        }
    }
}

impl Serialize for Remedy {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CheckOutcome {
    pub(crate) check: &'static str,
    pub(crate) state: OutcomeState,
    /// The state of the host, as a phrase.
    pub(crate) found: String,
    /// Consequence for the messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) effect: Option<Cow<'static, str>>,
    /// Remedy: a command or a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
    /// Commands of the remedy, as far as it consists of commands.
    pub(crate) commands: Vec<Remedy>,
}

impl CheckOutcome {
    /// Returns the outcome of a check that finds nothing wrong.
    pub(crate) fn well(check: HostCheck, found: impl Into<String>) -> CheckOutcome {
        CheckOutcome {
            check: check.as_str(),
            state: OutcomeState::Well,
            found: found.into(),
            effect: None,
            fix: None,
            commands: Vec::new(),
        }
    }

    /// Returns the outcome of a check that finds something worth a look: the defect, its effect and its remedy.
    pub(crate) fn notice(
        check: HostCheck,
        found: impl Into<String>,
        effect: &'static str,
        fix: String,
    ) -> CheckOutcome {
        CheckOutcome::defect(Severity::Notice, check, found.into(), effect, fix)
    }

    /// Returns the outcome of a check that finds a defect with which a peer works.
    pub(crate) fn warning(
        check: HostCheck,
        found: impl Into<String>,
        effect: &'static str,
        fix: String,
    ) -> CheckOutcome {
        CheckOutcome::defect(Severity::Warning, check, found.into(), effect, fix)
    }

    /// Returns the outcome of a check that finds a defect with which a peer does not reach others.
    pub(crate) fn broken(
        check: HostCheck,
        found: impl Into<String>,
        effect: &'static str,
        fix: String,
    ) -> CheckOutcome {
        CheckOutcome::defect(Severity::Broken, check, found.into(), effect, fix)
    }

    fn defect(severity: Severity, check: HostCheck, found: String, effect: &'static str, fix: String) -> CheckOutcome {
        CheckOutcome {
            state: OutcomeState::Defect(severity),
            effect: Some(Cow::Borrowed(effect)),
            fix: Some(fix),
            ..CheckOutcome::well(check, found)
        }
    }

    /// Returns the outcome of a check that cannot be made, with the step that makes it possible.
    pub(crate) fn unknown(check: HostCheck, found: impl Into<String>, fix: impl Into<String>) -> CheckOutcome {
        let fix = Some(fix.into());
        CheckOutcome { state: OutcomeState::Unknown, fix, ..CheckOutcome::well(check, found) }
    }

    /// Returns the same outcome with a further command.
    pub(crate) fn with_command(mut self, command: impl Into<String>) -> CheckOutcome {
        self.commands.push(Remedy::Command(command.into()));
        self
    }

    /// Returns the same outcome with a limit to raise.
    pub(crate) fn with_limit(mut self, key: &'static str, value: u64) -> CheckOutcome {
        self.commands.push(Remedy::RaiseLimit { key, value });
        self
    }
}

impl From<Finding<HostCheck>> for CheckOutcome {
    fn from(finding: Finding<HostCheck>) -> CheckOutcome {
        let Finding { check, severity, found, effect, fix } = finding;
        CheckOutcome::defect(severity, check, found, effect, fix)
    }
}
