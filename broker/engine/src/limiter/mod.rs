//! The token bucket of a topic, the backlog of messages that wait for its tokens, and the trace of its decisions.
//!
//! Pure: imports `memory` and `time` alone. Begin with `bucket`; a message waits for its token in `backlog`.

pub mod backlog;
pub mod bucket;
pub mod trace;
