//! The snappy framing format, both ways: chunks of `type(1) length(3, little-endian) data`, each with a masked CRC-32C
//! of its content.
//!
//! Source: google/snappy, framing_format.txt. A stream begins with its identifier, which may come again anywhere: pynsq
//! starts a stream for every command.

use snap::raw;

use crate::transport::types::Broken;

const STREAM_ID: &[u8; 10] = b"\xff\x06\x00\x00sNaPpY";
const HEADER: usize = 4;
const CHECKSUM: usize = 4;

/// Bytes of one chunk at most, uncompressed.
const MAX_CHUNK: usize = 65_536;

/// The kind of a chunk; as a number, the first of its types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Compressed = 0x00,
    Uncompressed = 0x01,
    Reserved = 0x02,
    Skippable = 0x80,
    StreamId = 0xff,
}

impl From<u8> for Kind {
    fn from(number: u8) -> Self {
        match number {
            0x00 => Self::Compressed,
            0x01 => Self::Uncompressed,
            0x02..0x80 => Self::Reserved,
            0x80..0xff => Self::Skippable,
            0xff => Self::StreamId,
        }
    }
}

fn masked_crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[derive(Debug, Default)]
pub struct Decoder {
    begun: bool,
    skip: usize, // bytes of a skippable chunk that are still to come
}

impl Decoder {
    /// Decode the first chunk of `input` into `out`; gives the bytes that it takes, 0 if it is not complete.
    pub fn decode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Broken> {
        if self.skip > 0 {
            let len = self.skip.min(input.len());
            self.skip -= len;
            return Ok(len);
        }
        let Some((&[kind, a, b, c], rest)) = input.split_first_chunk::<HEADER>() else { return Ok(0) };
        let len = u32::from_le_bytes([a, b, c, 0]) as usize;
        let kind = Kind::from(kind);
        self.check_header(kind, len)?;
        if kind == Kind::Skippable {
            self.skip = len;
            return Ok(HEADER);
        }
        let Some(data) = rest.get(..len) else { return Ok(0) };
        if kind == Kind::StreamId {
            if data != &STREAM_ID[HEADER..] {
                return Err(Broken::new("snappy: not a stream identifier"));
            }
            self.begun = true;
        } else {
            decode_chunk(kind, data, out)?;
        }
        Ok(HEADER + len)
    }

    /// Refuse a chunk that cannot be right before it is complete, so that nobody keeps it and waits.
    fn check_header(&self, kind: Kind, len: usize) -> Result<(), Broken> {
        let fits = match kind {
            Kind::Compressed => (CHECKSUM..=CHECKSUM + raw::max_compress_len(MAX_CHUNK)).contains(&len),
            Kind::Uncompressed => (CHECKSUM..=CHECKSUM + MAX_CHUNK).contains(&len),
            Kind::StreamId => len == STREAM_ID.len() - HEADER,
            Kind::Skippable => true,
            Kind::Reserved => return Err(Broken::new("snappy: a chunk of a reserved type")),
        };
        if !fits {
            return Err(Broken::new("snappy: a chunk of an impossible length"));
        }
        if !self.begun && kind != Kind::StreamId {
            return Err(Broken::new("snappy: no stream identifier"));
        }
        Ok(())
    }
}

/// Decode a chunk. If its checksum is wrong, nothing of it stays in `out`: it would run as commands.
fn decode_chunk(kind: Kind, data: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
    let start = out.len();
    let unpacked = unpack(kind, data, out);
    if unpacked.is_err() {
        out.truncate(start);
    }
    unpacked
}

fn unpack(kind: Kind, data: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
    let Some((checksum, data)) = data.split_first_chunk::<CHECKSUM>() else {
        return Err(Broken::new("snappy: a chunk without a checksum"));
    };
    let start = out.len();
    if kind == Kind::Uncompressed {
        out.extend_from_slice(data);
    } else {
        let len = raw::decompress_len(data).map_err(|_| Broken::new("snappy: no length"))?;
        if len > MAX_CHUNK {
            return Err(Broken::new("snappy: a chunk that holds too much"));
        }
        out.resize(start + len, 0);
        raw::Decoder::new().decompress(data, &mut out[start..]).map_err(|_| Broken::new("snappy: a corrupt chunk"))?;
    }
    if masked_crc(&out[start..]) != u32::from_le_bytes(*checksum) {
        return Err(Broken::new("snappy: a wrong checksum"));
    }
    Ok(())
}

#[derive(Debug)]
pub struct Encoder {
    begun: bool,
    raw: raw::Encoder,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { begun: false, raw: raw::Encoder::new() }
    }
}

impl Encoder {
    /// Append `plain` as whole chunks.
    pub fn encode(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
        if !self.begun {
            out.extend_from_slice(STREAM_ID);
            self.begun = true;
        }
        for piece in plain.chunks(MAX_CHUNK) {
            self.encode_chunk(piece, out)?;
        }
        Ok(())
    }

    fn encode_chunk(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
        let start = out.len();
        let data = start + HEADER + CHECKSUM;
        out.resize(data + raw::max_compress_len(piece.len()), 0);
        let compressed =
            self.raw.compress(piece, &mut out[data..]).map_err(|_| Broken::new("snappy: cannot compress"))?;
        // As in the reference implementations, what hardly shrinks is not compressed.
        let (kind, len) = if compressed < piece.len() - piece.len() / 8 {
            (Kind::Compressed, compressed)
        } else {
            (Kind::Uncompressed, piece.len())
        };
        out.truncate(data + compressed);
        if kind == Kind::Uncompressed {
            out.truncate(data);
            out.extend_from_slice(piece);
        }
        let size = ((CHECKSUM + len) as u32).to_le_bytes();
        out[start..start + HEADER].copy_from_slice(&[kind as u8, size[0], size[1], size[2]]);
        out[start + HEADER..data].copy_from_slice(&masked_crc(piece).to_le_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Encoder::default().encode(plain, &mut out).expect("encodes");
        out
    }

    /// Feed the bytes in pieces of `step`, keeping what is not whole, as a connection does.
    fn decoded(bytes: &[u8], step: usize) -> Result<Vec<u8>, Broken> {
        let (mut decoder, mut kept, mut out) = (Decoder::default(), Vec::new(), Vec::new());
        for piece in bytes.chunks(step) {
            kept.extend_from_slice(piece);
            loop {
                let used = decoder.decode(&kept, &mut out)?;
                if used == 0 {
                    break;
                }
                kept.drain(..used);
            }
        }
        assert!(kept.is_empty(), "whole chunks");
        Ok(out)
    }

    fn mixed(len: usize) -> Vec<u8> {
        let mut state = 1u32;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        noise.take(len / 2).chain(std::iter::repeat_n(b'x', len - len / 2)).collect()
    }

    #[test]
    fn what_is_encoded_comes_back_in_pieces_of_any_size() {
        for len in [0, 1, 100, 65_536, 65_537, 200_000] {
            let plain = mixed(len);
            for step in [1, 7, 4_096, 1 << 20] {
                assert_eq!(decoded(&encoded(&plain), step).as_ref(), Ok(&plain), "{len} bytes by {step}");
            }
        }
    }

    #[test]
    fn an_example_of_the_reference_decodes() {
        // "hello" as python-snappy writes it: identifier, one uncompressed chunk.
        let bytes = b"\xff\x06\x00\x00sNaPpY\x01\x09\x00\x00\xbb\x1f\x1c\x19hello";
        assert_eq!(decoded(bytes, 3), Ok(b"hello".to_vec()));
        assert_eq!(encoded(b"hello"), bytes);
    }

    #[test]
    fn the_identifier_may_come_again_and_paddings_are_skipped() {
        let both = [encoded(b"PUB t\n"), b"\xfe\x03\x00\x00abc".to_vec(), encoded(b"NOP\n")].concat();
        assert_eq!(decoded(&both, 5), Ok(b"PUB t\nNOP\n".to_vec()));
    }

    #[test]
    fn a_wrong_checksum_breaks_the_stream() {
        for plain in [&b"hello"[..], &[b'x'; 1_000]] {
            let mut bytes = encoded(plain);
            bytes[14] ^= 1;
            assert_eq!(decoded(&bytes, 64), Err(Broken::new("snappy: a wrong checksum")));
        }
    }

    #[test]
    fn a_command_in_clear_breaks_the_stream() {
        let bytes = [encoded(b"x"), b"CLS\n".to_vec()].concat();
        assert_eq!(decoded(&bytes, 64), Err(Broken::new("snappy: a chunk of a reserved type")));
    }

    #[test]
    fn impossible_chunks_are_refused_by_their_header_alone() {
        let refused = |bytes: &[u8]| Decoder { begun: true, skip: 0 }.decode(bytes, &mut Vec::new()).is_err();
        assert!(refused(b"\x00\xff\xff\xff"), "a compressed chunk of 16 MiB");
        assert!(refused(b"\x01\x05\x00\x01"), "an uncompressed chunk of 65,537 bytes");
        assert!(refused(b"\x01\x03\x00\x00"), "no room for a checksum");
        assert!(refused(b"\xff\x07\x00\x00"), "an identifier of 7 bytes");
        assert!(refused(b"\x02\x04\x00\x00"), "a reserved type");
        assert!(Decoder::default().decode(b"\x01\x05\x00\x00", &mut Vec::new()).is_err(), "before the identifier");
    }

    #[test]
    fn a_chunk_that_claims_to_hold_more_than_allowed_is_refused_before_it_is_unpacked() {
        let mut data = Vec::new();
        data.extend_from_slice(&[0; CHECKSUM]);
        data.extend_from_slice(&[0xff, 0xff, 0xff, 0x7f]); // 256 MiB
        let mut bytes = vec![Kind::Compressed as u8, data.len() as u8, 0, 0];
        bytes.extend(data);
        let mut out = Vec::new();
        assert!(Decoder { begun: true, skip: 0 }.decode(&bytes, &mut out).is_err());
        assert!(out.capacity() == 0);
    }

    #[test]
    fn of_a_chunk_that_is_corrupt_nothing_is_given() {
        let plain: Vec<u8> = (0..2_000u32).flat_map(u32::to_le_bytes).chain([0; 2_000]).collect();
        let mut sound = Vec::new();
        Encoder { begun: true, raw: raw::Encoder::new() }.encode(&plain, &mut sound).expect("it can be");
        assert_eq!(Kind::from(sound[0]), Kind::Compressed);
        for at in [HEADER, HEADER + CHECKSUM, sound.len() / 2] {
            let mut out = b"before".to_vec();
            let mut bytes = sound.clone();
            bytes[at] ^= 0xff;
            assert!(Decoder { begun: true, skip: 0 }.decode(&bytes, &mut out).is_err(), "{at}");
            assert_eq!(out, b"before", "{at}");
        }
    }
}
