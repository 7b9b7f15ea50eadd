//! Bytes that wait to be decoded: put in at the end, taken from the front, given back when empty.

/// An empty queue keeps this much.
const KEEP: usize = 4 << 10;

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
