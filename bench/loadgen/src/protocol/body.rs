//! The body of a message, big-endian:
//!
//! ```text
//!  0        8           12       16         24            32
//!  | run id | publisher | phase  | sequence | intended ns | pattern up to the message size |
//! ```
//!
//! The pattern is compared on receipt: a broker that mixes up bytes of two bodies is found out.

pub const HEADER: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub publisher: u32,
    /// Of this publisher, from 0, warm-up included.
    pub sequence: u64,
    /// CLOCK_MONOTONIC.
    pub intended_ns: i64,
    pub measured: bool,
}

/// Writes and reads the bodies of one run.
pub struct BodyFormat {
    run_id: u64,
    pattern: Vec<u8>,
}

impl BodyFormat {
    pub fn new(run_id: u64, message_size: usize) -> BodyFormat {
        BodyFormat { run_id, pattern: (HEADER..message_size).map(|i| i as u8).collect() }
    }

    pub fn size(&self) -> usize {
        HEADER + self.pattern.len()
    }

    pub fn write(&self, stamp: Stamp, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.run_id.to_be_bytes());
        out.extend_from_slice(&stamp.publisher.to_be_bytes());
        out.extend_from_slice(&u32::from(stamp.measured).to_be_bytes());
        out.extend_from_slice(&stamp.sequence.to_be_bytes());
        out.extend_from_slice(&stamp.intended_ns.to_be_bytes());
        out.extend_from_slice(&self.pattern);
    }

    /// None: not a message of this run, or not as it was sent.
    pub fn read(&self, body: &[u8]) -> Option<Stamp> {
        let (header, pattern) = body.split_first_chunk::<HEADER>()?;
        let (head, tail) = header.split_first_chunk::<16>()?;
        let (run_id, head) = head.split_first_chunk::<8>()?;
        let (publisher, phase) = head.split_first_chunk::<4>()?;
        let (sequence, intended) = tail.split_first_chunk::<8>()?;
        let measured = match u32::from_be_bytes(phase.try_into().ok()?) {
            0 => false,
            1 => true,
            _ => return None,
        };
        let ours = u64::from_be_bytes(*run_id) == self.run_id && pattern == self.pattern;
        ours.then_some(Stamp {
            publisher: u32::from_be_bytes(*publisher),
            sequence: u64::from_be_bytes(*sequence),
            intended_ns: i64::from_be_bytes(intended.try_into().ok()?),
            measured,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_reads_back_and_a_changed_one_does_not() {
        let format = BodyFormat::new(99, 40);
        let stamp = Stamp { publisher: 7, sequence: 1 << 40, intended_ns: 123_456_789_012, measured: true };
        let mut bytes = Vec::new();
        format.write(stamp, &mut bytes);
        assert_eq!(bytes.len(), 40);
        assert_eq!(format.read(&bytes), Some(stamp));
        assert_eq!(BodyFormat::new(98, 40).read(&bytes), None);
        assert_eq!(format.read(&bytes[..39]), None);
        assert_eq!(format.read(b""), None);
        for damaged in [0, 15, 33] {
            let mut other = bytes.clone();
            other[damaged] ^= 0x80;
            assert_eq!(format.read(&other), None, "byte {damaged}");
        }
    }
}
