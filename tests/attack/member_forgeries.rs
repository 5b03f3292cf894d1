//! The forgeries of a member in the name of another one, with the keys that every member has.

use super::forged::{self, CONTROL, DATA, control_records};
use super::member_experiment::Situation::{DatagramMissing, PublisherIdle, PublisherRestarted, SubscriberIdle};
use super::member_experiment::{FORGED_PAYLOAD, ForgedSender, MemberExperiment};
use super::raw_network::UdpDatagram;

/// DATA in the name of the publisher.
pub fn forge_data(experiment: &mut MemberExperiment) {
    let run = forged::encode_run("t.x", FORGED_PAYLOAD);
    experiment.attempt("DATA whose count does not fit", 0, PublisherIdle, |sender| {
        vec![sender.datagram(DATA, sender.peer.data + 1, sender.count + 100, &run)]
    });
    // If earlier datagrams contradict the forgery, some of those that follow are reported as unverified.
    experiment.attempt("DATA with the next number", 20, PublisherIdle, |sender| vec![sender.data(1, &run)]);
    experiment.attempt("DATA 100 ahead", 120, PublisherIdle, |sender| vec![sender.data(100, &run)]);
    experiment.attempt("DATA 2^21 ahead", 0, PublisherIdle, |sender| vec![sender.data(1 << 21, &run)]);
}

/// Announcements of the publisher.
pub fn forge_announcements(experiment: &mut MemberExperiment) {
    experiment.attempt("HEARTBEAT that announces 1,000 datagrams more", 0, PublisherIdle, |sender| {
        vec![announcement(sender, "HEARTBEAT", 1000, NEXT)]
    });
    experiment.attempt("BYE", 0, PublisherIdle, |sender| vec![announcement(sender, "BYE", 0, NEXT)]);
}

/// Subscriptions of the subscriber. The publisher suppresses messages until the subscriber has corrected them.
pub fn forge_subscriptions(experiment: &mut MemberExperiment) {
    let counts =
        experiment.attempt("INTEREST that ends the subscriptions of the subscriber", 40, SubscriberIdle, |sender| {
            let records = control_records("B.test", sender.peer.epoch, 0);
            let (_, record) = records.iter().find(|(record, _)| *record == "INTEREST").expect("it is a control record");
            vec![sender.control(NEXT, 0, record)]
        });
    assert!(counts.iter().any(|count| count.starts_with("interest_forgeries")), "it is reported: {counts:?}");
}

/// Records that go to one receiver. They need keys that the member does not have.
pub fn forge_addressed_records(experiment: &mut MemberExperiment) {
    experiment.attempt("EXPIRED and MANIFEST of a datagram that is missing", 0, DatagramMissing, |sender| {
        let missing = sender.peer.data + 1;
        let records = [forged::encode_expired(missing), forged::encode_manifest(missing, sender.count, "u.x")];
        (NEXT..).zip(records).map(|(ahead, record)| sender.control(ahead, sender.count, &record)).collect()
    });
    let publisher = experiment.publisher_epoch();
    let names = ["RESEND_REQUEST", "INTEREST_REQUEST", "RECEIVER_REPORT"];
    experiment.attempt(&format!("{} of the subscriber", names.join(", ")), 0, SubscriberIdle, |sender| {
        let records = control_records("B.test", publisher, 100).into_iter();
        let records = records.filter(|(record, _)| names.contains(record));
        (NEXT..).zip(records).map(|(ahead, (_, record))| sender.control(ahead, 0, &record)).collect()
    });
}

/// A control number that honest ones do not reach for long, and a run that has ended.
pub fn forge_lasting(experiment: &mut MemberExperiment) {
    experiment.attempt("HEARTBEAT whose number is 2^20 ahead", 0, PublisherIdle, |sender| {
        vec![announcement(sender, "HEARTBEAT", 0, (1 << 20) - 100)]
    });
    let run = forged::encode_run("t.x", FORGED_PAYLOAD);
    experiment.attempt("DATA of the run before a crash", 0, PublisherRestarted, |sender| vec![sender.data(1, &run)]);
}

/// Returns an announcement of this number of datagrams and messages after the last one.
fn announcement(sender: &ForgedSender, name: &str, further: u64, ahead: u64) -> UdpDatagram {
    let records = control_records("A.test", sender.peer.epoch, sender.peer.data + further);
    let (_, record) = records.iter().find(|(record, _)| *record == name).expect("it is a control record");
    sender.datagram(CONTROL, sender.peer.control + ahead, sender.count + further, record)
}

/// Distance from the last control number to the group that was observed. Datagrams to single peers have some numbers.
const NEXT: u64 = 50;
