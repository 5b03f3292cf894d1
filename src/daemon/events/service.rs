//! The service of events, as the engine uses it: requests of all kinds of clients, and their outcomes.

use super::replication::LocalServer;
use super::{EventService, EventsError, found_answers, registered_answer, unavailable};
use crate::daemon::engine_core::{DetachedClient, EngineCore};
use crate::daemon::event_report::EventReport;
use crate::daemon::event_request::{
    EventCompletion, EventRequester, EventServiceCommand, JournalReply, ServerIdConflict,
};
use crate::daemon::internal_command::InternalCommand;
use crate::daemon::mailbox::SubscriptionRequest;
use crate::daemon::service::Service;
use crate::daemon::subscription_queue::SubscriptionQueue;
use crate::event::model::{Json, Payload, Registration};
use crate::event::refusal::{EventRefusal, EventRefusalKind};
use crate::listener::event::EventRequest;
use crate::message::{ClientId, DeliveryMode, Publisher, SubId, SubscriptionFilter};
use crate::proto::effect::ClientRequest;
use crate::subject::Pattern;
use crate::subject::event_type::{EventType, TypePattern};
use crate::subject::permitted_subjects::HostPermissions;
use crate::time::ClockReading;
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Subscription of the replication to the replies of other peers.
const REPLIES: SubId = SubId(3);

/// Subscribes for the replication of the journal.
fn subscribe(
    core: &mut EngineCore,
    now: ClockReading,
    client: ClientId,
    sub: SubId,
    pattern: Pattern,
    queue: Arc<SubscriptionQueue>,
) {
    let wanted = SubscriptionFilter { pattern, glob: None, queue: None };
    let request = SubscriptionRequest { wanted, mode: Some(DeliveryMode::Repair), wants_discovery: false };
    if let Err(refusal) = core.subscribe(now, client, sub, request, queue) {
        tracing::error!(?refusal, "the journal of events is not shared with other peers");
    }
}

/// Checks that the certificate of this host permits a request.
///
/// # Errors
/// The request is for events of types whose subjects this host may not use.
fn check_permissions(host: &HostPermissions, request: &EventRequest) -> Result<(), EventRefusal> {
    let denied = match request {
        EventRequest::Register(requested) => requested
            .iter()
            .find(|registration| !host.publish.permits(registration.event_type.subject()))
            .map(|registration| format!("publish events of the type {}", registration.event_type)),
        EventRequest::Query(query) => {
            let all = [TypePattern::all()];
            let types = query.types().unwrap_or(&all);
            let is_denied = |types: &&TypePattern| {
                !types.subject_patterns().all(|pattern| host.subscribe.permits_pattern(&pattern))
            };
            types.iter().find(is_denied).map(|types| format!("read events of the types {types}"))
        }
    };
    denied.map_or(Ok(()), |action| Err(EventRefusal::denied(&action)))
}

impl Service for EventService {
    type Command = EventServiceCommand;

    fn on_command(&mut self, core: &mut EngineCore, now: ClockReading, command: EventServiceCommand) {
        match command {
            EventServiceCommand::Request { requester, request } => self.request(core, now, requester, request),
            EventServiceCommand::Completed(completion) => self.on_completion(core, *completion),
            EventServiceCommand::Ended(cost) => self.end(cost),
            EventServiceCommand::ClaimDecided(outcome) => self.on_claim_decided(core, now, outcome),
        }
    }

    fn add_status(&self, _core: &EngineCore, status: &mut Value) {
        status["events"] = self.status();
    }

    /// Stops the replication, then the journal. Requests handed to the journal before are stored.
    fn close(&mut self, _core: &mut EngineCore) {
        self.replication = None;
        self.journal = None;
        self.waiting_for_claim.clear();
    }

    /// Cancels the queries of the client. The events that it has registered are still stored.
    fn on_detach(&mut self, _core: &mut EngineCore, _now: ClockReading, client: &mut DetachedClient) {
        let queries = self.journal.as_ref().map_or(0, |journal| journal.reader.cancel_queries(client.id));
        if 0 < queries {
            self.release_cost(client.id, queries, 0);
        }
    }

    fn pending_requests(&self) -> usize {
        self.waiting_request_count()
    }
}

impl EventService {
    /// Starts a request. It is refused at once, or answered later.
    fn request(&mut self, core: &mut EngineCore, now: ClockReading, requester: EventRequester, request: EventRequest) {
        let publisher = self.publisher(now, &mut core.clients);
        let result = match core.is_running() {
            true => check_permissions(core.peer.host_permissions(), &request)
                .and_then(|()| self.open_for_request(core, now))
                .and_then(|()| self.begin(now, publisher, &core.mailbox, &requester, request)),
            false => Err(EventRefusal::stopping()),
        };
        if let Err(refusal) = result {
            self.refuse(core, &requester, refusal);
        }
    }

    /// Opens the journal and starts its replication, unless both were done before.
    fn open_for_request(&mut self, core: &mut EngineCore, now: ClockReading) -> Result<(), EventRefusal> {
        self.open_with_retry(now)?;
        self.replicate(core, now).map_err(unavailable)
    }

    /// Starts the replication of the journal, if the journal is open and not replicated yet.
    pub(crate) fn replicate(&mut self, core: &mut EngineCore, now: ClockReading) -> Result<(), EventsError> {
        let Some(server) = self.server().filter(|_| self.needs_replication()) else { return Ok(()) };
        let client = self.publisher(now, &mut core.clients);
        let epoch = Arc::new(AtomicU64::new(core.peer.epoch().bits()));
        let message_bytes_max = core.peer.settings().message_bytes_max;
        let local = LocalServer { server, epoch, client, message_bytes_max, mailbox: Arc::clone(&core.mailbox) };
        let queue = self.start_replication(&local, core.protection.remote_permissions())?;
        for (sub, pattern) in (0..).map(SubId).zip(local.patterns()) {
            subscribe(core, now, client, sub, pattern, Arc::clone(&queue));
        }
        Ok(())
    }

    /// Continues the replication of the journal under a new epoch of this peer, to which other peers reply.
    pub(crate) fn on_new_epoch(&mut self, core: &mut EngineCore, now: ClockReading) {
        if let (Some(replication), Some(client)) = (&self.replication, self.client) {
            let pattern = replication.set_epoch(core.peer.epoch());
            core.request_or_report(now, client, ClientRequest::Unsubscribe { sub: REPLIES });
            subscribe(core, now, client, REPLIES, pattern, Arc::clone(&replication.queue));
        }
    }

    /// Records the outcome of the server-id claim, and starts the requests that have waited for it.
    fn on_claim_decided(&mut self, core: &mut EngineCore, now: ClockReading, outcome: Result<(), Publisher>) {
        let Some(server) = self.server() else { return };
        let outcome = outcome.map_err(|other| ServerIdConflict {
            server,
            other_host: core.host(now, other.epoch),
            other,
            own_host: core.sockets.inbox_address().ip(),
        });
        let publisher = self.publisher(now, &mut core.clients);
        for (requester, request) in self.on_claim_decision(outcome) {
            if let Err(refusal) = self.begin(now, publisher, &core.mailbox, &requester, request) {
                self.refuse(core, &requester, refusal);
            }
        }
    }

    /// Registers an event which reports that the peer starts or stops registering events.
    pub(crate) fn announce(&mut self, core: &mut EngineCore, now: ClockReading, state: &'static str) {
        let Some(server) = self.server() else { return };
        let event_type = EventType::new(["event", &server.to_string(), "engine"]).expect("short words and a number");
        let text = Bytes::from(format!("\"{state}\""));
        let payload = Some(Payload::Json(Json::from_bytes(text).expect("a word between quotes")));
        let registration = Registration { event_type, source_timestamp: None, payload };
        self.request(core, now, EventRequester::Internal, EventRequest::Register(vec![registration]));
    }

    /// Handles the outcome of a request to the journal.
    fn on_completion(&mut self, core: &mut EngineCore, EventCompletion { requester, result, ended }: EventCompletion) {
        ended.into_iter().for_each(|cost| self.end(cost));
        let reply = match result {
            Ok(reply) => reply,
            Err(refusal) => return self.refuse(core, &requester, refusal),
        };
        let listener_request = match requester {
            EventRequester::Listener(client, number) => Some((client, number)),
            _ => None,
        };
        match (reply, listener_request) {
            (JournalReply::Registered(events), registrant) => {
                self.registered += events.len() as u64;
                if registrant.is_none() {
                    core.answer_event_request(&requester, vec![Ok(registered_answer(&events))]);
                }
                core.queue_command(InternalCommand::Listeners(EventReport::Registered { registrant, events }));
            }
            (JournalReply::Found(page), Some(requester)) => {
                core.queue_command(InternalCommand::Listeners(EventReport::Found { requester, page }));
            }
            (JournalReply::Found(page), None) => {
                core.answer_event_request(&requester, found_answers(page).into_iter().map(Ok).collect());
            }
        }
    }

    /// Counts a refusal and reports it to the requester.
    fn refuse(&mut self, core: &mut EngineCore, requester: &EventRequester, refusal: EventRefusal) {
        self.refused += 1;
        if matches!(refusal.kind, EventRefusalKind::Unavailable | EventRefusalKind::Full) {
            self.journal_failures += 1;
            if self.journal_failures.is_power_of_two() {
                let refused = self.journal_failures;
                tracing::warn!(client = requester.client().0, reason = %refusal, refused, "request about events refused");
            }
        }
        match requester {
            EventRequester::Listener(client, number) => {
                let requester = (*client, *number);
                core.queue_command(InternalCommand::Listeners(EventReport::Refused { requester, refusal }));
            }
            requester => core.answer_event_request(requester, vec![Err(refusal)]),
        }
    }
}
