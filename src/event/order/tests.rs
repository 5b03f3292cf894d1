//! Tests of the order of events: an exhaustive model of workers and store, and the mistakes it must detect.

mod canon;
mod consumer;
mod explore;
mod model;
mod mutants;
mod worker;
mod world;
