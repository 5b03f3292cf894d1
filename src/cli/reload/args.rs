//! The arguments of `config reload`.

use std::path::PathBuf;

use clap::Args;

/// Below `seqcast config reload --help`.
pub const RELOAD_HELP: &str = "\
Examples:
  seqcast config reload
  seqcast config check param.yaml && seqcast config reload
  seqcast config reload --json | jq -r '.reload.restart_needed[].key'

The peer reads its file again, with the environment and the options with which it was started. A keyed peer also reads \
the files of its realm: secret, certificate and revoked hosts. If there is an error, nothing changes, and the exit code \
is 3. Each change is printed; some keys need a restart of the peer. SIGHUP does the same, and the log has the result.";

/// `seqcast config reload`.
#[derive(Args, Clone, Debug)]
pub struct ReloadOptions {
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The Unix socket of the local peer (or SEQCAST_SOCKET).
    #[arg(long, value_name = "PATH", help_heading = "Peer")]
    pub socket: Option<PathBuf>,
}
