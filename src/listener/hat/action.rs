//! Actions that a Hat client requests of the shell.

use super::client_message::EventSubscription;
use super::registration_refusal::RegistrationRefusal;
#[cfg(doc)]
use super::session::HatSession;
use crate::event::model::Registration;
use crate::event::store::Query;
use crate::listener::permissions::Denial;

/// The id of a request. It is unique among the unanswered requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// An action that a client requests of the shell. The session answers all other requests itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HatAction {
    /// The client is authenticated, or needs no authentication; the limits of unauthenticated clients end.
    Admitted {
        /// Account of the client, for people.
        account: String,
        /// Name that the client gives itself, for people.
        name: String,
    },
    /// Pass these events to [`HatSession::on_events`] from now on.
    Subscribe(EventSubscription),
    /// Register these events in one session, and pass the answer to [`HatSession::on_registered`].
    Register {
        /// Id of the request.
        request: RequestId,
        /// The events, at least one.
        registrations: Vec<Registration>,
    },
    /// Run a valid query, and pass the answer to [`HatSession::on_answered`].
    Query {
        /// Id of the request.
        request: RequestId,
        /// The query.
        query: Query,
    },
    /// The session refused a registration. The shell only reports the refusal.
    Refused(RegistrationRefusal),
    /// The session refused an action that the client's account does not permit. The shell only reports the denial.
    Denied(Denial),
    /// Write the pending output, and then close the connection.
    Close,
}
