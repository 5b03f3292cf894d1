//! Checks each report that the multicasts of a publisher do not arrive while its unicast control messages do, and that
//! no such report is missing (wire.md W111).

use crate::proto::effect::{MemberEvent, Path};
use crate::sim::oracle::Oracle;
use crate::sim::scenario::MILLIS;
use crate::sim::truth::{ControlContent, DatagramId};
use crate::time::nanos;

/// Datagrams that one receiver heard of one publisher.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathObservation {
    /// Time of the last multicast.
    multicast: u64,
    /// Times of the first and the last unicast announcement since then, in a series without long gaps.
    announcements: Option<(u64, u64)>,
    /// True if its multicasts are reported as not arriving.
    is_dead: bool,
}

impl Oracle {
    /// Records the path of a whole datagram that a peer reads.
    pub(super) fn on_path(&mut self, at: u64, run: usize, id: DatagramId, path: Path) {
        let (stream, control, receiver) = match id {
            DatagramId::Data { stream, .. } | DatagramId::Directed { stream, .. } => (stream, 0, None),
            DatagramId::Control { stream, number, content: ControlContent::Announcement { receiver, .. } } => {
                (stream, number, receiver)
            }
            DatagramId::Control { stream, .. } => (stream, 0, None),
            DatagramId::Unidentified => return,
        };
        let own = self.truth.streams[self.runs[run].stream].epoch.bits();
        let heartbeat = nanos(self.truth.streams[stream].settings.heartbeat);
        let was_paused = !self.runs[run].pauses.is_empty();
        let track = self.runs[run].track(stream);
        if path == Path::Multicast {
            track.paths.multicast = at;
            track.paths.announcements = None;
            return;
        }
        if receiver != Some(own) || control <= track.control || track.bye_read {
            return;
        }
        let continued = track.paths.announcements.filter(|(_, last)| at - last <= heartbeat * 29 / 20);
        let (first, last) = continued.unwrap_or((at, at));
        // The network may lose a multicast heartbeat, so the unicast announcements must have continued for longer.
        let lasted = first + heartbeat * 1002 / 1000 <= last;
        track.paths.announcements = Some((first, at));
        let due = first + heartbeat * 9 / 4 + heartbeat / 500 + 2 * MILLIS;
        if lasted && due < at && !track.paths.is_dead && !was_paused && track.ends.is_empty() {
            let text = format!("run {run} of stream {stream}: unicast announcements since {first} and no multicast");
            self.findings.add("blackhole", text);
        }
    }

    /// Checks a peer's report that the multicasts of another do not arrive, or arrive again.
    pub(crate) fn on_path_event(&mut self, at: u64, run: usize, stream: usize, event: MemberEvent) {
        let heartbeat = nanos(self.truth.streams[stream].settings.heartbeat);
        let paths = &mut self.runs[run].track(stream).paths;
        let since = at - paths.multicast;
        let fits = match event {
            MemberEvent::MulticastDead => {
                self.figures.blackholes += 1;
                let was_dead = std::mem::replace(&mut paths.is_dead, true);
                !was_dead && heartbeat * 3 / 4 * 999 / 1000 <= since
            }
            MemberEvent::Up => {
                // The peer was discovered anew after it had been forgotten.
                paths.is_dead = false;
                true
            }
            MemberEvent::MulticastRestored => {
                let was_dead = std::mem::replace(&mut paths.is_dead, false);
                was_dead && since == 0
            }
            _ => true,
        };
        if !fits {
            let text = format!("run {run} reports {event:?} of stream {stream}, a multicast came {since} ns before");
            self.findings.add("blackhole", text);
        }
    }

    /// Checks that a peer that joins the group anew misses the multicasts of some publisher.
    pub fn on_rejoin(&mut self, run: usize) {
        self.figures.rejoins += 1;
        if !self.runs[run].tracks.iter().flatten().any(|track| track.paths.is_dead) {
            self.findings.add("blackhole", format!("run {run} joins the group anew though all multicasts arrive"));
        }
    }
}
