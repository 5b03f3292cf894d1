//! Publications by the applications of a host: bursts spread over time, and floods limited by backpressure alone.

use super::{WRITER_CLIENT, World, WorldStep};
use crate::message::{ClientId, Epoch, Headers, Message};
use crate::proto::effect::{ClientRequest, Input};
use crate::proto::peer::Peer;
use crate::sim::scenario::{MICROS, MILLIS};
use bytes::Bytes;

/// Maximum number of datagrams that a flooding application publishes at once: 1 GB/s with datagrams of 8 kB.
const FLOOD_DATAGRAMS: u32 = 8;
/// Nanoseconds between two publications of a flood.
const FLOOD_INTERVAL: u64 = 64 * MICROS;

impl World<'_> {
    pub(super) fn begin_burst(&mut self, host: usize, datagrams: u32) {
        let machine = &mut self.machines[host];
        if machine.peer.is_some() && !machine.is_stopping {
            if machine.burst == 0 {
                self.push(self.now, WorldStep::Publish(host));
            }
            self.machines[host].burst += datagrams;
        }
    }

    pub(super) fn begin_flood(&mut self, host: usize, datagrams: u32) {
        self.machines[host].flood = (datagrams, self.now);
        self.push(self.now, WorldStep::Flood(host));
    }

    /// Publishes the messages of one datagram, and schedules the next one of the burst.
    pub(super) fn publish_datagram(&mut self, host: usize) {
        let machine = &mut self.machines[host];
        if machine.peer.is_none() || machine.is_stopping || machine.burst == 0 {
            machine.burst = 0;
            return;
        }
        if self.now < machine.paused_until {
            let until = machine.paused_until;
            return self.push(until, WorldStep::Publish(host));
        }
        // As in the daemon, applications wait; here they give up when the traffic ends.
        if machine.peer.as_ref().is_some_and(Peer::is_publish_blocked) {
            if self.scenario.quiet_at() <= self.now {
                machine.burst = 0;
                return;
            }
            return self.push(self.now + MILLIS, WorldStep::Publish(host));
        }
        machine.burst -= 1;
        let continued = 0 < machine.burst;
        for _ in 0..1 + self.rng.below(self.scenario.traffic.batch_max) {
            self.publish(host);
        }
        self.drain(host);
        self.turn(host);
        if continued && self.machines[host].peer.is_some() {
            let at = self.now + self.rng.below(self.scenario.traffic.spacing_max + 1);
            self.push(at, WorldStep::Publish(host));
        }
    }

    /// Publishes datagrams of one message each, unless the peer exerts backpressure, and schedules the next ones.
    pub(super) fn flood(&mut self, host: usize) {
        let machine = &mut self.machines[host];
        let Some(peer) = machine.peer.as_ref().filter(|_| self.now >= machine.paused_until && !machine.is_stopping)
        else {
            return;
        };
        let (left, began) = machine.flood;
        if left == 0 && !peer.has_queued() {
            machine.flood_times.push((began, self.now));
            return;
        }
        let datagrams = if peer.is_publish_blocked() { 0 } else { left.min(FLOOD_DATAGRAMS) };
        machine.flood.0 -= datagrams;
        let subject = self.subjects[host][0].clone();
        for _ in 0..datagrams {
            let envelope = Message::new(subject.clone(), Bytes::new());
            let bytes = self.scenario.traffic.payload_max as usize;
            let message = self.oracle.on_publish(self.machines[host].run, envelope, bytes, true);
            self.input(
                host,
                Input::ClientRequest { client: ClientId(WRITER_CLIENT), request: ClientRequest::Publish(message) },
            );
        }
        self.drain(host);
        self.turn(host);
        self.push(self.now + FLOOD_INTERVAL, WorldStep::Flood(host));
    }

    fn publish(&mut self, host: usize) {
        let traffic = &self.scenario.traffic;
        let others = (0..self.machines.len()).filter(|other| *other != host);
        let epochs: Vec<Epoch> = others.filter_map(|o| self.machines[o].peer.as_ref().map(Peer::epoch)).collect();
        let own = self.machines[host].peer.as_ref().map(Peer::epoch);
        let subject = if self.rng.chance(traffic.directed) && !epochs.is_empty() {
            let to = epochs[self.rng.below(epochs.len() as u64) as usize];
            format!("_INBOX.{to}.{host}").parse().expect("a valid subject")
        } else {
            // A few subjects get most of the messages.
            let all = &self.subjects[host];
            let below = self.rng.below(all.len() as u64) + 1;
            all[self.rng.below(below) as usize].clone()
        };
        let mut bytes = 8 + self.rng.below(traffic.payload_max + 1);
        if self.rng.chance(traffic.large.0) {
            bytes = self.rng.between(200, traffic.large.1);
        }
        let mut envelope = Message::new(subject, Bytes::new());
        if self.rng.chance(traffic.meta) {
            envelope.reply = own.map(|own| format!("_INBOX.{own}.r").parse().expect("a valid subject"));
            envelope.headers = Headers::from_pairs([("k", "v")]).expect("valid headers");
        }
        envelope.event = self.rng.chance(0.02);
        let message = self.oracle.on_publish(self.machines[host].run, envelope, bytes as usize, true);
        self.input(
            host,
            Input::ClientRequest { client: ClientId(WRITER_CLIENT), request: ClientRequest::Publish(message) },
        );
    }
}
