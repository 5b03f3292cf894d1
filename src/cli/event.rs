//! Messages and losses as `sub`, `req` and `demo` print them in text, and the start of a subscription.

use std::fmt;

use super::loss_text::{cause_text, reason_text};
use super::rvmsg::{FormattedPayload, PayloadFormat};
use crate::bus::{Baseline, Joined};
use crate::listener::notice::PublisherJson;
use crate::message::{Cause, Count, Delivery, Loss, LossScope};
use crate::terminal::output::{EscapedText, json, pluralize};

/// The start of a subscription, in JSON.
#[derive(serde::Serialize)]
struct JoinedJson<'a> {
    r#type: &'static str,
    publishers: Vec<BaselineJson<'a>>,
}

#[derive(serde::Serialize)]
struct BaselineJson<'a> {
    #[serde(flatten)]
    publisher: PublisherJson<'a>,
    after: Option<u64>,
    replayed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Returns the start of a subscription as one line of JSON.
pub fn joined_json(joined: &Joined) -> String {
    let publishers = joined.baselines.iter().map(|baseline| BaselineJson {
        publisher: (&baseline.publisher).into(),
        after: baseline.after.map(|after| after.0),
        replayed: baseline.replayed,
        problem: baseline.unjoined.map(|unjoined| unjoined.to_string()),
    });
    json(&JoinedJson { r#type: "joined", publishers: publishers.collect() })
}

/// The start of a subscription as one line of text, with a further one for each publisher that did not answer
/// completely.
#[derive(Clone, Copy, Debug)]
pub struct JoinedLine<'a>(pub &'a Joined);

impl fmt::Display for JoinedLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let publishers = pluralize(self.0.baselines.len() as u64, "publisher");
        write!(f, "joined {publishers}, {} replayed", pluralize(self.0.replayed(), "message"))?;
        for Baseline { publisher, unjoined, .. } in &self.0.baselines {
            if let Some(unjoined) = unjoined {
                write!(f, "\nno history, or not all, from {publisher}: {unjoined}")?;
            }
        }
        Ok(())
    }
}

/// A message as one line of text: subject, two spaces, payload.
#[derive(Clone, Copy, Debug)]
pub struct MessageLine<'a> {
    /// The message.
    pub delivery: &'a Delivery,
    /// Form of its payload.
    pub format: PayloadFormat,
}

impl<'a> MessageLine<'a> {
    /// Returns a message with its payload as text.
    pub fn of(delivery: &'a Delivery) -> MessageLine<'a> {
        MessageLine { delivery, format: PayloadFormat::Text }
    }
}

impl fmt::Display for MessageLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = &self.delivery.message;
        let payload = FormattedPayload { payload: &message.payload, format: self.format };
        write!(f, "{}  {payload}", EscapedText(message.subject.as_bytes()))
    }
}

/// A loss as one line of text: `!` and the lost messages, or `?` and the unverified ones.
#[derive(Clone, Copy, Debug)]
pub struct LossLine<'a>(pub &'a Loss);

impl LossLine<'_> {
    /// Returns whether messages are proven lost; otherwise they are unverified.
    pub fn is_lost(&self) -> bool {
        matches!(self.0.what, LossScope::Messages { .. } | LossScope::Inbox { .. })
    }
}

impl fmt::Display for LossLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let publisher = &self.0.publisher;
        match &self.0.what {
            LossScope::Messages { subject, first, last, count } => {
                let subject = EscapedText(subject.as_bytes());
                write!(f, "! lost {} on {subject} from {publisher}: ", count_of_messages(*count))?;
                match first == last {
                    true => write!(f, "{first}")?,
                    false => write!(f, "{first}..{last}")?,
                }
            }
            LossScope::Datagrams { first, last, messages } => write!(
                f,
                "? unverified: {} from {publisher} in {}",
                count_of_messages(*messages),
                if first == last { format!("datagram {first}") } else { format!("datagrams {first}..{last}") }
            )?,
            LossScope::Tail { after } => {
                write!(f, "? unverified: anything from {publisher} after datagram {after}")?;
            }
            LossScope::Inbox { messages } => {
                write!(f, "! lost {} to this peer's inbox from {publisher}", pluralize(*messages, "message"))?;
            }
        }
        let reason = reason_text(self.0.reason);
        match self.0.cause {
            Cause::Network => write!(f, " ({reason})"),
            cause => write!(f, " ({reason}; {})", cause_text(cause)),
        }
    }
}

/// Returns one line of text which reports that `count` messages were dropped because this client read too slowly.
pub fn dropped_line(count: u64) -> String {
    format!("! dropped {} here: this program reads too slowly (client-queue-size)", pluralize(count, "message"))
}

fn count_of_messages(count: Count) -> String {
    match count {
        Count::Exact(count) => pluralize(count, "message"),
        between => format!("{between} messages"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::notice::{dropped_json, loss_json};
    use crate::message::{Dseq, Epoch, Publisher, Reason};
    use crate::seqno::Seq;
    use crate::time::WallTime;

    #[test]
    fn losses_are_shown_in_text_and_json() {
        let messages = LossScope::Messages {
            subject: "a.b".parse().unwrap(),
            first: Seq::new(0x5c19_adc0_0000_0005).unwrap(),
            last: Seq::new(0x5c19_adc0_0000_0007).unwrap(),
            count: Count::Exact(3),
        };
        check(
            messages,
            "! lost 3 messages on a.b from B.1: 0x5c19adc000000005..0x5c19adc000000007 (repair is off)",
            r#""kind":"messages","user":"B.1","publisher":"B.test","epoch":"0000000000000abc","reason":"DISABLED","cause":"NETWORK","time":"00:00:01.000","subject":"a.b","first":"0x5c19adc000000005","last":"0x5c19adc000000007","count":3}"#,
        );
        check(
            LossScope::Datagrams { first: Dseq(4), last: Dseq(4), messages: Count::Exact(1) },
            "? unverified: 1 message from B.1 in datagram 4 (repair is off)",
            r#""time":"00:00:01.000","first":4,"last":4,"messages":1}"#,
        );
        check(
            LossScope::Tail { after: Dseq(9) },
            "? unverified: anything from B.1 after datagram 9 (repair is off)",
            r#""time":"00:00:01.000","after":9}"#,
        );
        check(
            LossScope::Inbox { messages: 2 },
            "! lost 2 messages to this peer's inbox from B.1 (repair is off)",
            r#""time":"00:00:01.000","messages":2}"#,
        );
        assert_eq!(dropped_json(5), r#"{"type":"dropped","count":5}"#);
        assert_eq!(dropped_line(1), "! dropped 1 message here: this program reads too slowly (client-queue-size)");
    }

    #[test]
    fn kernel_drops_are_named_as_cause() {
        let mut loss =
            loss(LossScope::Datagrams { first: Dseq(4), last: Dseq(6), messages: Count::Between { min: 2, max: 30 } });
        loss.cause = Cause::LocalOverrun { datagrams: 2 };
        assert_eq!(
            LossLine(&loss).to_string(),
            "? unverified: 2..30 messages from B.1 in datagrams 4..6 (repair is off; dropped by this host's kernel: 2)"
        );
        assert!(loss_json(&loss).contains(r#""cause":"LOCAL_OVERRUN","overrun_datagrams":2,"time""#));
        loss.cause = Cause::Mixed { overrun: 2, network: 1 };
        assert!(LossLine(&loss).to_string().ends_with("(repair is off; partly dropped by this host's kernel: 2 of 3)"));
        assert!(loss_json(&loss).contains(r#""cause":"MIXED","overrun_datagrams":2,"network_datagrams":1,"#));
    }

    fn check(what: LossScope, text: &str, json_end: &str) {
        let loss = loss(what);
        assert_eq!(LossLine(&loss).to_string(), text);
        let json = loss_json(&loss);
        assert!(json.starts_with(r#"{"type":"loss","kind":"#) && json.ends_with(json_end), "{json}");
    }

    fn loss(what: LossScope) -> Loss {
        let at = WallTime::from_nanos(1_000_000_000);
        Loss { publisher: publisher(), what, reason: Reason::Disabled, cause: Cause::Network, at }
    }

    fn publisher() -> Publisher {
        Publisher { name: Some("B.test".parse().unwrap()), epoch: Epoch::new(0xabc).unwrap(), uid: 1 }
    }
}
