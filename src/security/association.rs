//! The security association with one epoch of another peer: its keys, and the keys for datagrams to it alone.

use super::cipher::{AeadKey, Suite};
use super::handshake_datagram::NONCE_BYTES;
use super::key_log::LoggedSecret;
use super::key_schedule::{GroupKeys, PairwiseKeys, RealmKeys, SenderContext};
use super::noise::STATIC_KEY_BYTES;
use super::replay_window::ReplayWindow;
use super::sealed_datagram::open_datagram;
use super::secret::{SECRET_BYTES, Secret};
use super::sent_numbers::{NextNumbers, SentNumbers};
use crate::message::{Epoch, PeerName};
use crate::proto::effect::Path;
use crate::time::{Instant, WallTime};
use crate::wire::{KeyedHeader, Kind};
use bytes::Bytes;
use std::net::SocketAddr;
use zeroize::Zeroizing;

/// Secrets that a peer gives to another one in a handshake, so that the other can open its datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EpochSecrets {
    pub(super) suite: Suite,
    /// Number of changes of the secrets.
    pub(super) phase: u8,
    /// Secret of all datagrams to the group, which every member gets.
    pub(super) group_secret: Secret,
    /// Secret of the datagrams to this one receiver, which each handshake draws anew.
    pub(super) pairwise_secret: Secret,
    /// Numbers of the sender's next datagrams to the group some seconds ago.
    pub(super) next: NextNumbers,
}

impl EpochSecrets {
    /// Returns the bytes of the secrets, followed by `rest`.
    pub(super) fn encode(&self, rest: &[u8]) -> Zeroizing<Vec<u8>> {
        // No growth leaves copies of the secrets behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(2 + 2 * SECRET_BYTES + 16 + rest.len()));
        bytes.extend([self.suite.mode(), self.phase]);
        bytes.extend(self.group_secret.bytes());
        bytes.extend(self.pairwise_secret.bytes());
        bytes.extend(self.next.data.to_be_bytes());
        bytes.extend(self.next.control.to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    /// Decodes the secrets, and returns what follows them; `None` if they are truncated or of an unknown suite.
    pub(super) fn decode(bytes: &[u8]) -> Option<(EpochSecrets, &[u8])> {
        let ([mode, phase], rest) = bytes.split_first_chunk()?;
        let (group_secret, rest) = rest.split_first_chunk()?;
        let (pairwise_secret, rest) = rest.split_first_chunk()?;
        let (data, rest) = rest.split_first_chunk()?;
        let (control, rest) = rest.split_first_chunk()?;
        let secrets = EpochSecrets {
            suite: Suite::of_mode(*mode)?,
            phase: *phase,
            group_secret: Secret::new(*group_secret),
            pairwise_secret: Secret::new(*pairwise_secret),
            next: NextNumbers { data: u64::from_be_bytes(*data), control: u64::from_be_bytes(*control) },
        };
        Some((secrets, rest))
    }
}

/// Keys of this peer's own epoch.
#[derive(Debug)]
pub(super) struct OwnKeys {
    pub(super) sender: SenderContext,
    group_secret: Secret,
    group_keys: GroupKeys,
    /// Numbers of the datagrams to the group.
    pub(super) numbers: SentNumbers,
    /// Key of the datagrams of handshakes.
    pub(super) handshake_key: AeadKey,
}

impl OwnKeys {
    /// Derives the keys of an epoch from a fresh random secret, and from those of the realm.
    pub(super) fn new(sender: SenderContext, group_secret: Secret, realm_keys: &RealmKeys) -> OwnKeys {
        let group_keys = GroupKeys::new(&sender, &group_secret);
        let handshake_key = realm_keys.handshake(sender.group, sender.epoch);
        OwnKeys { sender, group_secret, group_keys, numbers: SentNumbers::default(), handshake_key }
    }

    /// Returns the key of datagrams of a kind to the group.
    pub(super) fn group_key(&self, kind: Kind) -> &AeadKey {
        match kind {
            Kind::Control => &self.group_keys.control,
            Kind::Data | Kind::Directed => &self.group_keys.data,
        }
    }

    /// Returns the secret of what this peer sends to the group, for a key log.
    pub(super) fn logged_group(&self) -> LoggedSecret {
        LoggedSecret { sender: self.sender, receiver: None, secret: self.group_secret.clone() }
    }

    /// Returns the secrets for one receiver. The pairwise one is fresh and random.
    pub(super) fn secrets_with(&self, pairwise_secret: &Secret, now: Instant) -> EpochSecrets {
        EpochSecrets {
            suite: self.sender.suite,
            phase: self.sender.phase,
            group_secret: self.group_secret.clone(),
            pairwise_secret: pairwise_secret.clone(),
            next: self.numbers.settled(now),
        }
    }
}

/// Another host that has proven its identity in a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteHost {
    /// Address that it has proven.
    pub(super) address: SocketAddr,
    /// Name in its certificate.
    pub(super) name: PeerName,
    /// Public key in its certificate.
    pub(super) static_key: [u8; STATIC_KEY_BYTES],
    /// Time from which its certificate is not valid; `None` if it is valid for ever.
    pub(super) valid_until: Option<WallTime>,
}

/// The keys that this peer and one epoch of another peer share.
#[derive(Debug)]
pub(super) struct Association {
    /// Host of the epoch. Datagrams from another address are discarded.
    pub(super) host: RemoteHost,
    suite: Suite,
    /// Secret of the group keys.
    group_secret: Secret,
    receive_group: GroupKeys,
    receive_pairwise: PairwiseKeys,
    /// `None` after the own epoch has changed, until the next handshake.
    send_pairwise: Option<PairwiseKeys>,
    /// Numbers below which datagrams to the group are old: a stranger may have recorded them.
    first: NextNumbers,
    /// Control datagrams to the group that were accepted.
    group_window: ReplayWindow,
    /// Control datagrams to this peer alone that were accepted. Other members cannot seal them.
    pairwise_window: ReplayWindow,
    /// Time of the last control datagram that was accepted. Only those cannot be replayed.
    pub(super) last_heard: Instant,
    /// The answer to the FINAL of the other; `None` if this peer was the initiator.
    pub(super) keys_answer: Option<KeysAnswer>,
    /// True if the other side may have other keys, since a later handshake has failed at its end.
    is_doubtful: bool,
}

/// The KEYS of a responder, which it sends again if the FINAL is repeated.
#[derive(Debug)]
pub(super) struct KeysAnswer {
    /// Nonce of the FINAL.
    pub(super) final_nonce: [u8; NONCE_BYTES],
    pub(super) datagram: Bytes,
}

/// Reason why a datagram of a known epoch is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenFailure {
    /// It is not authentic.
    Forged,
    /// It was accepted before, or it is too old.
    Replayed,
}

impl Association {
    /// Creates the association from the secrets of the other side, and the pairwise one that it got from this side.
    pub(super) fn new(
        own: &OwnKeys,
        remote: Epoch,
        secrets: &EpochSecrets,
        own_pairwise_secret: &Secret,
        host: RemoteHost,
        now: Instant,
    ) -> Association {
        let sender =
            SenderContext { suite: secrets.suite, phase: secrets.phase, group: own.sender.group, epoch: remote };
        Association {
            host,
            suite: secrets.suite,
            group_secret: secrets.group_secret.clone(),
            receive_group: GroupKeys::new(&sender, &secrets.group_secret),
            receive_pairwise: PairwiseKeys::new(&sender, &secrets.pairwise_secret, own.sender.epoch),
            send_pairwise: Some(PairwiseKeys::new(&own.sender, own_pairwise_secret, remote)),
            first: secrets.next,
            group_window: ReplayWindow::starting_at(secrets.next.control),
            pairwise_window: ReplayWindow::starting_at(0),
            last_heard: now,
            keys_answer: None,
            is_doubtful: false,
        }
    }

    /// Continues with the window of a former association with the same epoch, if its group keys were the same. A
    /// stranger may replay what it has accepted. Pairwise keys are always new.
    pub(super) fn inherit(&mut self, former: Association) {
        if self.group_secret == former.group_secret {
            self.group_window = former.group_window;
            self.first = former.first;
        }
    }

    /// Forgets the keys for datagrams to this peer, after the own epoch has changed.
    pub(super) fn on_own_epoch(&mut self) {
        self.send_pairwise = None;
    }

    /// Records that the other side may have other keys.
    pub(super) fn on_doubt(&mut self) {
        self.is_doubtful = true;
    }

    /// Returns whether both sides have the keys of this association. Otherwise the next HELLO begins a handshake.
    pub(super) fn is_sound(&self) -> bool {
        self.send_pairwise.is_some() && !self.is_doubtful
    }

    /// Returns the key for datagrams of a kind to this peer alone; `None` before the first handshake of the own epoch.
    pub(super) fn send_key(&self, kind: Kind) -> Option<&AeadKey> {
        let keys = self.send_pairwise.as_ref()?;
        Some(match kind {
            Kind::Directed => &keys.directed,
            Kind::Data | Kind::Control => &keys.control,
        })
    }

    /// Decrypts a datagram of this peer, and returns it as one of open mode.
    pub(super) fn open(&mut self, keyed: &KeyedHeader, path: Path, datagram: &Bytes) -> Result<Bytes, OpenFailure> {
        let (kind, number) = (keyed.header.kind, keyed.header.number);
        let key = match (kind, keyed.is_pairwise) {
            (Kind::Data, false) => &self.receive_group.data,
            (Kind::Control, false) => &self.receive_group.control,
            (Kind::Control, true) => &self.receive_pairwise.control,
            (Kind::Directed, true) => &self.receive_pairwise.directed,
            (Kind::Data, true) | (Kind::Directed, false) => return Err(OpenFailure::Forged),
        };
        if keyed.mode != self.suite.mode() {
            return Err(OpenFailure::Forged);
        }
        let opened = open_datagram(key, keyed, datagram).ok_or(OpenFailure::Forged)?;
        let window = if keyed.is_pairwise { &mut self.pairwise_window } else { &mut self.group_window };
        let is_new = match kind {
            Kind::Control => window.accept(number),
            // Older data comes by unicast to those that request it.
            Kind::Data => path == Path::Unicast || self.first.data <= number,
            Kind::Directed => true,
        };
        if !is_new {
            return Err(OpenFailure::Replayed);
        }
        Ok(opened)
    }
}
