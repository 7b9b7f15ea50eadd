//! Input of a connection that is kept until its commands may run.

use crate::time::Nanos;

/// Bytes kept for a waiting connection before it is read no further. (One read may exceed it.)
const MAX_KEPT_BYTES: usize = 64 << 10;

/// Reads kept apart for a waiting connection, each with its stamp, before it is read no further.
const MAX_KEPT_READS: usize = 256;

/// What a waiting connection has in `input`: up to which byte each read went, and when it came. Ends ascend.
#[derive(Debug, Default)]
pub struct Waiting {
    pub(crate) reads: Vec<(usize, Nanos)>,
    pub(crate) besides: bool, // the disk is not all that it waits for
}

impl Waiting {
    pub fn note(&mut self, end: usize, stamp: Nanos) {
        self.reads.push((end, stamp));
    }

    pub fn is_full(&self) -> bool {
        self.reads.len() >= MAX_KEPT_READS || self.reads.last().is_some_and(|(end, _)| *end > MAX_KEPT_BYTES)
    }
}
