//! An attacker with all keys of a host that was revoked: those of its identity, and those of its last run.

use super::experiment::{self, ATTACKER, GROUP, PORT, VICTIM};
use super::forged::{self, CONTROL, DATA, DIRECTED, ForgedHeader, control_records};
use super::member_keys::SenderSecret;
use super::raw_network::{RawSender, Sniffer, UdpDatagram};
use super::shell;
use crate::netns::lan::{Lan, Peer, Process};
use crate::support::wait::{wait_until, wait_until_some};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Two hosts, and a third one that is revoked after it has crashed.
pub struct RevokedHost {
    lan: Lan,
    authority: Peer,
    victim: Peer,
    subscription: Process,
    sender: RawSender,
    /// Header of its next DATA datagram.
    next: ForgedHeader,
    inbox: SocketAddrV4,
    /// Inbox of the victim.
    to_victim: SocketAddrV4,
    secrets: Vec<SenderSecret>,
}

impl RevokedHost {
    /// Lets the host publish a message, and ends its peer without a BYE.
    pub fn new() -> RevokedHost {
        let lan = Lan::new(3);
        shell(
            "seqcast init --realm plant1 --mode pki --name A.test --data-dir A.test
             for name in B.test M.test; do
                 seqcast realm invite --data-dir A.test | seqcast join - --name $name --data-dir $name > $name.request
                 seqcast realm sign - --name $name --publish '>' --subscribe '>' --data-dir A.test \
                     < $name.request > $name.certificate
                 seqcast join - --data-dir $name < $name.certificate
             done",
        );
        let sniffer = Sniffer::new(&lan.hosts[1], VICTIM, 10_000);
        let [authority, victim] =
            [(0, "A.test"), (1, "B.test")].map(|(host, name)| experiment::start(&lan.hosts[host], name, &[MODE]));
        experiment::await_acquaintance([&authority, &victim]);
        let subscription = victim.subscribe("t.>");
        let mut host = experiment::start(&lan.hosts[2], "M.test", &[MODE, "key-log=/run/M.keys"]);
        wait_until("the host is known", || is_up(&victim));
        host.publish_one("t.a", "of the host");
        wait_until("its message is delivered", || is_delivered(&subscription, "of the host"));
        let control_of = |address: Ipv4Addr| {
            let is_such = |datagram: &&UdpDatagram| {
                *datagram.from.ip() == address
                    && *datagram.to.ip() == GROUP
                    && datagram.payload.starts_with(&[0x53, 0x43])
                    && datagram.payload.get(4) == Some(&CONTROL)
            };
            wait_until_some(|| format!("{address} was observed"), || sniffer.recorded().iter().rfind(is_such).cloned())
        };
        let (last, to_victim) = (control_of(ATTACKER), control_of(VICTIM).from);
        let epoch = u64::from_be_bytes(last.payload[8..16].try_into().expect("eight bytes"));
        host.kill();
        let next = ForgedHeader {
            mode: 0,
            kind: DATA,
            flags: 0,
            group: PORT,
            epoch,
            number: 2,
            count: 1,
            uptime_ms: forged::UPTIME_MS,
            receiver: 0,
        };
        let (sender, secrets) = (RawSender::new(&lan.hosts[2], ATTACKER), SenderSecret::read_log("/run/M.keys"));
        RevokedHost { lan, authority, victim, subscription, sender, next, inbox: last.from, to_victim, secrets }
    }

    /// Sends DATA with the keys of its last run. The victim does not know yet that it is revoked.
    pub fn forge_before_revocation(&mut self) {
        self.send_data("forged before");
        wait_until("it is delivered", || is_delivered(&self.subscription, "forged before"));
    }

    /// Revokes the host, and waits until the victim has the list.
    pub fn revoke(&self) {
        shell("seqcast realm revoke M.test --data-dir A.test");
        self.authority.process().signal("HUP");
        wait_until("the victim has the list", || self.victim.counter("keyed_revoked") == 1);
    }

    /// Sends datagrams of all kinds with the keys of its last run, and requires that all are discarded.
    pub fn forge_after_revocation(&mut self) {
        let before = self.discarded();
        let records: Vec<Vec<u8>> = control_records("M.test", self.next.epoch, self.next.number)
            .into_iter()
            .map(|(_, record)| record)
            .collect();
        let mut sent = 0;
        for secret in self.secrets.iter().filter(|secret| secret.epoch == self.next.epoch) {
            let kinds = [CONTROL, if secret.receiver.is_some() { DIRECTED } else { DATA }];
            for (kind, record) in kinds.into_iter().flat_map(|kind| records.iter().map(move |record| (kind, record))) {
                let receiver = if kind == DIRECTED { secret.receiver.unwrap_or(0) } else { 0 };
                let to = if secret.receiver.is_some() { self.to_victim } else { SocketAddrV4::new(GROUP, PORT) };
                let header = ForgedHeader { kind, receiver, number: self.next.number + 100 + sent, ..self.next };
                self.send(to, secret.seal(header, record));
                sent += 1;
            }
        }
        self.send_data("forged after");
        wait_until("all are discarded", || before + sent < self.discarded());
        assert!(!is_delivered(&self.subscription, "forged after"));
    }

    /// Starts its peer again, with its identity and certificate. It gets no keys, so its messages are not delivered.
    pub fn start_again(&self) {
        let host = experiment::start(&self.lan.hosts[2], "M.test", &[MODE]);
        wait_until("it is refused", || {
            [&self.victim, &self.authority].iter().all(|peer| 0 < peer.counter("keyed_refused"))
        });
        host.publish_one("t.a", "of the revoked host");
        let read = host.subscribe("t.>");
        self.authority.publish_one("t.a", "of the authority");
        wait_until("members hear each other", || is_delivered(&self.subscription, "of the authority"));
        assert!(!is_delivered(&self.subscription, "of the revoked host"));
        let runs = self.victim.rows("peers").iter().filter(|row| row["publisher"] == "M.test").count();
        assert_eq!(runs, 1, "only the run before is known");
        assert!(!is_delivered(&read, "of the authority"));
    }

    /// Returns the number of datagrams that the victim has discarded unread.
    fn discarded(&self) -> u64 {
        let counters = experiment::counters_of(&self.victim);
        counters.iter().filter(|(name, _)| name.starts_with("keyed_discard_")).map(|(_, value)| value).sum()
    }

    fn send_data(&mut self, payload: &str) {
        let of_group = |secret: &&SenderSecret| secret.epoch == self.next.epoch && secret.receiver.is_none();
        let secret = self.secrets.iter().find(of_group).expect("the host has logged it");
        self.send(SocketAddrV4::new(GROUP, PORT), secret.seal(self.next, &forged::encode_run("t.a", payload)));
        (self.next.number, self.next.count) = (self.next.number + 1, self.next.count + 1);
    }

    fn send(&self, to: SocketAddrV4, payload: Vec<u8>) {
        self.sender.send(&UdpDatagram { from: self.inbox, to, payload }.packet(), to);
    }
}

/// Setting of the peers. It replaces the mode of other experiments.
const MODE: &str = "security=pki";

fn is_delivered(subscription: &Process, payload: &str) -> bool {
    subscription.lines().iter().any(|line| line.contains(&format!("\"{payload}\"")))
}

/// Returns whether the peer of the host is up, as another peer sees it.
fn is_up(peer: &Peer) -> bool {
    peer.rows("peers").iter().any(|row| row["publisher"] == "M.test" && row["state"] == "up")
}
