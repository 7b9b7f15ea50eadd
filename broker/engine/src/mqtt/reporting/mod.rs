//! What operators are told of clients that get less than they ask for: events, and when they are due. Pure.
//!
//! Imports `event` and `time`. Begin with `excess`.

pub mod denials;
pub mod excess;
pub mod once_a_minute;
