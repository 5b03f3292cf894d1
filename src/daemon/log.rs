//! Lines of the log about other peers and losses.

#[cfg(feature = "security")]
use crate::message::PeerName;
use crate::message::{Cause, Count, Epoch, Publisher};
use crate::proto::advisory::Advisory;
#[cfg(feature = "security")]
use crate::proto::effect::DeniedPublication;
use crate::proto::effect::{EpochChange, MemberEvent};
#[cfg(feature = "security")]
use std::net::SocketAddr;

/// Maximum number of names of revoked hosts in a line.
#[cfg(feature = "security")]
const REVOKED_NAMES_MAX: usize = 16;

/// Logs a change in the state of another peer.
pub(crate) fn member(publisher: &Publisher, event: MemberEvent) {
    let (name, epoch, uid) = (name(publisher), publisher.epoch, publisher.uid);
    match event {
        MemberEvent::Up => tracing::info!(peer = name, %epoch, uid, "peer up"),
        MemberEvent::Left => tracing::info!(peer = name, %epoch, uid, "peer left"),
        MemberEvent::Resumed => tracing::info!(peer = name, %epoch, uid, "peer heard again"),
        MemberEvent::Silent => tracing::warn!(peer = name, %epoch, uid, "peer silent"),
        MemberEvent::Crashed => tracing::warn!(peer = name, %epoch, uid, "peer crashed"),
        MemberEvent::FlowExcluded => {
            tracing::warn!(peer = name, %epoch, uid, "peer receives too slowly, and this peer no longer waits for it; see 'show peers'");
        }
        MemberEvent::CaughtUp => tracing::info!(peer = name, %epoch, uid, "peer has caught up"),
        MemberEvent::ForeignName => {
            tracing::warn!(peer = name, %epoch, uid, "this peer announces the name of another host; 'show peers' names the member that it is");
        }
        MemberEvent::InterestForged => {
            tracing::error!(
                peer = name,
                %epoch,
                uid,
                "somebody has sent subscriptions in the name of this peer, and the peer named here may have suppressed messages \
                 for programs here; the subscriptions are sent again"
            );
        }
        // The checks of the running peer log these, with the remedy.
        MemberEvent::MulticastDead | MemberEvent::MulticastRestored | MemberEvent::DuplicateName => {}
    }
}

/// Logs that another peer has proven its identity.
#[cfg(feature = "security")]
pub(crate) fn authenticated(name: &PeerName, epoch: Epoch, address: SocketAddr) {
    tracing::info!(peer = %name, %epoch, %address, "peer authenticated");
}

/// Logs that the certificate of another peer has expired.
#[cfg(feature = "security")]
pub(crate) fn expired(name: &PeerName, epoch: Epoch, address: SocketAddr) {
    tracing::warn!(
        peer = %name,
        %epoch,
        %address,
        "the certificate of this peer has expired; sign a new request of it with 'seqcast realm sign', give it to 'seqcast join' \
         there, and run 'seqcast config reload'"
    );
}

/// Logs that the keys of another peer are revoked.
#[cfg(feature = "security")]
pub(crate) fn revoked(name: &PeerName, epoch: Epoch, address: SocketAddr) {
    tracing::warn!(peer = %name, %epoch, %address, "the keys of this peer are revoked; nothing of it is accepted any more");
}

/// Logs that a member of the realm has published in the name of another one.
#[cfg(feature = "security")]
pub(crate) fn forged_origin(name: &PeerName, epoch: Epoch, address: SocketAddr, number: u64) {
    tracing::error!(
        peer = %name,
        %epoch,
        %address,
        number,
        "a member of the realm forges: it has sent data in the name of this peer, which did not sign it"
    );
}

/// Logs that this peer has taken over the list of revoked hosts of another one. The names are those of hosts that were
/// not revoked before, and the first ones of many.
#[cfg(feature = "security")]
pub(crate) fn revocations(names: &[PeerName], revision: u64, from: Epoch) {
    let first: Vec<&str> = names.iter().take(REVOKED_NAMES_MAX).map(PeerName::as_str).collect();
    let revoked = first.join(" ");
    tracing::info!(%from, revision, hosts = names.len(), revoked, "hosts of the realm are revoked");
}

/// Logs that another peer has the keys of the realm, and is not trusted.
#[cfg(feature = "security")]
pub(crate) fn refused(address: SocketAddr, reason: &str) {
    tracing::warn!(%address, reason, "peer not trusted");
}

/// Logs a message of another peer that its certificate does not permit.
#[cfg(feature = "security")]
pub(crate) fn denied(DeniedPublication { publisher, member, subject }: &DeniedPublication) {
    let member = member.as_ref().map_or("?", |name| name.as_str());
    tracing::warn!(
        peer = name(publisher),
        epoch = %publisher.epoch,
        member,
        %subject,
        "message not delivered: the certificate of this member does not let it publish on the subject; sign a new request \
         of it with a pattern for the subject (seqcast realm sign), or find the program that publishes there"
    );
}

/// Logs that this peer continues under a new epoch.
pub(crate) fn new_epoch(epoch: Epoch, change: EpochChange) {
    match change {
        EpochChange::FramesExhausted => tracing::warn!(%epoch, "new epoch: the frames of the old one ran out"),
        EpochChange::AddressChanged => tracing::info!(%epoch, "new epoch: the address of this peer changed"),
    }
}

/// Logs a loss, summarized as in the advisory to the clients: the first at once, then one line a second. A line has the
/// number of lost messages only if some are lost.
pub(crate) fn advisory(advisory: &Advisory) {
    let Advisory { publisher, subjects_count, unverified, reason, cause, .. } = advisory;
    let lost = (0 < advisory.lost_max).then(|| Count::from_bounds(advisory.lost_min, advisory.lost_max));
    let event = match (advisory.stream.is_outbound(), lost) {
        (true, Some(_)) => "another peer has lost messages of this peer",
        (true, None) => "another peer may have missed messages of this peer",
        (_, Some(_)) => "messages lost",
        (_, None) if 0 < *unverified => "messages are missing, and no message or manifest explains them yet",
        (_, None) => "the publisher's last messages may be missing",
    };
    tracing::warn!(
        peer = name(publisher),
        epoch = %publisher.epoch,
        uid = publisher.uid,
        lost = lost.map(tracing::field::display),
        subjects = lost.map(|_| *subjects_count),
        unverified = Some(*unverified).filter(|count| 0 < *count),
        %reason,
        cause = cause.as_str(),
        kernel_drops = (*cause != Cause::Network).then(|| cause.overrun()),
        network_drops = Some(cause.network()).filter(|drops| 0 < *drops),
        "{event}"
    );
}

fn name(publisher: &Publisher) -> &str {
    publisher.name.as_ref().map_or("?", |name| name.as_str())
}
