//! MQTT: its bytes beside another implementation's, the vectors of Mosquitto's suite, and clients in memory.

pub(crate) mod access;
pub(crate) mod client;
mod connections;
mod declared_groups;
mod delivery;
mod durable;
mod durable_groups;
mod excess;
mod full_sessions;
mod inspection;
mod late_moves;
mod link_delays;
mod linked_brokers;
mod links;
mod links_of_retained;
mod managed_topics;
mod moved_groups;
mod moves;
mod random_moves;
mod retained;
mod round_trip;
mod shared;
mod system_topics;
mod two_brokers;
mod vectors;
mod websocket;
mod wills;
