//! The programs of the bench that use the bus.

pub mod peer;
pub mod ping;
pub mod publish;
pub mod subscribe;
