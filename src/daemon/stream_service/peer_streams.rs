//! The streams of a peer: opened when the peer starts, and fed from its journal.

use super::http::{self, StreamServer};
use super::input::StreamInput;
use super::input_queue::{InputChannel, InputSender};
use super::requests::StreamRequests;
use super::service_thread::{JournalAccess, StreamServiceHandle};
use crate::config::{Config, StreamStoreLocation};
use crate::daemon::event_request::{EventRequester, EventServiceCommand};
use crate::daemon::events::JournalSource;
use crate::daemon::http_server::HttpError;
use crate::daemon::mailbox::{EngineCommand, Mailbox};
use crate::daemon::stream_request::{StreamServiceCommand, StreamServiceEvent};
use crate::event::model::{EventId, Registration};
use crate::event::refusal::EventRefusal;
use crate::event::store::{Query, QueryPage, ServerQuery};
use crate::event::stream::name::{Consumer, StreamName};
use crate::event::stream::store::MissedRange;
use crate::listener::access::Access;
use crate::listener::event::EventRequest;
use crate::listener::ftn18::call::LIST_BYTES;
use crate::listener::ftn18::stream_service;
use crate::message::ClientId;
use crate::storage::journal::error::StoreError;
use crate::storage::journal::reader::JournalReader;
use crate::storage::streams;
use crate::storage::streams::error::StreamStorageError;
use crate::storage::streams::store::BatchStore;
use crate::subject::permitted_subjects::HostPermissions;
use serde_json::{Value, json};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// File name of the streams in the data directory.
const STREAMS_FILE: &str = "streams.db";
/// Client under which the streams query the journal. No connected client has this id, so none cancels them by leaving.
const QUERY_CLIENT: ClientId = ClientId(u32::MAX);
/// Maximum time for which the stream service waits for room in the mailbox.
const MAILBOX_PATIENCE: Duration = Duration::from_secs(1);

/// Reason why a peer has no streams.
#[derive(Debug)]
pub enum StreamsOpenError {
    /// The streams cannot be stored.
    Store(StreamStorageError),
    /// Clients cannot connect to the streams.
    Http(HttpError),
}

impl fmt::Display for StreamsOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamsOpenError::Store(error) => error.fmt(f),
            StreamsOpenError::Http(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StreamsOpenError {}

/// The streams. The HTTP server is dropped before the stream service, so that no client calls it any more.
#[derive(Debug)]
pub(crate) struct PeerStreams {
    http: StreamServer,
    /// Number of accounts that may connect.
    accounts: usize,
    /// TLS mode for the status: whether clients must or may encrypt.
    tls: Option<&'static str>,
    pub(crate) stream_requests: StreamRequests,
    _streams: StreamServiceHandle,
}

impl PeerStreams {
    /// Opens the configured streams. The events that the journal stores arrive through `channel`, too.
    pub(crate) fn open(
        config: &Config,
        host: &HostPermissions,
        address: SocketAddr,
        journal: JournalSource,
        channel: InputChannel,
    ) -> Result<PeerStreams, StreamsOpenError> {
        let store = open_store(config).map_err(StreamsOpenError::Store)?;
        let settings = stream_service::Settings {
            streams: config.streams.clone(),
            is_shared: store.is_shared(),
            groups_max: config.stream_groups,
            delay: config.stream_delay,
        };
        let inputs = channel.sender.clone();
        let JournalSource { server, last_events, reader, client, mailbox } = journal;
        let events = PeerJournal { reader, client, mailbox, inputs: inputs.clone(), is_mailbox_full: false };
        let streams = StreamServiceHandle::start(store, settings, server, &last_events, Box::new(events), channel);
        let streams = streams.map_err(StreamsOpenError::Store)?;
        let is_trusted = config.ftn18_trusted || address.ip().is_loopback();
        let settings = http::Settings {
            address,
            access: Arc::new(Access::new(&config.accounts, host, false)),
            streams: config.streams.clone(),
            clients_max: config.listener_client_max,
            // Several polls can be answered, whatever limit is configured.
            bytes_max: config.listener_memory.max(4 * LIST_BYTES),
            is_trusted,
            tls: config.ftn18_tls.clone(),
        };
        let http = StreamServer::start(settings, inputs.clone()).map_err(StreamsOpenError::Http)?;
        tracing::info!(address = %http.address(), accounts = config.accounts.len(), trusted = is_trusted, "ftn18 listener open");
        let is_open = config.accounts.is_empty() && !address.ip().is_loopback();
        if config.ftn18_open && is_open {
            tracing::warn!(address = %http.address(), "anyone who reaches the ftn18 listener can use it");
        }
        let tls = config.ftn18_tls.as_ref().map(|tls| tls.clients.as_str());
        let accounts = config.accounts.len();
        Ok(PeerStreams { http, accounts, tls, stream_requests: StreamRequests::new(inputs), _streams: streams })
    }

    /// Returns the part of `show status`.
    pub(crate) fn status(&self) -> Value {
        let (connections, counts) = (self.http.connections(), self.http.counts());
        let (bytes, evicted) = self.http.memory_counts();
        json!({
            "listener": "ftn18",
            "tls": self.tls,
            "accounts": self.accounts,
            "address": self.http.address().to_string(),
            "clients": connections.open.load(Ordering::Relaxed),
            "accepted": connections.accepted.load(Ordering::Relaxed),
            "malformed": counts.malformed.load(Ordering::Relaxed),
            "denied": counts.denied.load(Ordering::Relaxed),
            "busy": counts.busy.load(Ordering::Relaxed),
            "refused": connections.refused.load(Ordering::Relaxed),
            "ended": connections.ended(),
            "requests": counts.requests.load(Ordering::Relaxed),
            "bytes": bytes,
            "evicted": evicted,
            "websockets": counts.websockets.load(Ordering::Relaxed),
        })
    }
}

fn open_store(config: &Config) -> Result<Box<dyn BatchStore>, StreamStorageError> {
    match &config.stream_store {
        StreamStoreLocation::Auto => streams::open_file(&config.data_dir.join(STREAMS_FILE)),
        StreamStoreLocation::File(path) => streams::open_file(path),
        StreamStoreLocation::Postgres(url) => streams::open_postgres(url),
    }
}

/// The journal of the peer, as the stream service sees it.
struct PeerJournal {
    reader: Arc<JournalReader>,
    client: ClientId,
    mailbox: Arc<Mailbox>,
    inputs: InputSender,
    /// True if the mailbox had no room at the last registration.
    is_mailbox_full: bool,
}

impl JournalAccess for PeerJournal {
    fn register(&mut self, number: u64, registrations: Vec<Registration>) {
        let requester = EventRequester::Service { client: self.client, number, outcome: Arc::new(self.inputs.clone()) };
        let request = EventRequest::Register(registrations);
        // Only the first of several registrations waits for room, since the mailbox of a stopping peer has none.
        let patience = if self.is_mailbox_full { Duration::ZERO } else { MAILBOX_PATIENCE };
        self.is_mailbox_full = self
            .mailbox
            .push(EngineCommand::Events(EventServiceCommand::Request { requester, request }), patience)
            .is_err();
        if self.is_mailbox_full {
            drop(self.inputs.push(StreamInput::Registered { number, registered: Err(EventRefusal::busy()) }));
        }
    }

    fn report_lapse(&mut self, stream: StreamName, consumer: Consumer, missed: MissedRange) {
        let lapsed = StreamServiceEvent::Lapsed { stream, consumer, missed };
        // If the engine has ended, no program receives the report.
        drop(self.mailbox.push(EngineCommand::Streams(StreamServiceCommand::Report(Box::new(lapsed))), Duration::ZERO));
    }

    fn find(&mut self, stream: usize, after: EventId) {
        let query = Query::Server(ServerQuery { server: after.server, after: Some(after), limit: None });
        let inputs = self.inputs.clone();
        let callback = move |found: Result<QueryPage, StoreError>| {
            let found = match found {
                Ok(found) => Some(found),
                Err(StoreError::NoServer(..)) => Some(QueryPage::default()),
                Err(error) => {
                    tracing::warn!(%error, "the journal could not be read for the streams");
                    None
                }
            };
            // A thread that has ended needs no result.
            drop(inputs.push(StreamInput::Found { stream, after, found }));
        };
        if !self.reader.request(QUERY_CLIENT, query, Box::new(callback)) {
            drop(self.inputs.push(StreamInput::Found { stream, after, found: None }));
        }
    }
}
