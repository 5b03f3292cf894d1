//! Fuzz target: datagrams and time into the security layer of a peer.

#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| seqcast::sim::fuzz::keyed(bytes));
