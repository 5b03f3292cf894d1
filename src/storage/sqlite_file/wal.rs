//! The transactions in the WAL of a SQLite file (<https://www.sqlite.org/walformat.html>), read without a change to the
//! WAL.

use super::sibling_path;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Magic number of a WAL; its last bit is the byte order of the checksums.
const MAGIC: u32 = 0x377f_0682;
/// Size of the WAL header, in bytes.
const HEAD_BYTES: usize = 32;
/// Size of a frame header, in bytes.
const FRAME_BYTES: usize = 24;
/// Maximum page size, in bytes.
const PAGE_BYTES_MAX: usize = 65_536;

/// Content of a WAL as SQLite reads it: the complete transactions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WalContents {
    /// Numbers of the pages in these transactions.
    pub(super) pages: BTreeSet<u64>,
    /// Length of the file with these transactions, in bytes; 0 without transactions.
    pub(super) bytes: u64,
    /// True if the WAL was modified: a damaged frame hides a stored transaction from SQLite. Two transactions follow
    /// the damage, and the second was written after the first. The first had therefore been synchronized, and no crash
    /// can have torn the frames before it. Valid only while no process writes.
    pub(super) is_damaged: bool,
}

impl WalContents {
    /// Reads the WAL of the file.
    pub(super) fn read(path: &Path) -> io::Result<WalContents> {
        match File::open(sibling_path(path, "-wal")) {
            Ok(file) => WalContents::of(&mut BufReader::new(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(WalContents::default()),
            Err(error) => Err(error),
        }
    }

    fn of(wal: &mut impl Read) -> io::Result<WalContents> {
        let mut contents = WalContents::default();
        let (mut header, mut frame) = ([0; HEAD_BYTES], [0; FRAME_BYTES]);
        if !fill(wal, &mut header)? {
            return Ok(contents);
        }
        let page_bytes = word(&header, 2) as usize;
        let mut sum = WalChecksum { is_big_endian: word(&header, 0) == MAGIC | 1, sum: [0; 2] };
        sum.add(&header[..24]);
        let is_valid_header = word(&header, 0) | 1 == MAGIC | 1 && sum.sum == [word(&header, 6), word(&header, 7)];
        if !is_valid_header || !page_bytes.is_power_of_two() || PAGE_BYTES_MAX < page_bytes {
            return Ok(contents);
        }
        let mut page = vec![0; page_bytes];
        // Pages of the transaction whose end was not read yet.
        let mut open = Vec::new();
        // SQLite reads the next frame as long as `is_found`. `lost_ends` is the number of consecutive transaction ends
        // that SQLite does not read.
        let (mut is_found, mut lost_ends) = (true, 0);
        while fill(wal, &mut frame)? && fill(wal, &mut page)? {
            sum.add(&frame[..8]);
            sum.add(&page);
            let stored = [word(&frame, 4), word(&frame, 5)];
            let is_valid = frame[8..16] == header[16..24] && sum.sum == stored;
            // SQLite stops at a frame that an earlier use of the WAL has left, or that a crash has torn.
            is_found &= is_valid;
            let is_end = word(&frame, 1) != 0;
            if is_found {
                open.push(u64::from(word(&frame, 0)));
                if is_end {
                    contents.pages.extend(open.drain(..));
                    contents.bytes = u64::from(word(&frame, 1)) * page_bytes as u64;
                }
            } else {
                lost_ends = if is_valid { lost_ends + u32::from(is_end) } else { 0 };
                contents.is_damaged |= lost_ends == 2;
                // Each checksum continues the previous one. So a frame proves that it was written after this one,
                // whatever precedes it.
                sum.sum = stored;
            }
        }
        Ok(contents)
    }
}

/// Fills the buffer. Returns false if the file ends before.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the big-endian 32-bit word at an index.
fn word(bytes: &[u8], index: usize) -> u32 {
    u32::from_be_bytes(bytes[4 * index..][..4].try_into().expect("four bytes"))
}

/// Running checksum over the WAL up to a position.
struct WalChecksum {
    is_big_endian: bool,
    sum: [u32; 2],
}

impl WalChecksum {
    fn add(&mut self, bytes: &[u8]) {
        let [mut a, mut b] = self.sum;
        for pair in bytes.chunks_exact(8) {
            let word = |index| if self.is_big_endian { word(pair, index) } else { word(pair, index).swap_bytes() };
            a = a.wrapping_add(word(0)).wrapping_add(b);
            b = b.wrapping_add(word(1)).wrapping_add(a);
        }
        self.sum = [a, b];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;
    use std::fs;

    /// SQLite itself reports the number of pages, after each cut.
    #[test]
    fn cut_wal_holds_what_sqlite_reads() {
        let dir = std::env::temp_dir().join(format!("seqcast-wal-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let (made, cut) = (dir.join("made"), dir.join("cut"));
        let connection = Connection::open(&made).unwrap();
        connection.execute_batch("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL; CREATE TABLE t (x)").unwrap();
        let insert = |rows| {
            for row in 0..rows {
                connection.execute("INSERT INTO t VALUES (zeroblob(?))", [300 * row]).unwrap();
            }
        };
        insert(9);
        connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        // This round is shorter than the one before, whose rest remains after it.
        insert(4);
        let (file, wal) = (fs::read(&made).unwrap(), fs::read(sibling_path(&made, "-wal")).unwrap());
        assert!(14 * 1024 < wal.len());
        let mut seen = BTreeSet::new();
        for length in (0..wal.len()).step_by(263) {
            fs::write(&cut, &file).unwrap();
            fs::write(sibling_path(&cut, "-wal"), &wal[..length]).unwrap();
            let contents = WalContents::read(&cut).unwrap();
            let other = Connection::open(&cut).unwrap();
            let number = |sql, column| other.query_row(sql, [], |row| row.get::<_, i64>(column)).unwrap();
            let (pages, frames) = (number("PRAGMA page_count", 0), number("PRAGMA wal_checkpoint(PASSIVE)", 1));
            assert_eq!(frames == 0, contents.bytes == 0, "at {length}");
            if contents.bytes != 0 {
                assert_eq!(contents.bytes, pages.unsigned_abs() * 1024, "at {length}");
            }
            seen.insert(contents.bytes);
        }
        assert!(3 < seen.len(), "{seen:?}");
        // A page with a wrong checksum ends the content.
        let mut bad = wal.clone();
        bad[HEAD_BYTES + FRAME_BYTES + 7] ^= 1;
        assert_eq!(WalContents::of(&mut &bad[..]).unwrap(), WalContents { is_damaged: true, ..WalContents::default() });
        drop(connection);
        fs::remove_dir_all(&dir).unwrap();
    }

    /// Changes any byte, except in the last transactions and in the remains of a crash after them.
    #[test]
    fn change_before_the_last_transactions_is_damage() {
        let dir = std::env::temp_dir().join(format!("seqcast-wal-damage-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let made = dir.join("made");
        let connection = Connection::open(&made).unwrap();
        connection.execute_batch("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL; CREATE TABLE t (x)").unwrap();
        for row in 0..6 {
            connection.execute("INSERT INTO t VALUES (zeroblob(?))", [3000 + row]).unwrap();
        }
        let wal = fs::read(sibling_path(&made, "-wal")).unwrap();
        let frame_bytes = FRAME_BYTES + 1024;
        let ends: Vec<usize> = (0..(wal.len() - HEAD_BYTES) / frame_bytes)
            .filter(|frame| wal[HEAD_BYTES + frame * frame_bytes..][4..8] != [0; 4])
            .collect();
        let of = |wal: &[u8]| WalContents::of(&mut &wal[..]).unwrap();
        assert!(!of(&wal).is_damaged);
        let before_last = ends[ends.len() - 2];
        for frame in 0..=ends[ends.len() - 1] {
            let start = HEAD_BYTES + frame * frame_bytes;
            assert!(!of(&wal[..start + 100]).is_damaged, "cut in frame {frame}");
            for at in (0..FRAME_BYTES).chain((FRAME_BYTES..frame_bytes).step_by(101)) {
                let mut bad = wal.clone();
                bad[start + at] ^= 1;
                let is_damaged = of(&bad).is_damaged;
                assert!(is_damaged || before_last < frame + 2, "byte {at} of frame {frame}, {ends:?}");
                assert!(!is_damaged || frame < before_last, "byte {at} of frame {frame}, {ends:?}");
            }
        }
        // A long transaction was not synchronized, a short one overwrote it, and a crash tore that one.
        let after = |name: &str, bytes: u32| {
            let copy = dir.join(name);
            fs::copy(&made, &copy).unwrap();
            fs::write(sibling_path(&copy, "-wal"), &wal).unwrap();
            let connection = Connection::open(&copy).unwrap();
            connection.execute("INSERT INTO t VALUES (zeroblob(?))", [bytes]).unwrap();
            fs::read(sibling_path(&copy, "-wal")).unwrap()
        };
        let (long, mut short) = (after("long", 40_000), after("short", 5_000));
        assert!(wal.len() + frame_bytes < short.len() && short.len() + 9 * frame_bytes < long.len());
        short.extend(&long[short.len()..]);
        assert!(!of(&short).is_damaged);
        for start in (wal.len()..short.len()).step_by(frame_bytes) {
            for at in 0..FRAME_BYTES + 1 {
                let mut torn = short.clone();
                torn[start + at] ^= 1;
                assert!(!of(&torn).is_damaged, "byte {at} of the frame at {start}");
            }
        }
        drop(connection);
        fs::remove_dir_all(&dir).unwrap();
    }
}
