//! Fuzz target: any bytes into the decoders of the links, and into the ledger behind them.

#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| seqcast::sim::fuzz::link(bytes));
