//! The shell around the sans-I/O engine: the only place with sockets, epoll, clocks and threads.
//!
//! Imports everything; nothing here is imported by the rest. Begin with `reactor`: one turn from the wait to the
//! writes.

pub mod alarm;
pub mod arrival_clock;
pub mod clock;
pub mod errors;
pub mod files;
pub mod handle;
pub mod host;
pub mod listener;
pub mod progress;
pub mod reactor;
pub mod shared;
pub mod socket;
pub mod wake;
pub mod worker;
