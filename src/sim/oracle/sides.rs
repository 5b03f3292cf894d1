//! The sides of a run: its subscriptions in mode repair, and those in mode live. The latter are judged as those of a
//! second receiver on the same host, which reads the same datagrams and requests nothing (A4). Their losses are their
//! own, exact, and reported a grace after the gap was found.

use super::{Oracle, PeerRun};
use crate::message::{DeliveryMode, Target};
use crate::proto::Settings;

impl Oracle {
    /// Adds the live side of a run that has just started, if it may have subscriptions in mode live.
    pub fn add_live_side(&mut self, run: usize) {
        let PeerRun { born, host, stream, ref settings, .. } = self.runs[run];
        let settings = Settings { reliability: settings.recovery.grace, ..settings.clone() };
        self.runs[run].live = Some(self.runs.len());
        self.runs.push(PeerRun::new(born, host, (run, stream), settings));
    }

    /// Returns a run and its live side.
    pub(crate) fn sides(&self, run: usize) -> impl Iterator<Item = usize> + use<> {
        std::iter::once(run).chain(self.runs[run].live)
    }

    /// Returns the side of a run that has the subscriptions of this mode.
    pub(super) fn side_of(&self, run: usize, mode: DeliveryMode) -> usize {
        self.runs[run].live.filter(|_| mode == DeliveryMode::Live).unwrap_or(run)
    }

    /// Returns the side of a run that has this subscription, if it exists.
    pub(crate) fn side_with(&self, run: usize, target: Target) -> Option<usize> {
        self.sides(run).find(|side| self.runs[*side].find(target).is_some())
    }

    /// Returns the run to which this side belongs.
    pub(crate) fn main(&self, run: usize) -> &PeerRun {
        &self.runs[self.runs[run].main]
    }

    /// Returns whether a stream is a run's own.
    pub(crate) fn is_own(&self, run: usize, stream: usize) -> bool {
        self.truth.streams[stream].run == self.runs[run].main
    }
}
