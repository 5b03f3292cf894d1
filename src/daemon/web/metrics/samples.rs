//! Samples of metrics, read from the reports of the peer.

use serde_json::Value;

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// A number that only rises while the peer runs.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// Labels with the value 1.
    Info,
}

impl MetricKind {
    /// Returns the name in the text formats.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Info => "info",
        }
    }

    /// Returns what the names of its samples end with.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            MetricKind::Counter => "_total",
            MetricKind::Gauge => "",
            MetricKind::Info => "_info",
        }
    }
}

/// One number of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetricSample {
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: String,
}

/// Labels of the rows about another peer.
pub(super) const PEER_LABELS: &[(&str, &str)] = &[("publisher", "/publisher"), ("epoch", "/epoch")];

/// Returns the sample without labels of a number in a report; none if the report has no such number.
pub(super) fn single(value: &Value, divisor: u32) -> Vec<MetricSample> {
    number(value, divisor).map(|value| MetricSample { labels: Vec::new(), value }).into_iter().collect()
}

/// Returns a sample with these labels.
pub(super) fn sample(labels: &[(&'static str, &str)], value: impl ToString) -> MetricSample {
    let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    MetricSample { labels, value: value.to_string() }
}

/// Returns a sample for each row that has the number at the pointer `value`.
pub(super) fn rows<'a>(
    rows: impl IntoIterator<Item = &'a Value>,
    labels: &[(&'static str, &'static str)],
    value: &str,
    divisor: u32,
) -> Vec<MetricSample> {
    let sample = |row: &Value| {
        let value = number(row.pointer(value)?, divisor)?;
        Some(MetricSample { labels: labels_of(row, labels), value })
    };
    rows.into_iter().filter_map(sample).collect()
}

/// Returns the labels of a row. Each has a name, and a pointer to its text.
pub(super) fn labels_of(row: &Value, labels: &[(&'static str, &'static str)]) -> Vec<(&'static str, String)> {
    let text = |pointer: &str| match row.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    labels.iter().map(|(name, pointer)| (*name, text(pointer))).collect()
}

/// Returns a value of a report as the number of a sample. Of a range it is the lower bound.
fn number(value: &Value, divisor: u32) -> Option<String> {
    match value {
        Value::Bool(is_true) => Some(u8::from(*is_true).to_string()),
        Value::Number(number) if divisor == 1 => Some(number.to_string()),
        Value::Number(number) => Some((number.as_f64()? / f64::from(divisor)).to_string()),
        Value::Object(range) => number(range.get("min")?, divisor),
        Value::Null | Value::String(_) | Value::Array(_) => None,
    }
}
