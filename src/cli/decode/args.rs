//! Arguments of `seqcast decode`.

use std::path::PathBuf;

use clap::Args;

/// Below `seqcast decode --help`.
pub const HELP: &str = "\
Examples:
  seqcast decode lan.pcap                          after: tcpdump -i eth0 -w lan.pcap udp port 7500
  seqcast decode lan.pcap --json | jq 'select(.kind == \"control\")'
  tcpdump -i eth0 -w - -U udp | seqcast decode -
  seqcast decode lan.pcap --keys seqcast-keys.log --write open.pcap   for Wireshark

A datagram that peers would discard is printed with the reason. Standard error reports at the end how many datagrams \
and other packets there were. The exit code is 1 if the capture is damaged; what stands before the damage is printed.";

/// `seqcast decode`.
#[derive(Args, Clone, Debug)]
pub struct DecodeOptions {
    /// Capture in the format pcap or pcapng; - reads standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Key log of a peer (its key 'key-log'): datagrams that its keys open are printed whole.
    #[arg(long, value_name = "FILE", help_heading = "Keys")]
    pub keys: Option<PathBuf>,
    /// Write the datagrams to this new capture, too, those that the keys open in open mode.
    #[arg(long, value_name = "FILE", requires = "keys", help_heading = "Keys")]
    pub write: Option<PathBuf>,
    /// Print a JSON object for each datagram.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
