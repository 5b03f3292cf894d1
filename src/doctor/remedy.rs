//! Remedies on request: the commands as a script, and the harmless ones carried out.
//!
//! Harmless are limits of the kernel that only allow larger buffers. Whatever changes an interface, a route, a firewall
//! or a running program stays with a person.

use super::outcome::{CheckOutcome, OutcomeState, Remedy};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::path::Path;

/// Result of raising a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct AppliedLimit {
    pub(crate) key: &'static str,
    /// Value before; `None` if it cannot be read.
    pub(crate) before: Option<u64>,
    /// Value now; `None` if it is unchanged.
    pub(crate) after: Option<u64>,
    /// Reason why the limit is unchanged, unless it was high enough.
    pub(crate) error: Option<String>,
}

impl fmt::Display for AppliedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AppliedLimit { key, before, after, error } = self;
        let before = before.map_or("unknown".to_owned(), |before| before.to_string());
        match (after, error) {
            (Some(after), _) => write!(f, "{key}: {before} -> {after}; restart the peer to use it"),
            (None, Some(error)) => write!(f, "{key}: stays {before}: {error}"),
            (None, None) => write!(f, "{key}: stays {before}, which is enough; restart the peer to use it"),
        }
    }
}

/// Returns the remedies as the lines of a shell script; remedies that are no commands are comments.
pub(crate) fn script(outcomes: &[CheckOutcome]) -> Vec<String> {
    let defects = outcomes.iter().filter(|outcome| outcome.state != OutcomeState::Well);
    let lines = defects.flat_map(|outcome| {
        let heading = format!("# {}: {}", outcome.check, outcome.found);
        let advice = outcome.fix.iter().filter(|_| outcome.commands.is_empty()).map(|fix| format!("#   {fix}"));
        let commands = outcome.commands.iter().map(ToString::to_string);
        [heading].into_iter().chain(advice).chain(commands).collect::<Vec<_>>()
    });
    lines.map(|line| line.replace(char::is_control, " ")).collect()
}

/// Raises the limits that the outcomes name, in the folder `limits`, usually `/proc/sys`. A limit that several outcomes
/// name is raised to the highest value.
pub(crate) fn raise_limits(outcomes: &[CheckOutcome], limits: &Path) -> Vec<AppliedLimit> {
    let mut wanted: Vec<(&'static str, u64)> = Vec::new();
    for remedy in outcomes.iter().flat_map(|outcome| &outcome.commands) {
        let Remedy::RaiseLimit { key, value } = remedy else { continue };
        match wanted.iter_mut().find(|(known, _)| known == key) {
            Some((_, highest)) => *highest = (*highest).max(*value),
            None => wanted.push((key, *value)),
        }
    }
    wanted.into_iter().map(|(key, value)| raise(key, value, limits)).collect()
}

fn raise(key: &'static str, value: u64, limits: &Path) -> AppliedLimit {
    let file = limits.join(key.replace('.', "/"));
    let before = match fs::read_to_string(&file) {
        Ok(text) => text.trim().parse::<u64>().ok(),
        Err(error) => {
            return AppliedLimit { key, before: None, after: None, error: Some(format!("cannot be read: {error}")) };
        }
    };
    if before.is_some_and(|before| value <= before) {
        return AppliedLimit { key, before, after: None, error: None };
    }
    match fs::write(&file, format!("{value}\n")) {
        Ok(()) => AppliedLimit { key, before, after: Some(value), error: None },
        Err(error) => {
            let error = Some(format!("{error}; run it as root: sudo sysctl -w {key}={value}"));
            AppliedLimit { key, before, after: None, error }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::random_u64;
    use crate::doctor::outcome::HostCheck;

    #[test]
    fn limits_are_raised_and_never_lowered() {
        let limits = std::env::temp_dir().join(format!("seqcast-limits-{:016x}", random_u64()));
        fs::create_dir_all(limits.join("net/core")).unwrap();
        let file = limits.join("net/core/rmem_max");
        fs::write(&file, "212992\n").unwrap();
        let outcome = |key, value| CheckOutcome::well(HostCheck::Buffers, "short").with_limit(key, value);
        let both = [outcome("net.core.rmem_max", 100), outcome("net.core.rmem_max", 4_194_304)];
        let raised = raise_limits(&both, &limits);
        let text: Vec<String> = raised.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["net.core.rmem_max: 212992 -> 4194304; restart the peer to use it"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "4194304\n");
        assert_eq!(raise_limits(&both, &limits)[0].after, None);
        assert_eq!(fs::read_to_string(&file).unwrap(), "4194304\n");
        let absent = raise_limits(&[outcome("net.core.wmem_max", 1)], &limits);
        assert!(absent[0].error.as_ref().unwrap().starts_with("cannot be read"), "{absent:?}");
        fs::remove_dir_all(limits).unwrap();
    }

    #[test]
    fn script_has_commands_and_commented_advice() {
        let advice = CheckOutcome::unknown(HostCheck::Firewall, "only root\nmay list", "run it as root");
        let command = CheckOutcome { fix: Some("see ss".into()), ..advice.clone() }.with_command("ss -ulnp");
        let well = CheckOutcome::well(HostCheck::Ttl, "fine");
        let lines = script(&[advice, well, command]);
        let heading = "# firewall: only root may list";
        assert_eq!(lines, [heading, "#   run it as root", heading, "ss -ulnp"]);
    }
}
