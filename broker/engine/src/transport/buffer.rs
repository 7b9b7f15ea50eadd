//! Bytes that wait to be decoded: put in at the end, taken from the front, given back when empty.

use std::collections::VecDeque;

use crate::time::Nanos;

/// An empty queue keeps this much.
const KEEP: usize = 4 << 10;

/// Bytes kept for a connection whose input waits before no more are read. (One read may exceed it.)
pub(crate) const MAX_KEPT_BYTES: usize = 64 << 10;

/// Reads kept apart, each with its stamp, before no more are read.
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

    /// What waits, and nothing else, to append to.
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
            self.bytes.shrink_to(KEEP);
        }
    }
}

/// What came while a connection shakes hands, read by read.
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

    /// Put behind these what came after them.
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
        self.len() > MAX_KEPT_BYTES || self.reads.len() >= MAX_KEPT_READS
    }

    /// The oldest read, or what is left of it.
    pub(crate) fn first(&self) -> Option<(&[u8], Nanos)> {
        self.reads.front().map(|(len, stamp)| (&self.bytes.waiting()[..*len], *stamp))
    }

    /// So many bytes of the oldest read are used.
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
