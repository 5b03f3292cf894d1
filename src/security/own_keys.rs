//! Keys of this peer's own epoch. Its group secret changes in phases: a new one is announced, and used once the others
//! have it.

use super::association::EpochSecrets;
use super::cipher::AeadKey;
use super::key_log::LoggedSecret;
use super::key_schedule::{GroupKeys, RealmKeys, SenderContext};
use super::origin::OriginSigner;
use super::secret::Secret;
use super::sent_numbers::SentNumbers;
use crate::time::Instant;
use crate::wire::Kind;
use std::time::Duration;

/// Maximum time between the announcement of a phase and the first datagram that its keys seal.
pub(super) const ANNOUNCEMENT_TIME_MAX: Duration = Duration::from_secs(5);
/// Minimum time between the announcements of two phases: receivers know those of the last two.
pub(super) const PHASE_TIME_MIN: Duration = Duration::from_secs(20);
/// Maximum time between the announcements of two phases.
pub(super) const PHASE_TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of datagrams that the keys of one phase seal, about.
const PHASE_DATAGRAMS_MAX: u64 = 1 << 32;

/// Keys of this peer's own epoch.
#[derive(Debug)]
pub(super) struct OwnKeys {
    /// The sender, with the phase whose keys seal datagrams now.
    pub(super) sender: SenderContext,
    group_secret: Secret,
    group_keys: GroupKeys,
    /// The next phase, once it is announced.
    announced: Option<AnnouncedPhase>,
    /// Time of the last announcement; `None` in the first phase.
    last_announced: Option<Instant>,
    /// Time from which the age of the present phase counts: the last announcement, or the first tick of the epoch.
    phase_began: Option<Instant>,
    /// True if another phase is to be announced as soon as possible.
    is_change_wanted: bool,
    /// Number of datagrams that the keys of this phase have sealed.
    sealed: u64,
    /// Numbers of the datagrams to the group.
    pub(super) numbers: SentNumbers,
    /// Key of the datagrams of handshakes.
    pub(super) handshake_key: AeadKey,
    /// Signs DATA; `None` if this peer does not.
    pub(super) signer: Option<OriginSigner>,
}

/// A phase that the others know and that is not in use yet.
#[derive(Debug)]
struct AnnouncedPhase {
    sender: SenderContext,
    group_secret: Secret,
    /// Time from which its keys seal datagrams, even if some of the others do not have them.
    begins: Instant,
}

impl OwnKeys {
    /// Derives the keys of an epoch from a fresh random secret, and from those of the realm.
    pub(super) fn new(sender: SenderContext, group_secret: Secret, realm_keys: &RealmKeys) -> OwnKeys {
        OwnKeys {
            sender,
            group_keys: GroupKeys::new(&sender, &group_secret),
            group_secret,
            announced: None,
            last_announced: None,
            phase_began: None,
            is_change_wanted: false,
            sealed: 0,
            numbers: SentNumbers::default(),
            handshake_key: realm_keys.handshake(sender.group, sender.epoch),
            signer: None,
        }
    }

    /// Records that a datagram of a kind is sent to the group, and returns its key.
    pub(super) fn group_key(&mut self, kind: Kind, number: u64) -> &AeadKey {
        self.sealed = self.sealed.saturating_add(1);
        self.numbers.on_sent(kind, number);
        match kind {
            Kind::Control => &self.group_keys.control,
            Kind::Data | Kind::Directed => &self.group_keys.data,
        }
    }

    /// Returns the sender with the phase that was announced last.
    pub(super) fn newest(&self) -> &SenderContext {
        self.announced.as_ref().map_or(&self.sender, |announced| &announced.sender)
    }

    /// Returns the group secret of the phase that was announced last.
    fn newest_secret(&self) -> &Secret {
        self.announced.as_ref().map_or(&self.group_secret, |announced| &announced.group_secret)
    }

    /// Returns the secret of the phase that was announced last, for a key log.
    pub(super) fn logged_group(&self) -> LoggedSecret {
        LoggedSecret { sender: *self.newest(), receiver: None, secret: self.newest_secret().clone() }
    }

    /// Returns the secrets for one receiver. The pairwise one is fresh and random.
    pub(super) fn secrets_with(&self, pairwise_secret: &Secret, now: Instant) -> EpochSecrets {
        EpochSecrets {
            suite: self.sender.suite,
            phase: self.newest().phase,
            group_secret: self.newest_secret().clone(),
            pairwise_secret: pairwise_secret.clone(),
            next: self.numbers.settled(now),
            signs_origin: self.signer.is_some(),
        }
    }

    /// Demands another phase, which is announced as soon as possible.
    pub(super) fn want_change(&mut self) {
        self.is_change_wanted = true;
    }

    /// Begins the phase that was announced, if `is_known_to_all` says that the others have its keys, or if it is time.
    /// Returns whether the next one is to be announced.
    pub(super) fn on_tick(&mut self, now: Instant, is_known_to_all: impl Fn(u8) -> bool) -> bool {
        self.numbers.on_tick(now);
        let begins =
            |announced: &mut AnnouncedPhase| announced.begins <= now || is_known_to_all(announced.sender.phase);
        if let Some(announced) = self.announced.take_if(begins) {
            self.sender = announced.sender;
            self.group_keys = GroupKeys::new(&self.sender, &announced.group_secret);
            self.group_secret = announced.group_secret;
            self.sealed = 0;
        }
        let age = now.since(*self.phase_began.get_or_insert(now));
        let is_due = self.is_change_wanted || PHASE_TIME_MAX <= age || PHASE_DATAGRAMS_MAX <= self.sealed;
        is_due && self.last_announced.is_none_or(|at| PHASE_TIME_MIN <= now.since(at))
    }

    /// Announces another phase, with a fresh random secret.
    pub(super) fn announce(&mut self, group_secret: Secret, now: Instant) {
        let sender = SenderContext { phase: self.sender.phase.wrapping_add(1), ..self.sender };
        self.announced = Some(AnnouncedPhase { sender, group_secret, begins: now + ANNOUNCEMENT_TIME_MAX });
        self.last_announced = Some(now);
        self.phase_began = Some(now);
        self.is_change_wanted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Epoch;
    use crate::security::cipher::Suite;
    use crate::security::secret::SECRET_BYTES;

    fn keys() -> OwnKeys {
        let sender = SenderContext { suite: Suite::Aes256Gcm, phase: 255, group: 7500, epoch: Epoch::new(1).unwrap() };
        OwnKeys::new(sender, Secret::new([1; SECRET_BYTES]), &RealmKeys::new(&Secret::new([0; SECRET_BYTES])))
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn keys_change_after_a_day() {
        let mut keys = keys();
        let day = 24 * 3600;
        assert!(
            !keys.on_tick(at(5), |_| true)
                && !keys.on_tick(at(day + 4), |_| true)
                && keys.on_tick(at(day + 5), |_| true)
        );
        keys.announce(Secret::new([2; SECRET_BYTES]), at(day + 5));
        assert_eq!((keys.sender.phase, keys.newest().phase), (255, 0), "it wraps around");
        assert!(!keys.on_tick(at(day + 9), |_| false) && keys.sender.phase == 255);
        assert!(!keys.on_tick(at(day + 10), |_| false) && keys.sender.phase == 0);
        assert!(!keys.on_tick(at(2 * day + 4), |_| true) && keys.on_tick(at(2 * day + 5), |_| true));
    }

    #[test]
    fn keys_change_once_all_have_them() {
        let mut keys = keys();
        keys.want_change();
        assert!(keys.on_tick(at(0), |_| true));
        keys.announce(Secret::new([2; SECRET_BYTES]), at(0));
        assert!(!keys.on_tick(at(1), |_| false) && keys.sender.phase == 255);
        assert!(!keys.on_tick(at(1), |_| true) && keys.sender.phase == 0);
    }

    #[test]
    fn keys_change_after_many_datagrams() {
        let mut keys = keys();
        keys.sealed = PHASE_DATAGRAMS_MAX - 1;
        assert!(!keys.on_tick(at(1), |_| true));
        keys.group_key(Kind::Data, 1);
        assert!(keys.on_tick(at(2), |_| true));
        keys.announce(Secret::new([2; SECRET_BYTES]), at(2));
        assert!(!keys.on_tick(at(4), |_| true) && keys.sealed == 0);
        keys.want_change();
        assert!(!keys.on_tick(at(21), |_| true) && keys.on_tick(at(22), |_| true));
    }
}
