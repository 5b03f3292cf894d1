//! The memory that clients hold: events that wait to be sent to them, and groups that they have not answered. When it is too much, the client
//! that holds most has to go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What all clients hold.
#[derive(Debug)]
pub(super) struct Memory {
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    /// By their numbers.
    holders: BTreeMap<u64, Row>,
    next: u64,
    evicted: u64,
    /// Bytes that clients have let go since the allocator last gave memory back.
    freed: usize,
}

/// Bytes to let go before the allocator gives memory back to the system: fewer are soon needed again.
const FREED_BYTES_MIN: usize = 16 << 20;

#[derive(Debug)]
struct Row {
    bytes: usize,
    is_evicted: bool,
    end: Arc<Notify>,
}

/// A client, until it and all that it holds are dropped.
#[derive(Debug)]
pub(super) struct Holder {
    /// Whether more waited for it than it may leave unread.
    is_behind: AtomicBool,
    memory: Arc<Memory>,
    number: u64,
    end: Arc<Notify>,
}

/// Bytes that a client holds until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    holder: Arc<Holder>,
    bytes: usize,
}

impl Memory {
    /// For so many bytes.
    pub(super) fn new(bytes_max: usize) -> Arc<Memory> {
        Arc::new(Memory { bytes_max, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked has changed numbers, one by one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client that holds nothing yet.
    pub(super) fn holder(self: &Arc<Memory>) -> Arc<Holder> {
        let end = Arc::new(Notify::new());
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.holders.insert(number, Row { bytes: 0, is_evicted: false, end: Arc::clone(&end) });
        Arc::new(Holder { is_behind: AtomicBool::new(false), memory: Arc::clone(self), number, end })
    }

    /// Whether clients have let go so much that memory is to be given back to the system; true once.
    pub(super) fn take_is_freed(&self) -> bool {
        let mut state = self.state();
        let is_freed = FREED_BYTES_MIN <= state.freed;
        if is_freed {
            state.freed = 0;
        }
        is_freed
    }

    /// Bytes that are held now, and how many clients had to go so far.
    pub(super) fn counts(&self) -> (usize, u64) {
        let state = self.state();
        (state.bytes, state.evicted)
    }
}

impl Row {
    /// What stays of so many bytes: nothing, if it is going.
    fn stays(&self, bytes: usize) -> usize {
        if self.is_evicted { 0 } else { bytes }
    }
}

impl State {
    fn row(&mut self, number: u64) -> &mut Row {
        self.holders.get_mut(&number).expect("it is there until it and all that it holds is dropped")
    }

    /// Tells the one to go who holds most; false if nobody else holds anything.
    fn evict(&mut self) -> bool {
        let rows = self.holders.values_mut().filter(|row| !row.is_evicted && 0 < row.bytes);
        let Some(row) = rows.max_by_key(|row| row.bytes) else { return false };
        row.is_evicted = true;
        row.end.notify_one();
        self.evicted += 1;
        true
    }

    /// What those do not hold who are going.
    fn bytes_that_stay(&self) -> usize {
        self.holders.values().map(|row| row.stays(row.bytes)).sum()
    }
}

impl Holder {
    /// It holds so many bytes more.
    pub(super) fn hold(self: &Arc<Holder>, bytes: usize) -> Held {
        let Memory { bytes_max, .. } = *self.memory;
        let mut state = self.memory.state();
        if bytes_max < state.bytes + bytes {
            // What it gets now does not count against it: whoever does not take what he got before goes first.
            while bytes_max < state.bytes_that_stay() + state.row(self.number).stays(bytes) && state.evict() {}
        }
        state.bytes += bytes;
        state.row(self.number).bytes += bytes;
        drop(state);
        Held { holder: Arc::clone(self), bytes }
    }

    /// Too much waits for the client: it has to go.
    pub(super) fn end_behind(&self) {
        self.is_behind.store(true, Ordering::Relaxed);
        self.end.notify_one();
    }

    /// Whether it has to go because too much waits for it.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    /// Waits until it has to go.
    pub(super) async fn evicted(&self) {
        self.end.notified().await;
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.memory.state().holders.remove(&self.number);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.holder.memory.state();
        state.bytes -= self.bytes;
        state.freed = state.freed.saturating_add(self.bytes);
        state.row(self.holder.number).bytes -= self.bytes;
    }
}

/// Gives memory back to the system that the allocator holds and nobody uses. Without it glibc keeps what one large answer took.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes the allocator's own locks, and touches no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    /// Whether it was told to go since it was asked last.
    fn is_told(holder: &Holder) -> bool {
        pin!(holder.evicted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_holds_most_goes_once() {
        let memory = Memory::new(100);
        let mut holders: Vec<Arc<Holder>> = (0..3).map(|_| memory.holder()).collect();
        let told = |holders: &[Arc<Holder>]| holders.iter().map(|holder| is_told(holder)).collect::<Vec<bool>>();
        let first = holders[0].hold(60);
        let second = holders[1].hold(40);
        assert_eq!((told(&holders), memory.counts()), (vec![false; 3], (100, 0)));
        let third = holders[2].hold(30);
        assert_eq!((told(&holders), memory.counts()), (vec![true, false, false], (130, 1)));
        // The first one is on its way out.
        let more = holders[2].hold(30);
        assert_eq!((told(&holders), memory.counts()), (vec![false; 3], (160, 1)));
        holders.remove(0);
        assert_eq!(memory.counts(), (160, 1), "what it holds is there until it is dropped");
        drop((first, second));
        assert_eq!(memory.counts(), (60, 1));
        let last = holders[0].hold(50);
        assert_eq!((told(&holders), memory.counts()), (vec![false, true], (110, 2)));
        drop((third, more, last));
        assert_eq!(memory.counts(), (0, 2));
    }

    #[test]
    fn large_answers_let_go_give_memory_back_once() {
        let memory = Memory::new(1 << 30);
        let holder = memory.holder();
        let held = holder.hold(FREED_BYTES_MIN - 1);
        assert!(!memory.take_is_freed(), "it is held");
        drop(held);
        assert!(!memory.take_is_freed(), "it is too little");
        drop(holder.hold(1));
        assert!(memory.take_is_freed());
        assert!(!memory.take_is_freed());
    }
}
