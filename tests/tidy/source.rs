//! Rust text prepared for the checks: comments and literals blanked out, tests cut off.

use std::collections::BTreeMap;

/// Returns `text` with every comment and every character of a string or character literal replaced by a space. Line
/// breaks remain.
pub fn code(text: &str) -> String {
    blanked(text, true)
}

/// Blanks comments, and with `blanks_literals` also literals. The result has as many characters as `text`.
fn blanked(text: &str, blanks_literals: bool) -> String {
    let mut rest = text;
    let mut out = String::with_capacity(text.len());
    while let Some(first) = rest.chars().next() {
        let comment = comment_bytes(rest);
        let bytes = comment.or_else(|| literal_bytes(rest, out.chars().next_back()));
        match bytes {
            Some(bytes) => {
                let is_blanked = blanks_literals || comment.is_some();
                out.extend(rest[..bytes].chars().map(|c| if c == '\n' || !is_blanked { c } else { ' ' }));
                rest = &rest[bytes..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

/// Returns the length of the comment that `text` begins with.
fn comment_bytes(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let mut depth = 0usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    Some(at)
}

/// Returns the length of the string or character literal that `text` begins with; `before` is the character before
/// it.
fn literal_bytes(text: &str, before: Option<char>) -> Option<usize> {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let prefix = ["br", "cr", "r", "b", "c", ""].into_iter().find(|p| {
        let after = text.strip_prefix(p).unwrap_or_default().trim_start_matches('#');
        after.starts_with('"') && (p.ends_with('r') || text[p.len()..].starts_with('"'))
    });
    if let Some(prefix) = prefix.filter(|prefix| prefix.is_empty() || !in_word) {
        let body = &text[prefix.len()..];
        if prefix.ends_with('r') {
            let hashes = body.len() - body.trim_start_matches('#').len();
            let end = format!("\"{}", "#".repeat(hashes));
            let start = prefix.len() + hashes + 1;
            return Some(text[start..].find(&end).map_or(text.len(), |at| start + at + end.len()));
        }
        return Some(prefix.len() + quoted_bytes(body, '"'));
    }
    let body = text.strip_prefix('\'')?;
    let mut chars = body.chars();
    // A lifetime has no quote after its first letter.
    match (chars.next()?, chars.next()) {
        ('\\', _) => Some(quoted_bytes(text, '\'')),
        (c, Some('\'')) => Some(c.len_utf8() + 2),
        _ => None,
    }
}

/// Returns the length of a literal with escapes that begins with `quote`.
fn quoted_bytes(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Returns blanked code without the items marked `#[cfg(test)]`; line breaks remain.
pub fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        let end = at + item_bytes(&rest[at..]);
        out.push_str(&rest[..at]);
        out.extend(rest[at..end].chars().filter(|c| *c == '\n'));
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// Returns the length of the item that `code` begins with: to its semicolon or closing brace.
fn item_bytes(code: &str) -> usize {
    let mut depth = 0i32;
    let mut nested = 0i32;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => nested += 1,
            ')' | ']' => nested -= 1,
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            ';' if depth == 0 && nested == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// A function in blanked code.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of `fn`, from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub lines: usize,
    /// True if the pattern of a parameter is a tuple.
    pub has_tuple_parameter: bool,
}

/// Returns the functions with a body.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let item = &code[at..at + item_bytes(&code[at..])];
        if !name.is_empty() && item.ends_with('}') {
            let (line, lines) = (code[..at].lines().count().max(1), item.lines().count());
            found.push(Function { name, line, lines, has_tuple_parameter: has_tuple_parameter(item) });
        }
    }
    found
}

/// Returns whether the pattern of a parameter of a blanked function is a tuple.
fn has_tuple_parameter(function: &str) -> bool {
    let is_open = |c: char| matches!(c, '(' | '[' | '{' | '<');
    let mut depth = 0i32;
    // True inside the list of the parameters, and before the first word of one.
    let (mut is_inside, mut is_start) = (false, false);
    let mut before = ' ';
    for c in function.chars() {
        let is_arrow = c == '>' && matches!(before, '-' | '=');
        before = c;
        if is_start && c == '(' {
            return true;
        }
        is_start &= c.is_whitespace();
        if is_open(c) {
            is_start |= depth == 0 && c == '(';
            is_inside |= is_start;
            depth += 1;
        } else if matches!(c, ')' | ']' | '}' | '>') && !is_arrow {
            depth -= 1;
            if is_inside && depth == 0 {
                return false;
            }
        } else if c == ',' && depth == 1 && is_inside {
            is_start = true;
        }
    }
    false
}

/// Returns the functions of a text by name, each from `fn` to its closing brace, with its literals and without its
/// comments. Functions of the same name are concatenated.
pub fn bodies(text: &str) -> BTreeMap<String, String> {
    let code = code(text);
    let uncommented: Vec<char> = blanked(text, false).chars().collect();
    let mut bodies: BTreeMap<String, String> = BTreeMap::new();
    let (mut counted, mut start) = (0, 0);
    for (at, _) in code.match_indices("fn ") {
        start += code[counted..at].chars().count();
        counted = at;
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let item = &code[at..at + item_bytes(&code[at..])];
        let is_in_word = code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        if !name.is_empty() && item.ends_with('}') && !is_in_word {
            bodies.entry(name).or_default().extend(&uncommented[start..start + item.chars().count()]);
        }
    }
    bodies
}

/// A test function with the comments and attributes above it.
#[derive(Debug, PartialEq, Eq)]
pub struct Test {
    /// Its name.
    pub name: String,
    /// The lines from the first comment or attribute to `fn`, from 0.
    pub head: std::ops::Range<usize>,
}

/// Returns the functions with the attribute `#[test]`.
pub fn tests(text: &str) -> Vec<Test> {
    let raw: Vec<&str> = text.lines().map(str::trim).collect();
    let blanked = code(text);
    let is_head = |line: &str| line.starts_with("//") || line.starts_with("#[");
    let mut found = Vec::new();
    for (at, _) in blanked.lines().enumerate().filter(|(_, line)| line.trim() == "#[test]") {
        let above = raw[..at].iter().rev().take_while(|line| is_head(line)).count();
        let below = raw[at..].iter().take_while(|line| is_head(line)).count();
        let signature = raw.get(at + below).and_then(|line| line.split("fn ").nth(1));
        let name = signature.and_then(|rest| rest.split('(').next()).unwrap_or_default().to_owned();
        found.push(Test { name, head: at - above..at + below });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        let check = |text: &str, expected: &str| {
            let expected: String = expected.replace('~', " ");
            assert_eq!(code(text), expected, "{text}");
        };
        check("a // b\nc", "a ~~~~\nc");
        check("a /* b /* c */ d\n*/ e", "a ~~~~~~~~~~~~~~\n~~ e");
        check(r#"f("a\"b // c")"#, "f(~~~~~~~~~~~)");
        check(r###"f(r#"a"b"#, br"\")"###, "f(~~~~~~~~, ~~~~~)");
        check("f('\\'', '\"', 'a', b'x')", "f(~~~~, ~~~, ~~~, b~~~)");
        check("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)");
        check("var\"x\"", "var~~~");
        check("'ü'", "~~~");
        check("\"open", "~~~~~");
    }

    #[test]
    fn tests_are_cut_off() {
        let check = |text: &str, expected: &str| assert_eq!(without_tests(text), expected, "{text}");
        check("a\n#[cfg(test)]\nmod tests {\n  {}\n}\nb", "a\n\n\n\n\nb");
        check("#[cfg(test)]\nmod tests;\nb", "\n\nb");
        check("#[cfg(test)]\nconst A: [u8; 2] = [1; 2];\nb", "\n\nb");
        check("b", "b");
    }

    #[test]
    fn test_has_its_comments_and_attributes() {
        let text = "/// A.\nfn helper() {}\n\n/// B.\n#[cfg(unix)]\n#[test]\n// C\nfn b() {}\n#[test]\nfn c() {}\n// #[test]\nfn d() {}";
        let test = |name: &str, head| Test { name: name.into(), head };
        assert_eq!(tests(text), [test("b", 3..7), test("c", 8..9)]);
    }

    #[test]
    fn bodies_have_literals_and_no_comments() {
        let text = "/// ü a.\nfn a() { \"ü x\" /* y */ }\nfn b();\nimpl C {\n    fn a() { z }\n}\n";
        let bodies: Vec<_> = bodies(text).into_iter().collect();
        assert_eq!(bodies, [("a".to_owned(), "fn a() { \"ü x\"         }fn a() { z }".to_owned())]);
    }

    #[test]
    fn functions_are_measured() {
        let text = "fn a() {\n}\ntrait T { fn b(&self); }\nimpl X {\n  pub fn c<F: Fn(u8) -> u8>(\n  ) {\n    if x { y }\n  }\n}\nlet g = often ();";
        let function =
            |name: &str, line, lines| Function { name: name.into(), line, lines, has_tuple_parameter: false };
        assert_eq!(functions(text), [function("a", 1, 2), function("c", 5, 4)]);
    }
}
