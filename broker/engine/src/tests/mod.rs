//! Behaviour of the whole engine without sockets, clocks or threads. Test names are the rules; `pair` is the harness.

mod arrival;
mod auth;
mod clock_steps;
mod connections;
mod delivery;
mod disk;
mod documentation;
mod ends;
mod hostile;
mod http;
mod laboratory;
mod layers;
mod limits;
pub mod memory_store;
mod pair;
mod parking;
mod random_operations;
mod reference;
mod topology;
