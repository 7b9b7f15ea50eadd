//! MQTT: its bytes beside another implementation's, the vectors of Mosquitto's suite, and clients in memory.

mod client;
mod connections;
mod delivery;
mod retained;
mod round_trip;
mod shared;
mod vectors;
mod wills;
