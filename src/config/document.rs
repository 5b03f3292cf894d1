//! Parses YAML text into a tree of entries with their source positions. The only file that uses the YAML crate.
//!
//! Values stay text as it was written, so `1.0` is a valid peer name and a size may have its unit.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{DuplicateKeyPolicy, Location, MergeKeyPolicy, NonFiniteFloatPolicy, Spanned};
use std::fmt;

/// Size limit of a file, in bytes: a full configuration with comments has a few thousand.
pub(super) const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum number of nodes (keys, values, lists, maps) of a document, aliases expanded: ten times the number that all
/// keys together need.
const NODES_MAX: usize = 1000;

/// Position in the file; line and column count from 1, columns and width in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceSpan {
    pub line: usize,
    pub column: usize,
    pub width: usize,
}

/// A key with its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct YamlEntry {
    pub key: String,
    pub key_span: SourceSpan,
    pub value: Node,
    pub value_span: SourceSpan,
}

/// An item of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct YamlItem {
    pub value: Node,
    pub span: SourceSpan,
}

/// A value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A scalar, without quotes.
    Text(String),
    /// Nothing after the colon, or `~`, or `null`.
    Nothing,
    /// A list.
    List(Vec<YamlItem>),
    /// A mapping.
    Map(Vec<YamlEntry>),
}

/// Reason why a text is no document.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct YamlError {
    /// Text of the YAML crate, or of this module.
    pub reason: String,
    /// Position of the error, if it is known.
    pub span: Option<SourceSpan>,
}

/// Reads the one document that `text` holds.
///
/// # Errors
/// Returns the first position at which the text is no YAML, has a key that is no text, or has too many nodes.
pub(super) fn parse(text: &str) -> Result<Node, YamlError> {
    let options = serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_documents: 1,
            max_nodes: NODES_MAX,
            max_events: 4 * NODES_MAX,
            max_aliases: NODES_MAX,
            max_anchors: NODES_MAX,
            max_depth: 16,
        },
        alias_limits: serde_yaml::alias_limits! { max_total_replayed_events: NODES_MAX, max_replay_stack_depth: 8 },
        // With "last wins" the visitor gets every pair, except pairs with whole numbers as keys, which are no valid
        // keys. The reader of the keys detects duplicates.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    };
    let root: Spanned<RawNode> =
        serde_yaml::from_str_with_options(text, options).map_err(|error| yaml_error(&error))?;
    resolve(root.value, span(root.defined), text)
}

fn yaml_error(error: &serde_yaml::Error) -> YamlError {
    use serde_yaml::Error;
    use serde_yaml::budget::BudgetBreach;
    let location = error.location();
    let mut cause = error.without_snippet();
    while let Error::AliasError { error, .. } = cause {
        cause = error.without_snippet();
    }
    let reason = match cause {
        Error::MultipleDocuments { .. } | Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => {
            "a second document begins; only one is allowed".to_owned()
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. } => {
            format!("the document holds, or its aliases expand to, more than {NODES_MAX} keys and values")
        }
        other => {
            let text = other.to_string();
            let suffix = other.location().map(|l| format!(" at line {}, column {}", l.line(), l.column()));
            format!("not YAML: {}", text.strip_suffix(&suffix.unwrap_or_default()).unwrap_or(&text))
        }
    };
    YamlError { reason, span: location.filter(|l| l.line() != 0).map(span) }
}

fn span(location: Location) -> SourceSpan {
    let small = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    SourceSpan {
        line: small(location.line()),
        column: small(location.column()),
        width: small(location.span().len()).max(1),
    }
}

/// A node as the crate sees it: a scalar that looks like a number or a truth value has lost its spelling.
enum RawNode {
    Text(String),
    Plain,
    Nothing,
    List(Vec<Spanned<RawNode>>),
    Map(Vec<(Spanned<RawNode>, Spanned<RawNode>)>),
}

/// Restores the spelling of plain scalars and the text of keys.
fn resolve(raw: RawNode, at: SourceSpan, source: &str) -> Result<Node, YamlError> {
    Ok(match raw {
        RawNode::Text(text) => Node::Text(text),
        RawNode::Nothing => Node::Nothing,
        RawNode::List(items) => {
            let item = |item: Spanned<RawNode>| {
                Ok(YamlItem { value: resolve(item.value, span(item.defined), source)?, span: span(item.referenced) })
            };
            Node::List(items.into_iter().map(item).collect::<Result<_, YamlError>>()?)
        }
        RawNode::Plain => Node::Text(spelling(at, source)),
        RawNode::Map(pairs) => {
            let mut entries = Vec::with_capacity(pairs.len());
            for (key, value) in pairs {
                let (key_at, key_span) = (span(key.defined), span(key.referenced));
                let Node::Text(key) = resolve(key.value, key_at, source)? else {
                    return Err(YamlError { reason: "a key must be a word".into(), span: Some(key_span) });
                };
                let (value_at, value_span) = (span(value.defined), span(value.referenced));
                entries.push(YamlEntry { key, key_span, value: resolve(value.value, value_at, source)?, value_span });
            }
            Node::Map(entries)
        }
    })
}

/// Returns the characters at a position; a plain number or truth value occupies one line.
fn spelling(at: SourceSpan, source: &str) -> String {
    let line = source.lines().nth(at.line.saturating_sub(1)).unwrap_or_default();
    let text: String = line.chars().skip(at.column.saturating_sub(1)).take(at.width).collect();
    text.trim().to_owned()
}

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawNode, D::Error> {
        struct RawVisitor;

        impl<'de> Visitor<'de> for RawVisitor {
            type Value = RawNode;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_bool<E>(self, _: bool) -> Result<RawNode, E> {
                Ok(RawNode::Plain)
            }

            fn visit_i64<E>(self, _: i64) -> Result<RawNode, E> {
                Ok(RawNode::Plain)
            }

            fn visit_u64<E>(self, _: u64) -> Result<RawNode, E> {
                Ok(RawNode::Plain)
            }

            fn visit_i128<E>(self, _: i128) -> Result<RawNode, E> {
                Ok(RawNode::Plain)
            }

            fn visit_u128<E>(self, _: u128) -> Result<RawNode, E> {
                Ok(RawNode::Plain)
            }

            fn visit_f64<E>(self, _: f64) -> Result<RawNode, E> {
                Ok(RawNode::Plain)
            }

            fn visit_str<E>(self, text: &str) -> Result<RawNode, E> {
                Ok(RawNode::Text(text.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<RawNode, E> {
                Ok(RawNode::Nothing)
            }

            fn visit_none<E>(self) -> Result<RawNode, E> {
                Ok(RawNode::Nothing)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawNode, D::Error> {
                RawNode::deserialize(deserializer)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawNode, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(RawNode::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawNode, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(RawNode::Map(pairs))
            }
        }

        deserializer.deserialize_any(RawVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<(String, String, (usize, usize, usize))> {
        let Node::Map(entries) = parse(text).unwrap() else { panic!("no map") };
        let value = |node: &Node| match node {
            Node::Text(text) => text.clone(),
            Node::List(items) => format!("list of {}", items.len()),
            other => format!("{other:?}"),
        };
        let at = |span: SourceSpan| (span.line, span.column, span.width);
        entries.iter().map(|entry| (entry.key.clone(), value(&entry.value), at(entry.value_span))).collect()
    }

    #[test]
    fn scalars_keep_their_spelling_and_place() {
        let text = "a: 10 mb\nb: 1.0 # note\nc: \"7 \"\nd:   0x1F\ne: yes\nf: 1e3\ng:\nh: ~\ni: [1, {x: 2}]\nj: .inf\nk: 007\n\
                    l: 99999999999999999999999\nm: |\n  two\n  lines\n";
        let check = [
            ("a", "10 mb", (1, 4, 5)),
            ("b", "1.0", (2, 4, 3)),
            ("c", "7 ", (3, 4, 4)),
            ("d", "0x1F", (4, 6, 4)),
            ("e", "yes", (5, 4, 3)),
            ("f", "1e3", (6, 4, 3)),
            ("g", "Nothing", (7, 2, 1)),
            ("h", "Nothing", (8, 4, 1)),
            ("i", "list of 2", (9, 4, 1)),
            ("j", ".inf", (10, 4, 4)),
            ("k", "007", (11, 4, 3)),
            ("l", "99999999999999999999999", (12, 4, 23)),
        ];
        let got = entries(text);
        for (entry, (key, value, span)) in got.iter().zip(check) {
            assert_eq!((entry.0.as_str(), entry.1.as_str(), entry.2), (key, value, span));
        }
        assert_eq!(got[12].1, "two\nlines\n");
    }

    #[test]
    fn all_pairs_of_a_repeated_key_are_present() {
        let got = entries("a: 1\nb: 2\na: 3\na: 4\n");
        let got: Vec<_> = got.iter().map(|(key, value, _)| format!("{key}{value}")).collect();
        assert_eq!(got, ["a1", "b2", "a3", "a4"]);
    }

    #[test]
    fn aliases_have_the_position_of_their_use() {
        let got = entries("a: &x 10 mb\nb: *x\nc: &y 7500\nd: *y\n");
        assert_eq!((got[1].1.as_str(), got[1].2.0), ("10 mb", 2));
        assert_eq!((got[3].1.as_str(), got[3].2.0), ("7500", 4));
    }
}
