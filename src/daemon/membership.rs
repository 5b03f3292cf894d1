//! Membership of a peer in the realm of its host: the files of the realm become the protection of its datagrams.

use crate::clock::fill_random;
use crate::config::{Cipher, Config, OriginCheck, OriginProof, Security};
use crate::daemon::key_log::KeyLog;
use crate::daemon::protection::{KeyedProtection, Protection};
use crate::daemon::running_realm::RunningRealm;
use crate::daemon::setup_commands::SetupCommands;
use crate::message::{Epoch, PeerName};
use crate::proto::Settings;
use crate::proto::certified::OwnCertificate;
use crate::security::realm::{CertificateFields, PeerPermissions};
use crate::security::{KEYED_BYTES, SecurityLayer, SecuritySettings, Suite};
use crate::storage::realm::{LocalRealm, RealmDirectory, RealmFileError};
use crate::subject::permitted_subjects::{HostPermissions, PermittedSubjects};
use crate::time::Instant;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Reason why a peer has no protection that its configuration allows.
#[derive(Debug)]
pub enum MembershipError {
    /// The host has no realm, although the configuration asks for one.
    NoRealm {
        /// Mode of the configuration.
        wanted: &'static str,
        /// The commands that make or join a realm.
        commands: SetupCommands,
    },
    /// The configuration asks for another mode than that of the realm.
    OtherMode {
        /// Mode of the configuration.
        wanted: &'static str,
        /// Mode of the realm.
        found: &'static str,
    },
    /// The certificate of the host is for a peer of another name.
    OtherName {
        /// Name in the configuration.
        wanted: PeerName,
        /// Name in the certificate.
        found: PeerName,
    },
    /// The certificate of the host is not there yet.
    NoCertificate,
    /// The files of the realm cannot be used.
    Files(RealmFileError),
    /// The key log cannot be used.
    KeyLog {
        /// Path of the file.
        path: PathBuf,
        /// Reason of the system, or that other users may read the file.
        error: std::io::Error,
    },
    /// The system has no thread left, or no random numbers.
    System(std::io::Error),
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MembershipError::NoRealm { wanted, commands } => {
                write!(f, "the configuration says security: {wanted}, and this host has no realm; {commands}")
            }
            MembershipError::OtherMode { wanted, found } => write!(
                f,
                "the realm of this host is of the mode {found}, not {wanted}; set security to {found} or auto, or join \
                 a realm of the mode {wanted}"
            ),
            MembershipError::OtherName { wanted, found } => write!(
                f,
                "the certificate of this host is for the name {found}, and the configuration names this peer {wanted}; set \
                 name to {found} (--name {found}), or move the directory 'realm' of data-dir away and make keys for {wanted}: \
                 seqcast init or join with --name {wanted}"
            ),
            MembershipError::NoCertificate => f.write_str(
                "this host has no certificate yet; have its request signed with 'seqcast realm sign' on the host of \
                 the authority, and give the line to 'seqcast join -'",
            ),
            MembershipError::Files(error) => error.fmt(f),
            MembershipError::KeyLog { path, error } => {
                write!(f, "the key log {} cannot be used: {error}; change key-log, or the file", path.display())
            }
            MembershipError::System(error) => write!(f, "the realm cannot be used: {error}"),
        }
    }
}

/// Membership of a peer in a realm, or open mode.
pub(super) struct RealmMembership {
    /// `None` for open mode.
    realm: Option<LocalRealm>,
}

impl RealmMembership {
    /// Finds the realm of which a peer is to be a member, as its configuration says.
    ///
    /// # Errors
    /// The host has no such realm, or its files cannot be used.
    pub(super) fn find(config: &Config) -> Result<RealmMembership, MembershipError> {
        find(config).map(|realm| RealmMembership { realm })
    }

    /// Checks that a peer of this name may be the peer of this host.
    ///
    /// # Errors
    /// The certificate of the host is for another name.
    pub(super) fn check_name(&self, name: &PeerName) -> Result<(), MembershipError> {
        match self.realm.as_ref().and_then(|local| local.certificate.as_ref()) {
            Some(certificate) if certificate.fields().name != *name => {
                Err(MembershipError::OtherName { wanted: name.clone(), found: certificate.fields().name.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the peer has keys.
    pub(super) fn has_keys(&self) -> bool {
        self.realm.is_some()
    }

    /// Returns what the certificate of this host says about the host.
    pub(super) fn own_certificate(&self) -> OwnCertificate {
        let certificate = self.realm.as_ref().and_then(|local| local.certificate.as_ref());
        certificate.map_or_else(OwnCertificate::default, |certificate| {
            let CertificateFields { name, permissions, .. } = certificate.fields().clone();
            let PeerPermissions { publish, subscribe } = permissions;
            let permissions = HostPermissions {
                publish: PermittedSubjects::of(publish),
                subscribe: PermittedSubjects::of(subscribe),
            };
            OwnCertificate { name: Some(name), permissions }
        })
    }

    /// Returns the maximum size of a datagram of the core, if datagrams of at most `bytes_max` bytes can be sent.
    pub(super) fn datagram_bytes_max(&self, bytes_max: usize) -> usize {
        if self.realm.is_some() { bytes_max - KEYED_BYTES } else { bytes_max }
    }

    /// Creates the protection of the peer.
    ///
    /// # Errors
    /// The host has no certificate, or the system refuses what the protection needs.
    pub(super) fn protection(
        self,
        config: &Config,
        settings: &Settings,
        epoch: Epoch,
        inbox: SocketAddr,
        now: Instant,
    ) -> Result<Protection, MembershipError> {
        let Some(local) = self.realm else { return Ok(Protection::Open) };
        protection(local, config, settings, epoch, inbox, now)
    }
}

/// Creates the protection of a member of this realm.
fn protection(
    local: LocalRealm,
    config: &Config,
    settings: &Settings,
    epoch: Epoch,
    inbox: SocketAddr,
    now: Instant,
) -> Result<Protection, MembershipError> {
    if local.certificate.is_none() {
        return Err(MembershipError::NoCertificate);
    }
    let directory = RealmDirectory::new(&config.data_dir);
    let signs = config.origin == OriginProof::Signed;
    let realm = RunningRealm::new(directory, local, suite(config.cipher), signs).map_err(MembershipError::System)?;
    let limits = SecuritySettings {
        group: settings.group,
        address: inbox,
        peers_max: settings.peers_max,
        forget: settings.forget,
        logs_keys: config.key_log.is_some(),
        holds_until_verified: config.origin_check == OriginCheck::Hold,
    };
    let key_log = config
        .key_log
        .as_ref()
        .map(|path| KeyLog::open(path).map_err(|error| MembershipError::KeyLog { path: path.clone(), error }));
    let key_log = key_log.transpose()?;
    let (credentials, verifier) = (realm.credentials(), realm.verifier());
    let layer = SecurityLayer::new(limits, credentials, verifier, Box::new(fill_random), epoch, now);
    Ok(Protection::Keyed(Box::new(KeyedProtection::new(layer, realm, key_log))))
}

/// Finds the realm of which a peer is to be a member; `None` for open mode.
fn find(config: &Config) -> Result<Option<LocalRealm>, MembershipError> {
    let wanted = match config.security {
        Security::Open => return Ok(None),
        Security::Auto => None,
        Security::Realm => Some("realm"),
        Security::Pki => Some("pki"),
    };
    let directory = RealmDirectory::new(&config.data_dir);
    let exists = match directory.path().try_exists() {
        // A file stands where the data directory would be.
        Err(error) if error.kind() == ErrorKind::NotADirectory => false,
        // A directory that cannot be looked at is no reason for open mode.
        exists => exists.map_err(MembershipError::System)?,
    };
    if !exists {
        let Some(wanted) = wanted else { return Ok(None) };
        let commands = SetupCommands::of(config, wanted == "pki");
        return Err(MembershipError::NoRealm { wanted, commands });
    }
    let local = directory.load().map_err(MembershipError::Files)?;
    let found = local.realm.anchor.mode().as_str();
    match wanted {
        Some(wanted) if wanted != found => Err(MembershipError::OtherMode { wanted, found }),
        _ => Ok(Some(local)),
    }
}

/// Returns the suite of a configured cipher.
fn suite(cipher: Cipher) -> Suite {
    match cipher {
        Cipher::Aes256Gcm => Suite::Aes256Gcm,
        Cipher::ChaCha20Poly1305 => Suite::ChaCha20Poly1305,
        Cipher::Auto if has_aes_instructions() => Suite::Aes256Gcm,
        Cipher::Auto => Suite::ChaCha20Poly1305,
    }
}

fn has_aes_instructions() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    let has_aes = std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    let has_aes = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    let has_aes = false;
    has_aes
}
