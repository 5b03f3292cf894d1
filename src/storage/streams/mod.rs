//! Durable stores of the streams of seed 003, and the archives that a program can copy them to.

pub mod archive;
mod column_values;
pub mod error;
pub mod postgres;
pub mod sqlite;
pub mod store;

#[cfg(test)]
mod tests;
