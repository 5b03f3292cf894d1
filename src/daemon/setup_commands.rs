//! The commands that give a host its keys, as the texts of refusals name them.

use crate::config::{Config, HostDefaults};
use std::fmt;

/// Commands that give a host its keys, with the options that the configuration of its peer needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupCommands {
    /// Options of both commands; each begins with a space.
    options: String,
    /// True if the realm is to have an authority.
    has_authority: bool,
}

impl SetupCommands {
    /// Returns the commands for the host of a peer with this configuration.
    pub(super) fn of(config: &Config, has_authority: bool) -> SetupCommands {
        let mut options = String::new();
        if config.name != Config::for_this_host().name {
            options += &format!(" --name {}", config.name);
        }
        if !HostDefaults::is_data_dir_of_shells(&config.data_dir) {
            options += &format!(" --data-dir {}", config.data_dir.display());
        }
        SetupCommands { options, has_authority }
    }
}

impl fmt::Display for SetupCommands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SetupCommands { options, has_authority } = self;
        let mode = if *has_authority { " --mode pki" } else { "" };
        write!(
            f,
            "make this host a member of a realm, as the user of this peer: run 'seqcast init --realm NAME{mode}{options}' if it \
             is the first host, else 'seqcast join -{options}' with the line that 'seqcast realm invite' prints there"
        )
    }
}
