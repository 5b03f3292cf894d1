//! Fuzz target: any bytes into the reader of recordings, as 'play' reads them.

#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| seqcast::cli::fuzz::recording(bytes));
