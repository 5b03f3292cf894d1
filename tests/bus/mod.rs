//! The library: embedded and attached programs, and the sockets below them.

mod attached;
mod join;
mod large_messages;
mod library;
mod misbehaviour;
mod multicast;
mod pace;
mod polls;
mod raw_client;
mod receiving;
mod refused_calls;
mod reports;
mod shared_memory;
mod turns;
