//! The parts that the command line and the bench share: exit codes, output, tables, progress, signals, arguments, and the
//! peer.

pub mod exit;
pub mod interrupt;
pub mod output;
pub mod peer;
pub mod progress;
pub mod table;
pub mod value;
