//! `reply`: answers requests with a text, with the request itself, or with the output of a command.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use bytes::Bytes;

use super::args::ReplyOptions;
use super::connect::resumption::Resumption;
use super::connect::{self, Events, StopReason};
use super::event::{self, LossLine, MessageLine};
use super::pacer::Template;
use crate::bus::{Notice, SubscribeOptions};
use crate::clock::Clock;
use crate::listener::notice;
use crate::message::Message;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::{Output, note};

/// Source of the answers.
enum ReplySource<'a> {
    Text(Template),
    Echo,
    Command(&'a OsStr),
}

/// Runs `reply`.
///
/// # Errors
/// The peer cannot be reached, an answer cannot be published, or a command cannot be run.
pub fn run(options: &ReplyOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let answer = match (&options.payload, &options.command) {
        (Some(payload), _) => ReplySource::Text(Template::new(payload.as_bytes())),
        (None, Some(command)) => ReplySource::Command(command),
        (None, None) => ReplySource::Echo,
    };
    let bus = connect::bus(&options.bus, "reply")?;
    let wanted = SubscribeOptions { queue: options.queue.clone(), ..SubscribeOptions::default() };
    let events = Events::subscribe(&bus, std::slice::from_ref(&options.pattern), &wanted, options.wait)?;
    let mut events = events.resumed_by(options.patience.map(|patience| Resumption {
        bus: options.bus.clone(),
        name: "reply",
        patterns: vec![options.pattern.clone()],
        options: wanted,
        patience,
        json: options.json,
        missing: "requests and answers",
    }));
    note(format_args!("answering requests on {}", options.pattern));
    let mut answers = 0;
    while options.count.is_none_or(|count| answers < count) {
        match events.next(out)? {
            Ok(Notice::Message(delivery)) => {
                let Some(to) = &delivery.message.reply else {
                    note(format_args!("this message expects no reply: {}", MessageLine::of(&delivery)));
                    continue;
                };
                match options.json {
                    true => out.line(notice::message_json(&delivery, Clock::now().wall))?,
                    false => note(MessageLine::of(&delivery)),
                }
                let payload = answer.payload(answers + 1, &delivery.message, events.interrupt())?;
                let Some(payload) = payload else { continue };
                let reply = Message::new(to.clone(), payload);
                answers += u64::from(events.publish_answer(reply)?);
            }
            Ok(Notice::Loss(loss)) => note(LossLine(&loss)),
            Ok(Notice::Dropped(count)) => note(event::dropped_line(count)),
            Ok(Notice::Joined(_)) => {}
            Err(StopReason::TimedOut) => return Ok(Exit::TimedOut),
            Err(StopReason::Interrupted) => break,
        }
    }
    events.flush()?;
    out.flush()?;
    Ok(if options.count.is_some_and(|count| answers < count) { Exit::Failed } else { Exit::Done })
}

impl ReplySource<'_> {
    /// Returns the answer; `None` if the user ends `reply` before the command has ended.
    fn payload(&self, count: u64, request: &Message, interrupt: &Interrupt) -> Result<Option<Bytes>, CommandFailure> {
        match self {
            ReplySource::Text(template) => Ok(Some(template.payload(count))),
            ReplySource::Echo => Ok(Some(request.payload.clone())),
            ReplySource::Command(command) => {
                let failed = |error| CommandFailure::new(Exit::Failed, format!("the command cannot be run: {error}"));
                command_output(command, request, interrupt).map_err(failed)
            }
        }
    }
}

/// Returns the output of the shell command; its exit code is reported and changes nothing. A signal kills the command,
/// and there is no output.
fn command_output(command: &OsStr, request: &Message, interrupt: &Interrupt) -> io::Result<Option<Bytes>> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).env("SEQCAST_SUBJECT", request.subject.as_str());
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    let payload = request.payload.clone();
    // The command may print before it has read, or not read at all: writing must not block it.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&payload)));
    let mut stdout = child.stdout.take().expect("standard output is a pipe");
    let output = interrupt.wait_for(move || {
        let mut output = Vec::new();
        stdout.read_to_end(&mut output).map(|_| output)
    })?;
    let Some(output) = output.transpose()? else {
        child.kill()?;
        child.wait()?;
        return Ok(None);
    };
    let status = child.wait()?;
    writer.join().expect("writing to a pipe does not panic");
    if !status.success() {
        note(format_args!("seqcast: the command ended with {status}"));
    }
    Ok(Some(without_newline(output).into()))
}

/// Returns the output of a command without its last line break, which ends the output of most commands.
fn without_newline(mut output: Vec<u8>) -> Vec<u8> {
    if output.ends_with(b"\n") {
        output.pop();
    }
    output
}
