//! Fuzz target: any bytes into the decoder of certificates, and into that of the lines of the set-up.

#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| seqcast::sim::fuzz::certificate(bytes));
