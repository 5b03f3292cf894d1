//! The exit codes of the `seqcast` command.

pub const DONE: i32 = 0;
pub const FAILED: i32 = 1;
pub const USAGE: i32 = 2;
pub const CONFIGURATION: i32 = 3;
pub const UNREACHABLE: i32 = 4;
pub const TIMED_OUT: i32 = 27;
