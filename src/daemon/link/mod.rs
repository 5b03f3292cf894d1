//! The link of a gateway to the cluster that joins its site with others (`link`).
//!
//! It runs on a thread of its own, as a client of the peer: it subscribes to what it exports, and publishes what it
//! imports. The rules are those of [`crate::link`]; this module connects them with the LAN and with the cluster.

mod carrier;
mod credentials;
mod event_client;
mod hub;
mod hub_tls;
mod lan;
pub(crate) mod lan_query;
mod link_timer;
mod report;
mod signing;

use self::carrier::durable::{DurableLink, HubStreamSettings};
use self::carrier::{CarrierSubjects, LinkCarrier};
use self::credentials::{CredentialsError, LinkCredentials};
use self::event_client::EventClient;
use self::hub::{HubSettings, RelaySubjects};
use self::hub_tls::HubTlsError;
use self::lan::LanClient;
use self::report::SharedReport;
use self::signing::{LinkSigning, permitted_exports};
use crate::clock::{Clock, random_u64};
use crate::config::{Config, HubAddress};
use crate::daemon::engine_core::EngineCore;
use crate::link::durable::DurableSettings;
use crate::link::event_relay::relayed_types::RelayedTypes;
use crate::link::gateway::Gateway;
use crate::link::gateway_settings::GatewaySettings;
use crate::link::hub_sender::{SITE_PREFIX, site_publications};
use crate::link::site_name::SiteName;
use crate::link::system_messages::INBOX_PREFIX;
use crate::message::{Epoch, Refusal};
use crate::proto::peer::inbox_of;
use crate::time::{ClockReading, Instant};
use serde_json::Value;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::oneshot;

/// Maximum time for which the end of a peer waits for that of its link.
const LINK_END_TIMEOUT: Duration = Duration::from_secs(2);

/// Reason why a peer cannot be a gateway.
#[derive(Debug)]
pub enum LinkError {
    /// The credentials for the cluster cannot be used.
    Credentials(CredentialsError),
    /// The authorities of the cluster's certificates cannot be used.
    Tls(HubTlsError),
    /// The certificate of this host does not permit this subject, on which gateways publish.
    NotPermitted(String),
    /// The peer refuses a subscription of the link.
    Refused(Refusal),
    /// The system refuses a thread or a descriptor.
    System(io::Error),
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkError::Credentials(error) => error.fmt(f),
            LinkError::Tls(error) => error.fmt(f),
            LinkError::NotPermitted(subject) => {
                write!(f, "a gateway publishes on {subject}, which the certificate of this host does not permit")
            }
            LinkError::Refused(refusal) => write!(f, "the link cannot subscribe: {refusal:?}"),
            LinkError::System(error) => write!(f, "the link cannot start: {error}"),
        }
    }
}

impl std::error::Error for LinkError {}

/// The link of a peer. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    report: SharedReport,
    events: Option<EventClient>,
    /// Dropped to end the link.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Disconnected once the link has ended.
    ended: Receiver<()>,
}

impl Link {
    /// Starts the link of a gateway, if one is configured. The cluster may be away.
    ///
    /// # Errors
    /// The credentials or the authorities cannot be used, or the peer or the system refuses what the link needs.
    pub(crate) fn start(core: &mut EngineCore, config: &Config) -> Result<Option<Link>, LinkError> {
        let Some(site) = config.site.clone().filter(|_| !config.link.is_empty()) else { return Ok(None) };
        let permitted = core.peer.host_permissions().publish.clone();
        let publications = site_publications(&permitted, &site);
        let publications = publications.ok_or_else(|| LinkError::NotPermitted(format!("{SITE_PREFIX}{site}")))?;
        let settings = GatewaySettings {
            site: site.clone(),
            exports: permitted_exports(&config.link_live, &publications),
            imports: config.link_import.clone(),
            services: permitted_exports(&config.link_services, &publications),
            inbox: format!("{}link.", inbox_of(core.peer.epoch())),
            durable: DurableSettings {
                exports: permitted_exports(&config.link_durable, &publications),
                stream: config.link_stream.clone(),
                spool_bytes_max: config.link_spool_size,
                bytes_per_second: config.link_rate as u64,
            },
            message_bytes_max: core.peer.settings().message_bytes_max,
            permitted,
        };
        let lan = LanClient::open(core, &settings)?;
        let types = RelayedTypes { exports: config.link_events.clone(), imports: config.link_events_import.clone() };
        let events = types.is_any().then(|| EventClient::open(core, &lan)).transpose()?;
        let epoch = std::iter::repeat_with(random_u64).find_map(Epoch::new).expect("a random number is rarely 0");
        let hub = hub_settings(config, &site, epoch)?;
        let report = SharedReport::new(&settings, epoch, &config.link);
        let patterns = settings.exchanged([]);
        let relay = RelaySubjects { site: site.clone(), gateway: epoch };
        let imports = settings.imports.clone();
        let stream = HubStreamSettings { exports: settings.durable.exports.clone(), ..stream_settings(config) };
        let durable = DurableLink::new(stream, &site, imports.clone());
        let signing = open_signing(core, config, &settings, epoch);
        let mut gateway = Gateway::new(settings, epoch, Clock::now().instant);
        gateway.events_mut().set_types(types);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LinkError::System)?;
        let (end, end_requested) = oneshot::channel::<()>();
        let (thread_ends, ended) = std::sync::mpsc::sync_channel(0);
        let subjects = CarrierSubjects { patterns, imports, relay };
        let carrier = LinkCarrier::new(gateway, durable, subjects, lan, events.clone(), signing, report.clone());
        let of_thread = report.clone();
        let run = move || {
            let run = AssertUnwindSafe(|| runtime.block_on(carrier.run(hub, end_requested)));
            if catch_unwind(run).is_err() {
                of_thread.set_state("failed", Some("a defect of this program has ended the link".to_owned()));
            }
            // A look-up of a name that is still under way does not hold the peer up.
            runtime.shutdown_background();
            drop(thread_ends);
            // It detaches from the peer, which looks then whether the link has ended.
            drop(carrier);
        };
        let thread = thread::Builder::new().name("link".to_owned()).spawn(run).map_err(LinkError::System)?;
        tracing::info!(%site, gateway = %epoch, "link started");
        Ok(Some(Link { report, events, end: Some(end), thread: Some(thread), ended }))
    }

    /// Continues under a new epoch of the peer.
    pub(crate) fn on_new_epoch(&self, core: &mut EngineCore, now: ClockReading) {
        self.events.iter().for_each(|events| events.on_new_epoch(core, now));
    }

    /// Begins to end the link: it says so to the other gateways and to other sites.
    pub(crate) fn begin_end(&mut self) {
        self.end = None;
    }

    /// Returns whether the link is ending.
    pub(crate) fn is_ending(&self) -> bool {
        self.end.is_none() && matches!(self.ended.try_recv(), Err(TryRecvError::Empty))
    }

    /// Returns a sentence about what is wrong with the link, if it lasts.
    pub(crate) fn problem(&self, now: Instant) -> Option<String> {
        self.report.problem(now)
    }

    /// Returns the part of `show status`, and the answer to `show links`.
    pub(crate) fn status(&self) -> Value {
        self.report.to_json()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end = None;
        match self.ended.recv_timeout(LINK_END_TIMEOUT) {
            Err(RecvTimeoutError::Timeout) => tracing::warn!("the link does not end"),
            _ => drop(self.thread.take().map(JoinHandle::join)),
        }
    }
}

/// Returns the signatures of the link; `None` without a realm.
fn open_signing(
    core: &mut EngineCore,
    config: &Config,
    settings: &GatewaySettings,
    gateway: Epoch,
) -> Option<LinkSigning> {
    let Some((realm, updates)) = core.protection.open_link() else {
        if !config.link_import_clients.patterns().is_empty() {
            tracing::warn!("link-import-clients has no effect without a realm: all messages of clients are imported");
        }
        return None;
    };
    let mut signing = LinkSigning::new(config, &settings.site, gateway, realm, updates);
    signing.report_limited_exports(config, settings);
    Some(signing)
}

fn stream_settings(config: &Config) -> HubStreamSettings {
    HubStreamSettings {
        name: config.link_stream.clone(),
        exports: config.link_durable.clone(),
        age_max: config.link_stream_time,
        bytes_max: config.link_stream_size,
        copies: config.link_stream_copies,
    }
}

fn hub_settings(config: &Config, site: &SiteName, gateway: Epoch) -> Result<HubSettings, LinkError> {
    let credentials = LinkCredentials::read(config.link_credentials.as_deref()).map_err(LinkError::Credentials)?;
    let is_encrypted = config.link_tls_ca.is_some() || config.link.iter().any(HubAddress::is_encrypted);
    if !is_encrypted && credentials.is_password() {
        tracing::warn!("the link sends its password unencrypted: write the addresses with tls://");
    }
    let tls = is_encrypted.then(|| hub_tls::client_config(config.link_tls_ca.as_deref()));
    let tls = tls.transpose().map_err(LinkError::Tls)?;
    let (name, inbox_prefix) = (format!("seqcast {site} {}", config.name), format!("{INBOX_PREFIX}{site}.{gateway}"));
    Ok(HubSettings { addresses: config.link.clone(), credentials, tls, name, inbox_prefix })
}
