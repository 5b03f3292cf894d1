//! Tests of the built product: one binary, so that the helpers are compiled once.

mod attack;
mod bus;
mod cli;
mod config;
#[cfg(feature = "sim")]
mod corpus;
mod events;
mod links;
mod listeners;
mod netns;
mod security;
#[cfg(feature = "sim")]
mod sim;
mod support;
mod tidy;
mod web;
