//! Event types of seed 004, the patterns that select them, and the subjects on which their events travel.
//!
//! A type is a list of at least one subtype. A subtype is any text without `?`, `*` and `/`; it may be empty. As text,
//! subtypes are joined by `/`. Every text without `?` and `*` is a type, and no two types have the same text. Events of
//! the type `a/b/c` travel on the subject `a.b.c`. Subtypes are escaped by the rule of [`channel`](super::channel), and
//! a dot in a subtype as `%2E`. The limits of a type are those of its subject. In a pattern, `?` matches exactly one
//! subtype, and a last `*` matches zero or more.

use super::channel::{escape_tokens, is_escaped, put_token, put_unescaped};
use super::{Pattern, Subject, SubjectError};
use bytes::Bytes;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Returns the subject on which events of the type travel. `/` separates the subtypes. `?` and `*` are not refused.
///
/// # Errors
/// The subject of the type is too long or too deep.
pub fn to_subject(event_type: &str) -> Result<Subject, SubjectError> {
    Subject::from_bytes(Bytes::from(escape_tokens(event_type.as_bytes().split(|byte| *byte == b'/'), is_escaped)))
}

/// Returns the text for which [`to_subject`] returns this subject. Returns `None` if no such text exists: the subject
/// encodes bytes that are not UTF-8, or it has a `/`.
pub fn of_subject(subject: &Subject) -> Option<String> {
    let mut out = Vec::with_capacity(subject.as_bytes().len());
    for (index, token) in subject.as_bytes().split(|byte| *byte == b'.').enumerate() {
        if token.contains(&b'/') {
            return None;
        }
        if 0 < index {
            out.push(b'/');
        }
        put_unescaped(&mut out, token, is_escaped);
    }
    String::from_utf8(out).ok()
}

/// A list of subtypes, stored as the subject on which its events travel. Cloning copies a reference only. Types are
/// ordered by their subjects.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Subject);

/// Reason for which a list of subtypes is not an event type, or not a pattern of event types. Subtypes are numbered
/// from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TypeError {
    /// The list is empty.
    Empty,
    /// A subtype holds one of `?`, `*` and `/`.
    Character {
        /// Number of the subtype.
        subtype: usize,
        /// The character.
        character: char,
    },
    /// A subtype of a pattern holds `?` or `*` together with other characters.
    PartialWildcard {
        /// Number of the subtype.
        subtype: usize,
        /// The character.
        character: char,
    },
    /// `*` is not the last subtype of a pattern. Holds the number of the subtype.
    InnerTail(usize),
    /// The subject of the type is too long or too deep.
    Subject(SubjectError),
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypeError::Empty => write!(f, "an event type has at least one subtype"),
            TypeError::Character { subtype, character } => {
                write!(
                    f,
                    "subtype {subtype} holds '{character}': leave out '?', '*' and '/' from the subtypes of an event"
                )
            }
            TypeError::PartialWildcard { subtype, character } => {
                write!(f, "subtype {subtype} holds '{character}' and more: '?' and '*' stand for whole subtypes only")
            }
            TypeError::InnerTail(subtype) => {
                write!(f, "subtype {subtype} is '*', which must be the last: use '?' for a single subtype")
            }
            TypeError::Subject(error) => write!(f, "shorten the event type, its events travel on a subject: {error}"),
        }
    }
}

impl std::error::Error for TypeError {}

impl EventType {
    /// Creates the type with these subtypes.
    ///
    /// # Errors
    /// Returns the reason for which the subtypes are not a type.
    pub fn new<'a>(subtypes: impl IntoIterator<Item = &'a str>) -> Result<EventType, TypeError> {
        let mut text = Vec::new();
        for (index, subtype) in subtypes.into_iter().enumerate() {
            if let Some(character) = find_reserved(subtype) {
                return Err(TypeError::Character { subtype: index + 1, character });
            }
            put_dot(&mut text);
            put_token(&mut text, subtype.as_bytes(), is_escaped);
        }
        if text.is_empty() {
            return Err(TypeError::Empty);
        }
        Subject::from_bytes(text.into()).map(EventType).map_err(TypeError::Subject)
    }

    /// Returns the type whose events travel on the subject, which is not copied. Returns `None` if no such type exists.
    pub fn of_subject(subject: &Subject) -> Option<EventType> {
        let bytes = subject.as_bytes();
        if bytes.iter().any(|byte| matches!(byte, b'?' | b'*' | b'/')) {
            return None;
        }
        let event_type = EventType(subject.clone());
        // A subject with a `%` may encode bytes that no type has, or be a second form of another subject.
        let is_canonical = !bytes.contains(&b'%') || of_subject(subject)?.parse().as_ref() == Ok(&event_type);
        is_canonical.then_some(event_type)
    }

    /// Returns the subject on which events of the type travel.
    pub fn subject(&self) -> &Subject {
        &self.0
    }

    /// Returns the subtypes, in order.
    pub fn subtypes(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.tokens().map(decode_subtype)
    }

    fn tokens(&self) -> impl Iterator<Item = &[u8]> {
        self.0.as_bytes().split(|byte| *byte == b'.')
    }
}

impl FromStr for EventType {
    type Err = TypeError;

    fn from_str(text: &str) -> Result<EventType, TypeError> {
        EventType::new(text.split('/'))
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.subtypes().enumerate().try_for_each(|(index, subtype)| write_subtype(f, index, &subtype))
    }
}

impl fmt::Debug for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// A pattern of event types, as in a request or subscription: `a/?/c` or `a/*`. Cloning copies a reference only.
///
/// It is stored as a pattern of subjects, with `*` for `?` and a last `>`, here for zero or more, for `*`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypePattern(Pattern);

impl TypePattern {
    /// Creates the pattern with these subtypes, of which `?` and a last `*` are wildcards.
    ///
    /// # Errors
    /// Returns the reason for which the subtypes are not a pattern. Its limits are those of a subject, for which `*`
    /// counts as one token of one byte.
    pub fn new<'a>(subtypes: impl IntoIterator<Item = &'a str>) -> Result<TypePattern, TypeError> {
        let mut text = Vec::new();
        let mut has_tail = false;
        for (index, subtype) in subtypes.into_iter().enumerate() {
            if has_tail {
                return Err(TypeError::InnerTail(index));
            }
            put_dot(&mut text);
            match (subtype, find_reserved(subtype)) {
                ("*", _) => {
                    text.push(b'>');
                    has_tail = true;
                }
                ("?", _) => text.push(b'*'),
                (_, None) => put_token(&mut text, subtype.as_bytes(), is_escaped),
                (_, Some('/')) => return Err(TypeError::Character { subtype: index + 1, character: '/' }),
                (_, Some(character)) => return Err(TypeError::PartialWildcard { subtype: index + 1, character }),
            }
        }
        if text.is_empty() {
            return Err(TypeError::Empty);
        }
        Pattern::from_bytes(text.into()).map(TypePattern).map_err(TypeError::Subject)
    }

    /// Returns the pattern that every type matches.
    pub fn all() -> TypePattern {
        "*".parse().expect("a pattern")
    }

    /// Returns the common prefix of the subjects of all matching types: the tokens before the first wildcard.
    pub fn literal_prefix(&self) -> &str {
        let text = self.0.as_str();
        let mut end = 0;
        for token in text.split('.') {
            if matches!(token, "*" | ">") {
                return &text[..end];
            }
            end += token.len() + usize::from(0 < end);
        }
        text
    }

    /// Returns whether the pattern matches the type; at most one comparison for each subtype.
    pub fn matches(&self, event_type: &EventType) -> bool {
        let mut tokens = event_type.tokens();
        for wanted in self.0.tokens() {
            match tokens.next() {
                _ if wanted == b">" => return true,
                Some(token) if wanted == b"*" || wanted == token => {}
                _ => return false,
            }
        }
        tokens.next().is_none()
    }

    /// Returns one or two patterns of subjects. The subject of each matching type matches exactly one of them, and
    /// those of other types match none.
    pub fn subject_patterns(&self) -> impl Iterator<Item = Pattern> + use<> {
        let head = self.0.as_str().strip_suffix(".>").map(|head| head.parse().expect("a part of a pattern"));
        head.into_iter().chain([self.0.clone()])
    }

    /// Returns the equivalent pattern of subjects, whose last `>` matches zero or more tokens, as in
    /// [`Tree::matches_from_zero`](super::tree::Tree::matches_from_zero).
    pub fn from_zero(&self) -> &Pattern {
        &self.0
    }
}

impl FromStr for TypePattern {
    type Err = TypeError;

    fn from_str(text: &str) -> Result<TypePattern, TypeError> {
        TypePattern::new(text.split('/'))
    }
}

impl fmt::Display for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subtypes = self.0.tokens().map(|token| match token {
            b"*" => Cow::Borrowed("?"),
            b">" => Cow::Borrowed("*"),
            token => decode_subtype(token),
        });
        subtypes.enumerate().try_for_each(|(index, subtype)| write_subtype(f, index, &subtype))
    }
}

impl fmt::Debug for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// Returns the first character of the text that no subtype may have.
fn find_reserved(subtype: &str) -> Option<char> {
    subtype.chars().find(|character| matches!(character, '?' | '*' | '/'))
}

/// Appends the separator before a token, unless the token is the first one.
fn put_dot(subject: &mut Vec<u8>) {
    if !subject.is_empty() {
        subject.push(b'.');
    }
}

/// Returns the subtype that a token of a type's subject encodes.
fn decode_subtype(token: &[u8]) -> Cow<'_, str> {
    if !token.contains(&b'%') {
        return Cow::Borrowed(std::str::from_utf8(token).expect("checked on construction"));
    }
    let mut out = Vec::with_capacity(token.len());
    put_unescaped(&mut out, token, is_escaped);
    Cow::Owned(String::from_utf8(out).expect("checked on construction"))
}

/// Writes the subtype with this index, after a separator unless it is the first one.
fn write_subtype(f: &mut fmt::Formatter<'_>, index: usize, subtype: &str) -> fmt::Result {
    if 0 < index {
        f.write_str("/")?;
    }
    f.write_str(subtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all lists of up to `len_max` of these words.
    fn lists<'a>(words: &[&'a str], len_max: u32) -> Vec<Vec<&'a str>> {
        let list = |len: u32, code: usize| (0..len).map(move |n| words[code / words.len().pow(n) % words.len()]);
        (0..=len_max).flat_map(|len| (0..words.len().pow(len)).map(move |code| list(len, code).collect())).collect()
    }

    #[test]
    fn every_type_comes_back() {
        for list in lists(&["a", "/", ".", "%", "2", "E", " ", "ß"], 5) {
            let text = list.concat();
            let subject = to_subject(&text).unwrap();
            assert_eq!(of_subject(&subject).as_ref(), Some(&text), "{subject}");
            let event_type: EventType = text.parse().unwrap();
            assert_eq!((event_type.subject(), &event_type.to_string()), (&subject, &text));
            assert!(event_type.subtypes().eq(text.split('/')), "{text}");
            assert_eq!(EventType::new(text.split('/')), Ok(event_type.clone()));
            assert_eq!(EventType::of_subject(&subject), Some(event_type), "{subject}");
        }
        for subject in ["a/b", "%FF"] {
            assert_eq!(of_subject(&subject.parse().unwrap()), None, "{subject}");
        }
    }

    /// Checks that a subject belongs to a type if, and only if, the type has it.
    #[test]
    fn subjects_that_no_type_has_are_refused() {
        for list in lists(&["a", ".", "%", "2", "A", "0", "E", "F", "?", "*", "/"], 5) {
            let Ok(subject) = list.concat().parse::<Subject>() else { continue };
            let own = of_subject(&subject).and_then(|text| text.parse::<EventType>().ok());
            assert_eq!(EventType::of_subject(&subject), own.filter(|own| *own.subject() == subject), "{subject}");
        }
        for (subject, is_type) in
            [("%2A", false), ("x%2Ay", false), ("%3F", true), ("a%2Eb", true), ("%3E", true), ("a?", false)]
        {
            assert_eq!(EventType::of_subject(&subject.parse().unwrap()).is_some(), is_type, "{subject}");
        }
    }

    #[test]
    fn malformed_types_and_patterns_are_refused() {
        let check = |subtypes: &[&str], event_type: Option<TypeError>, pattern: Option<TypeError>| {
            let list = || subtypes.iter().copied();
            assert_eq!(EventType::new(list()).err(), event_type, "{subtypes:?}");
            assert_eq!(TypePattern::new(list()).err(), pattern, "{subtypes:?}");
        };
        let character = |subtype, character| Some(TypeError::Character { subtype, character });
        let part = |subtype, character| Some(TypeError::PartialWildcard { subtype, character });
        check(&[], Some(TypeError::Empty), Some(TypeError::Empty));
        check(&[""], None, None);
        check(&["a", "", ""], None, None);
        check(&["a", "b/c"], character(2, '/'), character(2, '/'));
        check(&["?"], character(1, '?'), None);
        check(&["a", "*"], character(2, '*'), None);
        check(&["*", "a"], character(1, '*'), Some(TypeError::InnerTail(1)));
        check(&["a", "*", "*"], character(2, '*'), Some(TypeError::InnerTail(2)));
        check(&["a*"], character(1, '*'), part(1, '*'));
        check(&["a", "?b"], character(2, '?'), part(2, '?'));
        check(&["a", "**"], character(2, '*'), part(2, '*'));
        let too_long = Some(TypeError::Subject(SubjectError::TooLong(258)));
        check(&[&" ".repeat(86)], too_long.clone(), too_long);
        let too_deep = Some(TypeError::Subject(SubjectError::TooDeep));
        check(&["a"; 33], too_deep.clone(), too_deep);
    }

    /// Compares pattern and type by a reference implementation that follows the document, list by list.
    fn twin(pattern: &[&str], subtypes: &[&str]) -> bool {
        match (pattern, subtypes) {
            (["*"], _) | ([], []) => true,
            (["?", pattern @ ..], [_, subtypes @ ..]) => twin(pattern, subtypes),
            ([wanted, pattern @ ..], [subtype, subtypes @ ..]) => wanted == subtype && twin(pattern, subtypes),
            _ => false,
        }
    }

    /// Checks all types and patterns of up to four of these words. Exactly one of the patterns of subjects matches when
    /// the pattern does.
    #[test]
    fn patterns_match_as_their_slow_twin_does() {
        let types: Vec<_> = lists(&["a", "b.%", ""], 4)
            .into_iter()
            .filter_map(|list| Some((EventType::new(list.clone()).ok()?, list)))
            .collect();
        let mut count = 0;
        for list in lists(&["a", "b.%", "", "?", "*"], 4) {
            let Ok(pattern) = TypePattern::new(list.clone()) else { continue };
            assert_eq!((pattern.to_string(), pattern.to_string().parse()), (list.join("/"), Ok(pattern.clone())));
            let on_subjects: Vec<Pattern> = pattern.subject_patterns().collect();
            for (event_type, subtypes) in &types {
                let expected = twin(&list, subtypes);
                assert_eq!(pattern.matches(event_type), expected, "{pattern} {event_type}");
                let found = on_subjects.iter().filter(|pattern| pattern.matches(event_type.subject())).count();
                assert_eq!(found, usize::from(expected), "{pattern} {event_type}");
                count += usize::from(expected);
            }
        }
        assert!(1000 < count, "{count} matches");
    }

    #[test]
    fn types_that_match_begin_with_the_literal_prefix() {
        for (pattern, expected) in
            [("a/b", "a.b"), ("a/?", "a"), ("a/*", "a"), ("?/a", ""), ("*", ""), ("/a.b/?/c", "%.a%2Eb")]
        {
            assert_eq!(pattern.parse::<TypePattern>().unwrap().literal_prefix(), expected, "{pattern}");
        }
        assert_eq!(TypePattern::all().to_string(), "*");
    }

    #[test]
    fn a_pattern_is_one_or_two_of_subjects() {
        let check = |pattern: &str, expected: &[&str]| {
            let pattern: TypePattern = pattern.parse().unwrap();
            let found: Vec<String> = pattern.subject_patterns().map(|pattern| pattern.to_string()).collect();
            assert_eq!(found, expected, "{pattern}");
        };
        check("a/b", &["a.b"]);
        check("a/?", &["a.*"]);
        check("a/*", &["a", "a.>"]);
        check("?/*", &["*", "*.>"]);
        check("*", &[">"]);
        check("a.b//>", &["a%2Eb.%.%3E"]);
        let long = "a".repeat(253);
        check(&format!("{long}/*"), &[&long, &format!("{long}.>")]);
        let too_long = TypeError::Subject(SubjectError::TooLong(256));
        assert_eq!(format!("{long}a/*").parse::<TypePattern>(), Err(too_long));
        let too_deep = TypeError::Subject(SubjectError::TooDeep);
        assert_eq!(TypePattern::new([&["a"; 32][..], &["*"]].concat()), Err(too_deep));
    }
}
