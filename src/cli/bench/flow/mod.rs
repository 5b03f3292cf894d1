//! What the programs of the bench do with the bus.

pub mod peer;
pub mod ping;
pub mod publish;
pub mod subscribe;
