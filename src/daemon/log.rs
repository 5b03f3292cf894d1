//! Lines of the log about other peers and losses.

use crate::message::{Cause, Count, Publisher};
use crate::proto::advisory::Advisory;
use crate::proto::effect::MemberEvent;

/// Logs a change in the state of another peer.
pub(crate) fn member(publisher: &Publisher, event: MemberEvent) {
    let (name, epoch, uid) = (name(publisher), publisher.epoch, publisher.uid);
    match event {
        MemberEvent::Up => tracing::info!(peer = name, %epoch, uid, "peer up"),
        MemberEvent::Left => tracing::info!(peer = name, %epoch, uid, "peer left"),
        MemberEvent::Resumed => tracing::info!(peer = name, %epoch, uid, "peer heard again"),
        MemberEvent::Silent => tracing::warn!(peer = name, %epoch, uid, "peer silent"),
        MemberEvent::Crashed => tracing::warn!(peer = name, %epoch, uid, "peer crashed"),
        MemberEvent::MulticastRestored => tracing::info!(peer = name, %epoch, uid, "multicasts of a peer arrive again"),
        MemberEvent::MulticastDead => {
            tracing::warn!(peer = name, %epoch, uid, "multicasts of a peer do not arrive, its unicasts do; see docs/network.md");
        }
        MemberEvent::FlowExcluded => {
            tracing::warn!(peer = name, %epoch, uid, "peer receives too slowly, and this peer no longer waits for it; see 'show peers'");
        }
        MemberEvent::CaughtUp => tracing::info!(peer = name, %epoch, uid, "peer has caught up"),
        MemberEvent::DuplicateName => {
            tracing::warn!(peer = name, %epoch, uid, "two peers have the same name; give each its own (key 'name')");
        }
    }
}

/// Logs a loss, summarized as in the advisory to the clients: the first at once, then one line a second.
pub(crate) fn advisory(advisory: &Advisory) {
    let Advisory { publisher, subjects_count, unverified, reason, cause, .. } = advisory;
    let lost = Count::from_bounds(advisory.lost_min, advisory.lost_max);
    tracing::warn!(
        peer = name(publisher),
        epoch = %publisher.epoch,
        uid = publisher.uid,
        %lost,
        subjects = subjects_count,
        unverified,
        %reason,
        cause = cause.as_str(),
        kernel_drops = (*cause != Cause::Network).then(|| cause.overrun()),
        network_drops = Some(cause.network()).filter(|drops| 0 < *drops),
        "loss"
    );
}

fn name(publisher: &Publisher) -> &str {
    publisher.name.as_ref().map_or("?", |name| name.as_str())
}
