//! Who goes on, when, and with how much: the work of a turn, bounds of clients, and lists of those that wait.
//!
//! Imports `queueing`, `protocol`, and the leaves. Begin with `work_budget`.

pub mod accept_rate;
pub mod client_limits;
pub mod deferred_reads;
pub mod departures;
pub mod handshake_queue;
pub mod lab_server;
pub mod small_reads;
pub mod work_budget;
