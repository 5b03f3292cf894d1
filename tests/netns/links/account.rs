//! Account of the messages that one site gets from the others: each one that was published is delivered once, or
//! reported as lost.

use seqcast::message::{Epoch, LossScope};
use seqcast::time::Instant;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A stream: what one site publishes on one subject. Its messages are numbered from 0.
#[derive(Debug, Default)]
struct StreamAccount {
    /// Number of the first message that is owed.
    first: usize,
    /// First delivery of each message.
    deliveries: Vec<Option<LinkDelivery>>,
    /// Last number that each gateway delivered.
    last: BTreeMap<u64, usize>,
    /// Least number of messages that the link reported as lost.
    reported_min: u64,
    /// Largest number of messages that the link reported as lost; `u64::MAX` is unbounded.
    reported_max: u64,
    /// Largest number of messages of the gateways that the LAN of the subscriber reported as lost.
    lan_lost: u64,
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
    /// A message of one gateway came behind a later one of its stream.
    Reordered(String, usize),
    /// A message came that nobody published.
    Invented(String, usize),
    /// More messages are missing than reported: the least and the largest number reported, and the missing messages.
    Unreported { subject: String, reported: [u64; 2], missing: BTreeSet<usize> },
    /// Fewer messages are missing than reported.
    Overreported { subject: String, reported: [u64; 2], missing: BTreeSet<usize> },
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
                let count = missing.len();
                write!(
                    f,
                    "{subject}: {min} to {max} messages are reported as lost, and {count} are missing: {missing:?}"
                )
            }
            LinkViolation::Invalid(what) => write!(f, "it cannot be read: {what}"),
        }
    }
}

/// Sums over all streams of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTotals {
    pub delivered: u64,
    pub missing: u64,
    pub reported_min: u64,
    pub reported_max: u64,
    /// Missing messages that only the unknown tail of a killed gateway of this site explains.
    pub in_tails: u64,
    /// Messages that two gateways of this site delivered, because the LAN had lost the first delivery for the second
    /// gateway when it took over.
    pub repeated: u64,
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
        let last = stream.last.entry(delivery.gateway.bits()).or_insert(number);
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

    /// Compares everything with what was published on each subject that the site imports. `in_tail` returns whether a
    /// message was under way when a gateway of the site was killed. What only such a gateway knew is lost with it; the
    /// LAN reports a tail then. `may_repeat` returns whether another gateway took over just after a delivery.
    pub fn judge(
        &self,
        published: &BTreeMap<String, usize>,
        in_tail: impl Fn(&str, usize) -> bool,
        may_repeat: impl Fn(Instant) -> bool,
    ) -> (LinkTotals, Vec<LinkViolation>) {
        let is_allowed = |violation: &LinkViolation| match violation {
            LinkViolation::Repeated { deliveries: [first, again], .. } => {
                first.gateway != again.gateway && may_repeat(first.at)
            }
            _ => false,
        };
        let (repeated, mut violations): (Vec<_>, Vec<_>) = self.violations.iter().cloned().partition(is_allowed);
        let mut totals = LinkTotals { repeated: repeated.len() as u64, ..LinkTotals::default() };
        let mut unverified = self.unverified;
        let nothing = StreamAccount::default();
        for subject in self.streams.keys().filter(|subject| !published.contains_key(*subject)) {
            violations.push(LinkViolation::Invented(subject.clone(), 0));
        }
        for (subject, count) in published {
            let stream = self.streams.get(subject).unwrap_or(&nothing);
            if *count < stream.deliveries.len() {
                violations.push(LinkViolation::Invented(subject.clone(), stream.deliveries.len() - 1));
            }
            let is_missing = |number: &usize| stream.deliveries.get(*number).is_none_or(Option::is_none);
            let missing: BTreeSet<usize> = (stream.first..*count).filter(is_missing).collect();
            let reported = [stream.reported_min, stream.reported_max];
            totals.delivered += (count - stream.first - missing.len()) as u64;
            totals.missing += missing.len() as u64;
            totals.reported_min += stream.reported_min;
            totals.reported_max = totals.reported_max.saturating_add(stream.reported_max);
            let bound = stream.reported_max.saturating_add(stream.lan_lost);
            let excess = (missing.len() as u64).saturating_sub(bound);
            let in_tails = missing.iter().filter(|number| 0 < self.tails && in_tail(subject, **number)).count() as u64;
            let of_tails = excess.min(in_tails);
            totals.in_tails += of_tails;
            let of_datagrams = (excess - of_tails).min(unverified);
            unverified -= of_datagrams;
            let subject = subject.clone();
            if of_tails + of_datagrams < excess {
                violations.push(LinkViolation::Unreported { subject, reported, missing });
            } else if (missing.len() as u64) < stream.reported_min {
                violations.push(LinkViolation::Overreported { subject, reported, missing });
            }
        }
        (totals, violations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seqcast::message::Count;

    const SUBJECT: &str = "s1.live.0";

    /// Returns the violations of a site to which these messages of ten came, and these numbers were reported.
    fn violations(delivered: &[usize], reports: &[&str]) -> Vec<LinkViolation> {
        let mut account = SiteAccount::default();
        deliver(&mut account, 1, delivered);
        reports.iter().for_each(|report| account.on_report(report.as_bytes()));
        judged(&account)
    }

    fn deliver(account: &mut SiteAccount, gateway: u64, numbers: &[usize]) {
        for number in numbers {
            account.on_message(delivery(gateway), SUBJECT, number.to_string().as_bytes());
        }
    }

    fn delivery(gateway: u64) -> LinkDelivery {
        LinkDelivery { gateway: Epoch::new(gateway).expect("not 0"), at: Instant::ZERO }
    }

    fn judged(account: &SiteAccount) -> Vec<LinkViolation> {
        account.judge(&BTreeMap::from([(SUBJECT.to_owned(), 10)]), |_, _| false, |_| false).1
    }

    #[test]
    fn delivered_and_reported_messages_are_good() {
        assert_eq!(violations(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], &[]), []);
        let exact = r#"{"subject":"s1.live.0","lost_min":1,"lost_max":1}"#;
        assert_eq!(violations(&[0, 1, 2, 4, 5, 6, 7, 8], &[exact, exact]), []);
        let open = r#"{"subject":"s1.live.0","lost_min":0,"lost_max":null}"#;
        assert_eq!(violations(&[0, 9], &[open, exact]), []);
    }

    #[test]
    fn false_reports_are_noticed() {
        let all = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        let range = r#"{"subject":"s1.live.0","lost_min":1,"lost_max":2}"#;
        assert!(matches!(violations(&all, &[range])[..], [LinkViolation::Overreported { reported: [1, 2], .. }]));
        assert!(matches!(violations(&all[3..], &[range])[..], [LinkViolation::Unreported { reported: [1, 2], .. }]));
        assert!(matches!(violations(&all, &["{}"])[..], [LinkViolation::Invalid(_)]));
        let invented = LinkViolation::Invented(SUBJECT.to_owned(), 10);
        assert_eq!(violations(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &[]), [invented]);
    }

    #[test]
    fn repeated_and_late_messages_are_noticed() {
        let subject = SUBJECT.to_owned();
        let reordered = LinkViolation::Reordered(subject.clone(), 4);
        let repeated = LinkViolation::Repeated { subject, number: 4, deliveries: [delivery(1); 2] };
        assert_eq!(violations(&[0, 1, 2, 3, 4, 5, 4, 6, 7, 8, 9], &[]), [repeated]);
        assert_eq!(violations(&[0, 1, 2, 3, 5, 4, 6, 7, 8, 9], &[]), [reordered]);
        // Two gateways are two publishers of the LAN, which gives their messages no order.
        let mut account = SiteAccount::default();
        deliver(&mut account, 1, &[0, 1, 2, 5]);
        deliver(&mut account, 2, &[3, 4, 6, 7, 8, 9]);
        assert_eq!(judged(&account), []);
    }

    #[test]
    fn repeats_of_another_gateway_need_a_take_over() {
        let mut account = SiteAccount::default();
        deliver(&mut account, 1, &[0, 1, 2, 3, 4, 5]);
        deliver(&mut account, 2, &[5, 6, 7, 8, 9]);
        assert!(matches!(judged(&account)[..], [LinkViolation::Repeated { number: 5, .. }]));
        let published = BTreeMap::from([(SUBJECT.to_owned(), 10)]);
        let judge = |account: &SiteAccount| account.judge(&published, |_, _| false, |_| true);
        let (totals, violations) = judge(&account);
        assert_eq!((totals.repeated, violations), (1, Vec::new()));
        deliver(&mut account, 2, &[9]);
        assert!(matches!(judge(&account).1[..], [LinkViolation::Repeated { number: 9, .. }]), "of the same gateway");
    }

    #[test]
    fn losses_of_the_lan_explain_missing_messages() {
        let mut account = SiteAccount::default();
        deliver(&mut account, 1, &[0, 1, 2, 3, 4, 5, 6, 7]);
        account.on_lan_loss(&LossScope::Datagrams {
            first: seqcast::message::Dseq(1),
            last: seqcast::message::Dseq(1),
            messages: Count::Exact(1),
        });
        assert!(matches!(judged(&account)[..], [LinkViolation::Unreported { .. }]));
        account.on_report(br#"{"subject":"s1.live.0","lost_min":1,"lost_max":1}"#);
        assert_eq!(judged(&account), []);
        let published = BTreeMap::from([(SUBJECT.to_owned(), 11)]);
        let judge = |account: &SiteAccount| account.judge(&published, |_, number| number == 10, |_| false).1;
        assert!(matches!(judge(&account)[..], [LinkViolation::Unreported { .. }]), "no tail is reported");
        account.on_lan_loss(&LossScope::Tail { after: seqcast::message::Dseq(1) });
        assert_eq!(judge(&account), []);
    }
}
