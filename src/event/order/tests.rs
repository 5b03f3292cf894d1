//! The order of events under test: an exhaustive model of workers and store, and what it must notice.

mod canon;
mod consumer;
mod explore;
mod model;
mod mutants;
mod worker;
mod world;
