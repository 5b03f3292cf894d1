//! The arguments of `seqcast man` as typed.

use std::path::PathBuf;

use clap::Args;

/// Below `seqcast man --help`.
pub const HELP: &str = "\
Examples:
  seqcast man /usr/local/share/man/man1       writes seqcast.1, seqcast-pub.1, seqcast-show-loss.1 and so on
  seqcast man /tmp && man -l /tmp/seqcast-sub.1

The pages contain the same texts as --help. The Debian package installs them.";

/// `seqcast man`.
#[derive(Args, Clone, Debug)]
pub struct ManOptions {
    /// The directory to write the pages to; it must exist.
    pub directory: PathBuf,
}
