//! Tests of the built product: one binary, so that the helpers are compiled once.

mod bus;
mod cli;
mod config;
mod corpus;
mod events;
mod listeners;
mod netns;
mod sim;
mod support;
mod tidy;
