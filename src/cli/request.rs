//! `req`: sends a request and prints the replies.

use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;

use super::args::ReqOptions;
use super::connect::{self, Events, StopReason};
use super::event::{self, LossLine};
use super::header;
use crate::bus::{self, Notice};
use crate::clock::Clock;
use crate::listener::notice;
use crate::message::Message;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{EscapedText, Output, note};

/// Runs `req`.
///
/// # Errors
/// The peer cannot be reached, the request cannot be published, or it has no responder.
pub fn run(options: &ReqOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let bus = connect::bus_for_message(&options.bus, "req")?;
    let mut request = Message::new(options.subject.clone(), Bytes::copy_from_slice(options.payload.as_bytes()));
    request.headers = header::headers(&options.headers);
    let request_options = bus::RequestOptions { patient: options.patient };
    let mut events = Events::request(&bus, request, &request_options, options.wait)?;
    let mut replies = 0;
    while replies < options.replies {
        match events.next(out)? {
            Ok(Notice::Message(delivery)) => {
                replies += 1;
                match (options.json, options.raw) {
                    (true, _) => out.line(notice::message_json(&delivery, Clock::now().wall))?,
                    (false, false) => out.line(EscapedText(&delivery.message.payload))?,
                    (false, true) => {
                        out.bytes(&delivery.message.payload)?;
                        out.bytes(b"\n")?;
                    }
                }
            }
            Ok(Notice::Loss(loss)) => note(LossLine(&loss)),
            Ok(Notice::Dropped(count)) => note(event::dropped_line(count)),
            Ok(Notice::Joined(_)) => {}
            Err(StopReason::Interrupted) => return Ok(Exit::Failed),
            Err(StopReason::TimedOut) => {
                out.flush()?;
                let wait = humantime::format_duration(options.wait);
                let shortage = match replies {
                    0 => "no reply".to_owned(),
                    some => format!("{some} of {} replies", options.replies),
                };
                return Err(CommandFailure::new(
                    Exit::TimedOut,
                    format!("{shortage} on {} within {wait}", options.subject),
                ));
            }
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}
