//! The fields and columns of `show links`.

use serde_json::Value;

use super::columns::Cell::{self, Field, FieldOr, Rule};
use super::columns::{field, names};
use crate::terminal::table::Column;

pub(super) const LINK: &[(&str, Cell)] = &[
    ("site", Field("/site")),
    ("gateway", Field("/gateway")),
    ("servers", Rule(|link| names(&link["hubs"]))),
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
    ("of further sites", Field("/excess_sites")),
];

/// Messages of other sites.
pub(super) const SITES: &[(Column, Cell)] = &[
    (Column::new("site").left(), Field("/site")),
    (Column::new("imported"), Field("/imported")),
    (Column::new("repeated"), Field("/repeated")),
    (Column::new("lost"), Rule(lost_on_the_way)),
    (Column::new("tails"), Field("/tails")),
];

/// Returns the number of messages of a site that were lost on the way, as exactly as it is known.
fn lost_on_the_way(row: &Value) -> String {
    let (min, max) = (field(row, "/lost_min"), field(row, "/lost_max"));
    match max == min {
        true => min,
        false if max.is_empty() => format!("at least {min}"),
        false => format!("{min} to {max}"),
    }
}
