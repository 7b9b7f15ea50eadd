//! Who goes on, when, and with how much: the work of a turn, bounds of clients, and lists of those that wait.
//!
//! Imports `queueing`, `protocol`, and the leaves. Begin with `work_budget`.

pub mod client_limits;
pub mod deferred_reads;
pub mod departures;
pub mod handshake_queue;
#[cfg(feature = "lab")]
pub mod lab_server;
pub mod service_time;
pub mod small_reads;
pub mod work_budget;

/// What messages pass behind their bucket in this build. (A type, not `dyn`: it is asked for every message.)
#[cfg(feature = "lab")]
pub type Server = lab_server::LabServer;
#[cfg(not(feature = "lab"))]
pub type Server = service_time::NoServiceTime;
