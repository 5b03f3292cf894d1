//! Links between sites, without I/O: what crosses a cluster between two LANs, and how each side accounts for it.
//!
//! A *site* is a LAN. A *gateway* is a peer that connects its site to the hub, a NATS cluster. A message keeps its
//! subject at the hub, so clients of the hub read it. One header field, the *envelope*, adds where it comes from:
//!
//! - the origin: site, gateway and publisher. Gateways never export a message that has an envelope, and importers drop
//!   messages of their own site. So no topology has a loop.
//! - the publisher's own numbers. An importer drops what is not newer than the last message of the stream, that is of
//!   the publisher and the subject. So a message is delivered once, even if two gateways export it.
//! - the gateway's counts: a number for each message of a share, and an ordinal for each message of a stream. The
//!   ordinals of a stream are dense, so a jump is an exact loss, wherever it happened.
//!
//! *Manifests* follow on the same connection. They name the last ordinal of each stream that has changed, so the last
//! messages of a stream, and a stream that was lost whole, are found as well. An importer that misses a round of
//! manifests requests it again. Messages are owed from the first contact with a gateway on.
//!
//! The subjects are divided into 16 *shares*, and each has one gateway. Every gateway counts the messages of all
//! shares. When one dies, another one takes over its shares: it exports the last messages that it has not seen at the
//! hub, and its manifests name its counts. Importers also request the counts of gateways that were heard before the
//! death, and when a further gateway joins. A gateway that leaves says up to where its manifests name everything.
//!
//! Ordinals of two gateways differ, so an importer compares the publisher's numbers once. They are exact unless the
//! publisher has numbered the subject anew in between, or one of the two does not know an offset. Then the account
//! stays open: a later round of the earlier gateway gives the exact number; without it the loss is a range. If no living
//! gateway was heard early enough, the loss has no upper bound ([`site_loss::SiteTail`]).
//!
//! Requests are no part of these accounts ([`request_relay`]): the programs of the own site answer them, or those of
//! another site whose [`interest_summary`] matches the subject.
//!
//! ```text
//!  shares::Election      announcements of a site's gateways -> shares that this gateway carries
//!  export::Exporter      messages of the LAN -> envelopes, manifests
//!  import::ImportLedger  envelopes, manifests of other sites -> deliver or drop, losses
//! ```
//!
//! Everything from the hub may be hostile: decoders bound what they read, and all tables have a maximum size.

pub mod bye;
pub mod durable;
pub mod envelope;
pub mod event_relay;
pub mod export;
pub mod gateway;
pub mod gateway_counts;
pub mod gateway_settings;
mod gateway_watch;
pub mod hub_sender;
pub mod import;
mod import_queue;
mod import_standby;
mod imported_stream;
pub mod interest_summary;
pub mod local_subjects;
pub mod manifest;
pub mod pending_request;
pub mod position;
mod received_share;
mod remote_stream_key;
pub mod repeat_filter;
pub mod request_relay;
pub mod shares;
#[cfg(feature = "security")]
pub mod signatures;
pub mod site_interests;
pub mod site_loss;
pub mod site_name;
pub mod stream_counts;
pub mod system_messages;
#[cfg(test)]
mod tests;
pub mod unsent_messages;
