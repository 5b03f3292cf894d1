//! Commands for the engine: from embedded clients and service threads through the mailbox, and from the core and the
//! services themselves.

use super::Engine;
use crate::daemon::engine_core::confirmation::Subscriber;
use crate::daemon::engine_core::flush::FlushWaiter;
use crate::daemon::engine_core::receiver_waits::ReceiverWaiter;
use crate::daemon::event_request::EventServiceCommand;
use crate::daemon::internal_command::InternalCommand;
use crate::daemon::mailbox::EngineCommand;
use crate::listener::refusal::RefusalReason;
use crate::message::Target;
use crate::time::ClockReading;

/// Maximum number of requests of embedded clients that one turn processes.
const COMMANDS_PER_TURN: usize = 4096;

impl Engine {
    /// Processes the commands of embedded clients in the order of their arrival. While publishers are blocked, all
    /// other commands overtake pending publishes: subscribing, reports, and above all detaching and stopping. Messages
    /// already published are sent even if their client has detached meanwhile.
    pub(super) fn process_commands(&mut self, now: ClockReading) {
        for _ in 0..COMMANDS_PER_TURN {
            let is_publish_blocked = self.core.is_publish_blocked();
            if !self.commands.has_command(is_publish_blocked) {
                self.core.mailbox.take(&mut self.commands, is_publish_blocked);
            }
            let Some(command) = self.commands.pop(is_publish_blocked) else { return };
            self.on_command(now, command);
            self.process_internal_commands(now);
        }
    }

    /// Processes the commands that the core and the services have queued, and lets the services release the state of
    /// departed clients, until neither is left.
    pub(super) fn process_internal_commands(&mut self, now: ClockReading) {
        loop {
            while let Some(command) = self.core.internal_commands.pop_front() {
                match command {
                    InternalCommand::Events(command) => self.services.on_event_command(&mut self.core, now, command),
                    InternalCommand::Streams(command) => self.services.on_stream_command(&mut self.core, now, command),
                    InternalCommand::Listeners(report) => self.services.on_event_report(&mut self.core, now, report),
                    InternalCommand::Show { client, id, query } => {
                        let answer = self.answer_local(now, &query);
                        self.core.answer_show(client, id, &answer);
                    }
                    InternalCommand::AnswerReport { from, reply, query } => {
                        self.answer_report(now, from, &reply, &query);
                    }
                    InternalCommand::EpochChanged => self.services.on_new_epoch(&mut self.core, now),
                    InternalCommand::Stopped => self.close(now),
                }
            }
            let Some(mut client) = self.core.detached.pop_front() else { return };
            self.services.on_detach(&mut self.core, now, &mut client);
        }
    }

    fn on_command(&mut self, now: ClockReading, command: EngineCommand) {
        match command {
            EngineCommand::Publish { client, message } => {
                if !self.core.publish(now, client, &message) {
                    unreachable!("a publish is taken only while the queue is short");
                }
            }
            EngineCommand::PublishEvents { client, mut messages, ended } => {
                while let Some(message) = messages.front() {
                    if !self.core.publish(now, client, message) {
                        return self.commands.put_back(EngineCommand::PublishEvents { client, messages, ended });
                    }
                    messages.pop_front();
                }
                self.services.on_event_command(&mut self.core, now, EventServiceCommand::Ended(ended));
            }
            EngineCommand::Subscribe { client, sub, request, queue, answer } => {
                let outcome = self.core.subscribe(now, client, sub, request, queue);
                match outcome {
                    Ok(()) => drop(self.core.confirm(now, Subscriber::Embedded(client, sub, answer))),
                    // The requester may have stopped waiting.
                    Err(refusal) => drop(answer.send(Err(RefusalReason::from(&refusal)))),
                }
            }
            EngineCommand::Unsubscribe { client, sub } => self.core.unsubscribe(now, client, sub),
            EngineCommand::QueryHistory { client, peer, question, timeout, answer } => {
                self.core.query_history(now, client, &peer, question, timeout, answer);
            }
            EngineCommand::AwaitReceivers { client, sub, condition, subject, timeout } => {
                self.core.begin_await(
                    now,
                    ReceiverWaiter::Subscription(Target { client, sub }),
                    condition,
                    subject,
                    timeout,
                );
            }
            EngineCommand::Events(command) => self.services.on_event_command(&mut self.core, now, command),
            EngineCommand::Streams(command) => self.services.on_stream_command(&mut self.core, now, command),
            // The requester may have stopped waiting.
            EngineCommand::Show { query, answer } => drop(answer.send(self.answer_local(now, &query))),
            #[cfg(feature = "links")]
            EngineCommand::Link(query) => self.services.on_link_query(&mut self.core, query),
            EngineCommand::Flush { answer } => self.core.await_flush(FlushWaiter::Embedded(answer)),
            EngineCommand::Detach { client } => self.core.detach(now, client),
            EngineCommand::Stop => self.stop(now),
        }
    }
}
