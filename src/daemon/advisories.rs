//! Encoding of a DATALOSS advisory as a message: the seed's fields in the seed's order, then the fields that only this
//! bus knows.
//!
//! The message has the header `mtype: A`, as RV marks advisories, and a JSON object as its payload.

use crate::link::envelope::RemotePublisher;
use crate::link::site_name::SiteName;
use crate::message::{Cause, Count, Delivery, Headers, Message, Publisher, Verdict};
use crate::proto::advisory::{Advisory, AdvisoryStream};
use crate::proto::peer::Peer;
use crate::subject::Subject;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::net::IpAddr;

/// Prefix of all DATALOSS subjects; the rest is the seed's `ADV_NAME`.
const SUBJECT_PREFIX: &str = "_RV.ERROR.SYSTEM.";

/// Encodes the advisory as a message from `me`. `host` is the source address of the publisher's datagrams, if known;
/// `repaired` is the number of messages that [`repaired`] returns.
pub(crate) fn delivery(advisory: &Advisory, host: Option<IpAddr>, repaired: Option<u64>, me: Publisher) -> Delivery {
    let payload =
        serde_json::to_vec(&AdvisoryJson { advisory, host, repaired }).expect("numbers and texts are valid JSON");
    message(advisory.stream.subject(), payload, me)
}

/// An advisory about losses of messages of another site.
pub(crate) struct SiteAdvisory<'a> {
    pub(crate) site: &'a SiteName,
    /// The publisher in the other site; `None` if it is not known.
    pub(crate) publisher: Option<&'a RemotePublisher>,
    /// Number of times that the last gateway of the site ended with an unknown number of messages behind it.
    pub(crate) tails: u64,
    /// The sums since the advisory before. Its publisher and its cause have no meaning.
    pub(crate) sums: &'a Advisory,
}

/// Encodes an advisory about losses of another site as a message from `me`.
pub(crate) fn site_delivery(advisory: &SiteAdvisory<'_>, me: Publisher) -> Delivery {
    let payload = serde_json::to_vec(advisory).expect("numbers and texts are valid JSON");
    message(advisory.sums.stream.subject(), payload, me)
}

/// Returns the number of messages of the advisory's publisher that were missing at first and then repaired. It is not
/// known of messages to another peer, which reports datagrams.
pub(crate) fn repaired(peer: &Peer, advisory: &Advisory) -> Option<u64> {
    match advisory.stream {
        AdvisoryStream::Bcast | AdvisoryStream::Ptp => Some(peer.repaired(advisory.publisher.epoch)),
        AdvisoryStream::OutboundBcast | AdvisoryStream::OutboundPtp => None,
    }
}

/// Makes an advisory with this payload from `me`. `subject` must be a constant.
pub(crate) fn message(subject: &str, payload: Vec<u8>, me: Publisher) -> Delivery {
    let subject: Subject = subject.parse().expect("a constant that is a subject");
    let headers = Headers::from_pairs([("mtype", "A")]).expect("a constant that is a header");
    let message = Message { headers, ..Message::new(subject, payload) };
    Delivery::new(message, me, None, Verdict::Direct)
}

struct AdvisoryJson<'a> {
    advisory: &'a Advisory,
    host: Option<IpAddr>,
    repaired: Option<u64>,
}

impl Serialize for AdvisoryJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Advisory { publisher, subjects, lost_min, lost_max, .. } = self.advisory;
        let mut map = serializer.serialize_map(None)?;
        serialize_sums(&mut map, self.advisory, Count::from_bounds(*lost_min, *lost_max), AdvisoryCount)?;
        if let Some(host) = self.host {
            map.serialize_entry("host", &host)?;
        }
        map.serialize_entry("user", &publisher.to_string())?;
        map.serialize_entry("publisher", &publisher.name.as_ref().map(|name| name.as_str()))?;
        map.serialize_entry("epoch", &publisher.epoch.to_string())?;
        map.serialize_entry("reason", self.advisory.reason.as_str())?;
        map.serialize_entry("cause", self.advisory.cause.as_str())?;
        let cause = self.advisory.cause;
        if cause != Cause::Network {
            map.serialize_entry("kernel_drops", &cause.overrun())?;
        }
        if 0 < cause.network() {
            map.serialize_entry("network_drops", &cause.network())?;
        }
        map.serialize_entry("unverified", &self.advisory.unverified)?;
        if let Some((first, last)) = self.advisory.unverified_datagrams {
            map.serialize_entry("unverified_first", &first)?;
            map.serialize_entry("unverified_last", &last)?;
        }
        if let Some(repaired) = self.repaired {
            map.serialize_entry("repaired", &repaired)?;
        }
        map.serialize_entry("subjects_omitted", &(self.advisory.subjects_count - subjects.len() as u64))?;
        map.end()
    }
}

impl Serialize for SiteAdvisory<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Advisory { lost_min, lost_max, subjects, subjects_count, reason, .. } = self.sums;
        let mut map = serializer.serialize_map(None)?;
        let lost_max = if self.tails == 0 { *lost_max } else { u64::MAX };
        serialize_sums(&mut map, self.sums, Count::from_bounds(*lost_min, lost_max), OpenCount)?;
        let name = self.publisher.and_then(|publisher| publisher.name.as_ref());
        map.serialize_entry("site", self.site.as_str())?;
        map.serialize_entry("publisher", &name.map(|name| name.as_str()))?;
        map.serialize_entry("epoch", &self.publisher.map(|publisher| publisher.epoch.to_string()))?;
        map.serialize_entry("reason", reason.as_str())?;
        map.serialize_entry("tails", &self.tails)?;
        map.serialize_entry("subjects_omitted", &(subjects_count - subjects.len() as u64))?;
        map.end()
    }
}

/// Writes the fields of the seed up to `scid`. `count` encodes a number of messages.
fn serialize_sums<M: SerializeMap, C: Serialize>(
    map: &mut M,
    sums: &Advisory,
    lost: Count,
    count: fn(Count) -> C,
) -> Result<(), M::Error> {
    map.serialize_entry("ADV_CLASS", "ERROR")?;
    map.serialize_entry("ADV_SOURCE", "SYSTEM")?;
    let subject = sums.stream.subject();
    map.serialize_entry("ADV_NAME", subject.strip_prefix(SUBJECT_PREFIX).unwrap_or(subject))?;
    map.serialize_entry("ADV_DESC", "lost msgs")?;
    map.serialize_entry("lost", &count(lost))?;
    map.serialize_entry("sub_cnt", &sums.subjects_count)?;
    for (index, (subject, min, max)) in sums.subjects.iter().enumerate() {
        map.serialize_entry(&format!("sub{}", index + 1), subject.as_str())?;
        map.serialize_entry(&format!("lost{}", index + 1), &count(Count::from_bounds(*min, *max)))?;
    }
    map.serialize_entry("scid", &sums.scid)
}

/// A count in JSON: a number if it is known, otherwise its bounds. It is never a number for an unknown count.
pub(crate) struct AdvisoryCount(pub(crate) Count);

impl Serialize for AdvisoryCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Count::Exact(count) => serializer.serialize_u64(count),
            Count::Between { min, max } => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("min", &min)?;
                map.serialize_entry("max", &max)?;
                map.end()
            }
        }
    }
}

/// A count in JSON like [`AdvisoryCount`]. The upper bound is null if nothing bounds the number.
pub(crate) struct OpenCount(pub(crate) Count);

impl Serialize for OpenCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Count::Between { min, max: u64::MAX } => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("min", &min)?;
                map.serialize_entry("max", &None::<u64>)?;
                map.end()
            }
            count => AdvisoryCount(count).serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Epoch, Reason};

    #[test]
    fn advisory_about_another_site_names_it() {
        let sums = Advisory {
            stream: AdvisoryStream::Bcast,
            publisher: publisher(),
            lost_min: 40,
            lost_max: 40,
            unverified: 0,
            unverified_datagrams: None,
            subjects: vec![("plant.7".parse().unwrap(), 40, 40)],
            subjects_count: 1,
            reason: Reason::Reported,
            cause: Cause::Network,
            scid: 7500,
        };
        let of_site = RemotePublisher { epoch: Epoch::new(0xdef).unwrap(), name: Some("A.test".parse().unwrap()) };
        let site = "plant1".parse().unwrap();
        let text = |advisory: &SiteAdvisory<'_>| {
            let encoded = site_delivery(advisory, publisher());
            assert_eq!(encoded.message.subject.as_str(), "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST");
            String::from_utf8(encoded.message.payload.to_vec()).unwrap()
        };
        assert_eq!(
            text(&SiteAdvisory { site: &site, publisher: Some(&of_site), tails: 0, sums: &sums }),
            concat!(
                r#"{"ADV_CLASS":"ERROR","ADV_SOURCE":"SYSTEM","ADV_NAME":"DATALOSS.INBOUND.BCAST","#,
                r#""ADV_DESC":"lost msgs","lost":40,"sub_cnt":1,"sub1":"plant.7","lost1":40,"scid":7500,"#,
                r#""site":"plant1","publisher":"A.test","epoch":"0000000000000def","reason":"REPORTED","tails":0,"#,
                r#""subjects_omitted":0}"#
            )
        );
        let sums = Advisory { lost_min: 0, lost_max: 0, subjects: Vec::new(), subjects_count: 0, ..sums };
        let tail = text(&SiteAdvisory { site: &site, publisher: None, tails: 1, sums: &sums });
        let part = r#""lost":{"min":0,"max":null},"sub_cnt":0,"scid":7500,"site":"plant1","publisher":null"#;
        assert!(tail.contains(part), "{tail}");
    }

    fn publisher() -> Publisher {
        Publisher { name: Some("B.test".parse().unwrap()), epoch: Epoch::new(0xabc).unwrap(), uid: 1 }
    }

    #[test]
    fn required_fields_come_first_in_fixed_order() {
        let names = ["RSF.REC.PAC.NaE", "RSF.REC.MTC.NaE"];
        let advisory = Advisory {
            stream: AdvisoryStream::Bcast,
            publisher: publisher(),
            lost_min: 2,
            lost_max: 2,
            unverified: 0,
            unverified_datagrams: None,
            subjects: names.map(|name| (name.parse().unwrap(), 1, 1)).to_vec(),
            subjects_count: 2,
            reason: Reason::Disabled,
            cause: Cause::Network,
            scid: 7500,
        };
        let encoded = delivery(&advisory, Some("10.0.0.2".parse().unwrap()), Some(5), publisher());
        assert_eq!(encoded.message.subject.as_str(), "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST");
        assert_eq!(encoded.message.headers.iter().collect::<Vec<_>>(), [("mtype", "A")]);
        assert_eq!(
            std::str::from_utf8(&encoded.message.payload).unwrap(),
            concat!(
                r#"{"ADV_CLASS":"ERROR","ADV_SOURCE":"SYSTEM","ADV_NAME":"DATALOSS.INBOUND.BCAST","#,
                r#""ADV_DESC":"lost msgs","lost":2,"sub_cnt":2,"sub1":"RSF.REC.PAC.NaE","lost1":1,"#,
                r#""sub2":"RSF.REC.MTC.NaE","lost2":1,"scid":7500,"host":"10.0.0.2","user":"B.1","#,
                r#""publisher":"B.test","epoch":"0000000000000abc","reason":"DISABLED","cause":"NETWORK","#,
                r#""unverified":0,"repaired":5,"subjects_omitted":0}"#
            )
        );
    }

    #[test]
    fn uncertain_count_is_reported_as_bounds() {
        let advisory = Advisory {
            stream: AdvisoryStream::Ptp,
            publisher: Publisher { name: None, ..publisher() },
            lost_min: 0,
            lost_max: 9,
            unverified: 4,
            unverified_datagrams: Some((7, 8)),
            subjects: vec![("a".parse().unwrap(), 0, 9)],
            subjects_count: 70,
            reason: Reason::Overflow,
            cause: Cause::LocalOverrun { datagrams: 2 },
            scid: 1,
        };
        let encoded = delivery(&advisory, None, None, publisher());
        let json: serde_json::Value = serde_json::from_slice(&encoded.message.payload).unwrap();
        assert_eq!(json["ADV_NAME"], "DATALOSS.INBOUND.PTP");
        assert_eq!(json.get("repaired"), None);
        assert_eq!(json["lost"], serde_json::json!({"min": 0, "max": 9}));
        assert_eq!(json["lost1"], serde_json::json!({"min": 0, "max": 9}));
        assert_eq!((&json["cause"], &json["kernel_drops"]), (&"LOCAL_OVERRUN".into(), &2.into()));
        assert_eq!(json.get("network_drops"), None);
        let mixed = Advisory { cause: Cause::Mixed { overrun: 2, network: 3 }, ..advisory };
        let json: serde_json::Value =
            serde_json::from_slice(&delivery(&mixed, None, None, publisher()).message.payload).unwrap();
        assert_eq!(
            (&json["cause"], &json["kernel_drops"], &json["network_drops"]),
            (&"MIXED".into(), &2.into(), &3.into())
        );
        assert_eq!(
            (&json["unverified"], &json["unverified_first"], &json["unverified_last"]),
            (&4.into(), &7.into(), &8.into())
        );
        assert_eq!(json["subjects_omitted"], 69);
        assert_eq!(json["publisher"], serde_json::Value::Null);
        assert!(json.get("host").is_none());
    }
}
