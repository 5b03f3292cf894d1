//! Tests of the order of events: a worker step by step, and the consumer.

mod consumer;
mod worker;
