//! The shell around the protocol: the core with its sockets and clients, the services attached to it, and the engine
//! that runs both.

pub(crate) mod advisories;
pub(crate) mod answer_parts;
pub mod batch;
mod beacon;
mod client_origin;
mod client_process;
pub(crate) mod clients;
pub(crate) mod connection_state;
pub mod drop_rule;
pub(crate) mod engine;
pub(crate) mod engine_core;
pub(crate) mod event_report;
pub(crate) mod event_request;
#[cfg(feature = "events")]
pub mod events;
pub(crate) mod health;
#[cfg(feature = "streams")]
pub mod http_server;
pub mod interface;
pub(crate) mod internal_command;
#[cfg(feature = "security")]
mod key_log;
#[cfg(feature = "links")]
pub mod link;
#[cfg(feature = "links")]
mod link_realm;
#[cfg(feature = "listeners")]
pub mod listeners;
pub(crate) mod local_rings;
pub mod local_socket;
pub mod log;
#[cfg(feature = "cli")]
mod log_file;
pub mod log_levels;
#[cfg(feature = "cli")]
pub mod log_output;
mod loss_verdict;
pub(crate) mod mailbox;
#[cfg(feature = "security")]
mod membership;
pub mod missing_keys;
pub mod multicast;
#[cfg(not(feature = "security"))]
mod open_membership;
pub(crate) mod outbox;
#[cfg(feature = "listeners")]
pub(crate) mod path_test;
mod protection;
#[cfg(feature = "streams")]
pub(crate) mod queue_reader;
pub(crate) mod readiness;
#[cfg(feature = "security")]
mod realm_writer;
#[cfg(feature = "cli")]
mod recent_lines;
#[cfg(any(feature = "events", feature = "security"))]
mod remote_permissions;
pub(crate) mod report_assembly;
#[cfg(feature = "security")]
pub(crate) mod revocation_inquiry;
#[cfg(feature = "security")]
mod running_realm;
pub mod self_test;
pub(crate) mod service;
#[cfg(feature = "security")]
mod setup_commands;
pub(crate) mod short_poll;
pub mod show;
pub(crate) mod signals;
mod site_loss_monitor;
mod site_losses;
pub(crate) mod stream_request;
#[cfg(feature = "streams")]
pub mod stream_service;
mod subject_losses;
pub mod subscription_queue;
mod systemd;
pub(crate) mod timer;
pub(crate) mod tokens;
pub(crate) mod transmit_queue;
mod unserved_report;
#[cfg(feature = "streams")]
mod web;

pub use engine::start;
