//! The contract of a format: how the value of a key is read, shown and bounded.

use super::host_defaults::HostDefaults;
use super::value_error::ValueError;

/// Returns the words of each part of a list that is one text: a lone `;` separates two parts.
pub(super) fn split_list(text: &str) -> Vec<Vec<&str>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.split(|word| *word == ";").map(<[&str]>::to_vec).collect()
}

/// One way of reading, showing and bounding values.
pub(super) trait ValueFormat {
    /// Type of the parsed value.
    type Value;
    /// Reads a value; `text` has no white space around it.
    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<Self::Value, ValueError>;
    /// Returns the value as text that `parse` reads back.
    fn show(&self, value: &Self::Value) -> String;
    /// Returns the allowed values, for the documentation and `config show`.
    fn range(&self) -> String;
    /// Returns whether the file may contain a list of texts, each of which is a value too.
    fn is_list(&self) -> bool {
        false
    }
}
