//! The interface of the services that are attached to the core: listeners, events, streams.

use crate::daemon::engine_core::{DetachedClient, EngineCore};
use crate::time::{ClockReading, Instant};
use serde_json::Value;

/// A service of the peer, with clients or threads of its own. The engine owns it beside the [`EngineCore`] and lends it
/// the core for each call. A service never calls another one: it queues a command at the core, which the engine passes
/// on after the call.
pub(crate) trait Service {
    /// Commands that the service accepts from programs, from its own threads and from other services.
    type Command;

    /// Handles a command.
    fn on_command(&mut self, core: &mut EngineCore, now: ClockReading, command: Self::Command);

    /// Adds the service's fields to `show status`.
    fn add_status(&self, core: &EngineCore, status: &mut Value);

    /// Ends the service when the peer ends. Its clients have been notified of the end before.
    fn close(&mut self, core: &mut EngineCore);

    /// Does the work of the service in a turn of the engine.
    fn on_turn(&mut self, _core: &mut EngineCore, _now: ClockReading) {}

    /// Does the work that must precede the writes to clients at the end of a turn.
    fn before_writes(&mut self, _core: &mut EngineCore, _now: ClockReading) {}

    /// Does the work that the writes to clients at the end of a turn make possible, such as resuming clients.
    fn after_writes(&mut self, _core: &mut EngineCore, _now: ClockReading) {}

    /// Releases the state of a departed client.
    fn on_detach(&mut self, _core: &mut EngineCore, _now: ClockReading, _client: &mut DetachedClient) {}

    /// Handles the start of a graceful stop.
    fn on_stop(&mut self, _core: &mut EngineCore, _now: ClockReading) {}

    /// Returns whether work is pending, so that the engine must not sleep.
    fn has_work(&self, _core: &EngineCore) -> bool {
        false
    }

    /// Returns the time of the next work that is due without an event.
    fn deadline(&self, _core: &EngineCore) -> Option<Instant> {
        None
    }

    /// Returns the number of requests that must be finished before a stop.
    fn pending_requests(&self) -> usize {
        0
    }
}
