//! A SQLite VFS that logs file changes. It forwards to the system's VFS. In a watched directory it also records each
//! write, truncation, sync, creation and deletion.

use rusqlite::ffi;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// A file operation in a watched directory.
#[derive(Clone, Debug)]
pub enum Op {
    /// A new file was created under a name.
    Create {
        name: String,
        file: usize,
    },
    Delete {
        name: String,
    },
    Write {
        file: usize,
        at: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        file: usize,
        length: usize,
    },
    /// The whole file is on the disk.
    Sync {
        file: usize,
    },
    /// All names are on the disk.
    SyncNames,
}

/// A directory that is watched until this is dropped.
pub struct Watch(PathBuf);

impl Watch {
    pub fn new(dir: &Path) -> Watch {
        register();
        watched().logs.insert(dir.to_owned(), Log::default());
        Watch(dir.to_owned())
    }

    /// Returns the number of operations so far.
    pub fn count(&self) -> usize {
        watched().logs[&self.0].ops.len()
    }
}

impl Watch {
    /// Stops watching, and returns the operations.
    pub fn end(self) -> Vec<Op> {
        watched().logs.remove(&self.0).expect("watched until now").ops
    }
}

#[derive(Default)]
struct Log {
    ops: Vec<Op>,
    names: BTreeMap<String, usize>,
    files: usize,
}

/// A file of a watched directory that SQLite has open.
struct Open {
    dir: PathBuf,
    file: usize,
    /// True if the first sync of the file also syncs the names, as the system's VFS does for a log that it may have
    /// created.
    syncs_names: bool,
    theirs: &'static ffi::sqlite3_io_methods,
}

#[derive(Default)]
struct Watched {
    logs: BTreeMap<PathBuf, Log>,
    /// Open files by the address of SQLite's handle.
    open: BTreeMap<usize, Open>,
}

impl Watched {
    /// Records an operation on an open file, if its directory is still watched.
    fn note(&mut self, handle: *mut ffi::sqlite3_file, op: impl FnOnce(usize) -> Op) {
        let Some(open) = self.open.get_mut(&handle.addr()) else { return };
        let Some(log) = self.logs.get_mut(&open.dir) else { return };
        let op = op(open.file);
        let is_sync = matches!(op, Op::Sync { .. });
        log.ops.push(op);
        if is_sync && open.syncs_names {
            open.syncs_names = false;
            log.ops.push(Op::SyncNames);
        }
    }
}

fn watched() -> MutexGuard<'static, Watched> {
    static WATCHED: Mutex<Watched> = Mutex::new(Watched { logs: BTreeMap::new(), open: BTreeMap::new() });
    WATCHED.lock().unwrap()
}

/// The system's functions to open and delete files.
struct System {
    open: Option<OpenFn>,
    delete: Option<DeleteFn>,
}

type OpenFn = unsafe extern "C" fn(
    *mut ffi::sqlite3_vfs,
    ffi::sqlite3_filename,
    *mut ffi::sqlite3_file,
    c_int,
    *mut c_int,
) -> c_int;
type DeleteFn = unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *const c_char, c_int) -> c_int;

static SYSTEM: OnceLock<System> = OnceLock::new();

/// Registers this VFS for all files opened from now on.
fn register() {
    SYSTEM.get_or_init(|| {
        // SAFETY: SQLite initializes itself; its default VFS lives for ever, and may be copied, as its functions get
        // the copy.
        let vfs = unsafe { *ffi::sqlite3_vfs_find(std::ptr::null()) };
        let ours = ffi::sqlite3_vfs { zName: c"watched".as_ptr(), xOpen: Some(open), xDelete: Some(delete), ..vfs };
        // SAFETY: the registered value is leaked, so its address stays valid.
        let code = unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(ours)), 1) };
        assert_eq!(code, ffi::SQLITE_OK);
        System { open: vfs.xOpen, delete: vfs.xDelete }
    });
}

fn system() -> &'static System {
    SYSTEM.wait()
}

/// Returns the methods that the system gave an open file.
fn theirs(handle: *mut ffi::sqlite3_file) -> &'static ffi::sqlite3_io_methods {
    watched().open[&handle.addr()].theirs
}

/// Returns the directory and the name of a path, if it has one and is watched.
///
/// # Safety
/// `path` is null or a text that ends with 0.
unsafe fn split_path(path: *const c_char) -> Option<(PathBuf, String)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees it.
    let path = Path::new(unsafe { CStr::from_ptr(path) }.to_str().ok()?);
    let (dir, name) = (path.parent()?.to_owned(), path.file_name()?.to_str()?.to_owned());
    watched().logs.contains_key(&dir).then_some((dir, name))
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    path: ffi::sqlite3_filename,
    handle: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's arguments are forwarded unchanged.
    let code = unsafe { (system().open.unwrap())(vfs, path, handle, flags, out_flags) };
    // SAFETY: SQLite's paths end with 0.
    let parts = unsafe { split_path(path) };
    if code != ffi::SQLITE_OK {
        return code;
    }
    let Some((dir, name)) = parts else { return code };
    // SAFETY: an open file has methods, which live for ever.
    let theirs = unsafe { &*(*handle).pMethods };
    // Databases have other methods than logs.
    static OURS: [OnceLock<ffi::sqlite3_io_methods>; 2] = [OnceLock::new(), OnceLock::new()];
    let ours = OURS[usize::from(flags & ffi::SQLITE_OPEN_MAIN_DB != 0)].get_or_init(|| ffi::sqlite3_io_methods {
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        xClose: Some(close),
        ..*theirs
    });
    // SAFETY: the handle is valid, and our methods live for ever; the system's methods among them get the handle that
    // the system made.
    unsafe { (*handle).pMethods = ours };
    let mut watched = watched();
    let log = watched.logs.get_mut(&dir).expect("looked up above");
    let file = *log.names.entry(name.clone()).or_insert_with(|| {
        log.files += 1;
        log.ops.push(Op::Create { name, file: log.files });
        log.files
    });
    let is_log = flags & (ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL) != 0;
    let syncs_names = is_log && flags & ffi::SQLITE_OPEN_CREATE != 0;
    watched.open.insert(handle.addr(), Open { dir, file, syncs_names, theirs });
    code
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, path: *const c_char, syncs_names: c_int) -> c_int {
    // SAFETY: SQLite's arguments are forwarded unchanged.
    let code = unsafe { (system().delete.unwrap())(vfs, path, syncs_names) };
    // SAFETY: SQLite's paths end with 0.
    if let Some((dir, name)) = unsafe { split_path(path) }
        && code == ffi::SQLITE_OK
    {
        let mut watched = watched();
        let log = watched.logs.get_mut(&dir).expect("looked up above");
        log.names.remove(&name);
        log.ops.push(Op::Delete { name });
        if syncs_names != 0 {
            log.ops.push(Op::SyncNames);
        }
    }
    code
}

unsafe extern "C" fn write(
    handle: *mut ffi::sqlite3_file,
    from: *const c_void,
    length: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite passes a pointer to `length` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length as usize) }.to_vec();
    watched().note(handle, |file| Op::Write { file, at: at as usize, bytes });
    // SAFETY: SQLite's arguments are forwarded unchanged.
    unsafe { theirs(handle).xWrite.unwrap()(handle, from, length, at) }
}

unsafe extern "C" fn truncate(handle: *mut ffi::sqlite3_file, length: ffi::sqlite3_int64) -> c_int {
    watched().note(handle, |file| Op::Truncate { file, length: length as usize });
    // SAFETY: SQLite's arguments are forwarded unchanged.
    unsafe { theirs(handle).xTruncate.unwrap()(handle, length) }
}

unsafe extern "C" fn sync(handle: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite's arguments are forwarded unchanged.
    let code = unsafe { theirs(handle).xSync.unwrap()(handle, flags) };
    watched().note(handle, |file| Op::Sync { file });
    code
}

unsafe extern "C" fn close(handle: *mut ffi::sqlite3_file) -> c_int {
    let theirs = theirs(handle);
    watched().open.remove(&handle.addr());
    // SAFETY: SQLite's arguments are forwarded unchanged.
    unsafe { theirs.xClose.unwrap()(handle) }
}
