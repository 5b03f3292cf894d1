//! Fuzz target: a scenario of datagrams, requests and time into the whole core.

#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| seqcast::sim::fuzz::peer(bytes));
