//! The values of the keys about the Unix socket: its mode, its group, and the memory shared beside it.

use super::host_defaults::HostDefaults;
use super::quantity::SizeFormat;
use super::value_error::ValueError;
use super::value_format::ValueFormat;

/// The mode of a file that only its owner may use.
const MODE_MIN: u32 = 0o600;
/// The mode of a file that every user may use.
const MODE_MAX: u32 = 0o777;

/// The mode of the socket, as an octal number. The owner may always connect.
pub(super) struct SocketModeFormat;

impl ValueFormat for SocketModeFormat {
    type Value = u32;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<u32, ValueError> {
        let mode =
            u32::from_str_radix(text.strip_prefix("0o").unwrap_or(text), 8).map_err(|_| ValueError::SocketMode)?;
        if mode <= MODE_MAX && mode & MODE_MIN == MODE_MIN { Ok(mode) } else { Err(ValueError::SocketMode) }
    }

    fn show(&self, mode: &u32) -> String {
        format!("{mode:04o}")
    }

    fn range(&self) -> String {
        format!("an octal mode from {MODE_MIN:04o} to {MODE_MAX:04o} in which the owner may read and write")
    }
}

/// The name or the number of a group, or `none`. Whether it exists is known when the socket is opened.
pub(super) struct SocketGroupFormat;

impl ValueFormat for SocketGroupFormat {
    type Value = Option<String>;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<Option<String>, ValueError> {
        match text {
            "none" => Ok(None),
            _ if text.contains(|c: char| c.is_whitespace() || c.is_control() || c == ':') => {
                Err(ValueError::SocketGroup)
            }
            _ => Ok(Some(text.to_owned())),
        }
    }

    fn show(&self, group: &Option<String>) -> String {
        group.clone().unwrap_or_else(|| "none".into())
    }

    fn range(&self) -> String {
        "none, or the name or number of a group".into()
    }
}

/// The size of the memory shared with a program, or `off`.
pub(super) struct SharedMemoryFormat {
    pub size: SizeFormat,
}

impl ValueFormat for SharedMemoryFormat {
    type Value = Option<usize>;

    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<Option<usize>, ValueError> {
        match text {
            "off" | "no" => Ok(None),
            _ => self.size.parse(text, defaults).map(Some),
        }
    }

    fn show(&self, bytes: &Option<usize>) -> String {
        bytes.map_or("off".into(), |bytes| self.size.show(&bytes))
    }

    fn range(&self) -> String {
        format!("off, or {}", self.size.range())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_modes_are_read_back_or_refused() {
        let defaults = HostDefaults::default();
        for (text, mode, shown) in
            [("0660", 0o660, "0660"), ("600", 0o600, "0600"), ("0o666", 0o666, "0666"), ("0777", 0o777, "0777")]
        {
            assert_eq!(SocketModeFormat.parse(text, &defaults), Ok(mode), "{text}");
            assert_eq!(SocketModeFormat.show(&mode), shown);
        }
        for text in ["0066", "0460", "1777", "880", "rw", "-660", "", "99999999999"] {
            assert_eq!(SocketModeFormat.parse(text, &defaults), Err(ValueError::SocketMode), "{text}");
        }
    }

    #[test]
    fn shared_memory_is_a_size_or_off() {
        let format = SharedMemoryFormat { size: SizeFormat { min: 1024, max: 4096 } };
        for (text, bytes, shown) in [("off", None, "off"), ("no", None, "off"), ("2 kb", Some(2048), "2 kb")] {
            assert_eq!(format.parse(text, &HostDefaults::default()), Ok(bytes), "{text}");
            assert_eq!(format.show(&bytes), shown);
        }
        for text in ["512", "8 kb", "on", ""] {
            assert!(format.parse(text, &HostDefaults::default()).is_err(), "{text}");
        }
    }

    #[test]
    fn socket_groups_are_read_back_or_refused() {
        let defaults = HostDefaults::default();
        for text in ["none", "seqcast", "1000"] {
            assert_eq!(SocketGroupFormat.show(&SocketGroupFormat.parse(text, &defaults).unwrap()), text);
        }
        for text in ["a b", "a:b"] {
            assert_eq!(SocketGroupFormat.parse(text, &defaults), Err(ValueError::SocketGroup), "{text}");
        }
    }
}
