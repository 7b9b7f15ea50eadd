//! What every connection of a publisher or subscriber has: its link, what it has yet to write, when it is opened again,
//! and what went wrong.

pub mod answers;
pub mod link;
pub mod outbox;
pub mod retries;
