//! One message on disk: a fixed head, then the body; all integers little-endian.
//!
//! `marker(4) length(4) crc(4) | attempts(2) flags(2) defer_ms(4) arrival(8) due(8) queued(8) trace(8) until(8)
//! id(8) wall(8) body`. `length` counts the bytes after the crc. The crc covers `length` and these bytes, seeded with
//! the segment's salt. Flag 1: in front of the body stand the length of attributes (4), and these.

use crate::id::MessageId;
use crate::time::Nanos;

/// Not valid UTF-8, so that text never looks like the begin of a record.
pub const MARKER: [u8; 4] = [0xf5, b'm', b's', b'g'];

const CRC_END: usize = 12;

/// Bytes of a record before its body.
pub const HEAD: usize = CRC_END + 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    pub id: MessageId,
    pub wall_ns: i64, // accepted
    pub attempts: u16,
    pub defer_ms: u32,
    pub times: Times,         // of the clock of the incarnation that wrote the segment
    pub until_wall_ns: i64,   // deferred until; 0: not deferred
    pub attributes: &'a [u8], // empty: none
    pub body: &'a [u8],
}

const ATTRIBUTED: u16 = 1;

impl Record<'_> {
    pub fn size(&self) -> usize {
        let attributes = if self.attributes.is_empty() { 0 } else { 4 + self.attributes.len() };
        HEAD + attributes + self.body.len()
    }
}

pub fn encode(out: &mut Vec<u8>, record: &Record<'_>, salt: u32) {
    let start = out.len();
    out.extend_from_slice(&MARKER);
    out.extend_from_slice(&((record.size() - CRC_END) as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&record.attempts.to_le_bytes());
    let attributed = !record.attributes.is_empty();
    out.extend_from_slice(&(u16::from(attributed) * ATTRIBUTED).to_le_bytes());
    out.extend_from_slice(&record.defer_ms.to_le_bytes());
    let Times { arrival, due, queued, trace } = record.times;
    for time in [arrival, due, queued] {
        out.extend_from_slice(&time.to_le_bytes());
    }
    out.extend_from_slice(&trace.to_le_bytes());
    out.extend_from_slice(&record.until_wall_ns.to_le_bytes());
    out.extend_from_slice(&record.id.0.to_le_bytes());
    out.extend_from_slice(&record.wall_ns.to_le_bytes());
    if attributed {
        out.extend_from_slice(&(record.attributes.len() as u32).to_le_bytes());
        out.extend_from_slice(record.attributes);
    }
    out.extend_from_slice(record.body);
    let crc = checksum(&out[start..], salt);
    out[start + 8..start + CRC_END].copy_from_slice(&crc.to_le_bytes());
}

/// Of a whole record, its own checksum left out.
fn checksum(record: &[u8], salt: u32) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(salt, &record[4..8]), &record[CRC_END..])
}

/// Bytes of the record at the start of `bytes`; a head's size if less is present. `None`: not a record.
pub fn expected_size(bytes: &[u8]) -> Option<usize> {
    let Some(head) = bytes.first_chunk::<HEAD>() else {
        let marked = bytes.iter().zip(MARKER).all(|(byte, wanted)| *byte == wanted);
        return marked.then_some(HEAD);
    };
    let size = CRC_END + u32_at(head, 4) as usize;
    (head.starts_with(&MARKER) && size >= HEAD).then_some(size)
}

/// The record at the start of `bytes`. `None`: incomplete, damaged or absent.
pub fn decode(bytes: &[u8], salt: u32) -> Option<Record<'_>> {
    let record = bytes.get(..expected_size(bytes)?)?;
    let head = record.first_chunk::<HEAD>()?;
    if checksum(record, salt) != u32_at(head, 8) {
        return None;
    }
    let time = |at: usize| u64_at(head, at) as i64;
    let (attributes, body) = if u16::from_le_bytes([head[14], head[15]]) & ATTRIBUTED == 0 {
        (&[][..], &record[HEAD..])
    } else {
        let (len, rest) = record[HEAD..].split_first_chunk::<4>()?;
        rest.split_at_checked(u32::from_le_bytes(*len) as usize)?
    };
    Some(Record {
        attempts: u16::from_le_bytes([head[12], head[13]]),
        defer_ms: u32_at(head, 16),
        times: Times { arrival: time(20), due: time(28), queued: time(36), trace: u64_at(head, 44) },
        until_wall_ns: time(52),
        id: MessageId(u64_at(head, 60)),
        wall_ns: time(68),
        attributes,
        body,
    })
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Instants of a message. Channels copy it; the first three belong to the topic and are final once it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub arrival: Nanos, // effective: what the bucket counted
    pub due: Nanos,     // release instant of the bucket
    pub queued: Nanos,  // let go by the bucket, in fact: the wait for a channel and a consumer begins
    pub trace: u64,     // sequence number in the topic's trace, or of a link (`mqtt::elsewhere::link_peers`)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record<'_> = Record {
        id: MessageId(0x0123_4567_89ab_cdef),
        wall_ns: 1_700_000_000_000_000_001,
        attempts: 7,
        defer_ms: 90_000,
        times: Times { arrival: -1, due: 2, queued: 3, trace: 4 },
        until_wall_ns: 5,
        attributes: b"",
        body: b"body",
    };

    fn encoded() -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, &RECORD, 42);
        out
    }

    #[test]
    fn a_record_comes_back_as_it_was_and_what_follows_it_does_not_matter() {
        let mut bytes = encoded();
        assert_eq!(bytes.len(), RECORD.size());
        assert_eq!(decode(&bytes, 42), Some(RECORD));
        bytes.extend_from_slice(b"more");
        assert_eq!(decode(&bytes, 42), Some(RECORD));
        let attributed = Record { attributes: b"attributes", ..RECORD };
        let mut bytes = Vec::new();
        encode(&mut bytes, &attributed, 42);
        assert_eq!(bytes.len(), attributed.size());
        assert_eq!(decode(&bytes, 42), Some(attributed));
    }

    #[test]
    fn a_part_of_a_record_is_none_but_tells_how_much_is_missing() {
        let bytes = encoded();
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len], 42), None);
            assert_eq!(expected_size(&bytes[..len]), Some(if len < HEAD { HEAD } else { bytes.len() }));
        }
    }

    #[test]
    fn one_wrong_bit_anywhere_or_another_segments_salt_is_noticed() {
        assert_eq!(decode(&encoded(), 43), None);
        for bit in 0..encoded().len() * 8 {
            let mut bytes = encoded();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bytes, 42), None, "bit {bit}");
        }
    }
}
