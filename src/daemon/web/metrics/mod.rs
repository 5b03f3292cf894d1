//! The reports of the peer as metrics, in the text formats of OpenMetrics 1.0 and of Prometheus.

mod families;
mod link_families;
mod rules;
mod samples;

use families::FAMILIES;
use link_families::LINK_FAMILIES;
use samples::{MetricKind, MetricSample, single};
use serde_json::{Value, json};
use std::fmt::Write;

/// Content type of the text format of OpenMetrics.
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of the older text format of Prometheus.
pub(super) const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Maximum number of rows of a report that become labelled samples. The others are counted in `omitted_rows`.
const ROWS_MAX: usize = 256;

/// Prefix of all names.
const PREFIX: &str = "seqcast_";

/// Returns the queries whose answers [`render`] reads.
pub(super) fn queries() -> Vec<Value> {
    let limited = ["loss", "outbound", "peers"].map(|report| json!({ "show": report, "limit": ROWS_MAX }));
    let whole = ["status", "health", "clients", "windows", "counters"].map(|report| json!({ "show": report }));
    let history = json!({ "show": "history", "limit": 0 });
    limited.into_iter().chain(whole).chain([history]).collect()
}

/// Adds the streams and their consumers to an overview of the reports, within the limit of rows.
pub(super) fn add_streams(overview: &mut Value, mut report: Value) {
    let omitted_consumers = report["omitted"].as_u64().unwrap_or(0);
    for (name, further) in [("streams", 0), ("consumers", omitted_consumers)] {
        let Some(rows) = report[name].as_array_mut() else { continue };
        let omitted = rows.len().saturating_sub(ROWS_MAX) as u64;
        rows.truncate(ROWS_MAX);
        overview[name] = std::mem::take(rows).into();
        overview[format!("{name}_omitted")] = (further + omitted).into();
    }
}

/// Returns the metrics of an overview of the reports, in OpenMetrics or in the older format.
pub(super) fn render(overview: &Value, is_open_metrics: bool) -> String {
    let mut text = MetricsText { text: String::new(), is_open_metrics };
    for family in FAMILIES.iter().chain(LINK_FAMILIES) {
        text.family(family.name, family.kind, family.help, family.samples(overview));
    }
    // Every counter of `show counters`, under its own name.
    for row in overview["counters"].as_array().into_iter().flatten() {
        if let (Some(name), Some(help)) = (row["counter"].as_str(), row["meaning"].as_str()) {
            text.family(name, MetricKind::Counter, help, single(&row["value"], 1));
        }
    }
    text.text.push_str("# EOF\n");
    text.text
}

/// The text of the metrics, as far as it is written.
struct MetricsText {
    text: String,
    is_open_metrics: bool,
}

impl MetricsText {
    /// Appends a family with its samples.
    fn family(&mut self, name: &str, kind: MetricKind, help: &str, samples: Vec<MetricSample>) {
        let sample_name = format!("{PREFIX}{name}{}", kind.suffix());
        // In the older format a family has the name of its samples.
        let (name, kind_name) = match self.is_open_metrics {
            true => (format!("{PREFIX}{name}"), kind.as_str()),
            false => (sample_name.clone(), if kind == MetricKind::Info { "gauge" } else { kind.as_str() }),
        };
        let help = escape(help, self.is_open_metrics);
        // Writing to a text cannot fail.
        let _ = write!(self.text, "# TYPE {name} {kind_name}\n# HELP {name} {help}\n");
        for MetricSample { labels, value } in samples {
            self.text.push_str(&sample_name);
            let label = |(name, value): &(&str, String)| format!("{name}=\"{}\"", escape(value, true));
            if !labels.is_empty() {
                let labels: Vec<String> = labels.iter().map(label).collect();
                let _ = write!(self.text, "{{{}}}", labels.join(","));
            }
            let _ = writeln!(self.text, " {value}");
        }
    }
}

/// Escapes a text. Quotes need it in labels, and in OpenMetrics also in the help.
fn escape(text: &str, with_quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if with_quotes { text.replace('"', "\\\"") } else { text }
}

#[cfg(test)]
mod tests;
