//! The second shell: the very core that the daemon runs, without sockets and clocks.

pub mod fuzz;
