//! One client's connection: its state, its input and output, and what of its commands is under way.
//!
//! Imports `queueing`, `scheduling`, `http` and `transport`. Begin with `connection`.

pub mod connection;
pub mod mpub_progress;
pub mod partial_message;
pub mod pending_input;
pub mod publisher_topics;
pub mod reply;
