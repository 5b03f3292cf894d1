//! Names of objects and of workers.

use std::fmt;
use std::sync::Arc;

/// Maximum length of a name in bytes, so that any store can use it in a key.
const NAME_BYTES_MAX: usize = 255;

/// The reason why a text is not a valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectNameError {
    /// The name is empty.
    Empty,
    /// The name is longer than 255 bytes.
    TooLong {
        /// Length of the text in bytes.
        bytes: usize,
    },
    /// The name has a control character.
    Control,
}

impl fmt::Display for ObjectNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectNameError::Empty => write!(f, "a name has at least one character"),
            ObjectNameError::TooLong { bytes } => write!(f, "a name has at most {NAME_BYTES_MAX} bytes, not {bytes}"),
            ObjectNameError::Control => write!(f, "a name has no control characters"),
        }
    }
}

impl std::error::Error for ObjectNameError {}

fn validate(text: &str) -> Result<Arc<str>, ObjectNameError> {
    if text.is_empty() {
        return Err(ObjectNameError::Empty);
    }
    if NAME_BYTES_MAX < text.len() {
        return Err(ObjectNameError::TooLong { bytes: text.len() });
    }
    if text.chars().any(char::is_control) {
        return Err(ObjectNameError::Control);
    }
    Ok(Arc::from(text))
}

/// The main key of an object whose events have one order, `OBJ` in seed 001: `work:1`. 1 to 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object(Arc<str>);

impl Object {
    /// Creates the name of an object.
    ///
    /// # Errors
    /// Returns the reason why the text is not a valid name.
    pub fn new(text: &str) -> Result<Object, ObjectNameError> {
        validate(text).map(Object)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name of a worker, `W` in seed 001. The operator assigns it, and it stays the same when the worker is restarted. 1 to
/// 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerName(Arc<str>);

impl WorkerName {
    /// Creates the name of a worker.
    ///
    /// # Errors
    /// Returns the reason why the text is not a valid name.
    pub fn new(text: &str) -> Result<WorkerName, ObjectNameError> {
        validate(text).map(WorkerName)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_limits() {
        let long = "x".repeat(255);
        for text in ["work:1", "ä b", &long] {
            assert_eq!(Object::new(text).unwrap().as_str(), text);
            assert_eq!(WorkerName::new(text).unwrap().as_str(), text);
        }
        assert_eq!(Object::new(""), Err(ObjectNameError::Empty));
        assert_eq!(WorkerName::new(&"x".repeat(256)), Err(ObjectNameError::TooLong { bytes: 256 }));
        assert_eq!(Object::new("a\nb"), Err(ObjectNameError::Control));
    }
}
