//! Segments: their names, their headers, and what a queue knows of each.

use std::rc::Rc;

use crate::storage::receipts::Ledger;
use crate::storage::record::{u32_at, u64_at};

const MAGIC: [u8; 8] = *b"SRTMqseg";
const VERSION: u8 = 1;

/// Bytes of a header: `magic(8) version(1) kind(1) reserved(2) salt(4) incarnation(8) number(8) crc(4)`, little-endian.
pub const HEADER: usize = 36;

const SUFFIX: &str = ".seg";

/// No broker gets that far: a file with a higher number is not one of ours.
pub const MAX_NUMBER: u64 = u64::MAX >> 1;

/// What the records of a segment are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Messages of the queue, in order.
    Queue = 0,
    /// Messages beside the queue at shutdown: a channel's deferred ones, a topic's that waited for tokens.
    Aside = 1,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub salt: u32,
    pub incarnation: u64,
    pub number: u64,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(&MAGIC);
        (out[8], out[9]) = (VERSION, self.kind as u8);
        out[12..16].copy_from_slice(&self.salt.to_le_bytes());
        out[16..24].copy_from_slice(&self.incarnation.to_le_bytes());
        out[24..32].copy_from_slice(&self.number.to_le_bytes());
        let crc = crc32c::crc32c(&out[..32]);
        out[32..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None`: not a header of ours, or a damaged one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<HEADER>()?;
        let kind = match bytes[9] {
            0 => Kind::Queue,
            1 => Kind::Aside,
            _ => return None,
        };
        let sound =
            bytes.starts_with(&MAGIC) && bytes[8] == VERSION && crc32c::crc32c(&bytes[..32]) == u32_at(bytes, 32);
        sound.then(|| Self { kind, salt: u32_at(bytes, 12), incarnation: u64_at(bytes, 16), number: u64_at(bytes, 24) })
    }
}

/// `QUEUE.NNNNNN.seg`; QUEUE is `TOPIC` or `TOPIC:CHANNEL`.
pub fn file_name(queue: &str, number: u64) -> String {
    format!("{queue}.{number:06}{SUFFIX}")
}

/// The queue and the number behind a file's name. `None`: not a segment's.
pub fn parse_file_name(name: &str) -> Option<(&str, u64)> {
    let (queue, number) = name.strip_suffix(SUFFIX)?.rsplit_once('.')?;
    let number = number.bytes().all(|c| c.is_ascii_digit()).then(|| number.parse().ok()).flatten()?;
    (number <= MAX_NUMBER && file_name(queue, number) == name).then_some((queue, number))
}

#[derive(Debug)]
pub struct Segment {
    pub file: String,
    pub header: Header,
    pub read: u64,   // offset of the next record to read
    pub end: u64,    // behind the last whole record
    pub unread: u64, // records between the two
    pub ledger: Rc<Ledger>,
    pub sealed: bool,  // nothing more is written to it
    pub synced: bool,  // all of it is on the device
    pub damaged: bool, // something of it could not be read: it is kept for people to look at
}

impl Segment {
    pub fn new(queue: &Rc<str>, header: Header) -> Self {
        let at = HEADER as u64;
        let (file, ledger) = (file_name(queue, header.number), Rc::new(Ledger::new(queue)));
        Self { file, header, read: at, end: at, unread: 0, ledger, sealed: false, synced: false, damaged: false }
    }

    /// Nothing in it is needed any more.
    pub fn is_spent(&self) -> bool {
        self.read >= self.end && self.ledger.is_clear()
    }

    /// Where reading begins after a start: at the first record that somebody still needs.
    pub fn start(&self) -> u64 {
        self.ledger.first_open().unwrap_or(self.read)
    }

    /// Records from there on.
    pub fn count(&self) -> u64 {
        self.unread + self.ledger.span()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_a_damaged_one_does_not() {
        let header = Header { kind: Kind::Aside, salt: 1, incarnation: 2, number: 3 };
        assert_eq!(Header::decode(&header.encode()), Some(header));
        for byte in 0..HEADER {
            let mut bytes = header.encode();
            bytes[byte] ^= 0x10;
            assert_eq!(Header::decode(&bytes), None, "byte {byte}");
        }
        assert_eq!(Header::decode(&header.encode()[1..]), None);
    }

    #[test]
    fn names_of_files_go_both_ways_also_for_topics_with_dots_and_digits() {
        for (queue, number) in [("t", 0), ("a.000001", 7), ("t.seg:c#ephemeral", 1_234_567)] {
            assert_eq!(parse_file_name(&file_name(queue, number)), Some((queue, number)));
        }
        for other in [
            "t.seg",
            "t.1.seg",
            "t.000001.seg.bad",
            "t.+00001.seg",
            "t.meta",
            "t.00000000000000000000001.seg",
            "t.18446744073709551615.seg",
        ] {
            assert_eq!(parse_file_name(other), None, "{other}");
        }
    }
}
