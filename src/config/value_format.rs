//! The contract of a format: how the value of a key is read, shown and bounded.

use super::host_defaults::HostDefaults;
use super::value_error::ValueError;

/// Returns the words of each part of a list that is one text: a lone `;` separates two parts.
///
/// # Errors
/// Another word contains a `;`, which would join two parts. The word behind one of `before_secret` is exempt: a password
/// may contain any character.
pub(super) fn split_list<'a>(text: &'a str, before_secret: &[&str]) -> Result<Vec<Vec<&'a str>>, ValueError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_joined = |index: usize| {
        let is_secret = index.checked_sub(1).is_some_and(|before| before_secret.contains(&words[before]));
        words[index] != ";" && words[index].contains(';') && !is_secret
    };
    if (0..words.len()).any(is_joined) {
        return Err(ValueError::JoinedParts);
    }
    Ok(words.split(|word| *word == ";").map(<[&str]>::to_vec).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_without_spaces_between_are_refused() {
        assert_eq!(split_list("a.> ; b.*  x;y", &["x"]), Err(ValueError::JoinedParts));
        assert_eq!(split_list("a.> ; b.* c", &[]), Ok(vec![vec!["a.>"], vec!["b.*", "c"]]));
        for joined in ["a.>;b.>", "a.> ;b.>", "a.>; b.>", ";;", "a ; ;b"] {
            assert_eq!(split_list(joined, &[]), Err(ValueError::JoinedParts), "{joined}");
        }
        let secret = "user a password x;y ; token ;z";
        let parts = split_list(secret, &["password", "token"]);
        assert_eq!(parts, Ok(vec![vec!["user", "a", "password", "x;y"], vec!["token", ";z"]]));
        assert_eq!(split_list(secret, &["password"]), Err(ValueError::JoinedParts));
    }
}
