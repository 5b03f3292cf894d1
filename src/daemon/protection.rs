//! Protection of datagrams: none in open mode, the security layer of a keyed peer.

#[cfg(feature = "security")]
mod realm_changes;

#[cfg(feature = "security")]
use crate::daemon::key_log::KeyLog;
#[cfg(feature = "links")]
use crate::daemon::link_realm::LinkRealmUpdates;
#[cfg(feature = "security")]
use crate::daemon::log;
#[cfg(feature = "security")]
use crate::daemon::mailbox::AnswerSender;
#[cfg(any(feature = "events", feature = "security"))]
use crate::daemon::remote_permissions::RemotePermissions;
#[cfg(feature = "security")]
use crate::daemon::revocation_inquiry::{self, RevocationInquiry};
#[cfg(feature = "security")]
use crate::daemon::running_realm::RunningRealm;
use crate::daemon::show::CounterRow;
use crate::message::{Epoch, PeerName};
#[cfg(feature = "security")]
use crate::proto::certified::CertifiedPeer;
use crate::proto::effect::{ArrivedDatagram, DeniedPublication, Input};
#[cfg(feature = "security")]
use crate::security::realm::check_validity;
#[cfg(feature = "security")]
use crate::security::{SecurityEffect, SecurityLayer};
use crate::time::{ClockReading, Instant, WallTime};
use crate::wire::CheckValue;
use bytes::Bytes;
use serde_json::Value;
use std::net::SocketAddr;
#[cfg(any(feature = "events", feature = "security"))]
use std::sync::Arc;

/// Layer between the protocol core and the sockets.
pub(crate) enum Protection {
    /// Datagrams leave and arrive as the core makes and reads them.
    Open,
    /// Datagrams are sealed, and only those of authenticated peers are opened.
    #[cfg(feature = "security")]
    Keyed(Box<KeyedProtection>),
}

/// The security layer of a peer, with the realm of which the peer is a member.
#[cfg(feature = "security")]
pub(crate) struct KeyedProtection {
    layer: SecurityLayer,
    realm: RunningRealm,
    /// The inquiry for newer lists of revoked hosts.
    inquiry: RevocationInquiry,
    /// Address of the last peer that was refused and the reason, until it is taken.
    untrusted: Option<(SocketAddr, String)>,
    /// The last message that was denied, until it is taken.
    denied: Option<DeniedPublication>,
    /// Address and name of the last peer in whose name another member has published, until it is taken.
    forged: Option<(SocketAddr, PeerName)>,
    /// The file for the secrets of datagrams, if the configuration asks for one.
    key_log: Option<KeyLog>,
    permissions: Arc<RemotePermissions>,
    /// Where the link to other sites takes the changed realm from.
    #[cfg(feature = "links")]
    link: Option<LinkRealmUpdates>,
}

#[cfg(feature = "security")]
impl KeyedProtection {
    /// Joins the layer of a peer and its realm.
    pub(crate) fn new(layer: SecurityLayer, realm: RunningRealm, key_log: Option<KeyLog>) -> KeyedProtection {
        let inquiry = RevocationInquiry::default();
        KeyedProtection {
            layer,
            realm,
            inquiry,
            untrusted: None,
            denied: None,
            forged: None,
            key_log,
            permissions: Arc::default(),
            #[cfg(feature = "links")]
            link: None,
        }
    }
}

impl Protection {
    /// Returns what leaves when the core sends a datagram to the group, or to one address; `None` if nothing does.
    pub(crate) fn seal(&mut self, to: Option<SocketAddr>, datagram: Bytes) -> Option<Bytes> {
        match self {
            Protection::Open => {
                let _ = to;
                Some(datagram)
            }
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => keyed.layer.seal(to, &datagram),
        }
    }

    /// Returns what the core receives when a datagram arrives; `None` if it receives nothing, or only later.
    pub(crate) fn receive(&mut self, now: ClockReading, datagram: ArrivedDatagram) -> Option<Bytes> {
        match self {
            Protection::Open => {
                let _ = now;
                Some(datagram.bytes)
            }
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => keyed.layer.receive(now, datagram),
        }
    }

    /// Continues at another address of the inbox.
    pub(crate) fn on_address(&mut self, address: SocketAddr) {
        match self {
            Protection::Open => {
                let _ = address;
            }
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => keyed.layer.on_address(address),
        }
    }

    /// Forgets the keys of an epoch that the core gives up.
    pub(crate) fn on_departed(&mut self, epoch: Epoch) {
        match self {
            Protection::Open => {
                let _ = epoch;
            }
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => keyed.layer.on_departed(epoch),
        }
    }

    /// Does the work that is due.
    pub(crate) fn tick(&mut self, now: ClockReading) {
        match self {
            Protection::Open => {
                let _ = now;
            }
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => keyed.layer.tick(now),
        }
    }

    /// Returns the latest time for the next tick; `None` if none is needed.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            Protection::Open => None,
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => Some(keyed.layer.deadline()),
        }
    }

    /// Passes on the datagrams of handshakes, to the group or to one address, and passes to the core the certificates of
    /// authenticated peers and received datagrams that had to wait for a handshake or a signature.
    pub(crate) fn drain(&mut self, mut send: impl FnMut(Option<SocketAddr>, Bytes), mut input: impl FnMut(Input)) {
        match self {
            Protection::Open => {
                let _ = (&mut send, &mut input);
            }
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => {
                while let Some(effect) = keyed.layer.poll_effect() {
                    match effect {
                        SecurityEffect::Send { to, bytes } => send(Some(to), bytes),
                        SecurityEffect::Multicast { bytes } => send(None, bytes),
                        SecurityEffect::Receive(datagram) => input(Input::Deferred(datagram)),
                        SecurityEffect::Authenticated { epoch, address, name, publish, origin } => {
                            log::authenticated(&name, epoch, address);
                            let KeyedProtection { layer, permissions, .. } = &**keyed;
                            permissions.insert(epoch, publish.clone(), |other| layer.has_keys_of(other));
                            let certified = CertifiedPeer { name: Some(name), publish, origin: Some(origin) };
                            input(Input::Authenticated { epoch, certified });
                        }
                        SecurityEffect::Key(secret) => {
                            if let Some(key_log) = &mut keyed.key_log {
                                key_log.append(&secret);
                            }
                        }
                        SecurityEffect::ForgedOrigin { epoch, address, name, number } => {
                            log::forged_origin(&name, epoch, address, number);
                            keyed.forged = Some((address, name));
                        }
                        SecurityEffect::Expired { epoch, address, name } => log::expired(&name, epoch, address),
                        SecurityEffect::Revoked { epoch, address, name } => log::revoked(&name, epoch, address),
                        SecurityEffect::NewerRevocations { epoch, revision, .. } => {
                            keyed.inquiry.on_announced(epoch, revision);
                        }
                        SecurityEffect::Refused { address, reason } => {
                            log::refused(address, &reason);
                            keyed.untrusted = Some((address, reason));
                        }
                    }
                }
            }
        }
    }

    /// Returns the kind of check value in the datagrams that the core makes and reads.
    pub(crate) fn check_value(&self) -> CheckValue {
        if self.is_open() { CheckValue::Crc32c } else { CheckValue::Unused }
    }

    /// Returns the subjects on which other peers may publish, as far as their certificates limit them.
    #[cfg(feature = "events")]
    pub(crate) fn remote_permissions(&self) -> Arc<RemotePermissions> {
        match self {
            Protection::Open => Arc::default(),
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => Arc::clone(&keyed.permissions),
        }
    }

    /// Returns whether datagrams are neither sealed nor authenticated.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Protection::Open)
    }

    /// Returns the address of the peer that was last refused since the last call, and the reason with its remedy.
    pub(crate) fn take_untrusted(&mut self) -> Option<(SocketAddr, String)> {
        match self {
            Protection::Open => None,
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => keyed.untrusted.take(),
        }
    }

    /// Logs a message that its publisher may not publish, and keeps it for the checks of this peer.
    pub(crate) fn on_denied(&mut self, denied: DeniedPublication) {
        match self {
            // No peer has a certificate.
            Protection::Open => drop(denied),
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => {
                log::denied(&denied);
                keyed.denied = Some(denied);
            }
        }
    }

    /// Returns the last message that was denied since the last call.
    pub(crate) fn take_denied(&mut self) -> Option<DeniedPublication> {
        match self {
            Protection::Open => None,
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => keyed.denied.take(),
        }
    }

    /// Returns address and name of the last peer in whose name another member has published since the last call.
    pub(crate) fn take_forged(&mut self) -> Option<(SocketAddr, PeerName)> {
        match self {
            Protection::Open => None,
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => keyed.forged.take(),
        }
    }

    /// Returns the reason why other hosts refuse the certificate of this one at this time, with its remedy.
    pub(crate) fn certificate_problem(&self, now: WallTime) -> Option<String> {
        match self {
            Protection::Open => {
                let _ = now;
                None
            }
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => {
                check_validity(keyed.realm.certificate(), now).err().map(|refusal| refusal.to_string())
            }
        }
    }

    /// Returns the mode that `show status` names.
    pub(crate) fn mode(&self) -> &'static str {
        match self {
            Protection::Open => "open",
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => keyed.realm.realm().anchor.mode().as_str(),
        }
    }

    /// Returns the name of the realm; `None` in open mode.
    pub(crate) fn realm(&self) -> Option<&str> {
        match self {
            Protection::Open => None,
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => Some(keyed.realm.realm().name.as_str()),
        }
    }

    /// Returns the cipher of sent datagrams; `None` in open mode.
    pub(crate) fn cipher(&self) -> Option<&'static str> {
        match self {
            Protection::Open => None,
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => Some(keyed.layer.suite().as_str()),
        }
    }

    /// Returns the proof that others get of what this peer publishes: `group` or `signed`; `None` in open mode.
    pub(crate) fn origin(&self) -> Option<&'static str> {
        match self {
            Protection::Open => None,
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => Some(if keyed.layer.signs_origin() { "signed" } else { "group" }),
        }
    }

    /// Returns the proof that the peer with this epoch has published a message: `publisher` if it signs, `group` if any
    /// member could have sent the message; `None` in open mode.
    pub(crate) fn origin_of(&self, epoch: Epoch) -> Option<&'static str> {
        match self {
            Protection::Open => {
                let _ = epoch;
                None
            }
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => Some(if keyed.layer.verifies_origin(epoch) { "publisher" } else { "group" }),
        }
    }

    /// Returns the revision of the list of revoked hosts and their number; `None` in open mode.
    pub(crate) fn revocations(&self) -> Option<(u64, usize)> {
        match self {
            Protection::Open => None,
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => {
                let hosts = keyed.realm.revocations().map_or(0, |list| list.fields().hosts.len());
                Some((keyed.realm.revision(), hosts))
            }
        }
    }

    /// Reads the files of the realm again. Returns the names of what has changed; `None` in open mode. If a file cannot
    /// be used, everything stays as it was.
    ///
    /// # Errors
    /// Returns the reason, with its remedy after `; `.
    pub(crate) fn reload(&mut self, now: WallTime) -> Result<Option<Vec<&'static str>>, String> {
        match self {
            Protection::Open => {
                let _ = now;
                Ok(None)
            }
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => match keyed.reload(now) {
                Ok(changes) => Ok(Some(changes.names())),
                Err(error) => Err(error.to_string()),
            },
        }
    }

    /// Takes over the list of revoked hosts of another peer that was asked for it; returns whether there is a new one.
    #[cfg(feature = "security")]
    pub(crate) fn take_over_revocations(&mut self, now: Instant) -> bool {
        match self {
            Protection::Open => false,
            Protection::Keyed(keyed) => keyed.take_over_revocations(now),
        }
    }

    /// Returns the peer to ask for a newer list of revoked hosts now, with the sender of its answer.
    #[cfg(feature = "security")]
    pub(crate) fn next_inquiry(&mut self, now: Instant) -> Option<(Epoch, AnswerSender)> {
        match self {
            Protection::Open => None,
            Protection::Keyed(keyed) => keyed.inquiry.next_question(now, keyed.realm.revision()),
        }
    }

    /// Returns the next time at which a list of revoked hosts is to be asked for, or is not to be expected any more.
    pub(crate) fn inquiry_deadline(&self) -> Option<Instant> {
        match self {
            Protection::Open => None,
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => keyed.inquiry.deadline(),
        }
    }

    /// Returns whether [`Protection::revocations_answer`] answers a query.
    pub(crate) fn answers(&self, query: &Value) -> bool {
        match self {
            Protection::Open => {
                let _ = query;
                false
            }
            #[cfg(feature = "security")]
            Protection::Keyed(_) => revocation_inquiry::is_query(query),
        }
    }

    /// Returns the answer to the query of another peer of the realm for the list of revoked hosts; `None` if the query
    /// is another one, and in open mode.
    pub(crate) fn revocations_answer(&self, query: &Value) -> Option<Value> {
        match self {
            Protection::Open => {
                let _ = query;
                None
            }
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => {
                revocation_inquiry::is_query(query).then(|| revocation_inquiry::answer(keyed.realm.revocations()))
            }
        }
    }

    /// Returns the counters of the security layer, none in open mode.
    pub(crate) fn counters(&self) -> Vec<CounterRow> {
        match self {
            Protection::Open => Vec::new(),
            #[cfg(feature = "security")]
            Protection::Keyed(keyed) => {
                let counters = keyed.layer.counters();
                vec![
                    ("keyed_authenticated", counters.authenticated, "Handshakes after which a peer was trusted."),
                    ("keyed_refused", counters.refused, "Handshakes after which a peer was not trusted."),
                    ("keyed_expired", counters.expired, "Peers whose certificate has expired while they ran."),
                    ("keyed_revoked", counters.revoked, "Peers whose keys were revoked while they ran."),
                    ("keyed_rekeyed", counters.rekeyed, "Changes of this peer's keys for the group while it ran."),
                    ("keyed_evicted", counters.evicted, "Silent peers whose keys were forgotten for others."),
                    (
                        "keyed_limited",
                        counters.limited_handshakes,
                        "Handshakes not begun or answered because of a limit.",
                    ),
                    ("keyed_discard_open", counters.discard_open, "Datagrams of open mode."),
                    ("keyed_discard_forged", counters.discard_forged, "Datagrams that their peer has not sealed."),
                    (
                        "keyed_discard_replayed",
                        counters.discard_replayed,
                        "Control datagrams that came before, and datagrams that are too old.",
                    ),
                    ("keyed_discard_source", counters.discard_source, "Datagrams of a peer from another address."),
                    ("keyed_discard_malformed", counters.discard_malformed, "Datagrams of unknown modes or layouts."),
                    ("keyed_discard_other", counters.discard_other, "Datagrams of other groups or for other peers."),
                    (
                        "keyed_discard_unauthenticated",
                        counters.discard_unauthenticated,
                        "Datagrams of peers that did not authenticate themselves in time.",
                    ),
                    (
                        "keyed_discard_handshake",
                        counters.discard_handshake,
                        "Datagrams of handshakes that are not authentic, or came out of turn.",
                    ),
                    ("keyed_unsent", counters.discard_unsent, "Datagrams to peers whose keys were forgotten."),
                    (
                        "keyed_discard_signature",
                        counters.discard_signature,
                        "Signatures of published data that are not of their peer, or came too often.",
                    ),
                    (
                        "keyed_discard_unverified",
                        counters.discard_unverified,
                        "Datagrams that were held, and not verified in time. See `origin-check`.",
                    ),
                    ("origin_verified", counters.origin_verified, "Datagrams that their publisher has signed."),
                    (
                        "origin_unverified",
                        counters.origin_unverified,
                        "Datagrams of publishers that sign, which no signature covered in time.",
                    ),
                    (
                        "origin_forged",
                        counters.origin_forged,
                        "Datagrams that another member has sent in the name of a publisher that signs.",
                    ),
                ]
            }
        }
    }
}
