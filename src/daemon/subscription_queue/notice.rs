//! Items that a reader takes from the queue of a subscription.

use crate::message::{Delivery, DeliveryRef, Loss, Publisher};
use crate::proto::join::Joined;

/// An item that a subscription yields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A message.
    Message(Delivery),
    /// A loss on the network, before any later message of its subject.
    Loss(Loss),
    /// Number of messages and loss reports dropped here because this subscriber was too slow.
    Dropped(u64),
    /// The subscription has begun with every known publisher. Sent once, and only if the subscription asked for history
    /// or for this notice ([`SubscribeOptions`](crate::bus::SubscribeOptions)).
    Joined(Joined),
}

/// A borrowed notice, valid during the call that visits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoticeRef<'a> {
    /// Borrowed form of [`Notice::Message`].
    Message(&'a DeliveryRef<'a>),
    /// Borrowed form of [`Notice::Loss`].
    Loss(&'a Loss),
    /// Same as [`Notice::Dropped`].
    Dropped(u64),
    /// Borrowed form of [`Notice::Joined`].
    Joined(&'a Joined),
}

impl Notice {
    /// Calls `each` with a reference to the notice.
    pub(crate) fn visit(&self, each: impl FnOnce(NoticeRef<'_>)) {
        match self {
            Notice::Message(delivery) => each(NoticeRef::Message(&delivery.into())),
            Notice::Loss(loss) => each(NoticeRef::Loss(loss)),
            Notice::Dropped(count) => each(NoticeRef::Dropped(*count)),
            Notice::Joined(joined) => each(NoticeRef::Joined(joined)),
        }
    }
}

/// An item that a reader takes from a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueueItem {
    /// A notice for the application.
    Notice(Notice),
    /// A discovered publisher; `None` follows the last of those known at first. Precedes all notices.
    Publisher(Option<Publisher>),
}
