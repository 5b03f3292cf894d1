//! Meaning of the defaults `auto` on a host.

use crate::message::PeerName;
use std::path::PathBuf;

/// Facts about a host that the defaults `auto` use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDefaults {
    /// Host name, as the kernel reports it.
    pub host: String,
    /// `$XDG_RUNTIME_DIR`, if it is set to an absolute path.
    pub runtime_dir: Option<PathBuf>,
    /// `$XDG_STATE_HOME`, or `~/.local/state`, if that is an absolute path.
    pub state_dir: Option<PathBuf>,
    /// User id.
    pub uid: u32,
}

impl Default for HostDefaults {
    /// Returns the facts of a system service on any host: the peer is named `peer`, its socket is
    /// `/run/seqcast/seqcast.sock`, and its data is in `/var/lib/seqcast`.
    fn default() -> HostDefaults {
        let (runtime_dir, state_dir) = (Some(PathBuf::from("/run/seqcast")), Some(PathBuf::from("/var/lib")));
        HostDefaults { host: "peer".to_owned(), runtime_dir, state_dir, uid: 0 }
    }
}

impl HostDefaults {
    /// Queries the system.
    pub fn of_this_host() -> HostDefaults {
        let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let path = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir: &PathBuf| dir.is_absolute());
        let state_dir = path("XDG_STATE_HOME").or_else(|| Some(path("HOME")?.join(".local/state")));
        HostDefaults { host, runtime_dir: path("XDG_RUNTIME_DIR"), state_dir, uid: nix::unistd::getuid().as_raw() }
    }

    /// Returns whether commands that this user types in a shell have this data directory by default. The environment of a
    /// service often names another one.
    #[cfg(feature = "security")]
    pub(crate) fn is_data_dir_of_shells(path: &std::path::Path) -> bool {
        std::env::var_os("HOME").is_some_and(|home| path == PathBuf::from(home).join(".local/state/seqcast"))
    }

    /// Returns the host name as a peer name: characters that a peer name cannot contain become `-`.
    pub(super) fn peer_name(&self) -> PeerName {
        let allowed = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '-' };
        let name: String = self.host.chars().map(allowed).take(PeerName::BYTES_MAX).collect();
        name.parse().unwrap_or_else(|_| "peer".parse().expect("'peer' is a peer name"))
    }

    /// Returns `$XDG_RUNTIME_DIR/seqcast.sock`, or `/tmp/seqcast-UID/seqcast.sock`: a directory of the user's own
    /// either way.
    pub(super) fn socket(&self) -> PathBuf {
        match &self.runtime_dir {
            Some(dir) => dir.join("seqcast.sock"),
            None => PathBuf::from(format!("/tmp/seqcast-{}/seqcast.sock", self.uid)),
        }
    }

    /// Returns a directory of the user's own, in `/tmp` if no better one is known.
    pub(super) fn data_dir(&self) -> PathBuf {
        match &self.state_dir {
            Some(dir) => dir.join("seqcast"),
            None => PathBuf::from(format!("/tmp/seqcast-{}/data", self.uid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn default_configuration_names_no_host_and_no_user() {
        let config = Config::default();
        assert_eq!(config.name.as_str(), "peer");
        assert_eq!(config.socket, PathBuf::from("/run/seqcast/seqcast.sock"));
        assert_eq!(config.data_dir, PathBuf::from("/var/lib/seqcast"));
    }

    #[test]
    fn configuration_for_this_host_uses_host_defaults() {
        let (here, config) = (HostDefaults::of_this_host(), Config::for_this_host());
        assert_eq!((config.name, config.socket, config.data_dir), (here.peer_name(), here.socket(), here.data_dir()));
    }
}
