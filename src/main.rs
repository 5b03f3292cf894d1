//! The `seqcast` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    seqcast::cli::run(std::env::args_os()).into()
}
