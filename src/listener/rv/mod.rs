//! The Rendezvous listener: the protocol that a client of TIBCO Rendezvous speaks with its daemon.

pub mod message;
