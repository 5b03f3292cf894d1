//! The last advisories of the peer: the web server subscribes to them as any program can, and keeps a few.

use crate::clock::Clock;
use crate::daemon::clients::ClientTransport;
use crate::daemon::engine_core::EngineCore;
use crate::daemon::mailbox::SubscriptionRequest;
use crate::daemon::queue_reader::QueueReader;
use crate::daemon::subscription_queue::{NoticeRef, QueueLimits, SubscriptionQueue};
use crate::message::{ClientId, SubId, SubscriptionFilter};
use crate::subject::Pattern;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Pattern of all advisories.
const ADVISORIES: &str = "_RV.>";
/// Maximum number of advisories that are kept.
const ADVISORIES_MAX: usize = 100;
/// Maximum bytes of the content of one; a longer one is kept without its content.
const CONTENT_BYTES_MAX: usize = 16 << 10;
/// Number of this peer as a publisher, in each of its epochs.
const OWN_UID: u32 = 0;
/// Limits of the queue between the engine and the web server.
const LIMITS: QueueLimits = QueueLimits { count_max: 1024, bytes_max: 1 << 20 };

/// The last advisories.
#[derive(Debug)]
pub(super) struct AdvisoryLog {
    queue: Arc<SubscriptionQueue>,
    kept: Mutex<VecDeque<Value>>,
}

impl AdvisoryLog {
    /// Subscribes to the advisories as a client of the peer. Returns the client, too.
    pub(super) fn open(core: &mut EngineCore) -> (ClientId, AdvisoryLog) {
        let now = Clock::now();
        let client = core.clients.add(now, "http".into(), ClientTransport::Embedded(BTreeMap::new()));
        let queue = Arc::new(SubscriptionQueue::new(LIMITS));
        let wanted = SubscriptionFilter::from(ADVISORIES.parse::<Pattern>().expect("a constant that is a pattern"));
        let request = SubscriptionRequest { wanted, mode: None, wants_discovery: false };
        if let Err(error) = core.subscribe(now, client, SubId(0), request, Arc::clone(&queue)) {
            tracing::warn!(?error, "the web server shows no advisories");
        }
        (client, AdvisoryLog { queue, kept: Mutex::default() })
    }

    /// Returns the kept advisories, the oldest first.
    pub(super) fn rows(&self) -> Vec<Value> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Takes the advisories from the queue as they come; ends when the peer ends.
    pub(super) async fn run(&self) {
        let mut number = 0;
        let ended = async {
            let reader = QueueReader::new(&self.queue)?;
            while reader.read(|notice| self.take(notice, &mut number)).await? {}
            std::io::Result::Ok(())
        };
        if let Err(error) = ended.await {
            tracing::warn!(%error, "the web server shows no further advisories");
        }
    }

    /// Keeps an advisory. `number` is that of the last one.
    fn take(&self, notice: NoticeRef<'_>, number: &mut u64) {
        let NoticeRef::Message(delivery) = notice else { return };
        // Any program can publish on these subjects. Only the messages of programs have numbers.
        if delivery.publisher.uid != OWN_UID || delivery.seq.is_some() {
            return;
        }
        let payload = delivery.payload;
        let content = (payload.len() <= CONTENT_BYTES_MAX).then(|| serde_json::from_slice::<Value>(payload).ok());
        let now = Clock::now().wall;
        *number += 1;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if ADVISORIES_MAX <= kept.len() {
            kept.pop_front();
        }
        kept.push_back(json!({
            "number": *number,
            "time": now.to_string(),
            "time_ns": now.as_nanos(),
            "subject": delivery.subject.as_str(),
            "content": content.flatten(),
        }));
    }
}
