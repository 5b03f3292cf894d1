//! The attempts of an attacker who has the keys of a member, but not those that the attempt would need.

use super::attempts::{Sealing, attacker_address, forge_all_kinds, group_address, is_sealed, number_at};
use super::experiment::Reaction::Discard;
use super::experiment::{Experiment, ObservedPeer, PUBLISHER, VICTIM};
use super::member_keys::SenderSecret;
use super::raw_network::UdpDatagram;

/// Datagrams with keys of the publisher's present run.
pub fn send_as_member(experiment: &mut Experiment, secrets: &[SenderSecret]) {
    let [publisher, victim] = [PUBLISHER, VICTIM].map(|address| experiment.observed(address));
    let group = secret_of(secrets, publisher.epoch, false);
    let datagrams = forge_all_kinds(experiment, publisher, attacker_address(), Sealing::Secret(group));
    experiment.attempt("member: datagrams to the group, from its own address", &datagrams, Discard);
    // The publisher has given the member a secret for the two of them, and one for the group. The victim has a third.
    let pairwise = secret_of(secrets, publisher.epoch, true);
    let for_victim = |secret: &SenderSecret| secret.claimed_for(publisher.epoch, Some(victim.epoch));
    let mut datagrams = Vec::new();
    for secret in [pairwise.clone(), for_victim(pairwise), for_victim(group)] {
        datagrams.extend(forge_all_kinds(experiment, publisher, publisher.inbox, Sealing::Secret(&secret)));
    }
    experiment.attempt("member: datagrams to the victim alone, from the publisher's address", &datagrams, Discard);
}

/// Datagrams with keys of the publisher's run before a crash. The victim has not seen that run.
pub fn send_with_old_keys(experiment: &mut Experiment, secrets: &[SenderSecret]) {
    let former = experiment.observed(PUBLISHER);
    let of_publisher = |datagram: &UdpDatagram| *datagram.from.ip() == PUBLISHER && is_sealed(&datagram.payload);
    let last = experiment.record(1, of_publisher, |_| ()).remove(0);
    let present = ObservedPeer { epoch: number_at(&last.payload, 8), inbox: last.from, ..former };
    let old = secret_of(secrets, former.epoch, false);
    for (claimed, whose) in [(former, "that run"), (present, "its present run")] {
        let secret = old.claimed_for(claimed.epoch, None);
        let mut datagrams = forge_all_kinds(experiment, claimed, claimed.inbox, Sealing::Secret(&secret));
        datagrams.iter_mut().for_each(|datagram| datagram.to = group_address());
        let name = format!("member: keys of the publisher's run before its crash, in the name of {whose}");
        experiment.attempt(&name, &datagrams, Discard);
    }
}

/// Returns the secret by which an epoch seals its datagrams to the group, or to the member.
fn secret_of(secrets: &[SenderSecret], epoch: u64, is_pairwise: bool) -> &SenderSecret {
    let found = secrets.iter().rfind(|secret| secret.epoch == epoch && secret.receiver.is_some() == is_pairwise);
    found.expect("the member has authenticated itself to the epoch")
}
