//! The queries of the link to its peer, about the subscriptions of the LAN.

use super::LinkCarrier;
use crate::clock::Clock;
use crate::daemon::link::lan_query::{LanAnswer, LanQuestion};
use crate::message::Epoch;
use crate::subject::Subject;
use crate::subject::pattern_set::PatternSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::channel;

/// Maximum number of answers that wait. The requests of further ones end by their timeouts.
const ANSWERS_MAX: usize = 16_384;
/// Minimum interval of the answers about all subscriptions.
const INTEREST_INTERVAL: Duration = Duration::from_millis(200);
/// Further pause for each subscription, so that the engine spends little of its time on these queries.
const SUBSCRIPTION_PAUSE: Duration = Duration::from_micros(20);

impl LinkCarrier {
    /// Asks the peer for the receivers of requests, and for the interest of the LAN. Returns why it cannot.
    pub(super) async fn query_lan(&self) -> String {
        let (sender, mut answers) = channel(ANSWERS_MAX);
        let mut known = None;
        let mut gateways: Arc<BTreeMap<Epoch, PatternSet>> = Arc::default();
        let imports = self.subjects.imports.clone();
        let mut interest_at = Clock::now().instant;
        // The engine answers a question about the interest once there is something new.
        let mut awaits_interest = false;
        loop {
            let now = Clock::now().instant;
            let of_lan = Arc::clone(self.gateway.borrow().lan_gateways());
            if !Arc::ptr_eq(&of_lan, &gateways) {
                (known, gateways, awaits_interest) = (None, of_lan, false);
            }
            if !awaits_interest && interest_at <= now {
                interest_at = now + INTEREST_INTERVAL;
                let question = LanQuestion::Interest { known, imports: imports.clone() };
                awaits_interest = self.lan.query(&gateways, question, &sender);
            }
            while let Some((number, subject)) = self.next_lookup() {
                self.lan.query(&gateways, LanQuestion::Receivers { number, subject }, &sender);
            }
            tokio::select! {
                answer = answers.recv() => {
                    match answer {
                        Some(LanAnswer::Receivers { number, receivers }) => {
                            self.gateway.borrow_mut().on_receivers(number, receivers);
                        }
                        Some(LanAnswer::Interest { changes, interest, visited }) => {
                            (known, awaits_interest) = (Some(changes), false);
                            let now = Clock::now().instant;
                            interest_at = now + INTEREST_INTERVAL + SUBSCRIPTION_PAUSE * visited;
                            self.gateway.borrow_mut().on_lan_interest(now, &interest);
                        }
                        None => return "the queries of the link have ended".to_owned(),
                    }
                    self.wake_senders();
                }
                () = self.for_lookup.notified() => {}
                () = tokio::time::sleep(interest_at.since(now)), if !awaits_interest => {}
            }
        }
    }

    fn next_lookup(&self) -> Option<(u64, Subject)> {
        self.gateway.borrow_mut().poll_lookup()
    }
}
