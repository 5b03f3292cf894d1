//! The `seqcast` command.

fn main() {}
