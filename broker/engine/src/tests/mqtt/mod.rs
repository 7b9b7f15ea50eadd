//! MQTT: its bytes beside another implementation's, and the vectors of Mosquitto's suite.

mod round_trip;
mod vectors;
