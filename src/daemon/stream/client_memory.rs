//! The memory that clients hold: events that wait to be sent to them, and groups that they have not answered. When it is too much, the client
//! that holds most has to go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What all clients hold.
#[derive(Debug)]
pub(super) struct ClientMemory {
    bytes_max: usize,
    state: Mutex<ClientMemoryState>,
}

#[derive(Debug, Default)]
struct ClientMemoryState {
    bytes: usize,
    /// By their numbers.
    accounts: BTreeMap<u64, AccountEntry>,
    next: u64,
    evicted: u64,
    /// Bytes that clients have let go since the allocator last gave memory back.
    freed: usize,
}

/// Bytes to let go before the allocator gives memory back to the system: fewer are soon needed again.
const FREED_BYTES_MIN: usize = 16 << 20;

#[derive(Debug)]
struct AccountEntry {
    bytes: usize,
    is_evicted: bool,
    end: Arc<Notify>,
}

/// A client, until it and all that it holds are dropped.
#[derive(Debug)]
pub(super) struct MemoryAccount {
    /// Whether more waited for it than it may leave unread.
    is_slow: AtomicBool,
    memory: Arc<ClientMemory>,
    number: u64,
    end: Arc<Notify>,
}

/// Bytes that a client holds until this is dropped.
#[derive(Debug)]
pub(super) struct MemoryReservation {
    account: Arc<MemoryAccount>,
    bytes: usize,
}

impl ClientMemory {
    /// For so many bytes.
    pub(super) fn new(bytes_max: usize) -> Arc<ClientMemory> {
        Arc::new(ClientMemory { bytes_max, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, ClientMemoryState> {
        // Whoever panicked has changed numbers, one by one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client that holds nothing yet.
    pub(super) fn account(self: &Arc<ClientMemory>) -> Arc<MemoryAccount> {
        let end = Arc::new(Notify::new());
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.accounts.insert(number, AccountEntry { bytes: 0, is_evicted: false, end: Arc::clone(&end) });
        Arc::new(MemoryAccount { is_slow: AtomicBool::new(false), memory: Arc::clone(self), number, end })
    }

    /// Whether clients have let go so much that memory is to be given back to the system; true once.
    pub(super) fn take_trim_due(&self) -> bool {
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

impl AccountEntry {
    /// What stays of so many bytes: nothing, if it is going.
    fn retained(&self, bytes: usize) -> usize {
        if self.is_evicted { 0 } else { bytes }
    }
}

impl ClientMemoryState {
    fn row(&mut self, number: u64) -> &mut AccountEntry {
        self.accounts.get_mut(&number).expect("it is there until it and all that it holds is dropped")
    }

    /// Tells the one to go who holds most; false if nobody else holds anything.
    fn evict(&mut self) -> bool {
        let rows = self.accounts.values_mut().filter(|row| !row.is_evicted && 0 < row.bytes);
        let Some(row) = rows.max_by_key(|row| row.bytes) else { return false };
        row.is_evicted = true;
        row.end.notify_one();
        self.evicted += 1;
        true
    }

    /// What those do not hold who are going.
    fn retained_bytes(&self) -> usize {
        self.accounts.values().map(|row| row.retained(row.bytes)).sum()
    }
}

impl MemoryAccount {
    /// It holds so many bytes more.
    pub(super) fn reserve(self: &Arc<MemoryAccount>, bytes: usize) -> MemoryReservation {
        let ClientMemory { bytes_max, .. } = *self.memory;
        let mut state = self.memory.state();
        if bytes_max < state.bytes + bytes {
            // What it gets now does not count against it: whoever does not take what he got before goes first.
            while bytes_max < state.retained_bytes() + state.row(self.number).retained(bytes) && state.evict() {}
        }
        state.bytes += bytes;
        state.row(self.number).bytes += bytes;
        drop(state);
        MemoryReservation { account: Arc::clone(self), bytes }
    }

    /// Too much waits for the client: it has to go.
    pub(super) fn evict_slow(&self) {
        self.is_slow.store(true, Ordering::Relaxed);
        self.end.notify_one();
    }

    /// Whether it has to go because too much waits for it.
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Waits until it has to go.
    pub(super) async fn evicted(&self) {
        self.end.notified().await;
    }
}

impl Drop for MemoryAccount {
    fn drop(&mut self) {
        self.memory.state().accounts.remove(&self.number);
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let mut state = self.account.memory.state();
        state.bytes -= self.bytes;
        state.freed = state.freed.saturating_add(self.bytes);
        state.row(self.account.number).bytes -= self.bytes;
    }
}

/// Gives memory back to the system that the allocator holds and nobody uses. Without it glibc keeps what one large answer took.
pub(super) fn trim_allocator() {
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
    fn is_told(account: &MemoryAccount) -> bool {
        pin!(account.evicted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_holds_most_goes_once() {
        let memory = ClientMemory::new(100);
        let mut accounts: Vec<Arc<MemoryAccount>> = (0..3).map(|_| memory.account()).collect();
        let told =
            |accounts: &[Arc<MemoryAccount>]| accounts.iter().map(|account| is_told(account)).collect::<Vec<bool>>();
        let first = accounts[0].reserve(60);
        let second = accounts[1].reserve(40);
        assert_eq!((told(&accounts), memory.counts()), (vec![false; 3], (100, 0)));
        let third = accounts[2].reserve(30);
        assert_eq!((told(&accounts), memory.counts()), (vec![true, false, false], (130, 1)));
        // The first one is on its way out.
        let more = accounts[2].reserve(30);
        assert_eq!((told(&accounts), memory.counts()), (vec![false; 3], (160, 1)));
        accounts.remove(0);
        assert_eq!(memory.counts(), (160, 1), "what it holds is there until it is dropped");
        drop((first, second));
        assert_eq!(memory.counts(), (60, 1));
        let last = accounts[0].reserve(50);
        assert_eq!((told(&accounts), memory.counts()), (vec![false, true], (110, 2)));
        drop((third, more, last));
        assert_eq!(memory.counts(), (0, 2));
    }

    #[test]
    fn large_answers_let_go_give_memory_back_once() {
        let memory = ClientMemory::new(1 << 30);
        let account = memory.account();
        let held = account.reserve(FREED_BYTES_MIN - 1);
        assert!(!memory.take_trim_due(), "it is held");
        drop(held);
        assert!(!memory.take_trim_due(), "it is too little");
        drop(account.reserve(1));
        assert!(memory.take_trim_due());
        assert!(!memory.take_trim_due());
    }
}
