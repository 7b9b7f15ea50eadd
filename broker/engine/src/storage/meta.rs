//! The meta file: segments of a queue in order, with the range still needed of each. Little-endian, one checksum over
//! all.

use crate::storage::record::{u32_at, u64_at};

const MAGIC: [u8; 8] = *b"SRTMqmet";
const SUFFIX: &str = ".meta";
const HEAD: usize = 24;
const ENTRY: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub number: u64,
    pub start: u64, // offset of the first record that is needed
    pub end: u64,   // offset behind the last whole record
    pub count: u64, // records between the two
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    pub highest_id: u64, // of all messages that were ever written to the queue
    pub entries: Vec<Entry>,
}

impl Meta {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.entries.len() * ENTRY + 4);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.highest_id.to_le_bytes());
        out.extend_from_slice(&(self.entries.len() as u64).to_le_bytes());
        for entry in &self.entries {
            for number in [entry.number, entry.start, entry.end, entry.count] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None`: damaged, or not one of ours.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, crc) = bytes.split_last_chunk::<4>()?;
        if content.len() < HEAD || !content.starts_with(&MAGIC) || crc32c::crc32c(content) != u32_at(crc, 0) {
            return None;
        }
        let entries = content[HEAD..].chunks_exact(ENTRY);
        if !entries.remainder().is_empty() || entries.len() as u64 != u64_at(content, 16) {
            return None;
        }
        let entry =
            |e: &[u8]| Entry { number: u64_at(e, 0), start: u64_at(e, 8), end: u64_at(e, 16), count: u64_at(e, 24) };
        Some(Self { highest_id: u64_at(content, 8), entries: entries.map(entry).collect() })
    }
}

pub fn file_name(queue: &str) -> String {
    format!("{queue}{SUFFIX}")
}

pub fn parse_file_name(name: &str) -> Option<&str> {
    name.strip_suffix(SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meta_file_comes_back_and_a_damaged_or_cut_one_does_not() {
        let entry = Entry { number: 3, start: 36, end: 1_000, count: 9 };
        let meta = Meta { highest_id: 5, entries: vec![entry, Entry { number: 1, ..entry }] };
        let bytes = meta.encode();
        assert_eq!(Meta::decode(&bytes), Some(meta));
        for byte in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 1;
            assert_eq!(Meta::decode(&damaged), None, "byte {byte}");
            assert_eq!(Meta::decode(&bytes[..byte]), None, "{byte} bytes of it");
        }
        assert_eq!(Meta::decode(&Meta::default().encode()), Some(Meta::default()));
    }
}
