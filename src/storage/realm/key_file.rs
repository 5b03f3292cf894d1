//! The format of the files of a realm: lines that people recognise, with a version and a checksum.
//!
//! ```text
//! seqcast identity key, version 1
//! # This file is a secret of this host.
//! realm: plant1
//! seed: (44 characters of base64)
//! checksum: 1c291ca3
//! ```
//!
//! The checksum is the CRC-32C of all bytes before its line. It finds damage, not forgery.

use super::error::{RealmFileError, RealmFileFault};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write as _;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use zeroize::Zeroizing;

/// Version of the format.
const VERSION: u32 = 1;
/// Maximum length of a file in bytes; the longest list of names is shorter.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Permission bits of files.
const FILE_MODE: u32 = 0o600;
/// Bytes of the largest file with a secret.
const SECRET_FILE_BYTES: usize = 1024;
/// Start of the last line.
const CHECKSUM: &str = "checksum: ";

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyFileKind {
    Realm,
    Identity,
    Authority,
    Certificate,
    Peers,
    Issued,
    Revoked,
}

impl KeyFileKind {
    /// Returns the name of the file.
    pub(super) fn file_name(self) -> &'static str {
        match self {
            KeyFileKind::Realm => "realm.key",
            KeyFileKind::Identity => "identity.key",
            KeyFileKind::Authority => "authority.key",
            KeyFileKind::Certificate => "certificate",
            KeyFileKind::Peers => "peers",
            KeyFileKind::Issued => "issued",
            KeyFileKind::Revoked => "revoked",
        }
    }

    /// Returns the words by which the first line names the kind.
    fn title(self) -> &'static str {
        match self {
            KeyFileKind::Realm => "realm key",
            KeyFileKind::Identity => "identity key",
            KeyFileKind::Authority => "authority key",
            KeyFileKind::Certificate => "certificate",
            KeyFileKind::Peers => "list of known peers",
            KeyFileKind::Issued => "list of issued certificates",
            KeyFileKind::Revoked => "revocation list",
        }
    }

    /// Returns the second line.
    fn comment(self) -> &'static str {
        match self {
            KeyFileKind::Realm => {
                "# This file is a secret of the realm. Show it to nobody, and copy it only as a backup."
            }
            KeyFileKind::Identity => "# This file is a secret of this host. No other host may have a copy.",
            KeyFileKind::Authority => "# This file is a secret: it admits hosts to the realm. Keep a copy offline.",
            KeyFileKind::Certificate => {
                "# This file is no secret. It names this host, its public keys and its permissions."
            }
            KeyFileKind::Peers => "# This file is no secret. 'seqcast realm forget NAME' removes a name.",
            KeyFileKind::Issued => "# This file is no secret. It lists the hosts that the authority has admitted.",
            KeyFileKind::Revoked => "# This file is no secret. The authority has signed it: these hosts are shut out.",
        }
    }
}

/// The fields of a file, in their order. They are erased when they are dropped.
pub(super) struct KeyFileFields(Vec<KeyFileField>);

struct KeyFileField {
    name: String,
    value: Zeroizing<String>,
}

impl KeyFileFields {
    /// Returns the value of a field.
    pub(super) fn text(&self, name: &'static str) -> Result<&str, RealmFileFault> {
        self.values(name).next().ok_or(RealmFileFault::Field(name))
    }

    /// Returns the values of all fields of a name.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |field| field.name == name).map(|field| field.value.as_str())
    }

    /// Returns the bytes of a field in base64.
    pub(super) fn bytes(&self, name: &'static str) -> Result<Zeroizing<Vec<u8>>, RealmFileFault> {
        let bytes = STANDARD.decode(self.text(name)?).map_err(|_| RealmFileFault::Field(name))?;
        Ok(Zeroizing::new(bytes))
    }

    /// Returns a key: 32 bytes in base64.
    pub(super) fn key(&self, name: &'static str) -> Result<Zeroizing<[u8; 32]>, RealmFileFault> {
        self.array(name)
    }

    /// Returns a number of bytes in base64.
    pub(super) fn array<const N: usize>(&self, name: &'static str) -> Result<Zeroizing<[u8; N]>, RealmFileFault> {
        let mut array = Zeroizing::new([0; N]);
        let bytes = self.bytes(name)?;
        if bytes.len() != array.len() {
            return Err(RealmFileFault::Field(name));
        }
        array.copy_from_slice(&bytes);
        Ok(array)
    }
}

/// The text of a file that is being composed.
pub(super) struct KeyFileText {
    kind: KeyFileKind,
    text: Zeroizing<String>,
}

impl KeyFileText {
    pub(super) fn new(kind: KeyFileKind) -> KeyFileText {
        // A string that grows would leave copies of a secret behind.
        let mut text = Zeroizing::new(String::with_capacity(SECRET_FILE_BYTES));
        text.push_str(&header(kind));
        text.push_str(kind.comment());
        text.push('\n');
        KeyFileText { kind, text }
    }

    /// Adds a field; its value is one line.
    pub(super) fn field(mut self, name: &str, value: &str) -> KeyFileText {
        for part in [name, ": ", value, "\n"] {
            self.text.push_str(part);
        }
        self
    }

    /// Adds a field with bytes.
    pub(super) fn bytes(self, name: &str, bytes: &[u8]) -> KeyFileText {
        let value = Zeroizing::new(STANDARD.encode(bytes));
        self.field(name, &value)
    }

    /// Writes the file in the directory, in place of the former one. A crash leaves the former file or the new one.
    pub(super) fn write(mut self, directory: &Path) -> Result<(), RealmFileError> {
        let checksum = crc32c::crc32c(self.text.as_bytes());
        writeln!(self.text, "{CHECKSUM}{checksum:08x}").expect("a string takes any text");
        let path = directory.join(self.kind.file_name());
        let draft = directory.join(format!(".{}.new", self.kind.file_name()));
        let written = write_whole(&draft, self.text.as_bytes()).and_then(|()| fs::rename(&draft, &path));
        written.and_then(|()| File::open(directory)?.sync_all()).map_err(|error| {
            // The draft of a write that failed is of no use; its removal may fail, too.
            drop(fs::remove_file(&draft));
            RealmFileError::of_system(&path, "write")(error)
        })
    }
}

/// Returns the first line of a file.
fn header(kind: KeyFileKind) -> String {
    format!("seqcast {}, version {VERSION}\n", kind.title())
}

/// Writes a new file that its owner alone can read, and waits until it is on the disk.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A crash may have left a draft.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Reads a file of the directory.
///
/// # Errors
/// The file is missing, is not private to this user, or has no valid content.
pub(super) fn read(directory: &Path, kind: KeyFileKind) -> Result<KeyFileFields, RealmFileError> {
    let path = directory.join(kind.file_name());
    let text = read_text(&path)?;
    parse(kind, &text).map_err(|fault| RealmFileError::new(&path, fault))
}

fn read_text(path: &Path) -> Result<Zeroizing<String>, RealmFileError> {
    let refuse = |fault| RealmFileError::new(path, fault);
    // Opening a pipe would otherwise block until another process writes to it.
    let opened = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => refuse(RealmFileFault::Missing),
        _ => RealmFileError::of_system(path, "read")(error),
    })?;
    let metadata = file.metadata().map_err(RealmFileError::of_system(path, "read"))?;
    if !metadata.is_file() {
        return Err(refuse(RealmFileFault::Kind { expected: "file" }));
    }
    check_access(&metadata, FILE_MODE).map_err(refuse)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET_FILE_BYTES));
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(RealmFileError::of_system(path, "read"))?;
    if FILE_BYTES_MAX < bytes.len() as u64 {
        return Err(refuse(RealmFileFault::Damaged));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| refuse(RealmFileFault::Damaged))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Checks that the owner is the user who runs this program, and that nobody else has access.
pub(super) fn check_access(metadata: &Metadata, wanted: u32) -> Result<(), RealmFileFault> {
    if metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Err(RealmFileFault::Owner { owner: user_name(metadata.uid()) });
    }
    match metadata.permissions().mode() & 0o7777 {
        mode if mode & 0o077 != 0 => Err(RealmFileFault::Mode { mode, wanted }),
        _ => Ok(()),
    }
}

/// Returns the name of a user, or the number if it has no name.
pub(super) fn user_name(uid: u32) -> String {
    let user = nix::unistd::User::from_uid(uid.into());
    user.ok().flatten().map_or_else(|| format!("#{uid}"), |user| user.name)
}

/// Reads the text of a file.
fn parse(kind: KeyFileKind, text: &str) -> Result<KeyFileFields, RealmFileFault> {
    let start = format!("seqcast {}, version ", kind.title());
    let Some(rest) = text.strip_prefix(start.as_str()) else {
        let is_cut = start.starts_with(text);
        return Err(if is_cut { RealmFileFault::Truncated } else { RealmFileFault::Foreign(kind.title()) });
    };
    let (version, _) = rest.split_once('\n').ok_or(RealmFileFault::Truncated)?;
    match version.parse() {
        Ok(VERSION) => {}
        Ok(found) => return Err(RealmFileFault::Version { found, supported: VERSION }),
        Err(_) => return Err(RealmFileFault::Damaged),
    }
    let lines = text.strip_suffix('\n').ok_or(RealmFileFault::Truncated)?;
    let (content, last) = lines.rsplit_once('\n').ok_or(RealmFileFault::Truncated)?;
    let checksum = last.strip_prefix(CHECKSUM).ok_or(RealmFileFault::Truncated)?;
    if checksum != format!("{:08x}", crc32c::crc32c(&text.as_bytes()[..=content.len()])) {
        return Err(RealmFileFault::Damaged);
    }
    let fields = content.lines().skip(1).filter(|line| !line.starts_with('#'));
    let field = |line: &str| {
        let (name, value) = line.split_once(": ").ok_or(RealmFileFault::Damaged)?;
        Ok(KeyFileField { name: name.to_owned(), value: Zeroizing::new(value.to_owned()) })
    };
    fields.map(field).collect::<Result<_, _>>().map(KeyFileFields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let file = KeyFileText::new(KeyFileKind::Identity).field("realm", "plant1").bytes("seed", &[0x5a; 32]);
        let checksum = crc32c::crc32c(file.text.as_bytes());
        format!("{}checksum: {checksum:08x}\n", file.text.as_str())
    }

    fn fault(text: &str) -> Option<RealmFileFault> {
        parse(KeyFileKind::Identity, text).err()
    }

    #[test]
    fn fields_are_read_back() {
        let fields = parse(KeyFileKind::Identity, &text()).ok().unwrap();
        assert_eq!(fields.text("realm"), Ok("plant1"));
        assert_eq!(fields.key("seed").map(|key| *key), Ok([0x5a; 32]));
        assert_eq!(fields.key("realm").map(|key| *key), Err(RealmFileFault::Field("realm")));
        assert_eq!(fields.text("none"), Err(RealmFileFault::Field("none")));
    }

    #[test]
    fn each_changed_byte_of_a_file_is_noticed() {
        let text = text();
        for at in 0..text.len() {
            for other in ["x", "0", "\n", " "] {
                if !text[at..].starts_with(other) {
                    let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
                    assert!(fault(&changed).is_some(), "{other:?} at {at}");
                }
            }
        }
    }

    #[test]
    fn cut_file_is_truncated() {
        let text = text();
        for length in 0..text.len() {
            assert_eq!(fault(&text[..length]), Some(RealmFileFault::Truncated), "{length} bytes");
        }
    }

    #[test]
    fn other_kind_and_newer_version_are_named() {
        let text = text();
        assert_eq!(
            fault(&text.replacen("version 1", "version 2", 1)),
            Some(RealmFileFault::Version { found: 2, supported: 1 })
        );
        assert_eq!(parse(KeyFileKind::Realm, &text).err(), Some(RealmFileFault::Foreign("realm key")));
        assert_eq!(fault("# notes\n"), Some(RealmFileFault::Foreign("identity key")));
        assert_eq!(fault(&text.replacen("plant1", "plant2", 1)), Some(RealmFileFault::Damaged));
    }
}
