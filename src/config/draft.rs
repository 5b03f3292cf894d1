//! A configuration under construction: it reads texts and overrides, and collects every error with its position.

use super::document::{self, Node, SourceSpan, YamlEntry, YamlItem};
use super::error::{ConfigError, ConfigErrorKind, ConfigErrors, Excerpt, ValueSource};
use super::host_defaults::HostDefaults;
use super::keys::{Config, KEYS, Key, SECRET_KEYS, find_key, suggest_key};
use super::overrides::Override;
use super::spelling::nearest;
use super::value_error::ValueError;
use std::sync::Arc;

/// The one section of the file.
const SECTION: &str = "parameters";

/// A configuration under construction.
pub(super) struct Draft {
    defaults: HostDefaults,
    pub config: Config,
    /// Excerpt of each value in the file, in the order of `KEYS`.
    pub excerpts: Vec<Option<Excerpt>>,
    /// Keys whose value was refused; no further errors are reported about them.
    pub refused: Vec<bool>,
    pub errors: Vec<ConfigError>,
}

impl Draft {
    pub(super) fn new(defaults: HostDefaults) -> Draft {
        let config = Config::defaults(&defaults);
        Draft {
            defaults,
            config,
            excerpts: vec![None; KEYS.len()],
            refused: vec![false; KEYS.len()],
            errors: Vec::new(),
        }
    }

    pub(super) fn read_bytes(&mut self, name: &str, bytes: Vec<u8>) {
        if document::FILE_BYTES_MAX < bytes.len() as u64 {
            return self.fail_file(name, ConfigErrorKind::TooLarge { max: document::FILE_BYTES_MAX }, None);
        }
        match String::from_utf8(bytes) {
            Ok(text) => self.read_text(name, &text),
            Err(error) => {
                let offset = error.utf8_error().valid_up_to();
                self.fail_file(name, ConfigErrorKind::Binary { offset }, Some("is this the right file?".into()));
            }
        }
    }

    pub(super) fn read_text(&mut self, name: &str, text: &str) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        if let Some(offset) = text.find(control) {
            return self.fail_file(name, ConfigErrorKind::Binary { offset }, Some("is this the right file?".into()));
        }
        let file = File { name: name.into(), text };
        match document::parse(text) {
            Ok(Node::Nothing) => {
                let suggestion = format!("write '{SECTION}:' and keys below it; omit the file for the defaults");
                self.fail_file(name, ConfigErrorKind::Empty, Some(suggestion));
            }
            Ok(Node::Map(entries)) => self.read_sections(&file, entries),
            Ok(_) => self.fail_file(name, ConfigErrorKind::NotAMap, Some(format!("begin with '{SECTION}:'"))),
            Err(broken) => match broken.span {
                Some(span) => self.errors.push(file.error(span, "", ConfigErrorKind::Broken(broken.reason), None)),
                None => self.fail_file(name, ConfigErrorKind::Broken(broken.reason), None),
            },
        }
    }

    fn read_sections(&mut self, file: &File<'_>, entries: Vec<YamlEntry>) {
        let mut first = None;
        for entry in entries {
            let span = entry.key_span;
            if entry.key != SECTION {
                let key = find_key(&entry.key);
                let (name, reason, suggestion) = match key {
                    Some(index) => {
                        let below = format!("write it below '{SECTION}:', two spaces further in");
                        (KEYS[index].name, ConfigErrorKind::Misplaced, Some(below))
                    }
                    None => {
                        let near = nearest(&entry.key, [SECTION].into_iter());
                        (
                            entry.key.as_str(),
                            ConfigErrorKind::UnknownKey,
                            Some(near.map_or(format!("the only section is '{SECTION}:'"), |near| {
                                format!("did you mean {near}?")
                            })),
                        )
                    }
                };
                self.errors.push(file.error(span, name, reason, suggestion));
                continue;
            }
            if let Some(first) = first {
                self.errors.push(file.error(
                    span,
                    SECTION,
                    ConfigErrorKind::Duplicate { first },
                    Some("merge the two".into()),
                ));
            }
            first = first.or(Some(span.line));
            match entry.value {
                Node::Map(entries) => self.read_keys(file, entries),
                Node::Nothing => {}
                _ => self.errors.push(file.error(entry.value_span, SECTION, ConfigErrorKind::NotAMap, None)),
            }
        }
    }

    fn read_keys(&mut self, file: &File<'_>, entries: Vec<YamlEntry>) {
        for entry in entries {
            let Some(index) = find_key(&entry.key) else {
                let suggestion = suggest_key(&entry.key);
                self.errors.push(file.error(entry.key_span, &entry.key, ConfigErrorKind::UnknownKey, suggestion));
                continue;
            };
            let key = &KEYS[index];
            if let ValueSource::File { line: first, .. } = self.config.sources[index] {
                let suggestion = Some("remove one of the two".to_owned());
                self.errors.push(file.error(
                    entry.key_span,
                    key.name,
                    ConfigErrorKind::Duplicate { first },
                    suggestion,
                ));
                continue;
            }
            let at = entry.value_span;
            self.config.sources[index] = file.source(entry.key_span.line, at.column);
            self.excerpts[index] = Some(file.excerpt(at));
            let refused = match entry.value {
                Node::Text(text) => match self.put(index, &text) {
                    Ok(()) => continue,
                    Err(error) => value_error(key, &text, error),
                },
                Node::Nothing => {
                    (ConfigErrorKind::Value { text: String::new(), error: ValueError::Empty }, Some(missing(key)))
                }
                Node::List(items) if (key.is_list)() => {
                    self.read_list(file, index, items, at);
                    continue;
                }
                Node::List(_) => (ConfigErrorKind::List, Some(missing(key))),
                Node::Map(_) => (ConfigErrorKind::Map, Some(missing(key))),
            };
            self.refused[index] = true;
            self.errors.push(file.error(at, key.name, refused.0, refused.1));
        }
    }

    /// Reads the items of a list, each a value; together they are one text with `;` between them.
    fn read_list(&mut self, file: &File<'_>, index: usize, items: Vec<YamlItem>, at: SourceSpan) {
        let key = &KEYS[index];
        let (mut texts, mut spans) = (Vec::new(), Vec::new());
        for item in items {
            let refused = match item.value {
                Node::Text(text) => match self.put(index, &text) {
                    Ok(()) => {
                        texts.push(text);
                        spans.push(item.span);
                        continue;
                    }
                    Err(error) => value_error(key, &text, error),
                },
                Node::Nothing => {
                    (ConfigErrorKind::Value { text: String::new(), error: ValueError::Empty }, Some(item_of(key)))
                }
                Node::List(_) => (ConfigErrorKind::List, Some(item_of(key))),
                Node::Map(_) => (ConfigErrorKind::Map, Some(item_of(key))),
            };
            self.refused[index] = true;
            self.errors.push(file.error(item.span, key.name, refused.0, refused.1));
        }
        let joined = |texts: &[String]| if texts.is_empty() { key.default.to_owned() } else { texts.join(" ; ") };
        let Err(error) = self.put(index, &joined(&texts)) else { return };
        // Each item is valid alone; this search finds the first one that conflicts with those before it.
        let counts: Vec<usize> = (1..texts.len()).collect();
        let wrong = counts.partition_point(|count| self.put(index, &joined(&texts[..*count])).is_ok());
        let (reason, suggestion) = value_error(key, &joined(&texts[wrong..]), error);
        self.errors.push(file.error(spans.get(wrong).copied().unwrap_or(at), key.name, reason, suggestion));
    }

    pub(super) fn read_override(&mut self, over: &Override) {
        let error = |key: &str, reason, suggestion| ConfigError {
            source: over.source.clone(),
            key: key.to_owned(),
            reason,
            suggestion,
            excerpt: None,
        };
        let Some(index) = find_key(&over.key) else {
            return self.errors.push(error(&over.key, ConfigErrorKind::UnknownKey, suggest_key(&over.key)));
        };
        self.config.sources[index] = over.source.clone();
        self.excerpts[index] = None;
        self.refused[index] = false;
        if let Err(refused) = self.put(index, &over.value) {
            let (reason, suggestion) = value_error(&KEYS[index], &over.value, refused);
            self.refused[index] = true;
            self.errors.push(error(KEYS[index].name, reason, suggestion));
        }
    }

    fn put(&mut self, index: usize, text: &str) -> Result<(), ValueError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ValueError::Empty);
        }
        if text.contains(char::REPLACEMENT_CHARACTER) {
            return Err(ValueError::Encoding);
        }
        (KEYS[index].put)(&mut self.config, text, &self.defaults)
    }

    pub(super) fn fail_file(&mut self, name: &str, reason: ConfigErrorKind, suggestion: Option<String>) {
        let source = ValueSource::File { name: name.into(), line: 0, column: 0 };
        self.errors.push(ConfigError { source, key: String::new(), reason, suggestion, excerpt: None });
    }

    pub(super) fn finish(mut self) -> Result<Config, ConfigErrors> {
        self.check();
        if self.errors.is_empty() { Ok(self.config) } else { Err(ConfigErrors(self.errors)) }
    }
}

fn value_error(key: &Key, text: &str, error: ValueError) -> (ConfigErrorKind, Option<String>) {
    let suggestion = match error {
        ValueError::Empty => missing(key),
        _ => error.suggestion(text.trim()).unwrap_or_else(|| format!("allowed: {}", (key.range)())),
    };
    // A text that is no valid account may contain most of one, with its secret.
    let text = if SECRET_KEYS.contains(&key.name) && !text.trim().is_empty() { "…" } else { text };
    (ConfigErrorKind::Value { text: text.to_owned(), error }, Some(suggestion))
}

fn missing(key: &Key) -> String {
    format!("write {}: {}", key.name, key.example)
}

fn item_of(key: &Key) -> String {
    format!("write - {}", key.example)
}

/// Text that contains the entries.
struct File<'a> {
    name: Arc<str>,
    text: &'a str,
}

impl File<'_> {
    fn source(&self, line: usize, column: usize) -> ValueSource {
        ValueSource::File { name: self.name.clone(), line, column }
    }

    fn excerpt(&self, at: SourceSpan) -> Excerpt {
        let line = self.text.lines().nth(at.line.saturating_sub(1)).unwrap_or_default();
        Excerpt::new(line, at.column.saturating_sub(1), at.width)
    }

    fn error(&self, at: SourceSpan, key: &str, reason: ConfigErrorKind, suggestion: Option<String>) -> ConfigError {
        // The line contains the secret.
        let excerpt = (!SECRET_KEYS.contains(&key)).then(|| self.excerpt(at));
        ConfigError { source: self.source(at.line, at.column), key: key.to_owned(), reason, suggestion, excerpt }
    }
}
