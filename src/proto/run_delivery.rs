//! Runs that are delivered together with others of their datagram.

use crate::delivery::RunPosition;
use crate::proto::interest::MatchSet;
use std::sync::Arc;

/// Disposition of a run that is delivered.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDelivery {
    /// Index of the run among the items of its datagram.
    pub index: u32,
    /// Messages to deliver, and their place in the stream.
    pub position: RunPosition,
    /// Subscriptions that match it, none of which is in a queue group.
    pub matched: Arc<MatchSet>,
}
