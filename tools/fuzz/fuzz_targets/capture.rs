//! Fuzz target: any bytes into the reader of packet captures, as 'decode' reads them.

#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| seqcast::cli::fuzz::capture(bytes));
