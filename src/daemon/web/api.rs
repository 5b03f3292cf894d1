//! The reports in JSON: each one with the fields of `seqcast show --json`, and the snapshots of the live view.

use super::WebContext;
use super::reports::ReportFailure;
use super::stream_reports::ask_streams;
use crate::clock::Clock;
use crate::daemon::show::REPORTS;
use serde_json::{Map, Value, json};

/// Maximum number of rows of each report in a snapshot.
const SNAPSHOT_ROWS_MAX: usize = 256;
/// Maximum number of subjects with losses in a snapshot: those with the most.
const SNAPSHOT_SUBJECTS_MAX: usize = 32;
/// Maximum number of rows that a request can ask for.
const ROWS_MAX: u64 = 1000;

/// A report that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiReport {
    /// A report of `show`.
    Show(&'static str),
    /// The last advisories.
    Advisories,
    /// The event streams and their consumers.
    Streams,
}

/// Finds the report with a name.
pub(super) fn find_report(name: &str) -> Option<ApiReport> {
    match name {
        "advisories" => Some(ApiReport::Advisories),
        "streams" => Some(ApiReport::Streams),
        _ => REPORTS.iter().find(|report| **report == name).map(|report| ApiReport::Show(report)),
    }
}

/// Answers a request for a report. `query` is the part of the address behind the question mark: `limit` is the maximum
/// number of rows.
pub(super) async fn answer_report(
    context: &WebContext,
    report: ApiReport,
    query: Option<&str>,
) -> Result<Value, ReportFailure> {
    match report {
        ApiReport::Advisories => Ok(json!({ "show": "advisories", "rows": context.advisories.rows() })),
        ApiReport::Streams => context.reports.run(ask_streams).await,
        ApiReport::Show(name) => {
            let limit = limit(query.unwrap_or_default());
            let answers = context.reports.ask(vec![json!({ "show": name, "limit": limit })]).await?;
            answers.into_iter().next().ok_or(ReportFailure::NoAnswer)
        }
    }
}

/// Returns the maximum number of rows that a query asks for; [`ROWS_MAX`] without a valid number.
fn limit(query: &str) -> u64 {
    let limit = query.split('&').find_map(|part| part.strip_prefix("limit=")?.parse().ok());
    limit.unwrap_or(ROWS_MAX).min(ROWS_MAX)
}

/// Returns a snapshot of the peer as one line of JSON; `None` if the peer does not answer.
pub(super) async fn snapshot(context: &WebContext) -> Option<String> {
    let limited = ["loss", "outbound", "peers", "clients", "subs"];
    let limited = limited.map(|report| json!({ "show": report, "limit": SNAPSHOT_ROWS_MAX }));
    let whole = ["status", "health", "windows", "counters"].map(|report| json!({ "show": report }));
    let subjects = json!({ "show": "loss_by_subject", "limit": SNAPSHOT_SUBJECTS_MAX });
    let history = json!({ "show": "history", "limit": 0 });
    let queries = limited.into_iter().chain(whole).chain([subjects, history]).collect();
    let mut overview = context.reports.overview(queries).await.ok()?;
    overview["counters"] = counter_values(&overview["counters"]);
    overview["advisories"] = context.advisories.rows().into();
    context.lan.update_peers(&overview["peers"]);
    overview["reports"] = context.lan.take_new().into();
    overview["time"] = (Clock::now().wall.as_nanos() / 1_000_000).into();
    Some(overview.to_string())
}

/// Returns the values of the counters by name: their meanings never change.
fn counter_values(rows: &Value) -> Value {
    let rows = rows.as_array().into_iter().flatten();
    let values: Map<String, Value> =
        rows.filter_map(|row| Some((row["counter"].as_str()?.to_owned(), row["value"].clone()))).collect();
    Value::Object(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_found_by_their_names() {
        for report in REPORTS {
            assert_eq!(find_report(report), Some(ApiReport::Show(report)));
        }
        assert_eq!(find_report("streams"), Some(ApiReport::Streams));
        for name in ["", "loss/", "LOSS", "live"] {
            assert_eq!(find_report(name), None, "{name}");
        }
    }

    #[test]
    fn rows_are_limited() {
        for (query, expected) in [
            ("", 1000),
            ("limit=7", 7),
            ("x=1&limit=7", 7),
            ("limit=9999", 1000),
            ("limit=-1", 1000),
            ("limit=%37", 1000),
        ] {
            assert_eq!(limit(query), expected, "{query}");
        }
    }

    #[test]
    fn counters_become_an_object() {
        let rows =
            json!([{ "counter": "a", "value": 1, "meaning": "A." }, { "counter": "b", "value": 2, "meaning": "B." }]);
        assert_eq!(counter_values(&rows), json!({ "a": 1, "b": 2 }));
    }
}
