//! Tests of the built product: one binary, so that the helpers are compiled once.

mod bench;
mod cli;
mod config;
mod corpus;
mod events;
mod follow;
mod hat;
mod join;
mod journal;
mod library;
mod listeners;
mod local;
mod log;
mod multicast;
mod netns;
mod order;
mod pace;
mod polls;
mod readme;
mod sim;
mod stream_commands;
mod streams;
mod support;
mod tidy;
mod turns;
