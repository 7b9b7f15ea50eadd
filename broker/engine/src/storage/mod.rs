//! Files of queues, without I/O: all access goes through a small `Store` (the real one is `io::files`).
//!
//! Imports `id` and `time`. Begin with `disk_queue`.
//!
//! A queue is a list of segments, files that only grow. A segment is a header (`segment`) and records (`record`). Each
//! has a checksum seeded by the segment's salt, so a valid record was written to this segment. Receipts (`receipts`)
//! tell which records are still needed. A small file beside the segments (`meta`), written at every sync, holds where
//! reading begins after a start. A crash may repeat messages read since the last sync, and loses no written message.
//! Syncs are jobs on another thread (`store`). A queue has one job under way, receives its outcome (`job`), and repeats
//! what failed.

pub mod disk_queue;
pub mod job;
pub mod meta;
pub mod receipts;
pub mod record;
pub mod segment;
pub mod store;
pub mod volume;
