//! `sub`: prints messages and known losses.

use std::io;

use super::args::SubOptions;
use super::connect::resumption::Resumption;
use super::connect::{self, Events, StopReason};
use super::event::{self, JoinedLine, LossLine, MessageLine};
use super::rvmsg::{self, PayloadFormat};
use crate::bus::{self, Joined, Notice};
use crate::clock::Clock;
use crate::listener::notice;
use crate::message::{Delivery, DeliveryMode};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{EscapedText, Output, note};

/// Runs `sub`.
///
/// # Errors
/// The peer cannot be reached, or ends.
pub fn run(options: &SubOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    if options.count == Some(0) {
        return Ok(Exit::Done);
    }
    let bus = connect::bus(&options.bus, "sub")?;
    let mode = match (options.live, options.repair) {
        (true, _) => Some(DeliveryMode::Live),
        (_, true) => Some(DeliveryMode::Repair),
        _ => None,
    };
    let live = bus::SubscribeOptions { mode, queue: options.queue.clone(), ..bus::SubscribeOptions::default() };
    let wanted = bus::SubscribeOptions { history: options.history, confirm: options.confirm, ..live.clone() };
    let resumption = options.patience.map(|patience| Resumption {
        bus: options.bus.clone(),
        name: "sub",
        patterns: options.patterns.clone(),
        options: live,
        patience,
        json: options.json,
        missing: "messages",
    });
    let events = Events::subscribe(&bus, &options.patterns, &wanted, options.wait)?;
    let mut events = events.resumed_by(resumption);
    let names: Vec<&str> = options.patterns.iter().map(|pattern| pattern.as_str()).collect();
    note(format_args!("listening on {}", names.join(" ")));
    let mut left = options.count;
    loop {
        match events.next(out)? {
            Ok(event) => {
                let is_message = matches!(event, Notice::Message(_));
                print(options, &event, out)?;
                if let Notice::Joined(joined) = &event
                    && options.confirm
                    && !joined.is_established()
                {
                    out.flush()?;
                    return Err(unconfirmed(joined));
                }
                if is_message && let Some(left) = &mut left {
                    *left -= 1;
                    if *left == 0 {
                        out.flush()?;
                        return Ok(Exit::Done);
                    }
                }
            }
            Err(StopReason::TimedOut) => return Ok(Exit::TimedOut),
            Err(StopReason::Interrupted) => return Ok(if left.is_some() { Exit::Failed } else { Exit::Done }),
        }
    }
}

/// Returns the failure of a publisher that has not reported where the subscription begins.
fn unconfirmed(joined: &Joined) -> CommandFailure {
    let missing = joined.baselines.iter().filter(|baseline| baseline.after.is_none());
    let names: Vec<String> = missing.map(|baseline| baseline.publisher.to_string()).collect();
    let text = format!("not confirmed by {}: it did not answer in time, or has left", names.join(", "));
    CommandFailure::new(Exit::Failed, text).fix("see 'seqcast show peers'; try again when these peers are up")
}

fn print(options: &SubOptions, event: &Notice, out: &mut Output) -> io::Result<()> {
    match event {
        Notice::Message(delivery) if options.json => {
            let rvmsg = match options.format {
                PayloadFormat::Text => None,
                PayloadFormat::Rvmsg => rvmsg::fields_json(&delivery.message.payload),
            };
            out.line(notice::message_json_with(delivery, Clock::now().wall, rvmsg))
        }
        Notice::Loss(loss) if options.json => out.line(notice::loss_json(loss)),
        Notice::Dropped(count) if options.json => out.line(notice::dropped_json(*count)),
        Notice::Joined(joined) if options.json => out.line(event::joined_json(joined)),
        Notice::Joined(joined) => {
            note(JoinedLine(joined));
            Ok(())
        }
        Notice::Message(delivery) if options.raw => {
            out.bytes(&delivery.message.payload)?;
            out.bytes(b"\n")
        }
        Notice::Loss(loss) if options.raw => {
            note(LossLine(loss));
            Ok(())
        }
        Notice::Dropped(count) if options.raw => {
            note(event::dropped_line(*count));
            Ok(())
        }
        event => {
            if options.timestamp {
                out.bytes(format!("[{}] ", Clock::now().wall).as_bytes())?;
            }
            print_text(options, event, out)
        }
    }
}

fn print_text(options: &SubOptions, event: &Notice, out: &mut Output) -> io::Result<()> {
    match event {
        Notice::Message(delivery) => {
            out.line(MessageLine { delivery, format: options.format })?;
            if options.headers { print_headers(delivery, out) } else { Ok(()) }
        }
        Notice::Loss(loss) => out.alarm(LossLine(loss), LossLine(loss).is_lost()),
        Notice::Dropped(count) => out.alarm(event::dropped_line(*count), true),
        Notice::Joined(_) => Ok(()),
    }
}

fn print_headers(delivery: &Delivery, out: &mut Output) -> io::Result<()> {
    let publisher = &delivery.publisher;
    let name = publisher.name.as_ref().map_or("?", |name| name.as_str());
    let seq = delivery.seq.map_or("unnumbered".to_owned(), |seq| seq.to_string());
    let offset = delivery.offset.map_or(String::new(), |offset| format!(", offset {offset}"));
    out.line(format_args!("  from {publisher} ({name}, epoch {}), {seq}{offset}", publisher.epoch))?;
    if let Some(reply) = &delivery.message.reply {
        out.line(format_args!("  reply {}", EscapedText(reply.as_bytes())))?;
    }
    for (key, value) in delivery.message.headers.iter() {
        out.line(format_args!("  {}: {}", EscapedText(key.as_bytes()), EscapedText(value.as_bytes())))?;
    }
    Ok(())
}
