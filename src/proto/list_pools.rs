//! Lists of earlier datagrams, which are empty and are used again. So decoding allocates nothing.

use crate::proto::run_delivery::RunDelivery;
use crate::proto::stream_item::StreamItem;
use crate::wire::Record;
use std::collections::VecDeque;
use std::mem::size_of;

/// Maximum bytes of the lists of one kind. Beyond it the oldest are released.
const LISTS_BYTES_MAX: usize = 256 << 10;
/// Maximum number of lists that are looked at for one of the right size.
const LOOKED_AT_MAX: usize = 8;

/// Empty lists of one kind.
#[derive(Debug)]
struct ListPool<T> {
    /// The lists, oldest first.
    lists: VecDeque<Vec<T>>,
    /// Bytes that they have allocated.
    bytes: usize,
}

impl<T> Default for ListPool<T> {
    fn default() -> ListPool<T> {
        ListPool { lists: VecDeque::new(), bytes: 0 }
    }
}

impl<T> ListPool<T> {
    /// Returns an empty list with `count` places or up to half as many more. A list with many unused places would keep
    /// memory that nothing counts.
    fn take(&mut self, count: usize) -> Vec<T> {
        let fits = |list: &Vec<T>| (count..=count + count / 2).contains(&list.capacity());
        let found = (0..self.lists.len()).rev().take(LOOKED_AT_MAX).find(|index| fits(&self.lists[*index]));
        match found.and_then(|index| self.lists.remove(index)) {
            Some(list) => {
                self.bytes -= list.capacity() * size_of::<T>();
                list
            }
            // Further places let the lists of similar datagrams take each other's place.
            None => Vec::with_capacity(count.next_multiple_of((count.next_power_of_two() / 4).max(1))),
        }
    }

    /// Empties a list and keeps it.
    fn put(&mut self, mut list: Vec<T>) {
        list.clear();
        let bytes = list.capacity() * size_of::<T>();
        if bytes == 0 || LISTS_BYTES_MAX < bytes {
            return;
        }
        self.bytes += bytes;
        self.lists.push_back(list);
        while LISTS_BYTES_MAX < self.bytes
            && let Some(oldest) = self.lists.pop_front()
        {
            self.bytes -= oldest.capacity() * size_of::<T>();
        }
    }
}

/// Empty lists of records, of items and of runs, of at most 256 KiB each.
#[derive(Debug, Default)]
pub struct ListPools {
    records: ListPool<Record>,
    items: ListPool<StreamItem>,
    runs: ListPool<RunDelivery>,
}

impl ListPools {
    /// Returns an empty list for `count` records, with up to half as many further places.
    pub(crate) fn take_records(&mut self, count: usize) -> Vec<Record> {
        self.records.take(count)
    }

    /// Keeps a list of records, whose remaining records are dropped.
    pub(crate) fn put_records(&mut self, records: Vec<Record>) {
        self.records.put(records);
    }

    /// Returns an empty list for `count` items, with up to half as many further places.
    pub(crate) fn take_items(&mut self, count: usize) -> Vec<StreamItem> {
        self.items.take(count)
    }

    /// Keeps a list of items, whose remaining items are dropped.
    pub(crate) fn put_items(&mut self, items: Vec<StreamItem>) {
        self.items.put(items);
    }

    /// Returns an empty list for `count` runs, with up to half as many further places.
    pub(crate) fn take_runs(&mut self, count: usize) -> Vec<RunDelivery> {
        self.runs.take(count)
    }

    /// Keeps a list of runs.
    pub(crate) fn put_runs(&mut self, runs: Vec<RunDelivery>) {
        self.runs.put(runs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn list_is_reused_if_its_size_fits() {
        for (kept, count, expected) in [(20, 20, 0), (20, 14, 0), (20, 13, 1), (20, 21, 1), (0, 1, 0)] {
            let mut lists: ListPool<u64> = ListPool::default();
            lists.put(Vec::with_capacity(kept));
            lists.take(count);
            assert_eq!(lists.lists.len(), expected, "{kept} places for {count} items");
        }
    }

    #[test]
    fn kept_lists_have_bounded_bytes() {
        let mut rng = Rng::new(1);
        let mut lists: ListPool<u64> = ListPool::default();
        let (mut reused, mut taken) = (0, 0);
        for _ in 0..10_000 {
            if rng.chance(0.5) {
                lists.put(Vec::with_capacity(rng.below(5000) as usize));
            } else if rng.chance(0.5) {
                let count = rng.between(1, 5000) as usize;
                let before = lists.lists.len();
                let list = lists.take(count);
                assert!(list.is_empty() && (count..=count + count / 2).contains(&list.capacity()));
                (reused, taken) = (reused + before - lists.lists.len(), taken + 1);
            }
            assert_eq!(lists.bytes, lists.lists.iter().map(|list| 8 * list.capacity()).sum::<usize>());
            assert!(lists.bytes <= LISTS_BYTES_MAX);
        }
        assert!(taken / 3 < reused, "{reused} of {taken}");
        lists.put(Vec::with_capacity(LISTS_BYTES_MAX));
        assert!(lists.lists.iter().all(|list| list.capacity() <= 5000), "a large list is released");
    }
}
