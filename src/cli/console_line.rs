//! Splits a console line into words as a shell does: quotes, backslashes, comments; nothing is expanded.

/// Reason why a line cannot be split into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineError {
    /// A quote that does not end; holds the quote.
    OpenQuote(char),
    /// A backslash at the end.
    OpenEscape,
}

impl std::fmt::Display for LineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LineError::OpenQuote(quote) => write!(f, "a {quote} is not closed"),
            LineError::OpenEscape => write!(f, "there is nothing after the last backslash"),
        }
    }
}

/// Splits a line into words. `#` at the start of a word begins a comment.
///
/// # Errors
/// The line ends within a quote or after a backslash.
pub fn split_words(line: &str) -> Result<Vec<String>, LineError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => match chars.next() {
                Some(c) => word.get_or_insert_default().push(c),
                None => return Err(LineError::OpenEscape),
            },
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    match quote {
        Some(quote) => Err(LineError::OpenQuote(quote)),
        None => {
            words.extend(word);
            Ok(words)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_in_a_shell() {
        check("", &[]);
        check("  sho   los  ", &["sho", "los"]);
        check("pub a.b 'hi there' \"and \\\"you\\\"\"", &["pub", "a.b", "hi there", "and \"you\""]);
        check("sub demo.\\> '' a'b'c", &["sub", "demo.>", "", "abc"]);
        check("show loss # what was lost", &["show", "loss"]);
        check("pub a.b #1 x#2", &["pub", "a.b"]);
        check("pub a.b x#2", &["pub", "a.b", "x#2"]);
        check("'single \\ stays'", &["single \\ stays"]);
        assert_eq!(split_words("pub 'a"), Err(LineError::OpenQuote('\'')));
        assert_eq!(split_words("pub a\\"), Err(LineError::OpenEscape));
    }

    fn check(line: &str, expected: &[&str]) {
        assert_eq!(split_words(line).unwrap(), expected, "{line:?}");
    }
}
