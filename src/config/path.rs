//! Formats of paths: the Unix socket and the log file.

use super::host_defaults::HostDefaults;
use super::value_error::{SOCKET_PATH_BYTES_MAX, ValueError};
use super::value_format::ValueFormat;
use std::path::PathBuf;

/// The path of the Unix socket; `auto` depends on the user.
pub(super) struct SocketPathFormat;

impl ValueFormat for SocketPathFormat {
    type Value = PathBuf;

    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<PathBuf, ValueError> {
        let path = if text == "auto" { defaults.socket() } else { PathBuf::from(text) };
        let bytes = path.as_os_str().len();
        if SOCKET_PATH_BYTES_MAX < bytes {
            return Err(ValueError::SocketPath { bytes });
        }
        if text.contains('\0') { Err(ValueError::PathNul) } else { Ok(path) }
    }

    fn show(&self, value: &PathBuf) -> String {
        value.display().to_string()
    }

    fn range(&self) -> String {
        "a path of at most 107 bytes; auto is $XDG_RUNTIME_DIR/seqcast.sock, else /tmp/seqcast-UID/seqcast.sock".into()
    }
}

/// The path of a file, or `none`.
pub(super) struct FilePathFormat;

impl ValueFormat for FilePathFormat {
    type Value = Option<PathBuf>;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<Option<PathBuf>, ValueError> {
        match text {
            "none" => Ok(None),
            _ if text.contains('\0') => Err(ValueError::PathNul),
            _ => Ok(Some(PathBuf::from(text))),
        }
    }

    fn show(&self, value: &Option<PathBuf>) -> String {
        value.as_ref().map_or_else(|| "none".into(), |path| path.display().to_string())
    }

    fn range(&self) -> String {
        "a path, or none".into()
    }
}
