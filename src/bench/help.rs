//! Texts below the help of `bench` and of each measurement: examples first.

/// Below `seqcast bench --help`.
pub const BENCH: &str = "\
Examples:
  seqcast bench throughput
  seqcast bench throughput --size 16,64,1024,8mb --runs 3 --json
  seqcast bench latency
  seqcast bench fanout --subscribers 4
  seqcast bench subjects --subjects 1000,1000000 --secs 5s
  seqcast bench loss --drop 1%,10%

Publisher and subscriber are processes of their own, on loopback multicast in a group that nobody else uses. Rates are \
compared with those of bare datagrams in the same run, for absolute ones say little of another machine. Every payload \
is distinct and checked; messages that did not come must add up with what the library says of them, else the exit \
code is 1. docs/performance.md says how to read the figures.";

/// Below `seqcast bench throughput --help`.
pub const BENCH_THROUGHPUT: &str = "\
Examples:
  seqcast bench throughput --size 16,64,1024,8mb --runs 3
  seqcast bench throughput --path daemon --rate 1000000/s
  seqcast bench throughput --interface 10.75.0.0/24 --publisher-via 'ip netns exec a' --subscriber-via 'ip netns exec b'
  seqcast bench throughput --interface auto --group 239.1.2.3 --port 7777 --subscriber-via 'ssh hostb'

raw_plain is one datagram a message, raw_gso are datagrams that leave as one buffer which the kernel divides, and \
raw_gso_gro such that arrive as one, too. Messages larger than a datagram are compared byte for byte. A run in which \
raw_gso_gro is less than 40 times as fast as raw_plain is void: offloads are missing.";

/// Below `seqcast bench latency --help`.
pub const BENCH_LATENCY: &str = "\
Examples:
  seqcast bench latency --secs 10 --runs 3
  seqcast bench latency --rate 10000/s --size 1024 --json
  seqcast bench latency --path daemon

To and fro: one program publishes, the other one publishes back what it got; half of that time counts, once for every \
message. Blocking waits to be woken, busy looks again and again and takes a processor for itself on both sides. One \
way: from when a message was due, not from when the publisher came round to it, until it was read; both programs \
must be on one machine.";

/// Below `seqcast bench fanout --help`.
pub const BENCH_FANOUT: &str = "\
Examples:
  seqcast bench fanout --runs 3
  seqcast bench fanout --subscribers 8 --size 64,1024 --json

Rates are those of all subscribers together, and so are the raw ones: as many raw receivers, one sender.";

/// Below `seqcast bench subjects --help`.
pub const BENCH_SUBJECTS: &str = "\
Examples:
  seqcast bench subjects --subjects 1000,100000,1000000 --secs 5s
  seqcast bench subjects --subjects 100000 --each

A row for each number of subjects: what a message costs, how many times as much as with the first number, and the \
memory of both sides, the windows of subjects apart. Rates count from when each subject was published on once, so \
let it run long enough. The windows may grow to 1 gb; with --set sub-window-max=\"64 mb\" and the like they may not.";

/// Below `seqcast bench loss --help`.
pub const BENCH_LOSS: &str = "\
Examples:
  seqcast bench loss
  seqcast bench loss --drop 5% --rate 500000/s --runs 3 --json
  seqcast bench loss --interface 10.75.0.0/24 --publisher-via 'ip netns exec a' --subscriber-via 'ip netns exec b' \
--fault 'ip netns exec b nft -f lose-one-percent.nft' --heal 'ip netns exec b nft flush ruleset'

Each run with loss follows one without; goodput is what comes a second with loss as a share of that. What is missing is \
asked for again; nothing should be lost in the end.";

/// Remedy for a wrong value in the configuration of the bench.
pub const BENCH_SETTINGS: &str = "seqcast config show lists the keys; give one with --set KEY=VALUE";
