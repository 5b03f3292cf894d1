//! Subjects that never cross.

/// Returns whether a subject never crosses: it begins with `_`, as those of this system, or with `$`, as those by which
/// clients of the cluster command its servers.
pub fn stays_local(subject: &[u8]) -> bool {
    matches!(subject.first(), Some(b'_' | b'$'))
}
