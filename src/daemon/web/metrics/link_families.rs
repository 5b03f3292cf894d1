//! The metrics of a link to other sites.

use super::families::{MetricFamily, SampleSource, family};
use super::rules::{link_connected, sites, stream_fault, stream_open};
use super::samples::MetricKind;

use MetricKind::{Counter, Gauge};
use SampleSource::{Field, Rule};

/// The metrics of a link. A peer that is no gateway has no samples of them.
pub(super) const LINK_FAMILIES: &[MetricFamily] = &[
    family("link_connected", Gauge, "1 if the link is connected with the cluster, 0 if not.", Rule(link_connected)),
    family(
        "link_shares",
        Gauge,
        "Shares of the subjects that this gateway carries, of 16.",
        Field("/status/link/shares", 1),
    ),
    family("link_exported", Counter, "Messages for the cluster.", Field("/status/link/exported", 1)),
    family(
        "link_taken_over",
        Counter,
        "Messages that this gateway exported in place of one that ended.",
        Field("/status/link/taken_over", 1),
    ),
    family(
        "link_client_messages",
        Counter,
        "Messages of the cluster's own clients that were imported.",
        Field("/status/link/of_clients", 1),
    ),
    family(
        "link_unsent",
        Counter,
        "Messages that were not exported: the cluster was too slow, away, or takes none of this size.",
        Field("/status/link/unsent", 1),
    ),
    family(
        "link_unread",
        Counter,
        "Messages of the cluster for which the LAN was too slow, or that its client dropped.",
        Field("/status/link/unread", 1),
    ),
    family(
        "link_unheard",
        Counter,
        "Messages of the LAN that the gateway was too slow to hear.",
        Field("/status/link/unheard", 1),
    ),
    family(
        "link_refused",
        Counter,
        "Messages of the cluster that are too large for the LAN, or that the certificate of this host does not permit.",
        Field("/status/link/refused", 1),
    ),
    family(
        "link_invalid",
        Counter,
        "Messages of the cluster that could not be read.",
        Field("/status/link/invalid", 1),
    ),
    family(
        "link_excess_sites",
        Counter,
        "Messages of sites beyond the 256 that are remembered.",
        Field("/status/link/excess_sites", 1),
    ),
    family(
        "link_imported",
        Counter,
        "Messages of other sites that this gateway delivered to the LAN, by site.",
        Rule(|overview| sites(overview, "/imported")),
    ),
    family(
        "link_repeated",
        Counter,
        "Messages of other sites that came more than once and were delivered once, by site.",
        Rule(|overview| sites(overview, "/repeated")),
    ),
    family(
        "link_lost_min",
        Counter,
        "Messages of other sites that were lost on the way, by site: the lower bound.",
        Rule(|overview| sites(overview, "/lost_min")),
    ),
    family(
        "link_tails",
        Counter,
        "Times that the last gateway of another site died, so that further messages may be lost, by site.",
        Rule(|overview| sites(overview, "/tails")),
    ),
    family(
        "link_requests_sent",
        Counter,
        "Requests for the cluster, once for each other site.",
        Field("/status/link/requests_sent", 1),
    ),
    family(
        "link_requests_delivered",
        Counter,
        "Requests of other sites and of clients of the cluster that this gateway published on the LAN.",
        Field("/status/link/requests_delivered", 1),
    ),
    family(
        "link_replies",
        Counter,
        "Replies that this gateway passed on, in both directions.",
        Field("/status/link/replies", 1),
    ),
    family(
        "link_no_responders",
        Counter,
        "Requests of the LAN that this gateway answered with 503.",
        Field("/status/link/no_responders", 1),
    ),
    family(
        "link_requests_dropped",
        Counter,
        "Requests and replies that were dropped: there was no room, the reply subject is not allowed, or the cluster repeated a request.",
        Field("/status/link/requests_dropped", 1),
    ),
    family(
        "link_event_servers",
        Gauge,
        "Event servers of other sites that are heard.",
        Field("/status/link/events/servers", 1),
    ),
    family(
        "link_events_exported",
        Counter,
        "Events for other sites; one event counts again when it is requested again.",
        Field("/status/link/events/exported", 1),
    ),
    family(
        "link_events_imported",
        Counter,
        "Events of other sites; one event counts again when it is requested again.",
        Field("/status/link/events/imported", 1),
    ),
    family(
        "link_events_refused",
        Counter,
        "Events that the certificate of their host, or that of this host, does not permit.",
        Field("/status/link/events/refused", 1),
    ),
    family(
        "link_events_too_large",
        Counter,
        "Events that fit no message of the cluster or of the LAN.",
        Field("/status/link/events/too_large", 1),
    ),
    family(
        "link_events_dropped",
        Counter,
        "Announcements, requests and answers about events for which there was no room.",
        Field("/status/link/events/dropped", 1),
    ),
    family(
        "link_events_invalid",
        Counter,
        "Messages of the cluster about events that could not be read.",
        Field("/status/link/events/invalid", 1),
    ),
    family(
        "link_certificates",
        Gauge,
        "Certificates of other gateways that are known and trusted.",
        Field("/status/link/security/certificates", 1),
    ),
    family(
        "link_signed",
        Counter,
        "Messages that this gateway signed for the cluster.",
        Field("/status/link/security/signed", 1),
    ),
    family(
        "link_unsignable",
        Counter,
        "Messages that were not sent, because they cannot be signed.",
        Field("/status/link/security/unsignable", 1),
    ),
    family(
        "link_verified",
        Counter,
        "Messages of the cluster whose signatures are right, and that their signers may send.",
        Field("/status/link/security/verified", 1),
    ),
    family(
        "link_unsigned",
        Counter,
        "Messages of the cluster without a signature that were not accepted.",
        Field("/status/link/security/unsigned", 1),
    ),
    family(
        "link_unknown_certificates",
        Counter,
        "Messages of gateways whose certificates were not known yet.",
        Field("/status/link/security/unknown_certificates", 1),
    ),
    family(
        "link_invalid_certificates",
        Counter,
        "Announcements of certificates that could not be read.",
        Field("/status/link/security/invalid_certificates", 1),
    ),
    family(
        "link_excess_certificates",
        Counter,
        "Certificates that were not checked, because too many unknown ones came.",
        Field("/status/link/security/excess_certificates", 1),
    ),
    family(
        "link_untrusted",
        Counter,
        "Certificates that are not trusted, and messages of certificates that were not valid at their time.",
        Field("/status/link/security/untrusted", 1),
    ),
    family(
        "link_bad_signatures",
        Counter,
        "Messages of the cluster with a wrong signature.",
        Field("/status/link/security/bad_signatures", 1),
    ),
    family(
        "link_stale",
        Counter,
        "Messages of the cluster whose time is too far from the clock of this host.",
        Field("/status/link/security/stale", 1),
    ),
    family(
        "link_replayed",
        Counter,
        "Signed messages of gateways to each other that were received before.",
        Field("/status/link/security/repeated", 1),
    ),
    family(
        "link_denied",
        Counter,
        "Messages of the cluster that the certificate of their signer does not permit.",
        Field("/status/link/security/denied", 1),
    ),
    family(
        "link_durable_open",
        Gauge,
        "1 if the stream of the cluster can be used for durable messages, 0 if not.",
        Rule(stream_open),
    ),
    family(
        "link_durable_fault",
        Gauge,
        "1 if durable messages are held up, or the stream of the cluster is not as configured; 0 otherwise.",
        Rule(stream_fault),
    ),
    family(
        "link_durable_waiting_messages",
        Gauge,
        "Durable messages that this gateway keeps until the stream has stored them.",
        Field("/status/link/durable/waiting", 1),
    ),
    family(
        "link_durable_waiting_bytes",
        Gauge,
        "Bytes of these messages, with 256 for each beside its content.",
        Field("/status/link/durable/waiting_bytes", 1),
    ),
    family(
        "link_durable_stored",
        Counter,
        "Durable messages that the stream has stored for this gateway.",
        Field("/status/link/durable/stored", 1),
    ),
    family(
        "link_durable_unstored",
        Counter,
        "Durable messages for which the spool had no room, or that the stream never takes.",
        Field("/status/link/durable/unstored", 1),
    ),
    family(
        "link_durable_restored",
        Counter,
        "Durable messages that the stream had lost and that this gateway has sent to it once more.",
        Field("/status/link/durable/restored", 1),
    ),
    family(
        "link_durable_imported",
        Counter,
        "Messages of the stream that this gateway delivered to the LAN.",
        Field("/status/link/durable/imported", 1),
    ),
    family(
        "link_durable_repeated",
        Counter,
        "Messages that the stream has twice and that were delivered once.",
        Field("/status/link/durable/repeated", 1),
    ),
    family(
        "link_durable_invalid",
        Counter,
        "Messages of the stream that could not be read.",
        Field("/status/link/durable/invalid", 1),
    ),
    family(
        "link_durable_discarded",
        Counter,
        "Messages that the limits of the stream removed before this site read them.",
        Field("/status/link/durable/discarded", 1),
    ),
    family(
        "link_durable_position",
        Gauge,
        "Stream sequence up to which everything is delivered, while this gateway reads it.",
        Field("/status/link/durable/position", 1),
    ),
];
