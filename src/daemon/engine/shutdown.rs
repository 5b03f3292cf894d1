//! The end of a peer: gracefully, at once after a second signal, or because its loop failed.
//!
//! A failed loop ends the peer for all clients: attached clients get a BYE, all connections close, and calls of
//! embedded clients fail. The peer publishes and reports nothing more, since its numbers can be wrong.

use super::Engine;
use crate::daemon::engine_core::Phase;
use crate::daemon::mailbox::CommandQueue;
use crate::proto::effect::Input;
use crate::time::ClockReading;
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Maximum time for which a stop waits for messages that embedded clients have published and the peer has not yet
/// accepted.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// Maximum time of a graceful stop.
const STOP_TIME: Duration = Duration::from_secs(2);
/// Maximum time for which clients may read the remaining output.
const CLOSE_TIME: Duration = Duration::from_secs(2);

impl Engine {
    /// Begins a graceful stop. Messages that embedded clients have already published are accepted first, as far as
    /// there is room for them soon.
    pub(crate) fn stop(&mut self, now: ClockReading) {
        if self.core.phase == Phase::Running {
            tracing::info!("stopping");
            if let Some(systemd) = &mut self.systemd {
                systemd.notify_stopping();
            }
            self.services.on_stop(&mut self.core, now);
            self.core.phase = Phase::Draining { until: now.instant + DRAIN_TIME };
            self.end_drain(now);
        }
    }

    /// Announces the end of this peer once no requests are pending, or the drain time has passed.
    fn end_drain(&mut self, now: ClockReading) {
        let Phase::Draining { until } = self.core.phase else { return };
        let waiting = self.commands.waiting() + self.core.mailbox.waiting() + self.services.pending_requests();
        if 0 < waiting && now.instant < until {
            return;
        }
        if 0 < waiting {
            tracing::warn!(requests = waiting, "stopped before all published messages and all requests were processed");
        }
        self.core.phase = Phase::Stopping { until: now.instant + STOP_TIME };
        self.core.peer.handle(now, Input::Stop);
        self.core.apply_effects(now);
    }

    /// Handles signals: SIGHUP reads the configuration again. The first signal to end begins a graceful stop, the
    /// second ends the peer at once.
    pub(super) fn on_signals(&mut self, now: ClockReading) {
        if std::mem::take(&mut self.has_hangup) {
            self.on_hangup();
        }
        for _ in 0..std::mem::take(&mut self.pending_signals) {
            if self.core.is_running() {
                self.stop(now);
            } else {
                tracing::warn!("stopping at once");
                self.core.phase = Phase::Ended;
            }
        }
    }

    /// Returns whether the engine has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.core.phase == Phase::Ended
    }

    /// Begins to close the clients and the listeners, after the group has received its BYE.
    pub(super) fn close(&mut self, now: ClockReading) {
        if matches!(self.core.phase, Phase::Closing { .. } | Phase::Ended) {
            return;
        }
        self.core.close_clients(now);
        self.services.close_listeners(&mut self.core);
        self.core.drop_questions();
        self.core.local_socket = None;
        self.core.phase = Phase::Closing { until: now.instant + CLOSE_TIME };
    }

    /// Continues a stop that has begun.
    pub(super) fn advance(&mut self, now: ClockReading) {
        self.end_drain(now);
        match self.core.phase {
            Phase::Stopping { until } if until <= now.instant => {
                tracing::warn!("the stop took too long and was cut short");
                self.close(now);
            }
            Phase::Closing { .. } if self.core.clients.len() == 0 && self.core.transmit_queue.is_empty() => {
                self.core.phase = Phase::Ended
            }
            Phase::Closing { until } if until <= now.instant => {
                let (clients, messages) = (self.core.clients.len(), self.core.clients.queued());
                if clients == 0 {
                    tracing::warn!("stopped before all datagrams to other peers were sent");
                } else {
                    tracing::warn!(clients, messages, "stopped before the clients had read all their messages");
                }
                self.core.phase = Phase::Ended;
            }
            _ => {}
        }
    }

    /// Runs a part of the loop. A panic or an error in it ends the peer. A panic becomes an error with its message,
    /// which asks for a report. Every panic, from an invariant or an overflow, is a defect of this program.
    pub(crate) fn run_guarded<T>(&mut self, work: impl FnOnce(&mut Engine) -> io::Result<T>) -> io::Result<T> {
        // After a panic the state of the engine is used only to close connections, queues and files.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self)));
        let outcome = outcome.unwrap_or_else(|panic| Err(io::Error::other(fault_text(&*panic))));
        outcome.inspect_err(|error| self.abandon(error))
    }

    /// Ends the peer at once after a failure of its loop. Other peers detect it by its silence.
    fn abandon(&mut self, error: &io::Error) {
        self.core.phase = Phase::Ended;
        tracing::error!(%error, "the peer has failed and ends");
        self.core.mailbox.close(&format!("the peer has failed: {error}"));
        if catch_unwind(AssertUnwindSafe(|| self.close_everything())).is_err() {
            tracing::error!("some clients of the failed peer are closed only when the peer is dropped");
        }
    }

    /// Closes all connections and queues, and drops all pending requests.
    fn close_everything(&mut self) {
        self.core.end_clients("the peer has failed and has ended; its log says why");
        self.services.close_listeners(&mut self.core);
        self.core.local_socket = None;
        self.commands = CommandQueue::default();
        self.core.drop_requests();
        self.services.close_journal(&mut self.core);
    }
}

/// Returns the message of a panic of the loop, with the action for the user.
fn fault_text(panic: &(dyn Any + Send)) -> String {
    format!("{}; this is a fault of seqcast: please report it with the log of this peer", panic_text(panic))
}

/// Returns the message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}

impl Drop for Engine {
    /// Notifies every waiting requester that no answer will come.
    fn drop(&mut self) {
        self.core.clients.clear();
        self.core.mailbox.close("the peer has stopped");
    }
}
