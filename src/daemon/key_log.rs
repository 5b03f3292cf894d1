//! The file to which a peer appends the secrets of its datagrams, if its configuration asks for that.

use crate::security::{KEY_LOG_TITLE, LoggedSecret};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Permission bits of the file.
const FILE_MODE: u32 = 0o600;

/// The file of the key `key-log`.
pub(crate) struct KeyLog {
    path: PathBuf,
    file: File,
    has_failed: bool,
}

impl KeyLog {
    /// Opens the file for appending, and makes it if it is not there.
    ///
    /// # Errors
    /// The system refuses the file, or other users may read it.
    pub(crate) fn open(path: &Path) -> io::Result<KeyLog> {
        let mut file = OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path)?;
        let metadata = file.metadata()?;
        if metadata.permissions().mode() & 0o077 != 0 {
            let text = "other users can read the file, or write to it; run 'chmod 600' on it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        if metadata.len() == 0 {
            writeln!(file, "{KEY_LOG_TITLE}")?;
        }
        tracing::warn!(file = %path.display(), "keys are logged: whoever reads this file can read the messages");
        Ok(KeyLog { path: path.to_owned(), file, has_failed: false })
    }

    /// Appends a secret. The first failure is logged; the peer goes on without the lines that it could not write.
    pub(crate) fn append(&mut self, logged: &LoggedSecret) {
        let mut line = logged.line();
        line.push('\n');
        if let Err(error) = self.file.write_all(line.as_bytes())
            && !std::mem::replace(&mut self.has_failed, true)
        {
            tracing::warn!(file = %self.path.display(), %error, "keys are missing in the key log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn file_that_others_can_read_is_refused() {
        let name = format!("seqcast-keys-{:016x}", crate::clock::random_u64());
        let path = std::env::temp_dir().join(name);
        drop(KeyLog::open(&path).expect("a new file"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, FILE_MODE);
        drop(KeyLog::open(&path).expect("its own file"));
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{KEY_LOG_TITLE}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = KeyLog::open(&path).err().expect("the group can read it");
        assert!(error.to_string().contains("chmod 600"), "{error}");
        fs::remove_file(&path).unwrap();
    }
}
