//! The processes of local clients, and the names of their users.

use std::fs::File;
use std::io::Read;

/// The users of this host. Users of a directory service are not in it: looking those up would block the peer.
const USERS_FILE: &str = "/etc/passwd";
/// Maximum number of bytes of the file that are read.
const USERS_BYTES_MAX: u64 = 1 << 20;

/// The process of a local client, as it was when it connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientProcess {
    /// Process id.
    pub(crate) pid: i32,
    /// Id of its user.
    pub(crate) user_id: u32,
    /// Name of its user, if this host has the name in its own file.
    pub(crate) user: Option<String>,
}

impl ClientProcess {
    /// Creates the process with these ids, and looks up the name of its user.
    pub(crate) fn new(pid: i32, user_id: u32) -> ClientProcess {
        let mut users = Vec::new();
        let file = File::open(USERS_FILE);
        // The name is only for people: without the file there is none.
        let is_read = file.is_ok_and(|file| file.take(USERS_BYTES_MAX).read_to_end(&mut users).is_ok());
        let user = if is_read { user_name(&String::from_utf8_lossy(&users), user_id) } else { None };
        ClientProcess { pid, user_id, user }
    }

    /// Returns this process.
    pub(crate) fn own() -> ClientProcess {
        let pid = i32::try_from(std::process::id()).expect("the system has fewer processes");
        ClientProcess::new(pid, nix::unistd::getuid().as_raw())
    }
}

/// Returns the name of the user with this id in a file of users, whose lines are `name:password:id:…`.
fn user_name(users: &str, user_id: u32) -> Option<String> {
    let id = user_id.to_string();
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_ids() {
        let users = "root:x:0:0:root:/root:/bin/bash\n# comment\n\n:x:5:\nanna:x:1000:1000::/srv/anna:/bin/sh\nno:x\n";
        for (id, expected) in [(0, Some("root")), (1000, Some("anna")), (5, None), (100, None)] {
            assert_eq!(user_name(users, id).as_deref(), expected, "{id}");
        }
    }
}
