//! Resend requests, and the proof of an address before any answer to it (R5, wire.md W101, W102).

use crate::sim::oracle::Oracle;
use crate::sim::truth::{ControlContent, DatagramId, NEVER};
use crate::wire::ResendRequest;
use std::net::SocketAddr;

impl Oracle {
    /// Handles an echoed token. The address is proven if the run sent this token to the echoing epoch.
    pub(super) fn on_echo(&mut self, at: u64, run: usize, id: DatagramId, from: SocketAddr) {
        let DatagramId::Control {
            stream,
            content: ControlContent::Announcement { echo: Some((receiver, token)), .. },
            ..
        } = id
        else {
            return;
        };
        let own = &self.truth.streams[self.runs[run].stream];
        let sender = self.truth.streams[stream].epoch.bits();
        if receiver != own.epoch.bits() || !own.is_token(sender, token) {
            return;
        }
        let proved = &mut self.runs[run].track(stream).proved_at;
        *proved = at.min(*proved);
        if !self.runs[run].proven_addresses.contains(&from) {
            self.runs[run].proven_addresses.push(from);
        }
    }

    /// Checks W102: no answer goes to an address that no round trip has proven.
    pub(super) fn check_proof(&mut self, run: usize, to: SocketAddr, id: DatagramId) {
        if self.truth.is_answer && !self.runs[run].proven_addresses.contains(&to) {
            self.findings.add("proof", format!("run {run} answers {to} with {id:?}, an address without proof"));
        }
    }

    /// Checks R5: datagrams are requested after the reorder grace, and only if they are missing.
    pub(super) fn on_request(&mut self, at: u64, run: usize, request: &ResendRequest) {
        let Some(stream) = self.truth.stream(request.epoch) else {
            return self.findings.add("R5", format!("run {run} requests from an unknown epoch: {request:?}"));
        };
        if request.directed {
            let own = self.truth.streams[self.runs[run].stream].epoch.bits();
            return self.count_requests(stream, Some(own), request);
        }
        self.count_requests(stream, None, request);
        let grace = self.runs[run].reorder_grace() * 999 / 1000;
        let repairs = self.runs[run].repairs();
        let track = self.runs[run].track(stream);
        for range in &request.ranges {
            let found = track.found(range.last.0);
            let read = |dseq: u64| track.read(dseq) < at && !track.has_returned && !track.is_doubtful(dseq);
            let too_early = found == NEVER || at < found + grace;
            if !repairs || too_early || read(range.first.0) || read(range.last.0) {
                let (first, last) = (track.read(range.first.0), track.read(range.last.0));
                let text = format!("found at {found}, read at {first}, {last}");
                self.findings.add("R5", format!("run {run} requests {range:?} of stream {stream}, {text}"));
                break;
            }
        }
    }

    fn count_requests(&mut self, stream: usize, receiver: Option<u64>, request: &ResendRequest) {
        let stream = &mut self.truth.streams[stream];
        let flow = match receiver {
            None => Some(&mut stream.bcast),
            Some(receiver) => stream.directed.iter_mut().find(|(epoch, _)| *epoch == receiver).map(|(_, flow)| flow),
        };
        let Some(flow) = flow else { return };
        let high = flow.high();
        for range in &request.ranges {
            let (first, last) = (range.first.0 as usize - 1, range.last.0.min(high) as usize);
            for counts in flow.resend_counts.get_mut(first..last).into_iter().flatten() {
                counts.requests += 1;
                counts.manifest_only |= request.manifests_only;
            }
        }
    }
}
