//! The web server of a peer (`http`): a page for people, and its health and its metrics for programs that watch it.
//!
//! It runs on a thread of its own and asks the engine for the reports of `show`; it has no numbers of its own. An idle
//! server costs nothing.

mod advisory_log;
mod answer;
mod api;
mod assets;
mod bus_api;
mod counts;
mod event_stream;
mod guard;
mod lan_reports;
mod live;
mod message_refusal;
mod messages;
mod metrics;
mod remote_query;
mod reports;
mod stream_reports;

use self::advisory_log::AdvisoryLog;
use self::answer::answer;
use self::bus_api::BusApi;
use self::counts::RequestCounts;
use self::guard::RequestGuard;
use self::lan_reports::LanReports;
use self::live::LiveFeed;
use self::messages::SUBSCRIPTIONS_MAX;
use self::reports::ReportSource;
use crate::config::{Config, HttpPublish};
use crate::daemon::engine_core::EngineCore;
use crate::daemon::http_server::{
    ConnectionCounts, ConnectionLimits, HttpConnection, HttpError, HttpServer, HttpService, ServerSettings,
};
use crate::listener::access::Access;
use crate::message::Epoch;
use axum::Router;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Maximum number of connections: a browser opens up to six.
const CONNECTIONS_MAX: usize = 256;
/// Maximum time for which a connection may be open without a whole request.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Maximum bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// State that all requests share.
#[derive(Debug)]
struct WebContext {
    guard: RequestGuard,
    reports: ReportSource,
    advisories: AdvisoryLog,
    live: LiveFeed,
    lan: LanReports,
    /// Room for subscriptions of pages.
    subscriptions: Arc<Semaphore>,
    /// Number of the next subscription.
    next_sub: AtomicU32,
    /// Maximum bytes of a published message.
    message_bytes_max: usize,
    /// True if pages may publish.
    can_publish: bool,
    bus: BusApi,
    counts: RequestCounts,
    /// Counters of the connections, once the server has started.
    connections: OnceLock<Arc<ConnectionCounts>>,
}

/// The web server of a peer. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct WebServer {
    server: HttpServer,
    context: Arc<WebContext>,
    /// Number of accounts that may connect.
    accounts: usize,
    /// TLS mode for the status: whether clients must or may encrypt.
    tls: Option<&'static str>,
}

impl WebServer {
    /// Opens the server at an address.
    ///
    /// # Errors
    /// The server cannot listen, or its TLS files cannot be used.
    pub(crate) fn open(core: &mut EngineCore, config: &Config, address: SocketAddr) -> Result<WebServer, HttpError> {
        let access = Arc::new(Access::new(&config.accounts, core.peer.host_permissions(), false));
        let host_name = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
        let (client, advisories) = AdvisoryLog::open(core);
        let context = Arc::new(WebContext {
            guard: RequestGuard::new(access, host_name),
            reports: ReportSource::new(Arc::clone(&core.mailbox), client),
            advisories,
            live: LiveFeed::default(),
            lan: LanReports::new(Arc::clone(&core.mailbox), client),
            subscriptions: Arc::new(Semaphore::new(SUBSCRIPTIONS_MAX)),
            next_sub: AtomicU32::new(1),
            message_bytes_max: config.message_size,
            can_publish: config.http_publish == HttpPublish::All,
            bus: BusApi::new(config, address, core.peer.epoch()),
            counts: RequestCounts::default(),
            connections: OnceLock::new(),
        });
        let settings = ServerSettings {
            listener: "http",
            address,
            tls: config.http_tls.clone(),
            limits: ConnectionLimits {
                count_max: CONNECTIONS_MAX,
                full: "too many connections",
                idle_time: IDLE_TIME,
                head_bytes_max: HEAD_BYTES_MAX,
            },
        };
        let service = WebService(Arc::clone(&context));
        let start = |connections: &Arc<ConnectionCounts>, _| {
            service.0.connections.get_or_init(|| Arc::clone(connections));
            service
        };
        let server = HttpServer::start(settings, start)?;
        let (address, accounts) = (server.address(), config.accounts.len());
        tracing::info!(%address, accounts, "http listener open");
        if config.http_open && accounts == 0 && !address.ip().is_loopback() {
            tracing::warn!(%address, "anyone who reaches the http listener can read the reports of this peer");
        }
        let tls = config.http_tls.as_ref().map(|tls| tls.clients.as_str());
        Ok(WebServer { server, context, accounts, tls })
    }

    /// Receives replies under a new epoch of the peer.
    pub(crate) fn on_new_epoch(&self, epoch: Epoch) {
        self.context.bus.set_epoch(epoch);
    }

    /// Returns the part of `show status`.
    pub(crate) fn status(&self) -> Value {
        let (connections, counts) = (self.server.counts(), &self.context.counts);
        json!({
            "listener": "http",
            "address": self.server.address().to_string(),
            "tls": self.tls,
            "accounts": self.accounts,
            "clients": connections.open.load(Ordering::Relaxed),
            "accepted": connections.accepted.load(Ordering::Relaxed),
            "refused": connections.refused.load(Ordering::Relaxed),
            "ended": connections.ended(),
            "viewers": self.context.live.viewers(),
            "requests": counts.requests.load(Ordering::Relaxed),
            "unauthorized": counts.unauthorized.load(Ordering::Relaxed),
            "denied": counts.denied.load(Ordering::Relaxed),
            "foreign": counts.foreign.load(Ordering::Relaxed),
            "invalid": counts.invalid.load(Ordering::Relaxed),
            "busy": counts.busy.load(Ordering::Relaxed),
            "published": counts.published.load(Ordering::Relaxed),
            "subscriptions": self.context.bus.subscriptions(),
            "delivered": counts.delivered.load(Ordering::Relaxed),
            "losses": counts.losses.load(Ordering::Relaxed),
            "dropped": counts.dropped.load(Ordering::Relaxed),
            "bus_requests": counts.bus_requests.load(Ordering::Relaxed),
            "bus_replies": counts.bus_replies.load(Ordering::Relaxed),
            "no_responders": counts.no_responders.load(Ordering::Relaxed),
            "timeouts": counts.timeouts.load(Ordering::Relaxed),
        })
    }
}

/// The service of the server.
struct WebService(Arc<WebContext>);

impl HttpService for WebService {
    fn open(&self, _is_encrypted: bool) -> HttpConnection {
        let router = Router::new().fallback(answer).with_state(Arc::clone(&self.0));
        HttpConnection { router, end: Box::pin(std::future::pending()) }
    }

    async fn run(&self) {
        let context = &*self.0;
        let live = context.live.run(|| api::snapshot(context));
        tokio::join!(context.advisories.run(), live, context.lan.run(&context.live));
    }

    async fn close(&self) {
        self.0.bus.close().await;
    }
}
