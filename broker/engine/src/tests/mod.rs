//! Behaviour of the whole engine without sockets, clocks or threads. Test names are the rules; `pair` is the harness.

mod arrival;
mod auth;
mod building;
mod clock_steps;
mod connections;
mod corpus;
mod deferred_reads;
mod delivery;
mod disk;
mod documentation;
mod ends;
mod handshakes;
mod history;
mod hostile;
mod http;
mod laboratory;
mod layers;
mod leases;
mod leaving;
mod limits;
mod measure;
mod newcomers;
mod parking;
mod pumping;
mod random_operations;
mod reference;
mod shares;
mod slices;
mod small_reads;
mod topology;

pub(crate) use crate::harness::{memory_store, pair};
