//! Reasons why a peer cannot start.

use crate::daemon::interface::ChooseError;
use crate::daemon::local_socket::SocketError;
use crate::daemon::missing_keys::MissingKeys;
use crate::daemon::multicast;
use crate::daemon::self_test::SelfTestError;
use std::fmt;
use std::io;

/// Reason why a peer could not start. The text names the fix.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// There is no usable interface.
    Interface(ChooseError),
    /// Other hosts can reach the peer, which has no keys and is not explicitly open.
    Unprotected(MissingKeys),
    /// The keys of the host cannot be used, or do not fit the configuration.
    #[cfg(feature = "security")]
    Membership(crate::daemon::membership::MembershipError),
    /// The UDP sockets could not be opened.
    Sockets(multicast::SocketOpenError),
    /// Multicasts of this host do not come back.
    SelfTest(SelfTestError),
    /// The Unix socket could not be opened.
    Socket(SocketError),
    /// The journal of events could not be opened.
    #[cfg(feature = "events")]
    Events(crate::daemon::events::EventsError),
    /// A listener could not be opened.
    #[cfg(feature = "listeners")]
    Listener(crate::daemon::listeners::ListenerError),
    /// The event streams could not be opened.
    #[cfg(feature = "streams")]
    Streams(crate::daemon::stream_service::peer_streams::StreamsOpenError),
    /// The web server could not be opened.
    #[cfg(feature = "streams")]
    Web(crate::daemon::http_server::HttpError),
    /// The link to other sites could not be started.
    #[cfg(feature = "links")]
    Link(crate::daemon::link::LinkError),
    /// The configuration asks for a service that this build does not have.
    Absent {
        /// Key of the configuration.
        key: &'static str,
        /// Feature of the crate that brings the service.
        feature: &'static str,
    },
    /// The system refused another operation.
    System {
        /// Operation that failed.
        step: &'static str,
        /// Error that the system returned.
        error: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Interface(error) => error.fmt(f),
            StartError::Unprotected(error) => error.fmt(f),
            #[cfg(feature = "security")]
            StartError::Membership(error) => error.fmt(f),
            StartError::Sockets(error) => error.fmt(f),
            StartError::SelfTest(error) => error.fmt(f),
            StartError::Socket(error) => error.fmt(f),
            #[cfg(feature = "events")]
            StartError::Events(error) => error.fmt(f),
            #[cfg(feature = "listeners")]
            StartError::Listener(error) => error.fmt(f),
            #[cfg(feature = "streams")]
            StartError::Streams(error) => error.fmt(f),
            #[cfg(feature = "streams")]
            StartError::Web(error) => error.fmt(f),
            #[cfg(feature = "links")]
            StartError::Link(error) => error.fmt(f),
            StartError::Absent { key, feature } => {
                write!(f, "{key}: this build has no {feature}; build with --features {feature}, or leave the key out")
            }
            StartError::System { step, error } => write!(f, "cannot {step}: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

#[cfg(feature = "security")]
impl From<crate::daemon::membership::MembershipError> for StartError {
    fn from(error: crate::daemon::membership::MembershipError) -> StartError {
        StartError::Membership(error)
    }
}
