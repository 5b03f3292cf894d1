//! Directories that a process of the bench removes when it ends, however it does.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::random_u64;
use crate::terminal::exit::{CommandFailure, Exit};

/// Directories that are removed when the process ends, however it does.
static DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn locked() -> MutexGuard<'static, Vec<PathBuf>> {
    DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a directory for this user alone, which is removed if the process ends before it has done its job.
///
/// # Errors
/// The directory cannot be made.
pub fn create() -> Result<PathBuf, CommandFailure> {
    let directory = std::env::temp_dir().join(format!("seqcast-bench-{:016x}", random_u64()));
    let mut directories = locked();
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .map_err(|error| CommandFailure::new(Exit::Failed, format!("cannot make {}: {error}", directory.display())))?;
    directories.push(directory.clone());
    Ok(directory)
}

/// Registers a directory of another process for removal, if this process ends before it has done its job.
pub fn remove_at_end(directory: &Path) {
    locked().push(directory.to_owned());
}

/// Removes all registered directories and ends the process.
pub fn remove_all_and_exit() -> ! {
    let mut directories = locked();
    directories.drain(..).for_each(|directory| drop(std::fs::remove_dir_all(directory)));
    // The lock is held until the end, so no other directory is created.
    std::process::exit(Exit::Failed as i32)
}
