//! Membership of a peer in a build without keys: there is only open mode.

use crate::config::{Config, Security};
use crate::daemon::engine::start_error::StartError;
use crate::daemon::protection::Protection;
use crate::message::{Epoch, PeerName};
use crate::proto::Settings;
use crate::proto::certified::OwnCertificate;
use crate::time::Instant;
use std::net::SocketAddr;

/// The open mode.
pub(super) struct OpenMembership;

impl OpenMembership {
    /// Returns the open mode if the configuration allows it.
    ///
    /// # Errors
    /// The configuration asks for keys, which this build does not have.
    pub(super) fn find(config: &Config) -> Result<OpenMembership, StartError> {
        match config.security {
            Security::Open | Security::Auto => Ok(OpenMembership),
            Security::Realm | Security::Pki => Err(StartError::Absent { key: "security", feature: "security" }),
        }
    }

    /// Returns no error: only certificates have names.
    pub(super) fn check_name(&self, _: &PeerName) -> Result<(), StartError> {
        Ok(())
    }

    /// Returns whether the peer has keys.
    pub(super) fn has_keys(&self) -> bool {
        false
    }

    /// Returns no certificate.
    pub(super) fn own_certificate(&self) -> OwnCertificate {
        OwnCertificate::default()
    }

    /// Returns the maximum size of a datagram of the core.
    pub(super) fn datagram_bytes_max(&self, bytes_max: usize) -> usize {
        bytes_max
    }

    /// Returns the protection of open mode.
    pub(super) fn protection(
        self,
        _: &Config,
        _: &Settings,
        _: Epoch,
        _: SocketAddr,
        _: Instant,
    ) -> Result<Protection, StartError> {
        Ok(Protection::Open)
    }
}
