//! Event stores: files that are read and written on threads of their own.

pub mod error;
pub mod reader;
pub mod sqlite;
pub mod writer;
