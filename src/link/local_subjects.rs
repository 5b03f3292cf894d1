//! Subjects that never cross.

use crate::subject::Subject;

/// Returns whether a subject never crosses: it begins with `_`, as those of this system, or with `$`, as those by which
/// clients of the cluster command its servers.
pub fn stays_local(subject: &Subject) -> bool {
    matches!(subject.as_bytes().first(), Some(b'_' | b'$'))
}
