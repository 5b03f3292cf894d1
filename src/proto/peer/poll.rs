//! Polls of this peer's clients: which peer they mean.

use super::Peer;
use crate::message::{Epoch, PeerName, PeerRef};
use crate::proto::effect::Unanswered;

impl Peer {
    /// The run of the peer that a client means; a name means the only live peer with it, which may be this one.
    ///
    /// # Errors
    /// Nobody has the name, several have it, or who had it has left. An epoch is taken as it is.
    pub fn resolve(&self, peer: &PeerRef) -> Result<Epoch, Unanswered> {
        match peer {
            PeerRef::Epoch(epoch) => Ok(*epoch),
            PeerRef::Name(name) => self.only_one(|known| known == name),
        }
    }

    /// The only live peer whose name is the one that is meant.
    fn only_one(&self, is_meant: impl Fn(&PeerName) -> bool) -> Result<Epoch, Unanswered> {
        let named = self.members.values().filter(|member| member.publisher.name.as_ref().is_some_and(&is_meant));
        let (mut only, mut has_gone) = (is_meant(&self.settings.name).then_some(self.origin.epoch), false);
        for member in named {
            match only {
                _ if !member.is_alive() => has_gone = true,
                Some(_) => return Err(Unanswered::Ambiguous),
                None => only = Some(member.publisher.epoch),
            }
        }
        only.ok_or(if has_gone { Unanswered::Gone } else { Unanswered::UnknownPeer })
    }
}
