//! The services that are attached to the core, as far as this build has them. [`Services`] refuses requests to absent
//! ones.
#![cfg_attr(not(feature = "streams"), expect(unused_variables, reason = "absent services need no arguments"))]

use crate::config::Config;
use crate::daemon::clients::Clients;
use crate::daemon::engine::options::Options;
use crate::daemon::engine::start_error::StartError;
use crate::daemon::engine_core::{DetachedClient, EngineCore};
use crate::daemon::event_report::EventReport;
use crate::daemon::event_request::{EventServiceCommand, ServerIdConflict};
#[cfg(feature = "events")]
use crate::daemon::events::EventService;
#[cfg(feature = "links")]
use crate::daemon::link::Link;
#[cfg(feature = "links")]
use crate::daemon::link::lan_query::LanQuery;
#[cfg(feature = "listeners")]
use crate::daemon::listeners::Listeners;
#[cfg(feature = "events")]
use crate::daemon::service::Service;
use crate::daemon::stream_request::StreamServiceCommand;
#[cfg(feature = "streams")]
use crate::daemon::stream_service::stream_host::StreamHost;
#[cfg(feature = "streams")]
use crate::daemon::web::WebServer;
use crate::message::{ClientId, Epoch};
use crate::subject::permitted_subjects::HostPermissions;
use crate::time::{ClockReading, Instant};
use mio::Registry;
use serde_json::{Value, json};
use std::io;

/// Maximum time after the start for which clients of the NATS and Redis listeners publish nothing. Other peers are
/// known after 0.5 s; the rest is for subscriptions whose announcement was lost.
#[cfg(feature = "listeners")]
const DISCOVERY_MAX: std::time::Duration = std::time::Duration::from_millis(750);

/// The services of one peer.
pub(super) struct Services {
    #[cfg(feature = "listeners")]
    listeners: Listeners,
    /// Declared before `events`, so that the streams are dropped before the journal that feeds them.
    #[cfg(feature = "streams")]
    streams: StreamHost,
    #[cfg(feature = "events")]
    events: EventService,
    #[cfg(feature = "streams")]
    web: Option<WebServer>,
    #[cfg(feature = "links")]
    link: Option<Link>,
    /// Query of the link that waits for a change of the subscriptions.
    #[cfg(feature = "links")]
    waiting_query: Option<LanQuery>,
}

impl Services {
    /// Opens the journal and the listeners, as configured, for the peer in this epoch. `host` are the permissions of this
    /// host.
    ///
    /// # Errors
    /// A service cannot be opened, or this build does not have it.
    pub(super) fn open(
        config: &Config,
        options: &Options,
        epoch: Epoch,
        host: &HostPermissions,
    ) -> Result<Services, StartError> {
        check_presence(config, options)?;
        #[cfg(feature = "events")]
        let events = open_events(config, options)?;
        Ok(Services {
            #[cfg(feature = "listeners")]
            listeners: match options.serve {
                true => Listeners::open(config, epoch, events.server(), host).map_err(StartError::Listener)?,
                false => Listeners::closed(config),
            },
            #[cfg(feature = "streams")]
            streams: StreamHost::default(),
            #[cfg(feature = "events")]
            events,
            #[cfg(feature = "streams")]
            web: None,
            #[cfg(feature = "links")]
            link: None,
            #[cfg(feature = "links")]
            waiting_query: None,
        })
    }

    /// Registers the listeners for incoming connections.
    pub(super) fn register(&mut self, registry: &Registry) -> io::Result<()> {
        #[cfg(feature = "listeners")]
        self.listeners.register(registry)?;
        Ok(())
    }

    /// Starts the services that need the core: the streams, the replication of events, and the discovery by the
    /// listeners.
    ///
    /// # Errors
    /// A service cannot be opened.
    pub(super) fn start(
        &mut self,
        core: &mut EngineCore,
        now: ClockReading,
        config: &Config,
        options: &Options,
    ) -> Result<(), StartError> {
        #[cfg(feature = "streams")]
        if let Some(address) = config.ftn18.filter(|_| options.serve) {
            self.streams =
                StreamHost::open(core, &mut self.events, now, config, address).map_err(StartError::Streams)?;
        }
        #[cfg(feature = "streams")]
        if let Some(address) = config.http.filter(|_| options.serve) {
            self.web = Some(WebServer::open(core, config, address).map_err(StartError::Web)?);
        }
        #[cfg(feature = "links")]
        if options.serve {
            self.link = Link::start(core, config).map_err(StartError::Link)?;
        }
        #[cfg(feature = "events")]
        self.events.replicate(core, now).map_err(StartError::Events)?;
        #[cfg(feature = "listeners")]
        {
            if options.serve && config.hat.is_some() && config.hat_events {
                self.events.announce(core, now, "STARTED");
            }
            // Opening the streams may have taken seconds, and the peer sends its first datagram only now.
            self.listeners.begin_discovery(crate::clock::Clock::now().instant + DISCOVERY_MAX);
        }
        Ok(())
    }

    /// Handles a command for the service of events.
    pub(super) fn on_event_command(&mut self, core: &mut EngineCore, now: ClockReading, command: EventServiceCommand) {
        #[cfg(feature = "events")]
        self.events.on_command(core, now, command);
        #[cfg(not(feature = "events"))]
        if let EventServiceCommand::Request { requester, .. } = command {
            core.answer_event_request(&requester, vec![Err(crate::event::refusal::EventRefusal::absent())]);
        }
    }

    /// Handles a command for the streams.
    pub(super) fn on_stream_command(
        &mut self,
        core: &mut EngineCore,
        now: ClockReading,
        command: StreamServiceCommand,
    ) {
        #[cfg(feature = "streams")]
        self.streams.on_command(core, now, command);
        #[cfg(not(feature = "streams"))]
        if let StreamServiceCommand::Request { requester, .. } = command {
            core.answer_stream_request(requester, Err(crate::listener::stream::StreamRefusal::absent()));
        }
    }

    /// Passes a report about events to the clients of listeners.
    pub(super) fn on_event_report(&mut self, core: &mut EngineCore, now: ClockReading, report: EventReport) {
        #[cfg(feature = "listeners")]
        self.listeners.on_command(core, now, report);
    }

    /// Records that clients wait to be accepted at the listener with this index.
    pub(super) fn on_connection(&mut self, listener: usize) {
        #[cfg(feature = "listeners")]
        self.listeners.on_connection(listener);
    }

    /// Schedules a client of a listener if it may have input to process.
    pub(super) fn schedule_if_input(&mut self, clients: &mut Clients, id: ClientId) {
        #[cfg(feature = "listeners")]
        self.listeners.schedule_if_input(clients, id);
    }

    /// Continues the services under a new epoch of the peer.
    pub(super) fn on_new_epoch(&mut self, core: &mut EngineCore, now: ClockReading) {
        #[cfg(feature = "events")]
        self.events.on_new_epoch(core, now);
        #[cfg(feature = "streams")]
        self.web.iter().for_each(|web| web.on_new_epoch(core.peer.epoch()));
        #[cfg(feature = "links")]
        self.link.iter().for_each(|link| link.on_new_epoch(core, now));
    }

    /// Does the work of the services in a turn of the engine.
    pub(super) fn on_turn(&mut self, core: &mut EngineCore, now: ClockReading) {
        #[cfg(feature = "listeners")]
        self.listeners.on_turn(core, now);
        #[cfg(feature = "links")]
        if let Some(query) = self.waiting_query.take_if(|query| !query.waits(&core.peer)) {
            self.on_link_query(core, query);
        }
    }

    /// Answers a query of the link, now or once the subscriptions have changed.
    #[cfg(feature = "links")]
    pub(super) fn on_link_query(&mut self, core: &mut EngineCore, query: LanQuery) {
        if let Some(query) = query.answer(&mut core.peer) {
            self.waiting_query = Some(query);
        }
    }

    /// Does the work that must precede the writes to clients at the end of a turn.
    pub(super) fn before_writes(&mut self, core: &mut EngineCore, now: ClockReading) {
        #[cfg(feature = "listeners")]
        self.listeners.before_writes(core, now);
    }

    /// Does the work that the writes to clients at the end of a turn make possible.
    pub(super) fn after_writes(&mut self, core: &mut EngineCore, now: ClockReading) {
        #[cfg(feature = "listeners")]
        self.listeners.after_writes(core, now);
    }

    /// Releases the state of a departed client.
    pub(super) fn on_detach(&mut self, core: &mut EngineCore, now: ClockReading, client: &mut DetachedClient) {
        #[cfg(feature = "listeners")]
        self.listeners.on_detach(core, now, client);
        #[cfg(feature = "events")]
        self.events.on_detach(core, now, client);
    }

    /// Returns whether work is pending, so that the engine must not sleep.
    pub(super) fn has_work(&self, core: &EngineCore) -> bool {
        #[cfg(feature = "listeners")]
        return self.listeners.has_work(core);
        #[cfg(not(feature = "listeners"))]
        false
    }

    /// Returns the time of the next work that is due without an event.
    pub(super) fn deadline(&self, core: &EngineCore) -> Option<Instant> {
        #[cfg(feature = "listeners")]
        return self.listeners.deadline(core);
        #[cfg(not(feature = "listeners"))]
        None
    }

    /// Handles the start of a graceful stop.
    pub(super) fn on_stop(&mut self, core: &mut EngineCore, now: ClockReading) {
        #[cfg(feature = "listeners")]
        {
            if self.listeners.announces_events() {
                self.events.announce(core, now, "STOPPED");
            }
            self.listeners.on_stop(core, now);
        }
        #[cfg(feature = "links")]
        self.link.iter_mut().for_each(Link::begin_end);
    }

    /// Returns the number of requests that must be finished before a stop.
    pub(super) fn pending_requests(&self) -> usize {
        [
            #[cfg(feature = "events")]
            self.events.pending_requests(),
            #[cfg(feature = "streams")]
            self.streams.pending_requests(),
            #[cfg(feature = "links")]
            usize::from(self.link.as_ref().is_some_and(Link::is_ending)),
        ]
        .iter()
        .sum()
    }

    /// Closes the listeners, among them that of the streams. Their clients have been notified of the end before.
    pub(super) fn close_listeners(&mut self, core: &mut EngineCore) {
        #[cfg(feature = "listeners")]
        self.listeners.close(core);
        #[cfg(feature = "streams")]
        {
            self.streams.close(core);
            self.web = None;
        }
        #[cfg(feature = "links")]
        {
            self.link = None;
        }
    }

    /// Closes the journal. It stores nothing afterwards.
    pub(super) fn close_journal(&mut self, core: &mut EngineCore) {
        #[cfg(feature = "events")]
        self.events.close(core);
    }

    /// Adds the fields of the services to `show status`. The fields of an absent service are empty.
    pub(super) fn add_status(&self, core: &EngineCore, status: &mut Value) {
        status["listeners"] = json!([]);
        status["listener_bytes"] = json!(0);
        for service in ["events", "streams", "http", "link"] {
            status[service] = Value::Null;
        }
        #[cfg(feature = "listeners")]
        self.listeners.add_status(core, status);
        #[cfg(feature = "events")]
        self.events.add_status(core, status);
        #[cfg(feature = "streams")]
        {
            self.streams.add_status(core, status);
            status["http"] = self.web.as_ref().map_or(Value::Null, WebServer::status);
        }
        #[cfg(feature = "links")]
        {
            status["link"] = self.link.as_ref().map_or(Value::Null, Link::status);
        }
    }

    /// Returns whether this peer is a gateway.
    pub(super) fn is_gateway(&self) -> bool {
        #[cfg(feature = "links")]
        return self.link.is_some();
        #[cfg(not(feature = "links"))]
        false
    }

    /// Returns what is wrong with the link to other sites, if it lasts.
    pub(super) fn link_problem(&self, now: Instant) -> Option<String> {
        #[cfg(feature = "links")]
        let problem = self.link.as_ref().and_then(|link| link.problem(now));
        #[cfg(not(feature = "links"))]
        let problem = {
            let _ = now;
            None
        };
        problem
    }

    /// Returns the peer that holds the server id of this one, if there is one.
    pub(super) fn server_id_conflict(&self) -> Option<&ServerIdConflict> {
        #[cfg(feature = "events")]
        return self.events.server_id_conflict();
        #[cfg(not(feature = "events"))]
        None
    }

    /// Returns the number of events registered, of requests refused, and of events of other servers stored and refused
    /// since the start.
    pub(super) fn event_counts(&self) -> [u64; 5] {
        #[cfg(feature = "events")]
        return self.events.counts();
        #[cfg(not(feature = "events"))]
        [0; 5]
    }
}

/// Checks that this build has every service that the configuration asks for.
fn check_presence(config: &Config, options: &Options) -> Result<(), StartError> {
    let uses = [
        ("server-id", config.server_id.is_some(), "events", cfg!(feature = "events")),
        ("event-follow", !config.event_follow.is_empty(), "events", cfg!(feature = "events")),
        ("nats", options.serve && config.nats.is_some(), "listeners", cfg!(feature = "listeners")),
        ("nats-ws", options.serve && config.nats_ws.is_some(), "listeners", cfg!(feature = "listeners")),
        ("redis", options.serve && config.redis.is_some(), "listeners", cfg!(feature = "listeners")),
        ("hat", options.serve && config.hat.is_some(), "listeners", cfg!(feature = "listeners")),
        ("ftn18", options.serve && config.ftn18.is_some(), "streams", cfg!(feature = "streams")),
        ("http", options.serve && config.http.is_some(), "streams", cfg!(feature = "streams")),
        ("link", options.serve && !config.link.is_empty(), "links", cfg!(feature = "links")),
    ];
    match uses.into_iter().find(|(_, is_used, _, is_present)| *is_used && !is_present) {
        Some((key, _, feature, _)) => Err(StartError::Absent { key, feature }),
        None => Ok(()),
    }
}

/// Makes the event service. Opens the journal at once if the configuration requires it, or if it exists already.
#[cfg(feature = "events")]
fn open_events(config: &Config, options: &Options) -> Result<EventService, StartError> {
    let mut events = EventService::new(config);
    let needs_journal = config.server_id.is_some() || !config.event_follow.is_empty();
    if needs_journal || options.serve && (config.hat.is_some() || config.ftn18.is_some()) {
        events.open().map_err(StartError::Events)?;
    } else if options.serve && events.has_journal() {
        // Peers that follow the events of this journal wait for it to open.
        events.open().unwrap_or_else(|error| tracing::warn!("no events can be registered or found: {error}"));
    }
    Ok(events)
}

#[cfg(all(test, not(feature = "events")))]
mod tests {
    use super::*;

    #[test]
    fn key_of_absent_service_names_its_feature() {
        let serving = Options { serve: true, ..Options::default() };
        for (keys, expected) in [
            ("  server-id: 7\n", "server-id: this build has no events"),
            ("  event-follow: plant/*\n", "event-follow: this build has no events"),
            ("  nats: on\n", "nats: this build has no listeners"),
            ("  nats-ws: on\n", "nats-ws: this build has no listeners"),
            ("  redis: on\n", "redis: this build has no listeners"),
            ("  hat: on\n  server-id: 7\n", "server-id: this build has no events"),
            ("  ftn18: on\n  streams: main\n", "ftn18: this build has no streams"),
            ("  http: on\n", "http: this build has no streams"),
        ] {
            let config = Config::from_text("param.yaml", &format!("parameters:\n{keys}")).unwrap();
            let refused = check_presence(&config, &serving).unwrap_err().to_string();
            assert!(refused.starts_with(expected), "{keys}: {refused}");
        }
        let config = Config::from_text("param.yaml", "parameters:\n  nats: on\n").unwrap();
        assert!(check_presence(&config, &Options::default()).is_ok(), "only a serving peer opens listeners");
    }
}
