//! The exchange of revocation lists with other peers of the realm.

use super::Engine;
use crate::daemon::revocation_inquiry as inquiry;
use crate::message::{ClientId, PeerRef};
use crate::proto::question::Question;
use crate::time::ClockReading;

/// The client that asks: the peer itself.
const OWN_CLIENT: ClientId = ClientId(0);

impl Engine {
    /// Takes over the list of a peer that was asked for it, and asks the next one that has announced a newer list.
    pub(super) fn exchange_revocations(&mut self, now: ClockReading) {
        if self.core.protection.take_over_revocations(now.instant) {
            self.core.apply_effects(now);
        }
        if let Some((peer, answer)) = self.core.protection.next_inquiry(now.instant) {
            let question = Question::Report(inquiry::query().to_string().into());
            self.core.query_history(now, OWN_CLIENT, &PeerRef::Epoch(peer), question, inquiry::ANSWER_TIME, answer);
        }
    }
}
