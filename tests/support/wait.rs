//! The only test code that sleeps: it polls for a condition with a bound, or lets real time pass for a stated reason.

use seqcast::clock::Clock;
use std::thread;
use std::time::Duration;

/// Bound on anything that should happen at once; generous, because machines may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until the condition holds, for at most [`PATIENCE`].
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_until_some(|| what.to_owned(), || condition().then_some(()));
}

/// Polls until there is a value, for at most [`PATIENCE`]. `what` names the awaited value; only a failure calls it.
#[track_caller]
pub fn wait_until_some<T>(what: impl Fn() -> String, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Clock::now().instant + PATIENCE;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Clock::now().instant < deadline, "not within {PATIENCE:?}: {}", what());
        thread::sleep(POLL_INTERVAL);
    }
}

/// Lets real time pass where no condition can be awaited: a fault that lasts, a load with a rate, an idle program.
/// `reason` completes the sentence "Time passes because …".
pub fn let_time_pass(duration: Duration, reason: &str) {
    assert!(!reason.is_empty(), "time passes for a reason");
    thread::sleep(duration);
}
