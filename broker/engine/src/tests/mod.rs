//! Behaviour of the whole engine without sockets, clocks or threads. Test names are the rules; `pair` is the harness.

mod arrival_bins;
mod authorization;
mod client_limits;
mod clock_steps;
mod connection_ends;
mod connections;
mod contracts;
mod corpus;
mod deferred_reads;
mod delivery;
mod disk;
mod documentation;
mod fan_out;
mod handshakes;
mod hostile;
mod http;
mod input;
#[cfg(feature = "lab")]
mod lab;
mod large_messages;
mod large_mpub;
mod layers;
mod leases;
mod left_command;
mod measurement;
mod mqtt;
mod random_operations;
mod reference;
mod small_reads;
mod stamps;
mod tls_first;
mod topic_access;
mod work_budget;
mod zone_preference;

pub(crate) use crate::harness::{memory_store, pair};
