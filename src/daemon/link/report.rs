//! The report of the link, for `show`.

use crate::config::HubAddress;
use crate::link::gateway::Gateway;
use crate::link::gateway_settings::GatewaySettings;
use crate::message::Epoch;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// The report, which the thread of the link writes and the engine reads.
#[derive(Clone, Debug)]
pub(super) struct SharedReport(Arc<Mutex<Value>>);

impl SharedReport {
    /// Creates the report of a gateway that is not connected.
    pub(super) fn new(settings: &GatewaySettings, epoch: Epoch, hubs: &[HubAddress]) -> SharedReport {
        let report = json!({
            "site": settings.site.to_string(),
            "gateway": epoch.to_string(),
            "hubs": hubs.iter().map(HubAddress::to_string).collect::<Vec<String>>(),
            "state": "connecting",
            "fault": null,
            "shares": 0,
            "sites": [],
        });
        SharedReport(Arc::new(Mutex::new(report)))
    }

    /// Updates the counts.
    pub(super) fn set_counts(&self, gateway: &Gateway) {
        let counts = gateway.counts();
        let mut report = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        report["shares"] = json!(gateway.carried_shares());
        report["exported"] = json!(counts.exported);
        report["taken_over"] = json!(counts.taken_over);
        report["of_clients"] = json!(counts.of_clients);
        for (field, count) in [
            ("unsent", counts.unsent),
            ("unread", counts.unread),
            ("unheard", counts.unheard),
            ("refused", counts.refused),
        ] {
            report[field] = json!(count);
        }
        report["invalid"] = json!(counts.invalid);
        report["excess_sites"] = json!(counts.excess_sites);
        report["conflict"] = json!(gateway.conflict().map(ToString::to_string));
        let sites = gateway.sites().iter().map(|(site, counts)| {
            json!({
                "site": site.to_string(),
                "imported": counts.imported,
                "repeated": counts.repeated,
                "tails": counts.tails,
                "lost_min": counts.lost_min,
                "lost_max": Some(counts.lost_max).filter(|max| *max != u64::MAX),
            })
        });
        report["sites"] = sites.collect();
    }

    /// Notes the state of the connection, and the last fault of it.
    pub(super) fn set_state(&self, state: &str, fault: Option<String>) {
        let mut report = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        report["state"] = json!(state);
        report["fault"] = json!(fault);
    }

    /// Notes a fault that the cluster or the client reports. Returns whether it is another one than the last.
    pub(super) fn set_fault(&self, fault: String) -> bool {
        let mut report = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = json!(fault);
        std::mem::replace(&mut report["fault"], fault.clone()) != fault
    }

    /// Returns the report.
    pub(super) fn to_json(&self) -> Value {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
