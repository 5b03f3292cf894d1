//! Reasons why a file of a realm cannot be used. No text contains anything of a secret.

use crate::security::realm::RevocationListError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Error of a file or of the directory of a realm. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealmFileError {
    /// The file or directory.
    pub path: PathBuf,
    /// The fault.
    pub fault: RealmFileFault,
}

/// Faults of the files of a realm.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RealmFileFault {
    /// This host has no realm yet.
    NoRealm,
    /// This host has a realm already. Holds its name, if that can be read.
    Occupied(Option<String>),
    /// The file is missing, although this host has a realm.
    Missing,
    /// This host is not the authority of its realm.
    NoAuthority,
    /// The path is no regular file, or no directory.
    Kind {
        /// `file` or `directory`.
        expected: &'static str,
    },
    /// The owner is another user than the one who runs this program.
    Owner {
        /// Name of the owner, or the number if it has no name.
        owner: String,
    },
    /// Other users than the owner have access.
    Mode {
        /// The permission bits.
        mode: u32,
        /// The permission bits that it should have.
        wanted: u32,
    },
    /// The file is of another kind. Holds the expected kind.
    Foreign(&'static str),
    /// The file has an unknown version.
    Version {
        /// Version of the file.
        found: u32,
        /// The version that this program supports.
        supported: u32,
    },
    /// The file is empty, or its end is missing.
    Truncated,
    /// The checksum does not match.
    Damaged,
    /// This field is missing or invalid, although the checksum matches.
    Field(&'static str),
    /// The file belongs to another realm.
    OtherRealm {
        /// The realm of the file.
        found: String,
        /// The realm of this host.
        expected: String,
    },
    /// The certificate is for other keys than those of this host.
    OtherKeys,
    /// The list of names is full. Holds its maximum.
    Full(usize),
    /// The revocation list is full. Holds its maximum.
    RevocationsFull(usize),
    /// The revocation list is not that of the authority.
    Revocations(RevocationListError),
    /// The system refuses an operation.
    System {
        /// The operation: `read`, `write`, `make` or `lock`.
        operation: &'static str,
        /// The system's message.
        reason: String,
    },
}

impl RealmFileError {
    pub(super) fn new(path: &Path, fault: RealmFileFault) -> RealmFileError {
        RealmFileError { path: path.to_owned(), fault }
    }

    /// Returns a conversion of the system's errors of an operation.
    pub(super) fn of_system(path: &Path, operation: &'static str) -> impl Fn(io::Error) -> RealmFileError {
        move |error| RealmFileError::new(path, RealmFileFault::System { operation, reason: error.to_string() })
    }
}

impl fmt::Display for RealmFileError {
    /// Formats the problem, and the remedy after `; `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RESTORE: &str = "restore it from a copy, or move the whole directory away and set this host up again (seqcast init, seqcast \
             join)";
        let path = self.path.display();
        match &self.fault {
            RealmFileFault::NoRealm => write!(
                f,
                "this host has no realm in {path}; run 'seqcast init' on the first host, and 'seqcast join -' on each \
                 other one"
            ),
            RealmFileFault::Occupied(realm) => {
                let name = realm.as_ref().map_or_else(String::new, |realm| format!(" '{realm}'"));
                write!(f, "this host has a realm{name} already; to replace it, move {path} away first")
            }
            RealmFileFault::Missing => write!(f, "{path} is missing; {RESTORE}"),
            RealmFileFault::NoAuthority => write!(
                f,
                "this host cannot sign: it has no {path}; run the command on the host where 'seqcast init --mode pki' \
                 made the realm"
            ),
            RealmFileFault::Kind { expected } => write!(f, "{path} is no {expected}; move it away"),
            RealmFileFault::Owner { owner } => write!(
                f,
                "{path} belongs to the user '{owner}'; run the command as that user (sudo -u {owner} seqcast …), or name \
                 another directory with --data-dir"
            ),
            RealmFileFault::Mode { mode, wanted } => write!(
                f,
                "other users have access to {path} (mode {mode:04o}), so its secrets may be known; run: chmod {wanted:o} \
                 {path}; if others may have read it, move the directory away and set the realm up again"
            ),
            RealmFileFault::Foreign(kind) => write!(f, "{path} is no {kind} of seqcast; {RESTORE}"),
            RealmFileFault::Version { found, supported } => write!(
                f,
                "{path} has the version {found}, and this program knows version {supported}; update seqcast on this host"
            ),
            RealmFileFault::Truncated => write!(f, "{path} is truncated; {RESTORE}"),
            RealmFileFault::Damaged => write!(f, "{path} is damaged: its checksum does not match; {RESTORE}"),
            RealmFileFault::Field(field) => write!(f, "{path} has no valid field '{field}'; {RESTORE}"),
            RealmFileFault::OtherRealm { found, expected } => write!(
                f,
                "{path} belongs to the realm '{found}', and this host is in the realm '{expected}'; {RESTORE}"
            ),
            RealmFileFault::OtherKeys => write!(
                f,
                "the certificate in {path} is for other keys than those of this host; install the one that was signed \
                 for this host's request ('seqcast realm show' prints the request)"
            ),
            RealmFileFault::Full(max) => write!(
                f,
                "{path} has {max} names, the maximum; remove names that are no longer used: seqcast realm forget NAME"
            ),
            RealmFileFault::RevocationsFull(max) => write!(
                f,
                "{path} has {max} revoked hosts, the maximum; make another realm (seqcast init --mode pki), without them"
            ),
            RealmFileFault::Revocations(error) => write!(f, "{path} cannot be used: {error}; {RESTORE}"),
            RealmFileFault::System { operation, reason } => write!(
                f,
                "cannot {operation} {path}: {reason}; let this user read and write it and its directory, or name another \
                 directory with --data-dir"
            ),
        }
    }
}

impl std::error::Error for RealmFileError {}
