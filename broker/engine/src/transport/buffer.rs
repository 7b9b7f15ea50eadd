//! Bytes that wait to be decoded: added at the end, taken from the front.

use std::collections::VecDeque;

use crate::memory::{LARGE_BYTES, SMALL_BYTES};
use crate::time::Nanos;

/// Bytes of a buffer of layers: output is made in such steps, and an idle connection keeps no more.
pub(crate) const KEEP_BUFFER: usize = 16 << 10;

/// Reads kept apart, each with its stamp; beyond them the connection is read no further.
pub(crate) const MAX_KEPT_READS: usize = 256;

#[derive(Debug, Default)]
pub struct Queue {
    bytes: Vec<u8>,
    at: usize, // bytes[..at] are taken
}

impl Queue {
    pub fn push(&mut self, bytes: &[u8]) {
        self.tail().extend_from_slice(bytes);
    }

    /// A buffer of exactly what waits, to append to.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        self.compact();
        &mut self.bytes
    }

    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    pub fn len(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn take(&mut self, len: usize) {
        self.at += len;
        if self.is_empty() {
            self.compact();
        }
    }

    fn compact(&mut self) {
        self.bytes.drain(..self.at);
        self.at = 0;
        if self.bytes.is_empty() {
            self.bytes.shrink_to(SMALL_BYTES);
        }
    }
}

/// Reads of a connection during its handshake.
#[derive(Debug, Default)]
pub struct Kept {
    bytes: Queue,
    reads: VecDeque<(usize, Nanos)>, // bytes of each, and when they came
}

impl Kept {
    pub fn push(&mut self, bytes: &[u8], stamp: Nanos) {
        if bytes.is_empty() {
            return;
        }
        self.bytes.push(bytes);
        self.reads.push_back((bytes.len(), stamp));
    }

    /// Add reads that came later.
    pub(crate) fn append(&mut self, mut later: Self) {
        self.bytes.push(later.bytes.waiting());
        self.reads.append(&mut later.reads);
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.len() > LARGE_BYTES || self.reads.len() >= MAX_KEPT_READS
    }

    /// The oldest read, or the rest of it.
    pub(crate) fn first(&self) -> Option<(&[u8], Nanos)> {
        self.reads.front().map(|(len, stamp)| (&self.bytes.waiting()[..*len], *stamp))
    }

    /// Drop the first `used` bytes of the oldest read.
    pub(crate) fn take(&mut self, used: usize) {
        self.bytes.take(used);
        if let Some((len, _)) = self.reads.front_mut() {
            *len -= used;
            if *len == 0 {
                self.reads.pop_front();
            }
        }
    }
}
