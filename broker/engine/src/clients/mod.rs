//! One client's connection: its states, its input and output, and what of its commands is under way.
//!
//! Imports `scheduling`, `queueing`, `http`, `transport`, `protocol`, and the leaves. Begin with `connection`, then
//! `pending_input`: the states of its input.

pub mod connection;
pub mod link_client;
pub mod mpub_progress;
pub mod mqtt_client;
pub mod partial_message;
pub mod pending_input;
pub mod publisher_topics;
pub mod reply;
