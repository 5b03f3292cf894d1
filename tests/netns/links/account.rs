//! Account of the messages that one site gets from the others: each one that was published is delivered once, or
//! reported as lost.

use seqcast::message::{Epoch, LossScope};
use seqcast::time::Instant;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Returns whether the messages on a subject are durable.
pub fn is_durable(subject: &str) -> bool {
    subject.split('.').nth(1) == Some("durable")
}

/// A stream: what one site publishes on one subject. Its messages are numbered from 0.
#[derive(Debug, Default)]
struct StreamAccount {
    /// Number of the first message that is owed.
    first: usize,
    /// First delivery of each message.
    deliveries: Vec<Option<LinkDelivery>>,
    /// Last number that each gateway delivered; one entry for all gateways of a durable stream.
    last: BTreeMap<u64, usize>,
    /// Least number of messages that the link reported as lost.
    reported_min: u64,
    /// Largest number of messages that the link reported as lost; `u64::MAX` is unbounded.
    reported_max: u64,
    /// Largest number of messages of the gateways that the LAN of the subscriber reported as lost.
    lan_lost: u64,
}

impl StreamAccount {
    /// Returns the owed messages that were not delivered, of `count` published ones.
    fn missing(&self, count: usize) -> BTreeSet<usize> {
        let is_missing = |number: &usize| self.deliveries.get(*number).is_none_or(Option::is_none);
        (self.first..count).filter(is_missing).collect()
    }
}

/// Delivery of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkDelivery {
    /// The publisher on the LAN.
    pub gateway: Epoch,
    pub at: Instant,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkViolation {
    /// A message came again.
    Repeated { subject: String, number: usize, deliveries: [LinkDelivery; 2] },
    /// A message came behind a later one of its stream: for a live message, one of the same gateway.
    Reordered(String, usize),
    /// A message came that nobody published.
    Invented(String, usize),
    /// More messages are missing than reported: the least and the largest number reported, and the missing messages.
    Unreported { subject: String, reported: [u64; 2], missing: BTreeSet<usize> },
    /// Fewer messages are missing than reported.
    Overreported { subject: String, reported: [u64; 2], missing: BTreeSet<usize> },
    /// The number of lost durable messages is reported as a range.
    Inexact { subject: String, reported: [u64; 2] },
    /// A report or a message that cannot be read.
    Invalid(String),
}

impl fmt::Display for LinkViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkViolation::Repeated { subject, number, deliveries: [first, again] } => {
                let [from, to] = [first.gateway, again.gateway];
                let after = again.at.since(first.at);
                write!(f, "message {number} of {subject} came again: of gateway {from}, then of {to} after {after:?}")
            }
            LinkViolation::Reordered(subject, number) => {
                write!(f, "message {number} of {subject} came behind later ones")
            }
            LinkViolation::Invented(subject, number) => write!(f, "message {number} of {subject} was never published"),
            LinkViolation::Unreported { subject, reported: [min, max], missing }
            | LinkViolation::Overreported { subject, reported: [min, max], missing } => {
                let (count, runs) = (missing.len(), runs(missing));
                write!(f, "{subject}: {min} to {max} messages are reported as lost, and {count} are missing: {runs:?}")
            }
            LinkViolation::Inexact { subject, reported: [min, max] } => {
                write!(f, "{subject}: {min} to {max} durable messages are reported as lost: that is no exact number")
            }
            LinkViolation::Invalid(what) => write!(f, "it cannot be read: {what}"),
        }
    }
}

/// Returns the first and the last number of each run of numbers.
pub fn runs(numbers: &BTreeSet<usize>) -> Vec<[usize; 2]> {
    let mut runs: Vec<[usize; 2]> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some([_, last]) if *last + 1 == *number => *last = *number,
            _ => runs.push([*number; 2]),
        }
    }
    runs
}

/// Why messages may be missing, beside what is reported.
pub struct LossCauses<T, D> {
    /// Returns whether a message was under way when a gateway of the site was killed. What only such a gateway knew is
    /// lost with it; the LAN reports a tail then.
    pub in_tail: T,
    /// Returns whether the limits of the stream may have removed a durable message before the site read it. Other
    /// durable messages must not be lost between the sites.
    pub is_discarded: D,
}

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkVerdict {
    pub live: LinkTotals,
    pub durable: LinkTotals,
    pub violations: Vec<LinkViolation>,
}

/// Sums over the streams of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTotals {
    pub delivered: u64,
    pub missing: u64,
    pub reported_min: u64,
    pub reported_max: u64,
    /// Missing messages that only the unknown tail of a killed gateway of this site explains.
    pub in_tails: u64,
}

/// The account of a site.
#[derive(Debug, Default)]
pub struct SiteAccount {
    streams: BTreeMap<String, StreamAccount>,
    /// Largest number of messages in datagrams of unknown content that the LAN of the subscriber lost.
    unverified: u64,
    /// Number of gateways of the site after whose last datagram there may have been others.
    tails: u64,
    violations: Vec<LinkViolation>,
}

impl SiteAccount {
    /// Takes a delivered message.
    pub fn on_message(&mut self, delivery: LinkDelivery, subject: &str, payload: &[u8]) {
        let Some(number) = std::str::from_utf8(payload).ok().and_then(|text| text.parse::<usize>().ok()) else {
            return self.violations.push(LinkViolation::Invalid(format!("{payload:?} on {subject}")));
        };
        let stream = self.streams.entry(subject.to_owned()).or_default();
        if stream.deliveries.len() <= number {
            stream.deliveries.resize(number + 1, None);
        }
        // Two gateways are two publishers of the LAN, which gives their live messages no order.
        let gateway = if is_durable(subject) { 0 } else { delivery.gateway.bits() };
        let last = stream.last.entry(gateway).or_insert(number);
        if let Some(first) = stream.deliveries[number].replace(delivery) {
            let (subject, deliveries) = (subject.to_owned(), [first, delivery]);
            self.violations.push(LinkViolation::Repeated { subject, number, deliveries });
        } else if number < *last {
            self.violations.push(LinkViolation::Reordered(subject.to_owned(), number));
        }
        *last = number.max(*last);
    }

    /// Takes a loss on the LAN of the subscriber.
    pub fn on_lan_loss(&mut self, what: &LossScope) {
        match what {
            LossScope::Messages { subject, count, .. } => {
                let stream = self.streams.entry(subject.to_string()).or_default();
                stream.lan_lost = stream.lan_lost.saturating_add(count.max());
            }
            LossScope::Datagrams { messages, .. } => self.unverified = self.unverified.saturating_add(messages.max()),
            LossScope::Tail { .. } => self.tails += 1,
            other => self.violations.push(LinkViolation::Invalid(format!("{other:?}"))),
        }
    }

    /// Takes a report of the link. One about the death of a last gateway names no messages: they are reported by number,
    /// too, since the gateway comes back.
    pub fn on_report(&mut self, report: &[u8]) {
        let parsed: Option<Value> = serde_json::from_slice(report).ok();
        if parsed.as_ref().is_some_and(|report| report["tail"] == true) {
            return;
        }
        let read = || {
            let report = parsed?;
            let max = report.get("lost_max")?;
            let max = if max.is_null() { u64::MAX } else { max.as_u64()? };
            Some((report["subject"].as_str()?.to_owned(), report["lost_min"].as_u64()?, max))
        };
        let Some((subject, min, max)) = read() else {
            return self.violations.push(LinkViolation::Invalid(String::from_utf8_lossy(report).into_owned()));
        };
        let stream = self.streams.entry(subject).or_default();
        stream.reported_min = stream.reported_min.saturating_add(min);
        stream.reported_max = stream.reported_max.saturating_add(max);
    }

    /// Returns the number of streams of which a message has come.
    pub fn streams(&self) -> usize {
        self.streams.values().filter(|stream| !stream.deliveries.is_empty()).count()
    }

    /// Begins the account: messages from these numbers on are owed. Nothing may have been lost before.
    pub fn begin(&mut self, numbers: &BTreeMap<String, usize>) {
        for (subject, stream) in &mut self.streams {
            stream.first = numbers[subject];
            assert_eq!((stream.reported_max, stream.lan_lost), (0, 0), "{subject} lost messages before any fault");
        }
    }

    /// Compares everything with what was published on each subject that the site imports.
    pub fn judge<T: Fn(&str, usize) -> bool, D: Fn(&str, usize) -> bool>(
        &self,
        published: &BTreeMap<String, usize>,
        causes: &LossCauses<T, D>,
    ) -> LinkVerdict {
        let mut verdict = LinkVerdict { violations: self.violations.clone(), ..LinkVerdict::default() };
        let mut unverified = self.unverified;
        let nothing = StreamAccount::default();
        for subject in self.streams.keys().filter(|subject| !published.contains_key(*subject)) {
            verdict.violations.push(LinkViolation::Invented(subject.clone(), 0));
        }
        for (subject, count) in published {
            let stream = self.streams.get(subject).unwrap_or(&nothing);
            if *count < stream.deliveries.len() {
                verdict.violations.push(LinkViolation::Invented(subject.clone(), stream.deliveries.len() - 1));
            }
            let missing = stream.missing(*count);
            let reported = [stream.reported_min, stream.reported_max];
            let is_durable = is_durable(subject);
            let totals = if is_durable { &mut verdict.durable } else { &mut verdict.live };
            totals.delivered += (count - stream.first - missing.len()) as u64;
            totals.missing += missing.len() as u64;
            totals.reported_min += stream.reported_min;
            totals.reported_max = totals.reported_max.saturating_add(stream.reported_max);
            let number_of = |is_one: &dyn Fn(&str, usize) -> bool| {
                missing.iter().filter(|number| is_one(subject, **number)).count() as u64
            };
            // Durable messages have to survive what the LAN loses.
            let (explained, tails_max, datagrams_max) = if is_durable {
                (stream.reported_max.min(number_of(&causes.is_discarded)), 0, 0)
            } else {
                let tails_max = if 0 < self.tails { number_of(&causes.in_tail) } else { 0 };
                (stream.reported_max.saturating_add(stream.lan_lost), tails_max, unverified)
            };
            let excess = (missing.len() as u64).saturating_sub(explained);
            let of_tails = excess.min(tails_max);
            totals.in_tails += of_tails;
            let of_datagrams = (excess - of_tails).min(datagrams_max);
            unverified -= of_datagrams;
            let subject = subject.clone();
            if is_durable && stream.reported_min != stream.reported_max {
                verdict.violations.push(LinkViolation::Inexact { subject, reported });
            } else if of_tails + of_datagrams < excess {
                verdict.violations.push(LinkViolation::Unreported { subject, reported, missing });
            } else if (missing.len() as u64) < stream.reported_min {
                verdict.violations.push(LinkViolation::Overreported { subject, reported, missing });
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seqcast::message::{Count, Dseq};

    const LIVE: &str = "s1.live.0";
    const DURABLE: &str = "s1.durable.0";
    const ALL: [usize; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

    /// Returns the violations of a site to which these live messages of ten came, and these numbers were reported.
    fn violations(delivered: &[usize], reports: &[&str]) -> Vec<LinkViolation> {
        let mut account = SiteAccount::default();
        deliver(&mut account, 1, LIVE, delivered);
        reports.iter().for_each(|report| account.on_report(report.as_bytes()));
        judged(&account, LIVE)
    }

    fn deliver(account: &mut SiteAccount, gateway: u64, subject: &str, numbers: &[usize]) {
        for number in numbers {
            account.on_message(delivery(gateway), subject, number.to_string().as_bytes());
        }
    }

    fn delivery(gateway: u64) -> LinkDelivery {
        LinkDelivery { gateway: Epoch::new(gateway).expect("not 0"), at: Instant::ZERO }
    }

    fn judged(account: &SiteAccount, subject: &str) -> Vec<LinkViolation> {
        judged_with(account, subject, |_| false, |_| false)
    }

    fn judged_with(
        account: &SiteAccount,
        subject: &str,
        in_tail: impl Fn(usize) -> bool,
        is_discarded: impl Fn(usize) -> bool,
    ) -> Vec<LinkViolation> {
        let causes = LossCauses {
            in_tail: |_: &str, number| in_tail(number),
            is_discarded: |_: &str, number| is_discarded(number),
        };
        account.judge(&BTreeMap::from([(subject.to_owned(), 10)]), &causes).violations
    }

    #[test]
    fn delivered_and_reported_messages_are_good() {
        assert_eq!(violations(&ALL, &[]), []);
        let exact = r#"{"subject":"s1.live.0","lost_min":1,"lost_max":1}"#;
        assert_eq!(violations(&[0, 1, 2, 4, 5, 6, 7, 8], &[exact, exact]), []);
        let open = r#"{"subject":"s1.live.0","lost_min":0,"lost_max":null}"#;
        assert_eq!(violations(&[0, 9], &[open, exact]), []);
    }

    #[test]
    fn false_reports_are_noticed() {
        let range = r#"{"subject":"s1.live.0","lost_min":1,"lost_max":2}"#;
        assert!(matches!(violations(&ALL, &[range])[..], [LinkViolation::Overreported { reported: [1, 2], .. }]));
        assert!(matches!(violations(&ALL[3..], &[range])[..], [LinkViolation::Unreported { reported: [1, 2], .. }]));
        assert!(matches!(violations(&ALL, &["{}"])[..], [LinkViolation::Invalid(_)]));
        let invented = LinkViolation::Invented(LIVE.to_owned(), 10);
        assert_eq!(violations(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &[]), [invented]);
    }

    #[test]
    fn missing_messages_are_shown_as_runs() {
        assert_eq!(runs(&BTreeSet::from([3, 4, 5, 7, 9, 10])), [[3, 5], [7, 7], [9, 10]]);
    }

    #[test]
    fn repeated_and_late_messages_are_noticed() {
        let reordered = |subject: &str| LinkViolation::Reordered(subject.to_owned(), 4);
        let repeated = LinkViolation::Repeated { subject: LIVE.to_owned(), number: 4, deliveries: [delivery(1); 2] };
        assert_eq!(violations(&[0, 1, 2, 3, 4, 5, 4, 6, 7, 8, 9], &[]), [repeated]);
        assert_eq!(violations(&[0, 1, 2, 3, 5, 4, 6, 7, 8, 9], &[]), [reordered(LIVE)]);
        // Two gateways are two publishers of the LAN, which gives their live messages no order.
        for (subject, expected) in [(LIVE, vec![]), (DURABLE, vec![reordered(DURABLE)])] {
            let mut account = SiteAccount::default();
            deliver(&mut account, 1, subject, &[0, 1, 2, 3, 5]);
            deliver(&mut account, 2, subject, &[4, 6, 7, 8, 9]);
            assert_eq!(judged(&account, subject), expected);
        }
    }

    #[test]
    fn message_of_two_gateways_is_noticed() {
        let mut account = SiteAccount::default();
        deliver(&mut account, 1, LIVE, &[0, 1, 2, 3, 4, 5]);
        deliver(&mut account, 2, LIVE, &[5, 6, 7, 8, 9]);
        assert!(matches!(judged(&account, LIVE)[..], [LinkViolation::Repeated { number: 5, .. }]));
    }

    #[test]
    fn only_discarded_durable_messages_may_be_missing() {
        let mut account = SiteAccount::default();
        deliver(&mut account, 1, DURABLE, &[0, 1, 2, 5, 6, 7, 8, 9]);
        let judge = |account: &SiteAccount, first| judged_with(account, DURABLE, |_| false, |number| first <= number);
        assert!(matches!(judge(&account, 3)[..], [LinkViolation::Unreported { .. }]), "it is not reported");
        account.on_report(br#"{"subject":"s1.durable.0","lost_min":2,"lost_max":2}"#);
        assert_eq!(judge(&account, 3), []);
        assert!(matches!(judge(&account, 4)[..], [LinkViolation::Unreported { .. }]), "number 3 was not discarded");
        account.on_report(br#"{"subject":"s1.durable.0","lost_min":0,"lost_max":1}"#);
        assert!(matches!(judge(&account, 3)[..], [LinkViolation::Inexact { reported: [2, 3], .. }]));
    }

    #[test]
    fn losses_of_the_lan_explain_missing_live_messages() {
        for subject in [LIVE, DURABLE] {
            let mut account = SiteAccount::default();
            deliver(&mut account, 1, subject, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
            assert!(matches!(judged(&account, subject)[..], [LinkViolation::Unreported { .. }]));
            let judge = |account: &SiteAccount| judged_with(account, subject, |number| number == 9, |_| false);
            assert!(matches!(judge(&account)[..], [LinkViolation::Unreported { .. }]), "no tail is reported");
            account.on_lan_loss(&LossScope::Tail { after: Dseq(1) });
            assert_eq!(judge(&account).is_empty(), subject == LIVE);
            assert!(
                matches!(judged(&account, subject)[..], [LinkViolation::Unreported { .. }]),
                "number 9 is in no tail"
            );
            let messages = Count::Exact(1);
            account.on_lan_loss(&LossScope::Datagrams { first: Dseq(1), last: Dseq(1), messages });
            assert_eq!(judged(&account, subject).is_empty(), subject == LIVE);
        }
    }
}
