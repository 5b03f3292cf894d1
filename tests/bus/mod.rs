//! The library: embedded and attached programs, and the sockets below them.

mod attached;
mod join;
mod library;
mod multicast;
mod pace;
mod polls;
mod turns;
