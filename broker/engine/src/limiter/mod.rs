//! The token bucket of a topic, the backlog of messages that wait for its tokens, and the trace of its decisions.
//!
//! Pure: imports `memory` and `time` alone. Begin with `backlog`, where a message waits for its token. The bucket
//! itself is `srtm_limits::bucket`, which limits of clients use too. `contracts` holds single clients, before the topic
//! does; `topic_contracts` says which.

pub mod backlog;
pub use srtm_limits::bucket;
pub mod contracts;
pub mod topic_contracts;
pub mod trace;
