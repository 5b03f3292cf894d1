//! The fields and columns of `show links`.

use serde_json::Value;

use super::columns::Cell::{self, Field, FieldOr, Rule};
use super::columns::{counted, field, names};
use crate::terminal::table::Column;

pub(super) const LINK: &[(&str, Cell)] = &[
    ("site", Field("/site")),
    ("gateway", Field("/gateway")),
    ("servers", Rule(|link| names(&link["hubs"]))),
    ("exports", Rule(|link| names(&link["exports"]))),
    ("imports", Rule(|link| names(&link["imports"]))),
    ("state", Field("/state")),
    ("fault", FieldOr("/fault", "-")),
    ("conflict", FieldOr("/conflict", "-")),
    ("shares of 16", Field("/shares")),
    ("exported", Field("/exported")),
    ("taken over", Field("/taken_over")),
    ("of clients", Field("/of_clients")),
    ("unsent", Field("/unsent")),
    ("unread", Field("/unread")),
    ("unheard", Field("/unheard")),
    ("refused", Field("/refused")),
    ("invalid", Field("/invalid")),
    ("requests sent", Field("/requests_sent")),
    ("requests delivered", Field("/requests_delivered")),
    ("replies", Field("/replies")),
    ("no responders", Field("/no_responders")),
    ("requests dropped", Field("/requests_dropped")),
    ("of further sites", Field("/excess_sites")),
];

/// Events across sites.
pub(super) const LINK_EVENTS: &[(&str, Cell)] = &[
    ("servers heard", Field("/servers")),
    ("exported", Field("/exported")),
    ("imported", Field("/imported")),
    ("refused", Field("/refused")),
    ("too large", Field("/too_large")),
    ("dropped", Field("/dropped")),
    ("invalid", Field("/invalid")),
    ("conflict", FieldOr("/conflict", "-")),
];

/// Durable messages.
pub(super) const LINK_DURABLE: &[(&str, Cell)] = &[
    ("stream", Field("/stream")),
    ("usable", Rule(|durable| if durable["open"] == true { "yes" } else { "no" }.to_owned())),
    ("fault", FieldOr("/fault", "-")),
    ("waiting", Field("/waiting")),
    ("waiting bytes", Field("/waiting_bytes")),
    ("stored", Field("/stored")),
    ("unstored", Field("/unstored")),
    ("restored", Field("/restored")),
    ("imported", Field("/imported")),
    ("repeated", Field("/repeated")),
    ("invalid", Field("/invalid")),
    ("discarded", Field("/discarded")),
    ("position", FieldOr("/position", "-")),
];

/// Messages of other sites.
pub(super) const SITES: &[(Column, Cell)] = &[
    (Column::new("site").left(), Field("/site")),
    (Column::new("imported"), Field("/imported")),
    (Column::new("repeated"), Field("/repeated")),
    (Column::new("lost"), Rule(lost_on_the_way)),
    (Column::new("tails"), Field("/tails")),
];

/// Messages of other sites that are lost. A row without a publisher counts those of unknown ones.
pub(super) const SITE_LOSSES: &[(Column, Cell)] = &[
    (Column::new("site").left(), Field("/site")),
    (Column::new("publisher").left(), Rule(remote_publisher)),
    (Column::new("lost"), Rule(|row| counted(&row["lost"]))),
    (Column::new("tails"), Field("/tails")),
    (Column::new("loss time"), Field("/time")),
];

/// The same by subject.
pub(super) const SITE_LOSSES_BY_SUBJECT: &[(Column, Cell)] = &[
    (Column::new("site").left(), Field("/site")),
    (Column::new("publisher").left(), Rule(remote_publisher)),
    (Column::new("subject").left(), Rule(subject_at_site)),
    (Column::new("lost"), Rule(|row| counted(&row["lost"]))),
    (Column::new("tails"), Field("/tails")),
    (Column::new("loss time"), Field("/time")),
];

fn remote_publisher(row: &Value) -> String {
    match FieldOr("/publisher", "").text(row) {
        none if none.is_empty() => FieldOr("/epoch", "(unknown publishers)").text(row),
        name => name,
    }
}

fn subject_at_site(row: &Value) -> String {
    match row["kind"].as_str() {
        Some("other_subjects") => "(further subjects)".to_owned(),
        Some("tail") => "(behind the last known message)".to_owned(),
        _ => field(row, "/subject"),
    }
}

/// Returns the number of messages of a site that were lost on the way, as exactly as it is known.
fn lost_on_the_way(row: &Value) -> String {
    let (min, max) = (field(row, "/lost_min"), field(row, "/lost_max"));
    match max == min {
        true => min,
        false if max.is_empty() => format!("at least {min}"),
        false => format!("{min} to {max}"),
    }
}
