//! What is judged as one: a run, a large message, or what stands for messages that will not come.

use crate::message::{Epoch, Message, MissingDatagrams, Reason};
use crate::proto::continuity::SeqPosition;
use crate::proto::fragment::{AbandonedMessage, ReassembledMessage};
use crate::subject::Subject;
use crate::time::Instant;
use crate::wire::{Run, queue};

/// Something in a datagram that is judged as one.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Messages of one subject.
    Run(Run),
    /// A large message.
    ReassembledMessage(ReassembledMessage),
    /// A large message that will never be whole.
    AbandonedMessage(AbandonedMessage),
    /// Messages of a datagram that the publisher does not have any more, from its history.
    FetchedMessages(FetchedMessages),
    /// Messages of such a datagram that it does not have either.
    GoneMessages(GoneMessages),
}

/// Messages from the history, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedMessages {
    /// The number of the first, and the link to what was before.
    pub place: SeqPosition,
    /// One or more of one subject.
    pub messages: Vec<Message>,
}

/// Messages known to have been sent that will not come any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoneMessages {
    /// The subject.
    pub subject: Subject,
    /// The number of the first; `None` if the publisher gave none.
    pub place: Option<SeqPosition>,
    /// How many.
    pub count: u64,
    /// Why.
    pub reason: Reason,
    /// They were sent later than this, less the latency.
    pub since: Instant,
    /// Their datagram, as a missing one.
    pub missing: MissingDatagrams,
}

impl FetchedMessages {
    /// Bytes of the messages.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(Message::body_bytes).sum()
    }
}

impl GoneMessages {
    /// Without the first `repeated`, which were received after all.
    pub(super) fn skip(self, repeated: u64) -> GoneMessages {
        let seq =
            |place: SeqPosition| Some(SeqPosition { seq: place.seq.forward(repeated)?, stamp: None, chain: None });
        GoneMessages { place: self.place.and_then(seq), count: self.count - repeated, ..self }
    }
}

/// How an item came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// When its datagram was first known to exist.
    pub(super) reached: Instant,
    /// Whether it was asked for.
    pub(super) repaired: bool,
}

impl Item {
    pub(super) fn subject(&self) -> &Subject {
        match self {
            Item::Run(run) => &run.subject,
            Item::ReassembledMessage(whole) => &whole.message.subject,
            Item::AbandonedMessage(doomed) => &doomed.subject,
            Item::FetchedMessages(fetched) => &fetched.messages[0].subject,
            Item::GoneMessages(gone) => &gone.subject,
        }
    }

    /// The number of the first message; `None` if the publisher gave none.
    pub fn place(&self) -> Option<SeqPosition> {
        match self {
            Item::Run(run) => run.first.map(|seq| SeqPosition { seq, stamp: run.stamp, chain: run.chain }),
            Item::ReassembledMessage(whole) => whole.place,
            Item::AbandonedMessage(doomed) => doomed.place,
            Item::FetchedMessages(fetched) => Some(fetched.place),
            Item::GoneMessages(gone) => gone.place,
        }
    }

    /// Whether it stands for messages that are lost.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Item::AbandonedMessage(_) | Item::GoneMessages(_))
    }

    /// Whether it is a doomed message whose beginning did not arrive.
    pub(super) fn is_headless(&self) -> bool {
        matches!(self, Item::AbandonedMessage(AbandonedMessage { begun: false, .. }))
    }

    /// How many messages it has.
    pub fn count(&self) -> u64 {
        match self {
            Item::Run(run) => u64::from(run.count),
            Item::FetchedMessages(fetched) => fetched.messages.len() as u64,
            Item::GoneMessages(gone) => gone.count,
            Item::ReassembledMessage(_) | Item::AbandonedMessage(_) => 1,
        }
    }

    /// Whether a message of it is for a member of a queue group at this peer.
    pub(super) fn is_for_member(&self, own: Epoch) -> bool {
        let names_it =
            |headers: &[u8]| queue::is_stamped(headers) && queue::stamps(headers).any(|stamp| stamp.epoch == own);
        match self {
            Item::Run(run) => run.has_meta() && run.messages().any_headers(names_it),
            Item::ReassembledMessage(whole) => names_it(whole.message.headers.block()),
            Item::FetchedMessages(fetched) => fetched.messages.iter().any(|message| names_it(message.headers.block())),
            Item::AbandonedMessage(_) | Item::GoneMessages(_) => false,
        }
    }

    /// Calls `each` with every message in order.
    pub fn for_each(self, mut each: impl FnMut(Message)) {
        match self {
            Item::Run(run) => run.into_messages().for_each(each),
            Item::ReassembledMessage(whole) => each(whole.message),
            Item::FetchedMessages(fetched) => fetched.messages.into_iter().for_each(each),
            Item::AbandonedMessage(_) | Item::GoneMessages(_) => {}
        }
    }

    /// Bytes of the messages.
    pub fn bytes(&self) -> usize {
        match self {
            Item::Run(run) => run.entry_bytes(),
            Item::ReassembledMessage(whole) => whole.message.body_bytes(),
            Item::FetchedMessages(fetched) => fetched.bytes(),
            Item::AbandonedMessage(_) | Item::GoneMessages(_) => 0,
        }
    }
}
