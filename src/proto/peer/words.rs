//! What this peer says of itself: HELLO, heartbeats, BYE, and a new epoch when the frames ran out.

use super::{BYES, HELLO_BYTES, HELLOS, Peer};
use crate::message::{Dseq, Epoch, Reason};
use crate::proto::effect::Effect;
use crate::proto::members::Member;
use crate::proto::mutant::Mutant;
use crate::proto::send::{Beat, Control, Origin, Send, Word};
use crate::proto::window::PubWindow;
use crate::time::Now;
use crate::wire::Announce;

impl Peer {
    /// Says a word to the group, or to one member, padded to `bytes`.
    pub(super) fn say(&mut self, now: Now, word: Word, to: Option<Epoch>, bytes: usize) {
        let member = to.and_then(|epoch| self.members.get(&epoch));
        let high = self.multicast.high();
        let mut announced = high;
        match word {
            Word::Heartbeat if self.settings.mutants.is(Mutant::HighTooHigh) => announced = high.next(),
            Word::Bye if self.settings.mutants.is(Mutant::ByeShort) => announced = Dseq(high.0.saturating_sub(1)),
            _ => {}
        }
        let announce = Announce {
            high: announced,
            trail: high.next(),
            manifest_trail: high.next(),
            heartbeat: self.settings.heartbeat,
            pub_window_time: self.settings.pub_window.time,
            directed_high: member.map_or(Dseq(0), |member| member.directed.high()),
            directed_count: member.map_or(0, |member| member.directed.count()),
            directed_receiver: member.map(Member::epoch),
            name: self.settings.name.clone(),
            token: None,
            echo: None,
            report: None,
        };
        let address = member.map(|member| member.address);
        let record = word.record(announce);
        let count = self.multicast.count();
        let datagram = self.control.datagram(now.instant, &self.origin, count, &record, bytes);
        self.send(address, datagram);
    }

    pub(super) fn beat(&mut self, now: Now) {
        let silent = self.settings.mutants.is(Mutant::NoHeartbeat);
        if self.stop.is_none() && self.beat.take_due(now.instant) {
            if 0 < self.hellos {
                self.hellos -= 1;
                let wants_reply = self.members.is_empty();
                let hello = Word::Hello { cookie: self.cookie, wants_reply };
                self.say(now, hello, None, if wants_reply { HELLO_BYTES } else { 0 });
            } else if !silent {
                self.say(now, Word::Heartbeat, None, 0);
            }
        }
        let due: Vec<Epoch> = self
            .members
            .iter_mut()
            .filter(|(_, member)| member.is_alive())
            .filter_map(|(epoch, member)| member.beat.take_due(now.instant).then_some(*epoch))
            .collect();
        if silent || self.stop.is_some() {
            return;
        }
        for epoch in due {
            self.say(now, Word::Heartbeat, Some(epoch), 0);
        }
    }

    /// The frames of this epoch ran out: ends it in order and begins a new one (R10).
    pub(super) fn begin_epoch(&mut self, now: Now) {
        self.flush(now);
        // Directed streams are between two epochs: what is still awaited of those to this one will not be told later.
        for epoch in self.members.keys().copied().collect::<Vec<_>>() {
            self.with_stream(now, epoch, true, |recv, ctx, out| recv.end(ctx, Reason::PublisherGone, out));
        }
        for _ in 0..BYES {
            self.say(now, Word::Bye, None, 0);
        }
        self.formers.remember_own(self.origin.epoch);
        let epoch = Epoch::new(self.rng.next_u64() | 1).expect("not zero");
        self.origin = Origin { epoch, started: now.instant, ..self.origin };
        self.pub_window =
            PubWindow::new(self.settings.pub_window, self.settings.frame_messages_max, self.rng.next_u64())
                .mutated(self.settings.mutants);
        self.multicast = Send::new(None, self.settings.datagram_bytes_max, self.settings.mutants);
        self.control = Control::new();
        self.beat = Beat::starting(now.instant, self.settings.heartbeat);
        self.hellos = HELLOS;
        self.members.values_mut().for_each(|member| member.on_own_epoch(&self.settings, now.instant));
        self.formers.on_new_epoch();
        self.effects.push_back(Effect::NewEpoch(epoch));
    }
}
