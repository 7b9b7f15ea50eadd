//! The shell around the sans-I/O engine: the only place with sockets, epoll, clocks and threads.

pub mod alarm;
pub mod clock;
pub mod files;
pub mod handle;
pub mod heap;
pub mod listener;
pub mod packet;
pub mod progress;
pub mod reactor;
pub mod realtime;
pub mod refused;
pub mod ring;
pub mod socket;
pub mod wake;
pub mod worker;
