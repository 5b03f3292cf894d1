//! `order tail`: a consumer on the bus; it recovers missing events from the journal of the peer.

use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::args::OrderTailOptions;
use super::event_type;
use crate::bus::{Bus, Notice, RecvError};
use crate::cli::connect;
use crate::cli::event::{self, LossLine};
use crate::clock::{Clock, random_u64};
use crate::event::order::consumer::{ConsumerEffect, OrderConsumer, Settings};
use crate::event::order::name::Object;
use crate::event::order::stamp::OrderStamp;
use crate::event::order::worker::OrderedEvent;
use crate::event::store::{Query, Series};
use crate::listener::notice;
use crate::subject::event_type::TypePattern;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::{EscapedText, Output, note};
use crate::terminal::peer;

/// Maximum number of objects with a known position.
const OBJECTS_MAX: NonZeroUsize = NonZeroUsize::new(1_000_000).expect("a constant");
/// Maximum number of events that wait for an earlier one.
const BUFFERED_MAX: usize = 100_000;
/// Maximum bytes of these events.
const BUFFERED_BYTES_MAX: usize = 64 << 20;
/// Time to wait for an event that may be merely reordered, before the consumer fetches it from the journal.
const GRACE_MS: u64 = 50;
/// Maximum number of an object's events that are scanned in the journal, from the last one back.
const JOURNAL_SCAN_MAX: usize = 4096;
/// Maximum wait for a message between two readings of the clock.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs `order tail`.
///
/// # Errors
/// The peer cannot be reached or ends.
pub fn run(options: &OrderTailOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    if options.tail.count == Some(0) {
        return Ok(Exit::Done);
    }
    let bus = connect::bus(&options.bus, "order-tail")?;
    let interrupt = Interrupt::watch()?;
    let pattern_text = format!("{}/?", options.event_type);
    let pattern: TypePattern = pattern_text.parse().map_err(|error| CommandFailure::new(Exit::Usage, error))?;
    let subscription = bus.subscribe_events([pattern]).map_err(|error| CommandFailure::new(Exit::Failed, error))?;
    note(format_args!("listening on {pattern_text}"));
    let deadline = options.tail.deadline();
    let mut tail = OrderTail::new(options, &bus, out);
    loop {
        if let Some(exit) = tail.end(interrupt.is_raised()) {
            tail.out.flush()?;
            return Ok(exit);
        }
        if deadline.is_some_and(|deadline| deadline <= Clock::now().instant) {
            tail.out.flush()?;
            return Ok(Exit::TimedOut);
        }
        match subscription.recv_timeout(POLL_INTERVAL) {
            Ok(event) => tail.on_event(event)?,
            Err(RecvError::Empty) => tail.out.flush()?,
            Err(RecvError::Closed) => return Err(peer::end_failure(&bus)),
        }
        tail.on_time()?;
    }
}

struct OrderTail<'a> {
    options: &'a OrderTailOptions,
    bus: &'a Bus,
    out: &'a mut Output,
    consumer: OrderConsumer,
    /// Number of events printed.
    printed: u64,
}

impl OrderTail<'_> {
    fn new<'a>(options: &'a OrderTailOptions, bus: &'a Bus, out: &'a mut Output) -> OrderTail<'a> {
        let gap_timeout_ms = u64::try_from(options.patience.as_millis()).unwrap_or(u64::MAX).max(GRACE_MS + 1);
        let settings = Settings {
            objects_max: OBJECTS_MAX,
            buffered_max: BUFFERED_MAX,
            buffered_bytes_max: BUFFERED_BYTES_MAX,
            fetch_delay_ms: GRACE_MS,
            gap_timeout_ms,
        };
        OrderTail { options, bus, out, consumer: OrderConsumer::new(settings, random_u64()), printed: 0 }
    }

    /// Returns the exit code, if the command ends.
    fn end(&self, is_interrupted: bool) -> Option<Exit> {
        match self.options.tail.count {
            Some(count) if count <= self.printed => Some(Exit::Done),
            Some(_) if is_interrupted => Some(Exit::Failed),
            None if is_interrupted => Some(Exit::Done),
            _ => None,
        }
    }

    fn on_event(&mut self, event: Notice) -> io::Result<()> {
        match event {
            Notice::Message(delivery) => match OrderedEvent::of_payload(&delivery.message.payload) {
                Ok(event) if self.is_wanted(&event.object) => {
                    let mut effects = Vec::new();
                    self.consumer.on_event(now_ms(), event, &mut effects);
                    self.act(effects)
                }
                Ok(_) => Ok(()),
                Err(error) => {
                    note(format_args!("{}: {error}", delivery.message.subject));
                    Ok(())
                }
            },
            // The consumer reports the missing events of each object once it knows them.
            Notice::Loss(loss) if self.options.tail.json => self.out.line(notice::loss_json(&loss)),
            Notice::Loss(loss) => self.out.alarm(LossLine(&loss), LossLine(&loss).is_lost()),
            Notice::Dropped(count) if self.options.tail.json => self.out.line(notice::dropped_json(count)),
            Notice::Dropped(count) => self.out.alarm(event::dropped_line(count), true),
            Notice::Joined(_) => Ok(()),
        }
    }

    fn is_wanted(&self, object: &Object) -> bool {
        self.options.objects.is_empty() || self.options.objects.contains(object)
    }

    fn on_time(&mut self) -> io::Result<()> {
        let now_ms = now_ms();
        if self.consumer.deadline_ms().is_none_or(|deadline_ms| now_ms < deadline_ms) {
            return Ok(());
        }
        let mut effects = Vec::new();
        self.consumer.on_deadline(now_ms, &mut effects);
        self.act(effects)
    }

    fn act(&mut self, effects: Vec<ConsumerEffect>) -> io::Result<()> {
        for effect in effects {
            match effect {
                ConsumerEffect::Deliver(event) => {
                    self.printed += 1;
                    match self.options.tail.json {
                        true => self.out.line(event_json(&event))?,
                        false => self.out.line(OrderedEventLine(&event))?,
                    }
                }
                // The event may still arrive by itself until the consumer gives up.
                ConsumerEffect::Fetch { object, id, .. } => {
                    let mut more = Vec::new();
                    if let Some(event) = self.find_in_journal(&object, id) {
                        self.consumer.on_event(now_ms(), event, &mut more);
                    }
                    self.act(more)?;
                }
                effect if self.options.tail.json => self.out.line(effect_json(&effect))?,
                effect => self.out.alarm(effect_text(&effect), true)?,
            }
        }
        Ok(())
    }

    /// Returns the event, if the peer's journal has it among the last ones of the object.
    fn find_in_journal(&self, object: &Object, id: OrderStamp) -> Option<OrderedEvent> {
        let pattern: TypePattern = event_type(&self.options.event_type, object).ok()?.to_string().parse().ok()?;
        let series = Series {
            types: Some(vec![pattern]),
            is_descending: true,
            limit: Some(JOURNAL_SCAN_MAX),
            ..Series::default()
        };
        let answer = self.bus.find_events(Query::Series(series)).ok()?;
        let ordered =
            answer.events.iter().filter_map(|event| OrderedEvent::of_payload(event.payload.as_ref()?.bytes()).ok());
        ordered.into_iter().find(|event| event.object == *object && event.id == id)
    }
}

fn now_ms() -> u64 {
    Clock::now().instant.since(crate::time::Instant::ZERO).as_millis() as u64
}

/// An event as one line of JSON; the event in it is the text that was pushed.
#[derive(Serialize)]
struct OrderedEventJson<'a> {
    r#type: &'static str,
    object: &'a str,
    id: String,
    prev: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_base64: Option<String>,
}

/// Returns an event as one line of JSON.
pub(super) fn event_json(event: &OrderedEvent) -> String {
    let text: Option<&RawValue> = serde_json::from_slice(&event.payload).ok();
    // In JSON a line end occurs between two parts only, where a blank has the same meaning.
    let one_line = |text: &RawValue| RawValue::from_string(text.get().replace(['\n', '\r'], " ")).expect("still JSON");
    let line = OrderedEventJson {
        r#type: "event",
        object: event.object.as_str(),
        id: number(event.id),
        prev: event.prev.map(number),
        event: text.map(one_line),
        event_base64: text.is_none().then(|| BASE64_STANDARD.encode(&event.payload)),
    };
    serde_json::to_string(&line).expect("texts can be written")
}

fn number(stamp: OrderStamp) -> String {
    stamp.number().to_string()
}

/// An event as a line of text: object, id, and the pushed text.
struct OrderedEventLine<'a>(&'a OrderedEvent);

impl std::fmt::Display for OrderedEventLine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let OrderedEvent { object, id, payload, .. } = self.0;
        write!(f, "{}  {id}  {}", EscapedText(object.as_str().as_bytes()), EscapedText(payload))
    }
}

/// Returns an effect other than an event as a line of JSON.
fn effect_json(effect: &ConsumerEffect) -> Value {
    match effect {
        ConsumerEffect::Missing { object, id, after } => {
            json!({ "type": "missing", "object": object.as_str(), "id": number(*id), "after": number(*after) })
        }
        ConsumerEffect::Refused { object, id, token } => {
            json!({ "type": "refused", "object": object.as_str(), "id": number(*id), "token": number(*token) })
        }
        ConsumerEffect::LostGeneration { object, known, found } => json!({
            "type": "lost_generation", "object": object.as_str(), "known": known.number(), "found": found.number(),
        }),
        ConsumerEffect::Rewound { object, id, prev, last } => json!({
            "type": "rewound", "object": object.as_str(), "id": number(*id), "prev": prev.map(number),
            "last": number(*last),
        }),
        ConsumerEffect::Evicted { object, last } => {
            json!({ "type": "forgotten", "object": object.as_str(), "last": number(*last) })
        }
        ConsumerEffect::Deliver(_) | ConsumerEffect::Fetch { .. } => unreachable!("these are executed, not printed"),
    }
}

/// Returns the same for people.
fn effect_text(effect: &ConsumerEffect) -> String {
    match effect {
        ConsumerEffect::Missing { object, id, after } => {
            format!("{object}: {id} cannot be recovered; others after {after} may be missing, too")
        }
        ConsumerEffect::Refused { object, id, .. } => {
            format!("{object}: {id} is skipped, because its worker was no longer the owner")
        }
        ConsumerEffect::LostGeneration { object, known, found } => format!(
            "{object}: generation {found} follows {known}: the producers lost their state; events may be lost, and some may \
             be repeated with other ids"
        ),
        ConsumerEffect::Rewound { object, id, prev, last } => {
            let prev = prev.map_or("none".to_owned(), |prev| prev.to_string());
            format!(
                "{object}: {id} follows {prev}, although {last} did before: the producers' state was reset to an older one"
            )
        }
        ConsumerEffect::Evicted { object, last } => {
            format!("{object}: too many objects; it was evicted after {last} and begins again with its next event")
        }
        ConsumerEffect::Deliver(_) | ConsumerEffect::Fetch { .. } => unreachable!("these are executed, not printed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn event_is_printed_as_pushed() {
        let [prev, id] = [1, 2].map(|count| OrderStamp::from_number((1 << 38) + count).unwrap());
        for (payload, expected) in [
            (
                &b"{\"z\": 1.50, \"a\": 12345678901234567890123}"[..],
                r#""event":{"z": 1.50, "a": 12345678901234567890123}"#,
            ),
            (b"[1,\r\n2]\n", r#""event":[1,  2]"#),
            (b"\"a\\nb\"", r#""event":"a\nb""#),
            (b"no JSON", r#""event_base64":"bm8gSlNPTg==""#),
        ] {
            let (object, payload) = (Object::new("x").unwrap(), Bytes::from_static(payload));
            let event = OrderedEvent { object, id, prev: Some(prev), token: prev, payload };
            let begin = r#"{"type":"event","object":"x","id":"274877906946","prev":"274877906945","#;
            assert_eq!(event_json(&event), format!("{begin}{expected}}}"));
        }
    }
}
