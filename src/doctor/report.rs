//! The report of all checks: text for people, one object of JSON for programs.

use super::outcome::{CheckOutcome, OutcomeState};
use super::path::PathReport;
use super::remedy::AppliedLimit;
use super::setup::PeerSetup;
use crate::daemon::health::finding::Severity;
use crate::terminal::output::EscapedText;
use serde_json::{Value, json};
use std::fmt::Write;

/// Width of the names of the checks.
const NAME_WIDTH: usize = 12;

/// Returns the worst state of the outcomes.
fn worst(outcomes: &[CheckOutcome]) -> OutcomeState {
    outcomes.iter().map(|outcome| outcome.state).max().unwrap_or(OutcomeState::Well)
}

/// Returns whether something is broken.
pub(crate) fn is_broken(outcomes: &[CheckOutcome]) -> bool {
    worst(outcomes) == OutcomeState::Defect(Severity::Broken)
}

/// Returns a line for each outcome, and below it the effect and the remedy of what is not well.
pub(crate) fn text(outcomes: &[CheckOutcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let mut line = |line: std::fmt::Arguments<'_>| {
            writeln!(text, "{}", EscapedText(line.to_string().as_bytes())).expect("writing to a string does not fail");
        };
        line(format_args!("{} {:<NAME_WIDTH$} {}", outcome.state.sign(), outcome.check, outcome.found));
        if let Some(effect) = &outcome.effect {
            line(format_args!("  {:<NAME_WIDTH$} why: {effect}", ""));
        }
        if let Some(fix) = &outcome.fix {
            line(format_args!("  {:<NAME_WIDTH$} fix: {fix}", ""));
        }
    }
    text
}

/// Parts of a report beside the outcomes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReportParts<'a> {
    /// Limits that were to be raised.
    pub(crate) applied: Option<&'a [AppliedLimit]>,
    /// Counts and times of the path to another host.
    pub(crate) path: Option<&'a PathReport>,
}

/// Returns the outcomes as one object.
pub(crate) fn json(setup: &PeerSetup, outcomes: &[CheckOutcome], parts: ReportParts<'_>) -> Value {
    let mut object = json!({
        "ok": !is_broken(outcomes),
        "state": worst(outcomes).as_str(),
        "group": setup.group,
        "port": setup.port,
        "checks": outcomes,
    });
    if let Some(applied) = parts.applied {
        object["applied"] = json!(applied);
    }
    if let Some(path) = parts.path {
        object["path"] = json!(path);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::daemon::health::finding::Finding;
    use crate::doctor::outcome::HostCheck;

    fn outcomes() -> [CheckOutcome; 3] {
        let broken = Finding {
            check: HostCheck::Route,
            severity: Severity::Broken,
            found: "no way\x1b to it".to_owned(),
            effect: "nothing leaves",
            fix: "ip route add x".to_owned(),
        };
        [
            CheckOutcome::well(HostCheck::Ttl, "fine"),
            CheckOutcome::unknown(HostCheck::Firewall, "not readable", "run it as root"),
            CheckOutcome::from(broken).with_command("ip route add x"),
        ]
    }

    #[test]
    fn text_has_effect_and_remedy_below_defects() {
        let expected = "\
✓ ttl          fine
? firewall     not readable
               fix: run it as root
✗ route        no way\\u{1b} to it
               why: nothing leaves
               fix: ip route add x
";
        assert_eq!(text(&outcomes()), expected);
    }

    #[test]
    fn json_names_the_worst_state() {
        let setup = PeerSetup::of_config(&Config::default());
        let all = json(&setup, &outcomes(), ReportParts::default());
        assert_eq!((&all["ok"], &all["state"]), (&false.into(), &"broken".into()));
        let route = &all["checks"][2];
        assert_eq!((&route["state"], &route["commands"]), (&"broken".into(), &json!(["ip route add x"])));
        assert_eq!(all["checks"][0].as_object().unwrap().len(), 4);
        let applied = ReportParts { applied: Some(&[]), path: None };
        let first = json(&setup, &outcomes()[..2], applied);
        assert_eq!((&first["ok"], &first["state"], &first["applied"]), (&true.into(), &"unknown".into(), &json!([])));
    }
}
