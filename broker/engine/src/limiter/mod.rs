//! The token bucket of a topic, the queue of what waits for its tokens, and the record of what it decided.
//!
//! Pure: imports `time` alone. Begin with `bucket`, then `backlog`: a message waits there for its token.

pub mod backlog;
pub mod bucket;
pub mod trace;
