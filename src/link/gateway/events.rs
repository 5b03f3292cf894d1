//! Events: a gateway relays their replication for the servers whose subjects are in its shares.

use super::Gateway;
use crate::link::event_relay::{CarriedShares, EventRelay};
use crate::link::gateway_settings::GatewaySettings;
use crate::link::hub_sender::HubSender;
use crate::message::{Epoch, Message};
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::time::Instant;

/// Returns the relay of a gateway that starts now.
pub(super) fn event_relay(settings: &GatewaySettings, epoch: Epoch, now: Instant) -> EventRelay {
    EventRelay::new(settings.site.clone(), epoch, settings.permitted.clone(), settings.message_bytes_max, now)
}

impl Gateway {
    /// Handles a message of the LAN on a subject of the replication of events. `permitted` has the subjects on which the
    /// certificate of its publisher permits to publish.
    pub fn on_event_delivery(&mut self, now: Instant, message: &Message, from: Epoch, permitted: &PermittedSubjects) {
        self.check_lease(now);
        self.events.on_lan_message(now, self.carried(), message, from, permitted);
    }

    /// Returns the relay of events.
    pub fn events(&self) -> &EventRelay {
        &self.events
    }

    /// Returns the relay of events, for its settings and its notices.
    pub fn events_mut(&mut self) -> &mut EventRelay {
        &mut self.events
    }

    /// Handles a message of the cluster on a subject of the replication of events.
    pub(super) fn on_event_message(&mut self, now: Instant, message: &Message, sender: &HubSender) {
        self.check_lease(now);
        self.events.on_hub_message(now, self.carried(), message, sender);
    }

    pub(super) fn carried(&self) -> CarriedShares {
        CarriedShares::new(|share| self.exporter.carries(share))
    }
}
