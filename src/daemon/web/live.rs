//! The live snapshots: computed once a second for all viewers together, and only while there are any.

use super::event_stream::{encode_event, event_stream};
use axum::body::Bytes;
use axum::response::Response;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

/// Maximum number of viewers.
pub(super) const VIEWERS_MAX: usize = 32;
/// Interval between two snapshots.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of events that wait for a viewer. One that reads slower misses some.
const QUEUE: usize = 3;
/// Number of snapshots in a row after which a viewer that reads none is closed.
const MISSED_MAX: u32 = 60;

/// A viewer.
#[derive(Debug)]
struct LiveViewer {
    sender: Sender<Bytes>,
    /// Number of snapshots in a row for which there was no room.
    missed: u32,
}

/// The viewers, and the last snapshot.
#[derive(Debug, Default)]
pub(super) struct LiveFeed {
    state: Mutex<LiveFeedState>,
    arrival: Notify,
}

#[derive(Debug, Default)]
struct LiveFeedState {
    viewers: Vec<LiveViewer>,
    /// The last snapshot, while there are viewers.
    last: Option<Bytes>,
}

impl LiveFeed {
    fn lock(&self) -> MutexGuard<'_, LiveFeedState> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a viewer, which gets this event first; `None` if there are too many.
    pub(super) fn join(&self, first: Bytes) -> Option<Response> {
        let (sender, response) = event_stream(QUEUE);
        let mut state = self.lock();
        state.viewers.retain(|viewer| !viewer.sender.is_closed());
        if VIEWERS_MAX <= state.viewers.len() {
            return None;
        }
        // There is room for both.
        let events = std::iter::once(first).chain(state.last.clone());
        events.for_each(|event| drop(sender.try_send(event)));
        state.viewers.push(LiveViewer { sender, missed: 0 });
        drop(state);
        self.arrival.notify_waiters();
        Some(response)
    }

    /// Returns the number of viewers.
    pub(super) fn viewers(&self) -> usize {
        self.lock().viewers.iter().filter(|viewer| !viewer.sender.is_closed()).count()
    }

    /// Sends a snapshot to all viewers.
    fn send(&self, snapshot: &Bytes) {
        let mut state = self.lock();
        state.viewers.retain_mut(|viewer| match viewer.sender.try_send(snapshot.clone()) {
            Ok(()) => {
                viewer.missed = 0;
                true
            }
            Err(TrySendError::Full(_)) => {
                viewer.missed += 1;
                viewer.missed < MISSED_MAX
            }
            Err(TrySendError::Closed(_)) => false,
        });
        state.last = (!state.viewers.is_empty()).then(|| snapshot.clone());
    }

    /// Waits until there is a viewer.
    pub(super) async fn wait_for_viewers(&self) {
        loop {
            let arrival = self.arrival.notified();
            if 0 < self.viewers() {
                return;
            }
            self.lock().last = None;
            arrival.await;
        }
    }

    /// Sends the snapshots of `snapshot`; never ends. Without a snapshot the viewers notice that the peer is silent.
    pub(super) async fn run<F: Future<Output = Option<String>>>(&self, snapshot: impl Fn() -> F) {
        let mut interval = tokio::time::interval(SNAPSHOT_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.wait_for_viewers().await;
            interval.tick().await;
            if let Some(snapshot) = snapshot().await {
                self.send(&encode_event("snapshot", &snapshot));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::HttpBody;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    /// Returns the next event of an answer, if there is one.
    fn next(response: &mut Response) -> Poll<Option<String>> {
        let body = Pin::new(response.body_mut());
        body.poll_frame(&mut Context::from_waker(Waker::noop())).map(|frame| {
            let data = frame?.expect("it cannot fail").into_data().expect("data");
            Some(String::from_utf8(data.to_vec()).expect("a text"))
        })
    }

    fn first() -> Bytes {
        encode_event("reports", "1")
    }

    #[test]
    fn viewers_get_the_same_snapshots() {
        let feed = LiveFeed::default();
        let mut one = feed.join(first()).expect("room");
        feed.send(&encode_event("snapshot", "1"));
        let mut second = feed.join(first()).expect("room");
        let event = |name: &str| Poll::Ready(Some(format!("event: {name}\ndata: 1\n\n")));
        for name in ["reports", "snapshot"] {
            assert_eq!((next(&mut one), next(&mut second)), (event(name), event(name)), "the last one is sent at once");
        }
        assert_eq!((next(&mut one), next(&mut second)), (Poll::Pending, Poll::Pending));
        drop(one);
        assert_eq!(feed.viewers(), 1);
    }

    #[test]
    fn viewers_beyond_the_limit_are_refused() {
        let feed = LiveFeed::default();
        let mut viewers: Vec<Response> = (0..VIEWERS_MAX).map(|_| feed.join(first()).expect("room")).collect();
        assert!(feed.join(first()).is_none());
        viewers.pop();
        assert!(feed.join(first()).is_some(), "a viewer has left");
    }

    #[test]
    fn viewer_that_reads_nothing_is_closed() {
        let feed = LiveFeed::default();
        let mut idle = feed.join(first()).expect("room");
        let snapshot = encode_event("snapshot", "1");
        (0..QUEUE as u32 - 1 + MISSED_MAX - 1).for_each(|_| feed.send(&snapshot));
        assert_eq!(feed.viewers(), 1, "it misses snapshots");
        feed.send(&snapshot);
        assert_eq!(feed.viewers(), 0);
        (0..QUEUE).for_each(|_| assert!(next(&mut idle).is_ready()));
        assert_eq!(next(&mut idle), Poll::Ready(None));
    }
}
