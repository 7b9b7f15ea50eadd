//! Files of queues, without I/O: everything goes through a small `Store` (the real one is `io::files`).
//!
//! Imports `id` and `time`. Begin with `disk_queue`.
//!
//! A queue is a list of segments, files that only grow. A segment is a header (`segment`) and records (`record`), each
//! with a checksum that is seeded by the segment's salt: what checks out was written here, to this segment. What is
//! read is told by its receipts (`receipts`) when it is no longer needed. Where reading begins after a start is kept in
//! a small file beside the segments (`meta`), written whenever the queue is synced. So a crash may deliver again what
//! was read since the last sync, and loses nothing that was written. Syncs are jobs that run elsewhere (`store`). A
//! queue has one of them under way, hears how it ended (`job`), and does again what was not done.

pub mod disk_queue;
pub mod job;
pub mod meta;
pub mod receipts;
pub mod record;
pub mod segment;
pub mod store;
pub mod volume;
