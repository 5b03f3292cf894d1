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

Publisher and subscriber are separate processes, on loopback multicast in a group of their own. The bench compares \
their rates with those of raw datagrams in the same run, because absolute rates depend on the machine. Every payload \
is distinct and checked. The exit code is 1 if the received messages and the reported losses do not add up with the \
sent messages. docs/performance.md explains the figures.";

/// Below `seqcast bench throughput --help`.
pub const BENCH_THROUGHPUT: &str = "\
Examples:
  seqcast bench throughput --size 16,64,1024,8mb --runs 3
  seqcast bench throughput --path daemon --rate 1000000/s
  seqcast bench throughput --path host --set interest=on
  seqcast bench throughput --size 64,1024 --keyed --no-raw --runs 5
  seqcast bench throughput --interface 10.75.0.0/24 --open --publisher-via 'ip netns exec a' --subscriber-via 'ip netns exec b'
  seqcast bench throughput --interface auto --open --group 239.1.2.3 --port 7777 --subscriber-via 'ssh hostb'

raw_plain sends one datagram for each message. raw_gso sends many datagrams as one buffer that the kernel divides. \
raw_gso_gro also receives many datagrams as one buffer. Messages larger than a datagram are compared by bytes. A run \
is void if raw_gso_gro is less than 40 times as fast as raw_plain: offloads are missing.";

/// Below `seqcast bench latency --help`.
pub const BENCH_LATENCY: &str = "\
Examples:
  seqcast bench latency --secs 10 --runs 3
  seqcast bench latency --rate 10000/s --size 1024 --json
  seqcast bench latency --path daemon
  seqcast bench latency --path shm
  seqcast bench latency --path host
  seqcast bench latency --keyed --no-raw --runs 5

Round trip: one program publishes, and the other one publishes each message back. The latency is half of that time. A \
blocking program sleeps until a message arrives; a busy one polls, and uses a whole processor on both sides. One way: \
the time from when a message was due until it was read, even if the publisher was late. Both programs must run on one \
machine.";

/// Below `seqcast bench fanout --help`.
pub const BENCH_FANOUT: &str = "\
Examples:
  seqcast bench fanout --runs 3
  seqcast bench fanout --subscribers 8 --size 64,1024 --json
  seqcast bench fanout --path host --size 64,1mb --no-raw

Rates are sums over all subscribers. The raw rates have one sender and as many receivers.";

/// Below `seqcast bench subjects --help`.
pub const BENCH_SUBJECTS: &str = "\
Examples:
  seqcast bench subjects --subjects 1000,100000,1000000 --secs 5s
  seqcast bench subjects --subjects 100000 --each

Each number of subjects has a row with the time for a message, its ratio to the time with the first number, the memory \
of both sides, and the sizes of the windows of subjects. A rate counts once each subject was published on, so use a \
sufficient --secs. The windows may grow to 1 gb; --set sub-window-max=\"64 mb\" sets another limit.";

/// Below `seqcast bench loss --help`.
pub const BENCH_LOSS: &str = "\
Examples:
  seqcast bench loss
  seqcast bench loss --drop 5% --rate 500000/s --runs 3 --json
  seqcast bench loss --interface 10.75.0.0/24 --open --publisher-via 'ip netns exec a' --subscriber-via 'ip netns exec b' \
--fault 'ip netns exec b nft -f lose-one-percent.nft' --heal 'ip netns exec b nft flush ruleset'

A run without loss precedes each run with loss. Goodput is the rate with loss as a share of the rate without. The \
subscriber requests missing datagrams again; no message should be lost in the end.";

/// Remedy for a wrong value in the configuration of the bench.
pub const BENCH_SETTINGS: &str = "seqcast config show lists the keys; give one with --set KEY=VALUE";
