//! Why a run, or a flood, has no result.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{target}: {source}")]
    Connect { target: String, source: io::Error },
    #[error("{needed} open files are needed for the connections of this plan, and the limit is {limit} (ulimit -Hn)")]
    Files { needed: u64, limit: u64 },
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the load generator was started already")]
    Started,
    #[error("the run has not ended")]
    NotOver,
    #[error("a thread of the load generator panicked")]
    Panicked,
}
