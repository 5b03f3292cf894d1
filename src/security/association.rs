//! The security association with one epoch of another peer: its keys, and the keys for datagrams to it alone.
//!
//! A later handshake replaces the keys. Those before it open what is still under way.

use super::cipher::{AeadKey, Suite};
use super::credentials::CertifiedHost;
use super::handshake_datagram::NONCE_BYTES;
use super::key_schedule::{GroupKeys, PairwiseKeys, SenderContext};
use super::origin::{OriginContext, OriginVerifier};
use super::replay_window::{GroupReplayWindow, ReplayWindow};
use super::sealed_datagram::open_datagram;
use super::secret::{SECRET_BYTES, Secret};
use super::sent_numbers::NextNumbers;
use crate::message::Epoch;
use crate::proto::effect::Path;
use crate::time::Instant;
use crate::wire::{self, KeyChoice, KeyedHeader, Kind};
use bytes::Bytes;
use std::net::SocketAddr;
use std::time::Duration;
use zeroize::Zeroizing;

/// Time for which replaced keys still open datagrams: a sender uses its former group keys for up to 5 s after it has
/// announced new ones, and datagrams may be under way for some seconds more.
const FORMER_KEYS_TIME: Duration = Duration::from_secs(15);
/// Bit of the last byte of the secrets: the sender signs its DATA. The other bits are for later versions.
const ORIGIN_SIGNED: u8 = 1;

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
    /// True if the sender signs its DATA.
    pub(super) signs_origin: bool,
}

impl EpochSecrets {
    /// Returns the bytes of the secrets, followed by `rest`.
    pub(super) fn encode(&self, rest: &[u8]) -> Zeroizing<Vec<u8>> {
        // No growth leaves copies of the secrets behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(2 + 2 * SECRET_BYTES + 16 + 1 + rest.len()));
        bytes.extend([self.suite.mode(), self.phase]);
        bytes.extend(self.group_secret.bytes());
        bytes.extend(self.pairwise_secret.bytes());
        bytes.extend(self.next.data.to_be_bytes());
        bytes.extend(self.next.control.to_be_bytes());
        bytes.push(u8::from(self.signs_origin));
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
        let (origin, rest) = rest.split_first()?;
        let secrets = EpochSecrets {
            suite: Suite::of_mode(*mode)?,
            phase: *phase,
            group_secret: Secret::new(*group_secret),
            pairwise_secret: Secret::new(*pairwise_secret),
            next: NextNumbers { data: u64::from_be_bytes(*data), control: u64::from_be_bytes(*control) },
            signs_origin: *origin & ORIGIN_SIGNED != 0,
        };
        Some((secrets, rest))
    }
}

/// The pairwise secret that this peer has given to another one in a handshake.
#[derive(Clone, Debug)]
pub(super) struct GivenSecret {
    /// This peer, with the phase that it had announced at that time.
    pub(super) sender: SenderContext,
    pub(super) pairwise_secret: Secret,
}

/// Another host that has proven its identity in a handshake.
#[derive(Clone, Debug)]
pub(super) struct RemoteHost {
    /// Address that it has proven.
    pub(super) address: SocketAddr,
    /// The host, as its certificate describes it.
    pub(super) certified: CertifiedHost,
}

/// The keys that this peer and one epoch of another peer share.
#[derive(Debug)]
pub(super) struct Association {
    /// Host of the epoch. Datagrams from another address are discarded.
    pub(super) host: RemoteHost,
    /// Key of the datagrams of handshakes that the other sends.
    pub(super) handshake_key: AeadKey,
    suite: Suite,
    /// Phase of the group keys.
    phase: u8,
    receive_group: GroupKeys,
    receive_pairwise: PairwiseKeys,
    /// Group keys of the phase before.
    former_group: Option<FormerGroup>,
    /// Pairwise keys of the handshake before.
    former_pairwise: Option<FormerPairwise>,
    /// The phase of this peer's group keys that the other has.
    given_phase: u8,
    /// `None` after the own epoch has changed, until the next handshake.
    send_pairwise: Option<PairwiseKeys>,
    /// Numbers below which datagrams to the group are old: a stranger may have recorded them.
    first: NextNumbers,
    /// Control datagrams to the group that were accepted.
    group_window: GroupReplayWindow,
    /// Control datagrams to this peer alone that were accepted. Other members cannot seal them.
    pairwise_window: ReplayWindow,
    /// Time of the last control datagram that was accepted. Only those cannot be replayed.
    pub(super) last_heard: Instant,
    /// Time of the last HELLO from the peer's address, which a stranger may have replayed.
    pub(super) last_hello: Instant,
    /// Time of the last handshake, or of the last control datagram that only the peer itself can have sealed.
    pub(super) last_proven: Instant,
    /// The answer to the FINAL of the other; `None` if this peer was the initiator.
    pub(super) keys_answer: Option<KeysAnswer>,
    /// True if the other side may have other keys, since a later handshake has failed at its end, or since it has
    /// announced a later phase.
    is_doubtful: bool,
    /// Verifies the signatures of DATA; `None` if the peer does not sign.
    pub(super) origin: Option<OriginVerifier>,
}

/// Replaced group keys of another peer.
#[derive(Debug)]
struct FormerGroup {
    keys: GroupKeys,
    until: Instant,
}

/// Replaced pairwise keys of another peer.
#[derive(Debug)]
struct FormerPairwise {
    keys: PairwiseKeys,
    /// Control datagrams that these keys have sealed and that were accepted.
    window: ReplayWindow,
    until: Instant,
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
    /// Its phase is one of which this peer has no keys.
    UnknownPhase,
}

impl Association {
    /// Creates the association from the secrets of the other side, and the pairwise one that it got from this side.
    pub(super) fn new(
        remote: Epoch,
        host: RemoteHost,
        handshake_key: AeadKey,
        given: &GivenSecret,
        secrets: &EpochSecrets,
        now: Instant,
    ) -> Association {
        let sender =
            SenderContext { suite: secrets.suite, phase: secrets.phase, group: given.sender.group, epoch: remote };
        let context = OriginContext { group: sender.group, epoch: remote };
        Association {
            origin: secrets.signs_origin.then(|| OriginVerifier::new(host.certified.keys.signing, context, now)),
            host,
            handshake_key,
            suite: secrets.suite,
            phase: secrets.phase,
            receive_group: GroupKeys::new(&sender, &secrets.group_secret),
            receive_pairwise: PairwiseKeys::new(&sender, &secrets.pairwise_secret, given.sender.epoch),
            former_group: None,
            former_pairwise: None,
            given_phase: given.sender.phase,
            send_pairwise: Some(PairwiseKeys::new(&given.sender, &given.pairwise_secret, remote)),
            first: secrets.next,
            group_window: GroupReplayWindow::starting_at(secrets.next.control),
            pairwise_window: ReplayWindow::starting_at(0),
            last_heard: now,
            last_hello: now,
            last_proven: now,
            keys_answer: None,
            is_doubtful: false,
        }
    }

    /// Continues a former association with the same epoch. A stranger may replay what it has accepted: numbers to the
    /// group rise over all phases of an epoch.
    ///
    /// After a change of keys, the former ones still open what is under way. Without one, the other side may have given
    /// this peer up, and may number what it sends to it from the start: then nothing of the former pairwise keys counts.
    pub(super) fn inherit(&mut self, former: Association, now: Instant) {
        let until = now + FORMER_KEYS_TIME;
        self.group_window = former.group_window;
        self.first = former.first;
        self.former_group = match former.phase == self.phase {
            true => former.former_group,
            false => Some(FormerGroup { keys: former.receive_group, until }),
        };
        let has_changed = (former.phase, former.given_phase) != (self.phase, self.given_phase);
        let (keys, window) = (former.receive_pairwise, former.pairwise_window);
        self.former_pairwise = has_changed.then_some(FormerPairwise { keys, window, until });
        // Signed hashes do not depend on keys of datagrams.
        if let (Some(origin), Some(former)) = (&mut self.origin, former.origin)
            && former.has_key(&self.host.certified.keys.signing)
        {
            *origin = former;
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

    /// Returns whether both sides have the keys of this association. Otherwise the next HELLO or pairwise datagram begins a
    /// handshake.
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

    /// Returns whether the other has the group keys of this phase of this peer.
    pub(super) fn has_phase(&self, phase: u8) -> bool {
        self.send_pairwise.is_some() && self.given_phase == phase
    }

    /// Handles the phase that the peer announces. A later one than that of its keys makes them doubtful.
    pub(super) fn on_phase(&mut self, phase: u8) {
        // Phases wrap around, and a stranger may replay earlier ones.
        self.is_doubtful |= (1..=i8::MAX as u8).contains(&phase.wrapping_sub(self.phase));
    }

    /// Decrypts a datagram of this peer, and returns it as one of open mode. The bytes of a forged one are lost, unless
    /// something else refers to them. Those of an unknown phase stay in `datagram`.
    pub(super) fn open(
        &mut self,
        now: Instant,
        keyed: &KeyedHeader,
        path: Path,
        datagram: &mut Bytes,
    ) -> Result<Bytes, OpenFailure> {
        if keyed.mode != self.suite.mode() {
            return Err(OpenFailure::Forged);
        }
        match (keyed.header.kind, keyed.key) {
            (Kind::Data | Kind::Control, KeyChoice::Group { is_odd_phase }) => {
                let keys = self.group_keys(now, is_odd_phase).ok_or(OpenFailure::UnknownPhase)?;
                let opened = open_by_group(keys, keyed, std::mem::take(datagram))?;
                if keyed.header.kind == Kind::Control
                    && (path == Path::Unicast || wire::has_record_for_one(keyed.header_bytes, &opened))
                {
                    // Every member has the group keys. Only sender and receiver have those of such a datagram.
                    return Err(OpenFailure::Forged);
                }
                let number = keyed.header.number;
                let is_new = match keyed.header.kind {
                    Kind::Control => self.group_window.accept(number),
                    // Older data comes by unicast to those that request it.
                    Kind::Data | Kind::Directed => path == Path::Unicast || self.first.data <= number,
                };
                is_new.then_some(opened).ok_or(OpenFailure::Replayed)
            }
            (Kind::Control | Kind::Directed, KeyChoice::Pairwise { is_odd_phase }) => {
                let opened = open_pairwise(&self.receive_pairwise, &mut self.pairwise_window, keyed, datagram);
                // With the keys of the last handshake, another phase is a later one.
                self.is_doubtful |=
                    opened.is_ok() && KeyChoice::of_phase(self.phase) != (KeyChoice::Group { is_odd_phase });
                let opened = match self.former_pairwise.as_mut().filter(|former| now < former.until) {
                    Some(former) if opened == Err(OpenFailure::Forged) => {
                        open_pairwise(&former.keys, &mut former.window, keyed, datagram)
                    }
                    _ => opened,
                };
                if opened.is_ok() && keyed.header.kind == Kind::Control {
                    self.group_window.on_proven(keyed.header.number);
                    self.last_proven = now;
                }
                opened
            }
            (Kind::Data, KeyChoice::Pairwise { .. }) | (Kind::Directed, KeyChoice::Group { .. }) => {
                Err(OpenFailure::Forged)
            }
        }
    }

    /// Returns the group keys of a phase; `None` if it is not one of the last two, or the former one is over.
    fn group_keys(&self, now: Instant, is_odd_phase: bool) -> Option<&GroupKeys> {
        if KeyChoice::of_phase(self.phase) == (KeyChoice::Group { is_odd_phase }) {
            return Some(&self.receive_group);
        }
        self.former_group.as_ref().filter(|former| now < former.until).map(|former| &former.keys)
    }
}

fn open_by_group(keys: &GroupKeys, keyed: &KeyedHeader, datagram: Bytes) -> Result<Bytes, OpenFailure> {
    let key = if keyed.header.kind == Kind::Control { &keys.control } else { &keys.data };
    open_datagram(key, keyed, datagram).ok_or(OpenFailure::Forged)
}

fn open_pairwise(
    keys: &PairwiseKeys,
    window: &mut ReplayWindow,
    keyed: &KeyedHeader,
    datagram: &Bytes,
) -> Result<Bytes, OpenFailure> {
    let is_control = keyed.header.kind == Kind::Control;
    let key = if is_control { &keys.control } else { &keys.directed };
    // The keys of the handshake before may open it.
    let opened = open_datagram(key, keyed, datagram.clone()).ok_or(OpenFailure::Forged)?;
    let is_new = !is_control || window.accept(keyed.header.number);
    is_new.then_some(opened).ok_or(OpenFailure::Replayed)
}
