//! Names of sites.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The configured name of a site: 1 to 32 of `A-Z a-z 0-9 _ -`. It is a part of subjects at the cluster, so it has no
/// dot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteName(Arc<str>);

impl SiteName {
    /// Maximum length of a name in bytes.
    pub const BYTES_MAX: usize = 32;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Reason for which a text is not the name of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SiteNameError {
    /// The text is empty.
    Empty,
    /// The text is longer than [`SiteName::BYTES_MAX`].
    TooLong,
    /// The text has a character outside `A-Z a-z 0-9 _ -`.
    Character(char),
}

impl fmt::Display for SiteNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SiteNameError::Empty => write!(f, "the name of a site must not be empty"),
            SiteNameError::TooLong => write!(f, "the name of a site has at most {} characters", SiteName::BYTES_MAX),
            SiteNameError::Character(c) => {
                write!(f, "the name of a site has only letters, digits, '_' and '-', not {c:?}")
            }
        }
    }
}

impl std::error::Error for SiteNameError {}

impl FromStr for SiteName {
    type Err = SiteNameError;

    fn from_str(text: &str) -> Result<SiteName, SiteNameError> {
        if text.is_empty() {
            return Err(SiteNameError::Empty);
        }
        if SiteName::BYTES_MAX < text.len() {
            return Err(SiteNameError::TooLong);
        }
        match text.chars().find(|c| !(c.is_ascii_alphanumeric() || "_-".contains(*c))) {
            Some(c) => Err(SiteNameError::Character(c)),
            None => Ok(SiteName(text.into())),
        }
    }
}

impl fmt::Display for SiteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for SiteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
