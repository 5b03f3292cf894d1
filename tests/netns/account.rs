//! The reports to one subscriber, compared message by message with the sent messages.
//!
//! Every message is delivered once and in order, or lies in one reported loss or in a datagram reported as
//! unverified. The only other messages come after the last known datagram of a crashed publisher. Nothing is reported
//! that did not happen.

use crate::netns::tap::{SentStreams, Stream};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Outcome of the messages of one epoch at one subscriber. The fields of messages sum up to the number sent on the
/// subscribed subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Delivered.
    pub delivered: u64,
    /// Reported as lost, by subject and number.
    pub lost: u64,
    /// Not delivered, not reported by number, but in a datagram reported as unverified.
    pub unverified: u64,
    /// Sent after the last datagram that the subscriber's peer knew of when the publisher crashed.
    pub tail: u64,
    /// Data datagrams of which nothing arrived.
    pub datagrams_missing: u64,
    /// Reports of loss with another cause than the kernel.
    pub network_reports: u64,
}

impl Account {
    /// Returns the sum of two accounts.
    pub fn plus(self, other: &Account) -> Account {
        Account {
            delivered: self.delivered + other.delivered,
            lost: self.lost + other.lost,
            unverified: self.unverified + other.unverified,
            tail: self.tail + other.tail,
            datagrams_missing: self.datagrams_missing + other.datagrams_missing,
            network_reports: self.network_reports + other.network_reports,
        }
    }
}

/// Compares the lines of `sub --json` with the messages sent on subjects that start with `prefix`, by epoch. The
/// error describes the mismatch, which may be only that something is still to come.
pub fn account(sent: &SentStreams, lines: &[String], prefix: &str) -> Result<BTreeMap<String, Account>, String> {
    let mut reports: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in lines {
        let value: Value = serde_json::from_str(line).map_err(|error| format!("no JSON ({error}): {line}"))?;
        let epoch = text(&value, "epoch").map_err(|error| format!("{error} in {line}"))?.to_owned();
        reports.entry(epoch).or_default().push(value);
    }
    let nothing = Stream::default();
    let publishing = sent.iter().filter(|(_, stream)| !stream.datagrams.is_empty()).map(|(epoch, _)| epoch);
    let epochs: BTreeSet<&String> = publishing.chain(reports.keys()).collect();
    let mut accounts = BTreeMap::new();
    for epoch in epochs {
        let mut ledger = Ledger::new(sent.get(epoch).unwrap_or(&nothing), prefix);
        for value in reports.get(epoch).map_or(&[][..], Vec::as_slice) {
            ledger.on_report(value).map_err(|error| format!("{error}: {value}"))?;
        }
        accounts.insert(epoch.clone(), ledger.close()?);
    }
    Ok(accounts)
}

/// A message: subject and number.
type Id = (String, u64);

/// One publisher's run as it is reported to one subscriber.
struct Ledger<'a> {
    /// Everything sent: the dseq of each message, and its payload.
    sent: BTreeMap<Id, (u64, &'a str)>,
    stream: &'a Stream,
    prefix: &'a str,
    last: BTreeMap<String, u64>,
    delivered: BTreeSet<Id>,
    lost: BTreeSet<Id>,
    unverified: BTreeSet<u64>,
    crashed_after: Option<u64>,
    account: Account,
}

impl<'a> Ledger<'a> {
    fn new(stream: &'a Stream, prefix: &'a str) -> Ledger<'a> {
        let all = stream.datagrams.iter().flat_map(|(dseq, messages)| messages.iter().map(move |one| (*dseq, one)));
        Ledger {
            sent: all.map(|(dseq, one)| ((one.subject.clone(), one.seq), (dseq, one.payload.as_str()))).collect(),
            stream,
            prefix,
            last: BTreeMap::new(),
            delivered: BTreeSet::new(),
            lost: BTreeSet::new(),
            unverified: BTreeSet::new(),
            crashed_after: None,
            account: Account::default(),
        }
    }

    fn on_report(&mut self, value: &Value) -> Result<(), String> {
        match text(value, "type")? {
            "message" => self.on_message(value),
            "loss" => self.on_loss(value),
            _ => Err("neither a message nor a loss".into()),
        }
    }

    fn on_message(&mut self, value: &Value) -> Result<(), String> {
        let subject = text(value, "subject")?.to_owned();
        let verdict = text(value, "verdict")?;
        let before = self.last.get(&subject).copied();
        // A message from a client of the same peer has no number: it is simply the next one.
        let seq = if verdict == "direct" { self.next_sent(&subject, before)? } else { seq(value, "seq")? };
        let id = (subject, seq);
        let (_, payload) = self.sent.get(&id).ok_or("a message that was never sent")?;
        if text(value, "payload")? != *payload {
            return Err(format!("the payload was {payload}"));
        }
        if self.lost.contains(&id) {
            return Err("a message that was reported as lost".into());
        }
        let follows = match (verdict, before) {
            ("direct", _) | ("start" | "first", None) => true,
            ("next", Some(before)) => id.1 == before + 1,
            ("skip", Some(before)) => before < id.1 && holds(&value["missing"], id.1 - before - 1),
            ("skip", None) => holds(&value["missing"], id.1 - self.next_sent(&id.0, None)?),
            _ => false,
        };
        if !follows {
            return Err(format!("out of order after {before:x?}"));
        }
        self.last.insert(id.0.clone(), id.1);
        self.delivered.insert(id);
        Ok(())
    }

    /// Returns the number of the first message sent on a subject, or of the first after `before`.
    fn next_sent(&self, subject: &str, before: Option<u64>) -> Result<u64, String> {
        let from = (subject.to_owned(), before.map_or(0, |before| before + 1));
        let next = self.sent.range(from..).next().filter(|((found, _), _)| found == subject);
        next.map(|((_, seq), _)| *seq).ok_or_else(|| "a message that was never sent".to_owned())
    }

    fn on_loss(&mut self, value: &Value) -> Result<(), String> {
        match text(value, "cause")? {
            "LOCAL_OVERRUN" | "MIXED" if 0 < number(value, "overrun_datagrams")? => {}
            _ if value["kind"] == "tail" => {}
            _ => self.account.network_reports += 1,
        }
        match text(value, "kind")? {
            "messages" => {
                let subject = text(value, "subject")?;
                let (first, last) = (seq(value, "first")?, seq(value, "last")?);
                if !holds(&value["count"], (last + 1).checked_sub(first).ok_or("an empty range")?) {
                    return Err("the count does not fit the range".into());
                }
                for seq in first..=last {
                    let id = (subject.to_owned(), seq);
                    if !self.sent.contains_key(&id) {
                        return Err(format!("{seq:#x} was never sent"));
                    }
                    if self.delivered.contains(&id) {
                        return Err(format!("{seq:#x} was delivered"));
                    }
                    if !self.lost.insert(id) {
                        return Err(format!("{seq:#x} was reported before"));
                    }
                }
                Ok(())
            }
            "datagrams" => {
                let range = number(value, "first")?..=number(value, "last")?;
                let inside = || self.sent.iter().filter(|(_, (dseq, _))| range.contains(dseq));
                if let Some(((subject, seq), _)) = inside().find(|(id, _)| self.delivered.contains(id)) {
                    return Err(format!("{seq:#x} of {subject} was delivered from these datagrams"));
                }
                let unexplained = inside().filter(|(id, _)| !self.lost.contains(id)).count() as u64;
                if !holds(&value["messages"], unexplained) {
                    return Err(format!("{unexplained} messages are in these datagrams"));
                }
                for dseq in range {
                    if !self.stream.datagrams.contains_key(&dseq) {
                        return Err(format!("datagram {dseq} was never sent"));
                    }
                    self.unverified.insert(dseq);
                }
                Ok(())
            }
            "tail" => {
                if text(value, "reason")? == "CRASHED" {
                    self.crashed_after = Some(number(value, "after")?);
                }
                Ok(())
            }
            _ => Err("an unexpected loss".into()),
        }
    }

    fn close(self) -> Result<Account, String> {
        let subscribed = || self.sent.iter().filter(|((subject, _), _)| subject.starts_with(self.prefix));
        let arrived: BTreeSet<u64> = self.delivered.iter().map(|id| self.sent[id].0).collect();
        if let Some((subject, seq)) = self.lost.iter().find(|id| arrived.contains(&self.sent[*id].0)) {
            return Err(format!("{seq:#x} of {subject} is reported as lost, but its datagram arrived"));
        }
        let mut account = self.account.clone();
        for ((subject, seq), (dseq, _)) in subscribed() {
            let id = (subject.clone(), *seq);
            if self.delivered.contains(&id) {
                account.delivered += 1;
            } else if self.lost.contains(&id) {
                account.lost += 1;
            } else if self.unverified.contains(dseq) {
                account.unverified += 1;
            } else if self.crashed_after.is_some_and(|after| after < *dseq) {
                account.tail += 1;
            } else {
                let delivered = self.delivered.len();
                return Err(format!(
                    "{seq:#x} of {subject} in datagram {dseq} is unaccounted for; {delivered} delivered"
                ));
            }
        }
        if let Some(dseq) = self.unverified.intersection(&arrived).next() {
            return Err(format!("datagram {dseq} is reported as unverified, but it arrived"));
        }
        let expected: BTreeSet<u64> = subscribed().map(|(_, (dseq, _))| *dseq).collect();
        account.datagrams_missing = expected.difference(&arrived).count() as u64;
        Ok(account)
    }
}

/// Returns whether a count in JSON, exact or an interval, holds the true one.
fn holds(count: &Value, truth: u64) -> bool {
    match count.as_u64() {
        Some(exact) => exact == truth,
        None => match (count["min"].as_u64(), count["max"].as_u64()) {
            (Some(min), Some(max)) => min <= truth && truth <= max,
            _ => false,
        },
    }
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str, String> {
    value[field].as_str().ok_or_else(|| format!("no text {field}"))
}

fn number(value: &Value, field: &str) -> Result<u64, String> {
    value[field].as_u64().ok_or_else(|| format!("no number {field}"))
}

fn seq(value: &Value, field: &str) -> Result<u64, String> {
    let digits = text(value, field)?.strip_prefix("0x").ok_or_else(|| format!("no hexadecimal {field}"))?;
    u64::from_str_radix(digits, 16).map_err(|error| format!("{field}: {error}"))
}

/// The account itself is tested: a comparison that cannot fail proves nothing.
mod tests {
    use super::*;
    use crate::netns::tap::SentMessage;

    #[test]
    fn comparison_notices_each_difference() {
        // Sent: datagram 1 with t.a 1 and t.b 1, datagram 2 with t.a 2, datagram 3 with t.a 3 and u 1.
        check("a1 b1 a2 a3", "delivered 4, lost 0, unverified 0, tail 0, missing 0");
        check("a1 b1 lost:2-2=1 a3:1", "delivered 3, lost 1, unverified 0, tail 0, missing 1");
        check("a1 b1 gap:2-2=1 a3:1", "delivered 3, lost 0, unverified 1, tail 0, missing 1");
        check("a1 b1 gap:2-3=3", "delivered 2, lost 0, unverified 2, tail 0, missing 2");
        check("a1 b1 gap:2-2=1 lost:2-2=1 a3:1", "delivered 3, lost 1, unverified 0, tail 0, missing 1");
        check("a1 b1 a2 tail:2", "delivered 3, lost 0, unverified 0, tail 1, missing 1");
        check("a1 b1 silent:1", "0x2 of t.a in datagram 2 is unaccounted for; 2 delivered");
        check("a1 b1 a3:1", "0x2 of t.a in datagram 2 is unaccounted for; 3 delivered");
        check("a1 a2 a3", "0x1 of t.b in datagram 1 is unaccounted for; 3 delivered");
        check("a1 a1", "out of order after Some(1)");
        check("a1 b1 a2 a2", "out of order after Some(2)");
        check("a1 b1 a3", "out of order after Some(1)");
        check("a1 b1 a3:2", "out of order after Some(1)");
        check("a1 b1 a2 a3 a4", "a message that was never sent");
        check("a1 b1 a2 a3 lost:4-4=1", "0x4 was never sent");
        check("a1 b1 a2 lost:2-2=1", "0x2 was delivered");
        check("a1 b1 lost:2-2=1 lost:2-2=1", "0x2 was reported before");
        check("a1 b1 lost:2-3=1", "the count does not fit the range");
        check("a1 b1 lost:2-2=1 a2", "a message that was reported as lost");
        check("a1 lost-b:1-1=1 a2 a3", "0x1 of t.b is reported as lost, but its datagram arrived");
        check("a1 b1 gap:2-2=2", "1 messages are in these datagrams");
        check("a1 b1 gap:2-4=3", "datagram 4 was never sent");
        check("a1 b1 gap:1-2=3", "0x1 of t.a was delivered from these datagrams");
        check("a1 b1 gap:2-2=1 a2 a3", "datagram 2 is reported as unverified, but it arrived");
    }

    /// Plays a story of a subscriber's output, and compares the account, or the end of the error before its line.
    fn check(story: &str, expected: &str) {
        let sent =
            |subject: &str, seq| SentMessage { subject: subject.into(), seq, payload: format!("{subject}{seq}") };
        let datagrams = [
            (1, vec![sent("t.a", 1), sent("t.b", 1)]),
            (2, vec![sent("t.a", 2)]),
            (3, vec![sent("t.a", 3), sent("u", 1)]),
        ];
        let stream = Stream { datagrams: datagrams.into(), controls: 0 };
        let lines: Vec<String> = story.split(' ').map(line).collect();
        let answer = match account(&SentStreams::from([("e".to_owned(), stream)]), &lines, "t.") {
            Ok(accounts) => {
                let Account { delivered, lost, unverified, tail, datagrams_missing: missing, .. } = accounts["e"];
                format!("delivered {delivered}, lost {lost}, unverified {unverified}, tail {tail}, missing {missing}")
            }
            Err(error) => error.split(": {").next().unwrap_or_default().to_owned(),
        };
        assert_eq!(answer, expected, "{story}");
    }

    /// Returns the output line for a word. `a2` and `b1` are messages, `a3:1` one after a skip of one; `lost:2-3=2`,
    /// `gap:2-3=1`, `tail:2`, `silent:2` are losses.
    fn line(word: &str) -> String {
        let (kind, rest) = word.split_once(':').unwrap_or((word, ""));
        let (range, count) = rest.split_once('=').unwrap_or((rest, "0"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let common = r#""epoch":"e","type":"loss","cause":"NETWORK","#;
        let tail = |reason| format!(r#"{{{common}"kind":"tail","reason":"{reason}","after":{rest}}}"#);
        let lost = |subject| {
            let range = format!(r#""first":"0x{first}","last":"0x{last}","count":{count}"#);
            format!(r#"{{{common}"kind":"messages","subject":"{subject}",{range}}}"#)
        };
        match kind {
            "lost" => lost("t.a"),
            "lost-b" => lost("t.b"),
            "gap" => format!(r#"{{{common}"kind":"datagrams","first":{first},"last":{last},"messages":{count}}}"#),
            "tail" => tail("CRASHED"),
            "silent" => tail("SILENT"),
            message => {
                let (subject, seq) = message.split_at(1);
                let verdict = match (seq, rest) {
                    ("1", _) => r#""start""#.to_owned(),
                    (_, "") => r#""next""#.to_owned(),
                    (_, missing) => format!(r#""skip","missing":{missing}"#),
                };
                let what = format!(r#""subject":"t.{subject}","seq":"0x{seq}","payload":"t.{subject}{seq}""#);
                format!(r#"{{"epoch":"e","type":"message",{what},"verdict":{verdict}}}"#)
            }
        }
    }
}
