//! Rows of `show loss` about messages of other sites.

use crate::daemon::advisories::OpenCount;
use crate::daemon::site_losses::{SiteLossRow, SiteLossScope};
use serde_json::{Value, json};

/// Adds at most `rows_max` rows to an answer, and the number of further ones.
pub(super) fn add_site_rows(answer: &mut Value, mut rows: Vec<SiteLossRow>, rows_max: usize) {
    let omitted = rows.len().saturating_sub(rows_max);
    rows.truncate(rows_max);
    answer["sites"] = rows.iter().map(site_loss).collect();
    if 0 < omitted {
        answer["sites_omitted"] = omitted.into();
    }
}

fn site_loss(row: &SiteLossRow) -> Value {
    let SiteLossRow { site, publisher, scope, tally } = row;
    let mut fields = json!({
        "site": site.as_str(),
        "publisher": publisher.as_ref().and_then(|publisher| publisher.name.as_ref()).map(|name| name.as_str()),
        "epoch": publisher.as_ref().map(|publisher| publisher.epoch.to_string()),
        "lost": serde_json::to_value(OpenCount(tally.lost())).expect("numbers are valid JSON"),
        "tails": tally.tails,
        "time": tally.at.map(|at| at.to_string()),
        "time_ns": tally.at.map(|at| at.as_nanos()),
    });
    let (kind, subject) = match scope {
        SiteLossScope::Publisher => return fields,
        SiteLossScope::Subject(subject) => ("subject", Some(subject.as_str())),
        SiteLossScope::Others => ("other_subjects", None),
        SiteLossScope::Tail => ("tail", None),
    };
    (fields["kind"], fields["subject"]) = (json!(kind), json!(subject));
    fields
}
