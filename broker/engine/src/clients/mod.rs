//! One client's connection: its state, its input and output, and what of its commands is under way.
//!
//! Imports `queueing`, `scheduling`, `http` and `transport`. Begin with `connection`.

pub mod connection;
pub mod partial_message;
pub mod publisher_topics;
