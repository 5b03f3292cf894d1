//! Fuzz target: any bytes into the wire decoder.

#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| seqcast::sim::fuzz::decode(bytes));
