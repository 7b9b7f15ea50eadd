//! Topics, channels and their queues of messages, in memory and on disk.
//!
//! Imports `storage`, `limiter`, `telemetry`, `protocol`, and the leaves. Begin with `topic`, then `channel` and
//! `queue`.

pub mod channel;
pub mod disk_ticket;
pub mod journal;
pub mod link_interest;
pub mod message;
pub mod publish;
pub mod queue;
pub mod shared_disk;
pub mod topic;
pub mod zone_preference;
