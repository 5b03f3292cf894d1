//! Events: the loop reads their replication from the LAN, and reports what the gateway notices.

use super::LinkCarrier;
use crate::clock::Clock;
use crate::daemon::link::event_client::EventClient;
use crate::daemon::link::hub::Hub;
use crate::daemon::queue_reader::QueueReader;
use crate::daemon::subscription_queue::NoticeRef;
use std::future::pending;

impl LinkCarrier {
    /// Reads the replication of events on the LAN. Returns why it cannot.
    pub(super) async fn read_events(&self) -> String {
        let Some(client) = &self.events else { return pending().await };
        let read_all = async {
            let reader = QueueReader::new(&client.queue)?;
            while reader.read(|notice| self.on_event_notice(client, notice)).await? {
                self.wake();
                // A queue that never rests does not keep the other tasks from running.
                tokio::task::yield_now().await;
            }
            std::io::Result::Ok(())
        };
        match read_all.await {
            Ok(()) => "the peer has ended".to_owned(),
            Err(error) => format!("the link cannot read the events of the LAN: {error}"),
        }
    }

    /// Handles a message. Followers find by themselves what the queue drops.
    fn on_event_notice(&self, client: &EventClient, notice: NoticeRef<'_>) {
        if let NoticeRef::Message(delivery) = notice {
            let (message, publisher) = (delivery.to_delivery().message, delivery.publisher.epoch);
            let permitted = client.permitted(publisher);
            self.gateway.borrow_mut().on_event_delivery(Clock::now().instant, &message, publisher, &permitted);
        }
    }

    /// Passes the limits of the connection to the gateway, and logs what it has noticed.
    pub(super) fn update_events(&self, hub: &Hub) {
        let Some(client) = &self.events else { return };
        let mut gateway = self.gateway.borrow_mut();
        let events = gateway.events_mut();
        events.set_inbox(client.inbox());
        let bytes_max = hub.client.server_info().max_payload;
        if 0 < bytes_max {
            events.set_hub_bytes_max(bytes_max);
        }
        while let Some(notice) = events.poll_notice() {
            tracing::warn!("{notice}");
        }
    }
}
