//! Losses of a slow listener client: the number of messages by subject since the last report to it.

use crate::daemon::advisories::{self, AdvisoryCount};
use crate::listener::drop_report::DropReport;
use crate::message::{Count, Delivery, Publisher};
use crate::proto::advisory::INBOUND_BCAST;
use crate::subject::Subject;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Maximum number of subjects counted by name; messages of other subjects count only in the total.
const SUBJECTS_MAX: usize = 64;

/// Number of dropped messages, in total and by subject.
#[derive(Debug, Default)]
pub(crate) struct DropCounts {
    total: u64,
    /// Bytes of the dropped messages.
    bytes: u64,
    subjects: BTreeMap<Subject, u64>,
}

impl DropCounts {
    /// Returns whether nothing has been dropped.
    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Counts `count` dropped messages of the subject, of `bytes` bytes together.
    pub(crate) fn add(&mut self, subject: &Subject, count: u64, bytes: u64) {
        self.total += count;
        self.bytes += bytes;
        let has_room = self.subjects.len() < SUBJECTS_MAX;
        match self.subjects.get_mut(subject) {
            Some(lost) => *lost += count,
            None if has_room => {
                self.subjects.insert(subject.detached(), count);
            }
            None => {}
        }
    }

    /// Returns the drops, with the number of messages that wait for the client, and resets the counts.
    pub(crate) fn take_report(&mut self, waiting: u64) -> DropReport {
        let DropCounts { total, bytes, subjects } = std::mem::take(self);
        DropReport { waiting, dropped: total, dropped_bytes: bytes, subjects: subjects.into_iter().collect() }
    }

    /// Returns the drops as an advisory with the fields of network advisories, and resets the counts. Its `reason` is
    /// `slow-client`. Messages of unnamed subjects count only in `lost`.
    pub(crate) fn take_advisory(&mut self, me: &Publisher, scid: u16) -> Delivery {
        let DropCounts { total, bytes, subjects } = std::mem::take(self);
        let mut notice = Map::new();
        let count = |count| serde_json::to_value(AdvisoryCount(Count::Exact(count))).expect("numbers are valid JSON");
        let mut put = |key: &str, value: Value| notice.insert(key.to_owned(), value);
        put("ADV_CLASS", json!("ERROR"));
        put("ADV_SOURCE", json!("SYSTEM"));
        put("ADV_NAME", json!("DATALOSS.INBOUND.BCAST"));
        put("ADV_DESC", json!("lost msgs"));
        put("lost", count(total));
        put("dropped_bytes", json!(bytes));
        put("sub_cnt", json!(subjects.len()));
        for (index, (subject, lost)) in subjects.iter().enumerate() {
            put(&format!("sub{}", index + 1), json!(subject.as_str()));
            put(&format!("lost{}", index + 1), count(*lost));
        }
        put("scid", json!(scid));
        put("user", json!(me.to_string()));
        put("publisher", json!(me.name.as_ref().map(|name| name.as_str())));
        put("epoch", json!(me.epoch.to_string()));
        put("reason", json!("slow-client"));
        put("cause", json!("client"));
        let payload = serde_json::to_vec(&notice).expect("numbers and texts are valid JSON");
        advisories::message(INBOUND_BCAST, payload, me.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Epoch;

    #[test]
    fn drops_are_reported_once_by_subject() {
        let mut lost = DropCounts::default();
        let subject = |text: &str| text.parse::<Subject>().unwrap();
        lost.add(&subject("a.b"), 3, 30);
        lost.add(&subject("c"), 1, 10);
        lost.add(&subject("a.b"), 2, 20);
        (0..100).for_each(|n| lost.add(&subject(&format!("many.{n}")), 1, 0));
        let me = Publisher { name: Some("A".parse().unwrap()), epoch: Epoch::new(1).unwrap(), uid: 0 };
        let delivery = lost.take_advisory(&me, 7500);
        let json: Value = serde_json::from_slice(&delivery.message.payload).unwrap();
        assert_eq!(
            (&json["lost"], &json["dropped_bytes"], &json["sub_cnt"], &json["reason"]),
            (&json!(106), &json!(60), &json!(64), &json!("slow-client"))
        );
        assert_eq!(
            (&json["sub1"], &json["lost1"], &json["sub2"], &json["lost2"]),
            (&json!("a.b"), &json!(5), &json!("c"), &json!(1))
        );
        assert!(lost.is_empty());
    }
}
