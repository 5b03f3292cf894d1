//! The key log of a peer, which `decode` reads.

use std::path::Path;

use zeroize::Zeroizing;

use crate::security::{LoggedKeys, LoggedSecret};
use crate::terminal::exit::{CommandFailure, Exit};

/// Reads the keys of a log. The peer may be writing its last line, so a last line without an end is left out.
///
/// # Errors
/// The file cannot be read, or a line is not one of a key log.
pub(super) fn read(path: &Path) -> Result<LoggedKeys, CommandFailure> {
    let failure =
        |text: &dyn std::fmt::Display| CommandFailure::new(Exit::Failed, format_args!("{}: {text}", path.display()));
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(|error| failure(&error))?);
    let mut keys = LoggedKeys::default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for (index, line) in whole.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let secret = LoggedSecret::parse(line).ok_or_else(|| {
            let text = format!("line {} is not one of a key log", index + 1);
            failure(&text).fix("give the file that the key 'key-log' of a peer names")
        })?;
        keys.add(&secret);
    }
    Ok(keys)
}
