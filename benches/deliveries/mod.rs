//! Reading of deliveries as a peer does it.

use seqcast::message::DeliveryRef;
use seqcast::proto::effect::Effect;
use seqcast::proto::peer::Peer;
use std::hint::black_box;

/// Takes all effects of a peer, and returns the number of messages that they deliver.
pub fn take_deliveries(peer: &mut Peer) -> u64 {
    let mut delivered = 0;
    let mut take = |delivery: &DeliveryRef<'_>| {
        black_box(delivery);
        delivered += 1;
    };
    loop {
        if let Some(runs) = peer.poll_runs() {
            runs.visit(&mut take);
            runs.recycle(peer.list_pools());
            continue;
        }
        match peer.poll_effect() {
            Some(Effect::Deliver { deliveries, .. }) => deliveries.visit(&mut take),
            Some(_) => {}
            None => return delivered,
        }
    }
}
