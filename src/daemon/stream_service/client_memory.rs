//! The memory that clients hold: events that wait to be sent to them, and pushed groups of events that
//! they have not answered. At the
//! limit, the client that holds the most is evicted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Memory accounting of all clients.
#[derive(Debug)]
pub(super) struct ClientMemory {
    bytes_max: usize,
    state: Mutex<ClientMemoryState>,
}

#[derive(Debug, Default)]
struct ClientMemoryState {
    bytes: usize,
    /// Accounts by number.
    accounts: BTreeMap<u64, AccountEntry>,
    /// Number of the next account.
    next: u64,
    evicted: u64,
    /// Bytes that clients have released since the allocator last returned memory to the system.
    freed: usize,
}

/// Number of released bytes from which the allocator returns memory to the system: fewer are soon needed again.
const FREED_BYTES_MIN: usize = 16 << 20;

#[derive(Debug)]
struct AccountEntry {
    bytes: usize,
    is_evicted: bool,
    end: Arc<Notify>,
}

/// Account of a client, until it and all its reservations are dropped.
#[derive(Debug)]
pub(super) struct MemoryAccount {
    /// True if more messages waited for the client than it may leave unread.
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
    /// Creates the accounting with a limit of `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> Arc<ClientMemory> {
        Arc::new(ClientMemory { bytes_max, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, ClientMemoryState> {
        // A panic leaves valid numbers, since they are changed one by one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the account of a client that holds nothing yet.
    pub(super) fn account(self: &Arc<ClientMemory>) -> Arc<MemoryAccount> {
        let end = Arc::new(Notify::new());
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.accounts.insert(number, AccountEntry { bytes: 0, is_evicted: false, end: Arc::clone(&end) });
        Arc::new(MemoryAccount { is_slow: AtomicBool::new(false), memory: Arc::clone(self), number, end })
    }

    /// Returns true once after clients have released enough bytes to return memory to the system.
    pub(super) fn take_trim_due(&self) -> bool {
        let mut state = self.state();
        let is_freed = FREED_BYTES_MIN <= state.freed;
        if is_freed {
            state.freed = 0;
        }
        is_freed
    }

    /// Returns the bytes held now, and the number of clients evicted so far.
    pub(super) fn counts(&self) -> (usize, u64) {
        let state = self.state();
        (state.bytes, state.evicted)
    }
}

impl AccountEntry {
    /// Returns the bytes that remain after evictions: 0 if this client is evicted, else `bytes`.
    fn retained(&self, bytes: usize) -> usize {
        if self.is_evicted { 0 } else { bytes }
    }
}

impl ClientMemoryState {
    fn entry(&mut self, number: u64) -> &mut AccountEntry {
        self.accounts.get_mut(&number).expect("an account exists until it and its reservations are dropped")
    }

    /// Evicts the client that holds the most bytes. Returns false if no remaining client holds any.
    fn evict(&mut self) -> bool {
        let entries = self.accounts.values_mut().filter(|entry| !entry.is_evicted && 0 < entry.bytes);
        let Some(entry) = entries.max_by_key(|entry| entry.bytes) else { return false };
        entry.is_evicted = true;
        entry.end.notify_one();
        self.evicted += 1;
        true
    }

    /// Returns the bytes held by clients that are not evicted.
    fn retained_bytes(&self) -> usize {
        self.accounts.values().map(|entry| entry.retained(entry.bytes)).sum()
    }
}

impl MemoryAccount {
    /// Reserves `bytes` more bytes for the client.
    pub(super) fn reserve(self: &Arc<MemoryAccount>, bytes: usize) -> MemoryReservation {
        let ClientMemory { bytes_max, .. } = *self.memory;
        let mut state = self.memory.state();
        if bytes_max < state.bytes + bytes {
            // The new bytes do not count in the choice of the client to evict. So the choice falls on a client that
            // has not read its earlier events.
            while bytes_max < state.retained_bytes() + state.entry(self.number).retained(bytes) && state.evict() {}
        }
        state.bytes += bytes;
        state.entry(self.number).bytes += bytes;
        drop(state);
        MemoryReservation { account: Arc::clone(self), bytes }
    }

    /// Evicts the client because too many messages wait for it.
    pub(super) fn evict_slow(&self) {
        self.is_slow.store(true, Ordering::Relaxed);
        self.end.notify_one();
    }

    /// Returns whether the client is evicted because too many messages wait for it.
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Waits until the client is evicted.
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
        state.entry(self.account.number).bytes -= self.bytes;
    }
}

/// Returns unused memory of the allocator to the system. Without this call glibc keeps the memory of one large answer.
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

    /// Returns whether the client was evicted since the last call.
    fn was_notified(account: &MemoryAccount) -> bool {
        pin!(account.evicted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn client_that_holds_most_is_evicted_once() {
        let memory = ClientMemory::new(100);
        let mut accounts: Vec<Arc<MemoryAccount>> = (0..3).map(|_| memory.account()).collect();
        let evictions = |accounts: &[Arc<MemoryAccount>]| {
            accounts.iter().map(|account| was_notified(account)).collect::<Vec<bool>>()
        };
        let first = accounts[0].reserve(60);
        let second = accounts[1].reserve(40);
        assert_eq!((evictions(&accounts), memory.counts()), (vec![false; 3], (100, 0)));
        let third = accounts[2].reserve(30);
        assert_eq!((evictions(&accounts), memory.counts()), (vec![true, false, false], (130, 1)));
        // The first client is being evicted.
        let more = accounts[2].reserve(30);
        assert_eq!((evictions(&accounts), memory.counts()), (vec![false; 3], (160, 1)));
        accounts.remove(0);
        assert_eq!(memory.counts(), (160, 1), "its bytes count until they are released");
        drop((first, second));
        assert_eq!(memory.counts(), (60, 1));
        let last = accounts[0].reserve(50);
        assert_eq!((evictions(&accounts), memory.counts()), (vec![false, true], (110, 2)));
        drop((third, more, last));
        assert_eq!(memory.counts(), (0, 2));
    }

    #[test]
    fn released_answers_trim_the_allocator_once() {
        let memory = ClientMemory::new(1 << 30);
        let account = memory.account();
        let reservation = account.reserve(FREED_BYTES_MIN - 1);
        assert!(!memory.take_trim_due(), "the bytes are held");
        drop(reservation);
        assert!(!memory.take_trim_due(), "too few bytes were released");
        drop(account.reserve(1));
        assert!(memory.take_trim_due());
        assert!(!memory.take_trim_due());
    }
}
