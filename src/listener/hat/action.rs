//! Actions that a Hat client requests of the shell.

use super::client_message::EventSubscription;
use super::registration_refusal::RegistrationRefusal;
#[cfg(doc)]
use super::session::HatSession;
use crate::event::model::Registration;
use crate::event::store::Query;

/// The id of a request. It is unique among the unanswered requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// An action that a client requests of the shell. The session answers itself where it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HatAction {
    /// The client is authenticated, or needs no authentication; the limits of unauthenticated clients end.
    Admitted {
        /// Its account, for people.
        account: String,
        /// Name that the client gives itself, for people.
        name: String,
    },
    /// Send these events to the client from now on, by [`HatSession::on_events`].
    Subscribe(EventSubscription),
    /// Register these events in one session; [`HatSession::on_registered`] takes the answer.
    Register {
        /// Id of the request.
        request: RequestId,
        /// The events, at least one.
        registrations: Vec<Registration>,
    },
    /// A valid query; [`HatSession::on_answered`] takes the answer.
    Query {
        /// Id of the request.
        request: RequestId,
        /// The query.
        query: Query,
    },
    /// A registration was refused by the session; the shell only reports it.
    Refused(RegistrationRefusal),
    /// Write the pending output, then close.
    Close,
}
