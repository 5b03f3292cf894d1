//! The parts that the command line and the bench share: exit codes, output, tables, signals, arguments, and the peer.

pub mod exit;
pub mod interrupt;
pub mod output;
pub mod peer;
pub mod table;
pub mod value;
