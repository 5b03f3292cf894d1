//! Refusal to start without keys where other hosts can reach the peer. Only an explicitly open peer on a private address
//! may.

use crate::config::{Config, Security};
use crate::daemon::interface::ChosenInterface;
use std::fmt;
use std::net::IpAddr;

/// Reason why a peer without keys does not start: other hosts could read its messages, and publish any. The text names
/// the commands that make keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingKeys {
    /// Name of the interface.
    pub interface: String,
    /// Address of the peer, which other hosts can reach.
    pub address: IpAddr,
    /// True if the address is public. On such an address not even an explicitly open peer starts.
    pub is_public: bool,
    #[cfg(feature = "security")]
    commands: crate::daemon::setup_commands::SetupCommands,
}

impl MissingKeys {
    /// Checks that a peer of open mode is explicitly open if other hosts can reach it, and has no public address.
    ///
    /// # Errors
    /// Other hosts can reach the peer on this interface, and either its configuration does not say `security: open`, or
    /// its address is public.
    pub(super) fn check(config: &Config, chosen: &ChosenInterface) -> Result<(), MissingKeys> {
        let (is_open, is_public) = (config.security == Security::Open, chosen.has_public_address());
        if !chosen.is_reached_by_other_hosts() || is_open && !is_public {
            return Ok(());
        }
        Err(MissingKeys {
            interface: chosen.name.clone(),
            address: chosen.address,
            is_public,
            #[cfg(feature = "security")]
            commands: crate::daemon::setup_commands::SetupCommands::of(config, config.security == Security::Pki),
        })
    }
}

impl fmt::Display for MissingKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MissingKeys { interface, address, .. } = self;
        write!(
            f,
            "other hosts can reach this peer at {address} on {interface}, and it has no keys: any of them could read \
             everything and publish anything; "
        )?;
        #[cfg(feature = "security")]
        write!(f, "{}", self.commands)?;
        #[cfg(not(feature = "security"))]
        f.write_str("build with --features security, and make keys with 'seqcast init' or 'seqcast join'")?;
        f.write_str(if self.is_public {
            "; the address is public, where a peer in open mode never starts; or name a private or link-local address of this \
             host: --interface ADDRESS"
        } else {
            "; to run without protection all the same, use --open, or security: open in the configuration"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::interface::ChoiceReason;

    fn check(name: &str, address: &str, security: Security) -> Result<(), String> {
        let chosen = ChosenInterface {
            name: name.to_owned(),
            index: 1,
            address: address.parse().unwrap(),
            mtu: 1500,
            loopback: name == "lo",
            reason: ChoiceReason::Named,
            others: Vec::new(),
        };
        let mut config = Config::default();
        config.security = security;
        MissingKeys::check(&config, &chosen).map_err(|error| error.to_string())
    }

    #[test]
    fn peer_that_others_reach_needs_keys_or_open() {
        for address in ["127.0.0.1", "127.9.9.9", "::1"] {
            assert_eq!(check("lo", address, Security::Auto), Ok(()), "{address}");
        }
        for (name, address) in [("eth0", "10.0.0.7"), ("eth0", "127.0.0.1"), ("lo", "10.0.0.7"), ("lo", "fd00::7")] {
            let refusal = check(name, address, Security::Auto).unwrap_err();
            let start = format!("other hosts can reach this peer at {address} on {name}, and it has no keys: ");
            assert!(refusal.starts_with(&start), "{refusal}");
            for part in ["seqcast init", "seqcast join", "--open", "security: open"] {
                assert!(refusal.contains(part), "{part}: {refusal}");
            }
            assert_eq!(check(name, address, Security::Open), Ok(()));
        }
    }

    #[test]
    fn public_address_requires_keys_even_if_open() {
        for address in ["8.8.8.8", "2001:4860::8888"] {
            let refusals =
                [Security::Auto, Security::Open].map(|security| check("eth0", address, security).unwrap_err());
            assert_eq!(refusals[0], refusals[1]);
            assert!(
                refusals[0].contains("seqcast init") && refusals[0].contains("the address is public"),
                "{refusals:?}"
            );
            assert!(!refusals[0].contains("--open"), "{refusals:?}");
        }
    }
}
