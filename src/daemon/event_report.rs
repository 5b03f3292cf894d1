//! Reports of the service of events to the clients of listeners.

use crate::event::model::Event;
use crate::event::refusal::EventRefusal;
use crate::event::store::QueryPage;
use crate::message::ClientId;

/// A client's request about events: the client, and its number of the request.
pub(crate) type ListenerRequest = (ClientId, u64);

/// A report to clients of listeners.
#[derive(Debug)]
pub(crate) enum EventReport {
    /// Events are stored, for Hat clients that subscribe to them and for the client that registered them, if a client
    /// of a listener did.
    Registered { registrant: Option<ListenerRequest>, events: Vec<Event> },
    /// The answer to a query.
    Found { requester: ListenerRequest, page: QueryPage },
    /// A request is refused.
    Refused { requester: ListenerRequest, refusal: EventRefusal },
}
