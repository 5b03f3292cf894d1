//! Reading of the queue of a subscription in the server's own loop.

use crate::daemon::subscription_queue::{Notice, NoticeRef, PopError, QueueItem, SubscriptionQueue};
use std::io;
use std::os::fd::BorrowedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An item of a queue.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all items are notices, and each is moved once")]
pub(crate) enum ReaderItem {
    /// A notice.
    Notice(Notice),
    /// The awaited receiver condition is met.
    Awaited,
}

/// Reader of a queue.
pub(crate) struct QueueReader<'a> {
    queue: &'a SubscriptionQueue,
    ready: AsyncFd<BorrowedFd<'a>>,
}

impl<'a> QueueReader<'a> {
    /// Creates the reader of a queue, inside the server's loop.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new(queue: &'a SubscriptionQueue) -> io::Result<QueueReader<'a>> {
        let descriptor = queue.readiness_fd()?;
        // SAFETY: the queue keeps its descriptor until it is dropped, and it is borrowed for as long as the reader lives.
        let ready = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        Ok(QueueReader { queue, ready: ready.map_err(io::Error::from)? })
    }

    /// Takes a notice without waiting.
    pub(crate) fn try_next(&self) -> Option<Notice> {
        self.pop().ok()
    }

    /// Waits for a notice and takes it; `None` once the queue is closed and empty. The others stay in the queue, which
    /// drops and counts those for which it has no room.
    ///
    /// # Errors
    /// The server's loop is ending.
    pub(crate) async fn next(&self) -> io::Result<Option<Notice>> {
        loop {
            match self.next_item().await? {
                Some(ReaderItem::Notice(notice)) => return Ok(Some(notice)),
                Some(ReaderItem::Awaited) => {}
                None => return Ok(None),
            }
        }
    }

    /// Waits for a notice, or for the awaited receiver condition; `None` once the queue is closed and empty.
    ///
    /// # Errors
    /// The server's loop is ending.
    pub(crate) async fn next_item(&self) -> io::Result<Option<ReaderItem>> {
        loop {
            let since = self.queue.notifications();
            match self.pop() {
                Ok(notice) => return Ok(Some(ReaderItem::Notice(notice))),
                Err(PopError::Closed) => return Ok(None),
                Err(PopError::Empty) if self.queue.take_awaited() => return Ok(Some(ReaderItem::Awaited)),
                Err(PopError::Empty) => {}
            }
            let mut guard = self.ready.readable().await?;
            // A notification after `since` leaves the descriptor readable, and is no further event of it.
            if self.queue.clear_readiness(since) {
                guard.clear_ready();
            }
        }
    }

    fn pop(&self) -> Result<Notice, PopError> {
        loop {
            if let QueueItem::Notice(notice) = self.queue.pop()? {
                return Ok(notice);
            }
        }
    }

    /// Waits for notices, and calls `each` with all that wait. Returns false once the queue is closed and empty.
    ///
    /// # Errors
    /// The server's loop is ending.
    pub(crate) async fn read(&self, each: impl FnMut(NoticeRef<'_>)) -> io::Result<bool> {
        let mut guard = self.ready.readable().await?;
        let since = self.queue.notifications();
        if self.queue.drain(each).is_err() {
            return Ok(false);
        }
        // A notification after `since` leaves the descriptor readable, and is no further event of it.
        if self.queue.clear_readiness(since) {
            guard.clear_ready();
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::subscription_queue::QueueLimits;
    use std::cell::Cell;

    #[test]
    fn reader_takes_notices_until_the_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let queue = SubscriptionQueue::new(QueueLimits { count_max: 8, bytes_max: 1 << 20 });
        runtime.block_on(async {
            let reader = QueueReader::new(&queue).unwrap();
            let dropped = Cell::new(0);
            for round in 1..4 {
                queue.push(Notice::Dropped(round));
                let take = |notice: NoticeRef<'_>| match notice {
                    NoticeRef::Dropped(count) => dropped.set(dropped.get() + count),
                    other => panic!("{other:?}"),
                };
                // The descriptor is readable at first, although nothing waits.
                while dropped.get() < round * (round + 1) / 2 {
                    assert!(reader.read(take).await.unwrap());
                }
            }
            queue.close();
            assert!(!reader.read(|_| panic!("nothing waits")).await.unwrap());
        });
    }

    #[test]
    fn notice_during_a_reading_is_read_next() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().unwrap();
        let queue = SubscriptionQueue::new(QueueLimits { count_max: 8, bytes_max: 1 << 20 });
        let reading = async {
            let reader = QueueReader::new(&queue).unwrap();
            queue.push(Notice::Dropped(1));
            let seen = Cell::new(0);
            while seen.get() < 3 {
                let take = |notice: NoticeRef<'_>| match notice {
                    NoticeRef::Dropped(count) => {
                        seen.set(count);
                        queue.push(Notice::Dropped(count + 1));
                    }
                    other => panic!("{other:?}"),
                };
                assert!(reader.read(take).await.unwrap());
            }
        };
        let patience = std::time::Duration::from_secs(10);
        runtime.block_on(async { tokio::time::timeout(patience, reading).await.expect("no notice is overlooked") });
    }
}
