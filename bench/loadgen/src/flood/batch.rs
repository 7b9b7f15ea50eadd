//! One MPUB, built once; for each further one only the sequence numbers change.

use crate::flood::plan::SEQUENCE;

pub struct Batch {
    bytes: Vec<u8>,
    /// Of the first sequence number, and from one to the next.
    first: usize,
    stride: usize,
    written: usize,
}

impl Batch {
    pub fn new(topic: &str, count: u32, message_size: usize) -> Batch {
        let mut bytes = format!("MPUB {topic}\n").into_bytes();
        let stride = 4 + message_size;
        bytes.extend_from_slice(&(4 + count * stride as u32).to_be_bytes());
        bytes.extend_from_slice(&count.to_be_bytes());
        let first = bytes.len() + 4;
        for _ in 0..count {
            bytes.extend_from_slice(&(message_size as u32).to_be_bytes());
            bytes.extend((0..message_size).map(|i| i as u8));
        }
        let written = bytes.len();
        Batch { bytes, first, stride, written }
    }

    /// Begin again, the messages numbered from `sequence` on.
    pub fn number(&mut self, sequence: u64) {
        let places = (self.first..self.bytes.len()).step_by(self.stride);
        for (at, number) in places.zip(sequence..) {
            self.bytes[at..at + SEQUENCE].copy_from_slice(&number.to_be_bytes());
        }
        self.written = 0;
    }

    pub fn unwritten(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_an_mpub_whose_bodies_begin_with_their_numbers() {
        let mut batch = Batch::new("t", 2, 10);
        assert!(batch.unwritten().is_empty());
        batch.number(258);
        let one = |low: u8| [&b"\0\0\0\x0a\0\0\0\0\0\0\x01"[..], &[low], &[8, 9]].concat();
        assert_eq!(batch.unwritten(), [&b"MPUB t\n\0\0\0\x20\0\0\0\x02"[..], &one(2), &one(3)].concat());
        batch.wrote(7);
        assert!(batch.unwritten().starts_with(b"\0\0\0\x20"));
    }
}
