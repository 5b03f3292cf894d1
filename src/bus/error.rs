//! Errors of the bus; each text names the remedy.

use crate::daemon::local_socket::DirectoryError;
use crate::daemon::start::StartError;
use crate::listener::refusal::RefusalReason;
use crate::subject::Subject;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Reason why a bus could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The embedded peer could not start.
    Start(StartError),
    /// No peer answers at the path.
    NoPeer {
        /// The Unix socket.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The default directory of the socket cannot be trusted.
    Directory(DirectoryError),
    /// This user may not use the socket.
    NoPermission {
        /// The Unix socket.
        path: PathBuf,
    },
    /// The peer, or another program that listens there, does not speak this version of the local protocol.
    Incompatible {
        /// The Unix socket.
        path: PathBuf,
        /// Description of the mismatch.
        reason: String,
    },
    /// The peer refused this client; holds the peer's reason.
    Refused(String),
    /// The system refused another step.
    System {
        /// The step that failed.
        step: &'static str,
        /// Error of the system.
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Start(error) => error.fmt(f),
            OpenError::NoPeer { path, error } => write!(
                f,
                "no peer answers at {} ({error}); start one with 'seqcast peer', or name its socket with --socket",
                path.display()
            ),
            OpenError::Directory(error) => error.fmt(f),
            OpenError::NoPermission { path } => write!(
                f,
                "no permission to use {}; its owner and group may (mode 0660): join the group, or run as its owner",
                path.display()
            ),
            OpenError::Incompatible { path, reason } => write!(f, "{}: {reason}", path.display()),
            OpenError::Refused(text) => write!(f, "the peer refuses: {text}"),
            OpenError::System { step, error } => write!(f, "cannot {step}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<StartError> for OpenError {
    fn from(error: StartError) -> OpenError {
        OpenError::Start(error)
    }
}

/// Reason why a message was not published. Every call that publishes reports a full queue in the same way: as
/// [`PublishError::Full`], having published nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishError {
    /// The queue to the peer is full, or stayed full for the given time. The caller may retry later; a clone of a
    /// message copies references only.
    Full,
    /// The message is too large.
    TooLarge {
        /// Size of the message: payload, headers and reply subject, in bytes.
        bytes: usize,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// The certificate of this host does not let its programs publish on the subject.
    Denied(Subject),
    /// The message has the event mark; only a peer creates events, from
    /// [registrations](crate::bus::Bus::register).
    Event,
    /// The message to reply to has no reply subject.
    NoReplySubject,
    /// The bus is closed, or its peer is gone.
    Closed,
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PublishError::Full => {
                write!(f, "the queue to the peer is full; publish more slowly, or wait with publish_blocking")
            }
            PublishError::TooLarge { bytes, bytes_max } => {
                write!(f, "the message has {bytes} bytes, at most {bytes_max} are allowed (key message-size)")
            }
            PublishError::Denied(subject) => RefusalReason::PublishDenied(subject.to_string()).fmt(f),
            PublishError::Event => write!(f, "only a peer makes events; register the event with Bus::register"),
            PublishError::NoReplySubject => {
                write!(f, "the message has no reply subject, so its publisher expects no reply")
            }
            PublishError::Closed => write!(f, "the bus is closed or its peer is gone; open it again"),
        }
    }
}

impl std::error::Error for PublishError {}

/// Reason why a subscription was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The peer refused it.
    Refused(RefusalReason),
    /// The peer did not answer in time.
    Timeout,
    /// The bus is closed, or its peer is gone.
    Closed,
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubscribeError::Refused(reason) => write!(f, "the peer refuses the subscription: {reason}"),
            SubscribeError::Timeout => write!(f, "the peer did not answer in time; it is overloaded or stopped"),
            SubscribeError::Closed => write!(f, "the bus is closed or its peer is gone; open it again"),
        }
    }
}

impl std::error::Error for SubscribeError {}

/// Reason why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// No replier answered in time, or the answer was lost.
    Timeout,
    /// Certainly no subscription got the request, on the LAN or in another site.
    NoResponders,
    /// The inbox could not be subscribed to.
    Subscribe(SubscribeError),
    /// The request could not be published.
    Publish(PublishError),
    /// The bus was closed, or its peer went away, while waiting.
    Closed,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Timeout => {
                write!(
                    f,
                    "no reply arrived in time; does 'seqcast show subs' on the responder's peer list the subject?"
                )
            }
            RequestError::NoResponders => write!(
                f,
                "no client on the LAN or in another site is subscribed to the subject; start a responder, or make a \
                 patient request (RequestOptions), which waits for one"
            ),
            RequestError::Subscribe(error) => error.fmt(f),
            RequestError::Publish(error) => error.fmt(f),
            RequestError::Closed => {
                write!(f, "the bus was closed, or its peer ended, before a reply arrived; open it again")
            }
        }
    }
}

impl std::error::Error for RequestError {}

/// Reason why the peer did not complete a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The time expired.
    Timeout,
    /// The peer has refused a message that was published since the previous flush; all others have left.
    Refused(RefusalReason),
    /// The bus is closed, or its peer is gone.
    Closed,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitError::Timeout => write!(f, "the peer did not answer in time; it is overloaded or stopped"),
            WaitError::Refused(reason) => write!(f, "the peer refused a message: {reason}"),
            WaitError::Closed => write!(f, "the bus is closed or its peer is gone; open it again"),
        }
    }
}

impl std::error::Error for WaitError {}

/// Reason why a subscription returned no notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// There is no notice at present, or none arrived within the given time.
    Empty,
    /// There is no notice, and there will be none: the bus is closed, or its peer is gone.
    Closed,
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvError::Empty => write!(f, "there is no notice yet"),
            RecvError::Closed => write!(f, "the bus is closed or its peer is gone; open it again"),
        }
    }
}

impl std::error::Error for RecvError {}
