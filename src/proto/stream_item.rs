//! Items that a stream delivers or reports as a unit: a run of messages, a large message, or a placeholder for lost
//! messages.

use crate::delivery::Deliveries;
use crate::message::{Dseq, Epoch, Message, MissingDatagrams, Publisher, Reason, Verdict};
use crate::proto::continuity::SeqPosition;
use crate::proto::fragment::{AbandonedMessage, ReassembledMessage};
use crate::subject::Subject;
use crate::time::Instant;
use crate::wire::{Run, queue};

/// Part of a datagram that is judged as a unit. Runs are frequent and moved often, so rarer items are boxed.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamItem {
    /// Messages of one subject.
    Run(Run),
    /// A large message.
    ReassembledMessage(Box<ReassembledMessage>),
    /// A large message that will never be complete.
    AbandonedMessage(Box<AbandonedMessage>),
    /// Messages from the history of a publisher that no longer has their datagram.
    FetchedMessages(FetchedMessages),
    /// Messages that neither a datagram nor the history of the publisher has any more.
    GoneMessages(Box<GoneMessages>),
}

// Size of the most frequent item.
const _: () = assert!(size_of::<StreamItem>() <= size_of::<Run>() + 8);

/// Messages from the history, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedMessages {
    /// Sequence number of the first, and its link to earlier messages.
    pub position: SeqPosition,
    /// One or more messages of one subject.
    pub messages: Vec<Message>,
}

/// Messages that were sent and are no longer available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoneMessages {
    /// The subject.
    pub subject: Subject,
    /// Sequence number of the first; `None` if the publisher gave none.
    pub position: Option<SeqPosition>,
    /// Number of messages.
    pub count: u64,
    /// Reason of the loss.
    pub reason: Reason,
    /// Lower bound of their send time, less the latency.
    pub since: Instant,
    /// Their datagram, as a missing one.
    pub missing: MissingDatagrams,
}

impl FetchedMessages {
    /// Returns the bytes of the messages.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(Message::body_bytes).sum()
    }
}

impl GoneMessages {
    /// Returns the remainder without the first `repeated` messages, which were received after all.
    pub(super) fn skip(self, repeated: u64) -> GoneMessages {
        let seq = |position: SeqPosition| {
            Some(SeqPosition { seq: position.seq.forward(repeated)?, stamp: None, chain: None })
        };
        GoneMessages { position: self.position.and_then(seq), count: self.count - repeated, ..self }
    }
}

/// Origin of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Time at which its datagram was first known to exist.
    pub(super) reached: Instant,
    /// True if it was requested.
    pub(super) repaired: bool,
}

/// An item, its origin, and the datagram in which it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemRef<'a> {
    pub(super) dseq: Dseq,
    pub(super) arrival: Arrival,
    pub(super) item: &'a StreamItem,
}

impl StreamItem {
    pub(super) fn subject(&self) -> &Subject {
        match self {
            StreamItem::Run(run) => &run.subject,
            StreamItem::ReassembledMessage(whole) => &whole.message.subject,
            StreamItem::AbandonedMessage(abandoned) => &abandoned.subject,
            StreamItem::FetchedMessages(fetched) => &fetched.messages[0].subject,
            StreamItem::GoneMessages(gone) => &gone.subject,
        }
    }

    /// Returns the sequence number of the first message; `None` if the publisher gave none.
    pub fn position(&self) -> Option<SeqPosition> {
        match self {
            StreamItem::Run(run) => run.first.map(|seq| SeqPosition { seq, stamp: run.stamp, chain: run.chain }),
            StreamItem::ReassembledMessage(whole) => whole.position,
            StreamItem::AbandonedMessage(abandoned) => abandoned.position,
            StreamItem::FetchedMessages(fetched) => Some(fetched.position),
            StreamItem::GoneMessages(gone) => gone.position,
        }
    }

    /// Returns whether it represents messages that are lost.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, StreamItem::AbandonedMessage(_) | StreamItem::GoneMessages(_))
    }

    /// Returns whether it is an abandoned message whose beginning did not arrive.
    pub(super) fn is_headless(&self) -> bool {
        matches!(self, StreamItem::AbandonedMessage(abandoned) if !abandoned.begun)
    }

    /// Returns the number of its messages.
    pub fn count(&self) -> u64 {
        match self {
            StreamItem::Run(run) => u64::from(run.count),
            StreamItem::FetchedMessages(fetched) => fetched.messages.len() as u64,
            StreamItem::GoneMessages(gone) => gone.count,
            StreamItem::ReassembledMessage(_) | StreamItem::AbandonedMessage(_) => 1,
        }
    }

    /// Returns whether one of its messages is for a member of a queue group at this peer.
    pub(super) fn is_for_member(&self, own: Epoch) -> bool {
        let is_for_peer =
            |headers: &[u8]| queue::is_stamped(headers) && queue::stamps(headers).any(|stamp| stamp.epoch == own);
        match self {
            StreamItem::Run(run) => run.has_meta() && run.messages().any_headers(is_for_peer),
            StreamItem::ReassembledMessage(whole) => is_for_peer(whole.message.headers.block()),
            StreamItem::FetchedMessages(fetched) => {
                fetched.messages.iter().any(|message| is_for_peer(message.headers.block()))
            }
            StreamItem::AbandonedMessage(_) | StreamItem::GoneMessages(_) => false,
        }
    }

    /// Calls `each` with every message in order.
    pub fn for_each(self, mut each: impl FnMut(Message)) {
        match self {
            StreamItem::Run(run) => run.into_messages().for_each(each),
            StreamItem::ReassembledMessage(whole) => each(whole.message),
            StreamItem::FetchedMessages(fetched) => fetched.messages.into_iter().for_each(each),
            StreamItem::AbandonedMessage(_) | StreamItem::GoneMessages(_) => {}
        }
    }

    /// Returns the bytes of the messages.
    pub fn bytes(&self) -> usize {
        match self {
            StreamItem::Run(run) => run.entry_bytes(),
            StreamItem::ReassembledMessage(whole) => whole.message.body_bytes(),
            StreamItem::FetchedMessages(fetched) => fetched.bytes(),
            StreamItem::AbandonedMessage(_) | StreamItem::GoneMessages(_) => 0,
        }
    }

    /// Returns the deliveries of the item without its first `repeated` messages; the next message has this verdict.
    /// Returns `None` if no message is left.
    #[inline]
    pub fn into_deliveries(
        self,
        repeated: usize,
        publisher: Publisher,
        verdict: Verdict,
        repaired: bool,
    ) -> Option<Deliveries> {
        let mut deliveries = match self {
            StreamItem::Run(run) => Deliveries::of_run(run, publisher, verdict, repaired),
            StreamItem::ReassembledMessage(whole) => {
                let seq = whole.position.map(|position| position.seq);
                Deliveries::of_message(whole.message, seq, publisher, verdict, repaired)
            }
            StreamItem::FetchedMessages(fetched) => {
                Deliveries::of_fetched(fetched.messages, fetched.position.seq, publisher, verdict, repaired)
            }
            StreamItem::AbandonedMessage(_) | StreamItem::GoneMessages(_) => return None,
        };
        if verdict == Verdict::Direct {
            deliveries.remove_numbers();
        }
        deliveries.skip_repeated(repeated).then_some(deliveries)
    }
}
