//! The results of all rounds.

use crate::measurement::Outcome;
use serde_json::json;

pub struct Table {
    sizes: Vec<usize>,
    rows: Vec<Row>,
}

struct Row {
    label: &'static str,
    size: usize,
    rates: Vec<f64>,
    sent: u64,
    received: u64,
}

impl Row {
    fn median(&self) -> f64 {
        self.rates[self.rates.len() / 2]
    }

    fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }
}

impl Table {
    pub fn new(sizes: &[usize]) -> Table {
        Table { sizes: sizes.to_vec(), rows: Vec::new() }
    }

    /// Adds the outcome of a run.
    pub fn add(&mut self, label: &'static str, size: usize, outcome: Outcome) {
        let at = self.rows.iter().position(|row| row.label == label && row.size == size).unwrap_or_else(|| {
            self.rows.push(Row { label, size, rates: Vec::new(), sent: 0, received: 0 });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        row.rates.push(outcome.per_s);
        row.rates.sort_by(f64::total_cmp);
        row.sent += outcome.sent;
        row.received += outcome.received;
    }

    /// Prints the medians in Markdown: a line for each system, a column for each size.
    pub fn print(&self) {
        let columns: Vec<String> = self.sizes.iter().map(|size| format!(" {size} B |")).collect();
        println!("| messages/s, median (lowest to highest), lost |{}", columns.concat());
        println!("|---|{}", "---|".repeat(self.sizes.len()));
        for first in self.rows.iter().filter(|row| row.size == self.sizes[0]) {
            let cells = self.rows.iter().filter(|row| row.label == first.label).map(|row| {
                let millions = |rate: f64| format!("{:.2}", rate / 1e6);
                let lost = if row.lost() == 0 { String::new() } else { format!(", {} lost", row.lost()) };
                let [low, high] = [row.rates[0], row.rates[row.rates.len() - 1]].map(millions);
                format!(" {} M ({low} to {high}{lost}) |", millions(row.median()))
            });
            println!("| {} |{}", first.label, cells.collect::<String>());
        }
    }

    /// Prints an object for each system and size.
    pub fn print_json(&self) {
        for row in &self.rows {
            let (min, max) = (row.rates[0], row.rates[row.rates.len() - 1]);
            println!(
                "{}",
                json!({
                    "system": row.label, "size": row.size, "per_s": { "median": row.median(), "min": min, "max": max },
                    "sent": row.sent, "lost": row.lost(),
                })
            );
        }
    }
}
