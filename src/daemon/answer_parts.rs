//! Bounded channel for an answer in parts. A part without room ends the answer, and the reader learns that.

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, TrySendError, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Sender of the parts of one answer. A part without room ends the answer: the channel accepts no later part. The
/// receiver returns the waiting parts and then reports that parts are missing.
#[derive(Clone, Debug)]
pub(crate) struct PartSender<T> {
    parts: Sender<T>,
    has_overflowed: Arc<AtomicBool>,
}

/// Receiver of the parts of one answer.
#[derive(Debug)]
pub(crate) struct PartReceiver<T> {
    parts: Receiver<T>,
    has_overflowed: Arc<AtomicBool>,
}

/// Makes a channel in which at most `parts_max` parts wait.
pub(crate) fn part_channel<T>(parts_max: usize) -> (PartSender<T>, PartReceiver<T>) {
    let (sender, parts) = bounded(parts_max);
    let has_overflowed = Arc::new(AtomicBool::new(false));
    (PartSender { parts: sender, has_overflowed: Arc::clone(&has_overflowed) }, PartReceiver { parts, has_overflowed })
}

impl<T> PartSender<T> {
    /// Sends a part without waiting. Returns false if the receiver is gone, or if this part or an earlier one had no
    /// room.
    pub(crate) fn send(&self, part: T) -> bool {
        // No part may follow a missing one.
        if self.has_overflowed.load(Ordering::Acquire) {
            return false;
        }
        let sent = self.parts.try_send(part);
        if matches!(sent, Err(TrySendError::Full(_))) {
            self.has_overflowed.store(true, Ordering::Release);
        }
        sent.is_ok()
    }
}

impl<T> PartReceiver<T> {
    /// Waits for the next part for at most `timeout`.
    pub(crate) fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.parts.recv_timeout(timeout)
    }

    /// Takes the next part, if there is one.
    pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
        self.parts.try_recv()
    }

    /// Returns whether a part had no room.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.has_overflowed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_without_room_ends_the_answer() {
        let (sender, receiver) = part_channel(2);
        assert_eq!([1, 2, 3].map(|part| sender.send(part)), [true, true, false]);
        assert_eq!(receiver.try_recv(), Ok(1));
        assert!(!sender.send(4), "a part before it is missing");
        drop(sender);
        assert_eq!((receiver.try_recv(), receiver.try_recv()), (Ok(2), Err(TryRecvError::Disconnected)));
        assert!(receiver.has_overflowed());
    }

    #[test]
    fn dropped_receiver_takes_no_part() {
        let (sender, receiver) = part_channel(2);
        drop(receiver);
        assert!(!sender.send(1));
    }
}
