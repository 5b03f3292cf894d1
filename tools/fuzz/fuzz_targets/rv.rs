#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| seqcast::sim::fuzz::rv(bytes));
