//! One simulated broker: the engine's own bucket, and behind it servers that take messages in the order in which the
//! bucket lets them go.
//!
//! Time is what the arrivals say; nothing here reads a clock or draws an arrival. `bench/simulation/brokers.py` says
//! where messages go and what comes of it.

mod service;
mod station;

pub use service::Service;
pub use station::{NEVER, Station};
