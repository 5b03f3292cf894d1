//! The command line: arguments to a command, the commands themselves, exit codes.
//!
//! Parsing ([`args`]) is pure; what a command then needs of the system it asks for itself. Data goes to standard output,
//! everything else to standard error.

pub mod args;
pub mod config;
pub mod console;
pub mod console_line;
pub mod event;
pub mod exit;
pub mod help;
pub mod output;
pub mod pace;
pub mod show;
pub mod table;
pub mod value;
