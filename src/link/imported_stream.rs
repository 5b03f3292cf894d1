//! The account of a stream at a site that imports it.
//!
//! A gateway that has just started may not know what the one before it has sent, and two gateways cannot always compare
//! their counts. As long as a gateway lives that can, its next round closes the account with the exact number.

use super::envelope::{LinkEnvelope, RemotePublisher};
use super::export::LinkStreamKey;
use super::position::StreamPoint;
use super::received_share::ReceivedShare;
use super::shares::share_of;
use super::site_loss::SiteLoss;
use super::site_name::SiteName;
use crate::message::{Count, Epoch};

/// A stream of another site.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImportedStream {
    /// The last point that was delivered or reported.
    pub(super) last: StreamPoint,
    open: Option<OpenAccount>,
}

/// Place in a stream from which its account is open.
#[derive(Clone, Copy, Debug)]
enum OpenFrom {
    /// A gateway whose account was not complete revealed the stream. Any other one closes the account whose own was.
    First {
        /// Contact with that gateway.
        contact: u64,
        /// Contact up to which the accounts of gateways were complete.
        settled: u64,
    },
    /// The last point before another gateway continued. Its gateway closes the account.
    Point(StreamPoint),
}

/// Account of which a later point of another gateway proves the rest.
#[derive(Clone, Copy, Debug)]
struct OpenAccount {
    from: OpenFrom,
    /// Number of messages since then that were delivered or reported.
    accounted: u64,
    /// Maximum number of messages that are lost beside these.
    unreported: u64,
}

impl ImportedStream {
    /// Begins the account of a stream.
    pub(super) fn new(last: StreamPoint) -> ImportedStream {
        ImportedStream { last, open: None }
    }

    /// Begins the account of a stream that a gateway has revealed. Messages that it has not counted may precede the
    /// `accounted` ones; gateways with a contact up to `settled` know of them.
    pub(super) fn open(last: StreamPoint, revealer: &ReceivedShare, settled: u64, accounted: u64) -> ImportedStream {
        let from = OpenFrom::First { contact: revealer.contact, settled };
        ImportedStream { last, open: Some(OpenAccount { from, accounted, unreported: u64::MAX }) }
    }

    /// Moves on to a point that was reported by another gateway of this site.
    pub(super) fn skip_to(&mut self, point: StreamPoint) {
        *self = ImportedStream::new(point);
    }

    /// Returns whether a later point may prove that more messages are lost.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Moves on to a later point. Returns the number of messages between the two. `is_complete` says whether the
    /// account of a living gateway is complete.
    pub(super) fn advance(&mut self, point: StreamPoint, is_complete: impl Fn(Epoch) -> bool) -> Count {
        let last = std::mem::replace(&mut self.last, point);
        let missing = point.missing_since(&last).unwrap_or(Count::Exact(0));
        if self.open.is_none() && !missing.is_exact() && is_complete(last.gateway) {
            self.open = Some(OpenAccount { from: OpenFrom::Point(last), accounted: 0, unreported: 0 });
        }
        self.last.position = self.last.position.completed_by(last.position);
        let Some(open) = &mut self.open else { return missing };
        open.accounted = open.accounted.saturating_add(missing.min()).saturating_add(1);
        open.unreported = open.unreported.saturating_add(missing.max() - missing.min());
        Count::Exact(missing.min())
    }

    /// Gives up the account if this gateway was to close it. Returns the number of messages that may be lost.
    pub(super) fn give_up(&mut self, gateway: Epoch) -> Option<Count> {
        let open = self.open.filter(|open| matches!(open.from, OpenFrom::Point(from) if from.gateway == gateway))?;
        self.open = None;
        Some(Count::from_bounds(0, open.unreported)).filter(|count| 0 < count.max())
    }

    /// Returns the loss of messages up to the last point of this stream, which has the key.
    pub(super) fn loss(&self, site: &SiteName, key: &LinkStreamKey, count: Count) -> SiteLoss {
        let publisher = RemotePublisher { epoch: key.publisher, name: None };
        let (point, share) = (self.last, share_of(&key.subject));
        let origin = LinkEnvelope { site: site.clone(), share, number: point.first_number, publisher, point };
        SiteLoss::of_live(origin, key.subject.clone(), count, false)
    }

    /// Gives up the account, whoever was to close it. Returns the number of messages that may be lost.
    pub(super) fn give_up_open(&mut self) -> Option<Count> {
        let open = self.open.take()?;
        Some(Count::from_bounds(0, open.unreported)).filter(|count| 0 < count.max())
    }

    /// Closes the account, if a point that is not behind the last one does. Returns the number of messages that are
    /// lost beside the reported ones. The accounts of gateways with a contact up to `settled` are complete; the account
    /// of the site began with the contact `since`.
    pub(super) fn close(
        &mut self,
        point: &StreamPoint,
        received: &ReceivedShare,
        since: u64,
        settled: u64,
        is_complete: impl Fn(Epoch) -> bool,
    ) -> Count {
        self.last.position = self.last.position.completed_by(point.position);
        let Some(open) = self.open else { return Count::Exact(0) };
        let begun = match open.from {
            OpenFrom::Point(from) => Some(from.ordinal).filter(|_| point.is_same_count(&from)),
            OpenFrom::First { settled, .. } => {
                Some(0).filter(|_| received.contact <= settled.max(since) && received.owes(point))
            }
        };
        let counted = begun.and_then(|begun| point.ordinal.checked_sub(begun)).zip(self.behind(point));
        let rest = match (counted, open.from) {
            (Some((counted, behind)), _) => {
                let lost = counted.saturating_add(behind).saturating_sub(open.accounted);
                Some(Count::Exact(lost.min(open.unreported)))
            }
            // The gateway that revealed the stream has become complete: nothing was lost that it has not counted.
            (None, OpenFrom::First { contact, .. }) => Some(Count::Exact(0)).filter(|_| contact <= settled),
            // Nobody else can close it.
            (None, OpenFrom::Point(from)) => {
                Some(Count::from_bounds(0, open.unreported)).filter(|_| !is_complete(from.gateway))
            }
        };
        if rest.is_some() {
            self.open = None;
        }
        rest.unwrap_or(Count::Exact(0))
    }

    /// Returns the number of messages from `point` to the last one, if it is known.
    fn behind(&self, point: &StreamPoint) -> Option<u64> {
        let (seq, last_seq) = (point.position.seq?, self.last.position.seq?);
        if last_seq <= seq {
            return Some(0).filter(|_| last_seq == seq);
        }
        let between = self.last.missing_since(point).unwrap_or(Count::Exact(0));
        Some(between).filter(|between| between.is_exact()).map(|between| between.min().saturating_add(1))
    }
}
