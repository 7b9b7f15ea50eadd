//! Raw deflate (RFC 1951): one continuous stream each way, flushed at each write turn, so that the other side can
//! decode.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::transport::buffer::KEEP_BUFFER;
use crate::transport::types::Broken;

#[derive(Debug)]
pub struct Decoder(Decompress);

impl Default for Decoder {
    fn default() -> Self {
        Self(Decompress::new(false))
    }
}

/// Where one call stopped.
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded {
    pub used: usize,
    pub more: bool,  // stopped at the limit: there is more to come from what was taken already
    pub ended: bool, // the last block
}

impl Decoder {
    /// Decode `input` into `out` until it is used up, or `out` holds `limit` bytes (or up to 16 KiB more).
    pub fn decode(&mut self, input: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<Decoded, Broken> {
        let before = self.0.total_in();
        loop {
            let used = (self.0.total_in() - before) as usize;
            if out.len() >= limit {
                return Ok(Decoded { used, more: true, ended: false });
            }
            out.reserve(KEEP_BUFFER);
            let status = self.0.decompress_vec(&input[used..], out, FlushDecompress::None);
            let used = (self.0.total_in() - before) as usize;
            match status {
                Ok(Status::StreamEnd) => return Ok(Decoded { used, more: false, ended: true }),
                Ok(_) if out.len() < out.capacity() => return Ok(Decoded { used, more: false, ended: false }),
                Ok(_) => {}
                Err(_) => return Err(Broken::new("deflate: corrupt data")),
            }
        }
    }
}

#[derive(Debug)]
pub struct Encoder(Compress);

impl Encoder {
    /// `level`: 1 to 9.
    pub fn new(level: u8) -> Self {
        Self(Compress::new(Compression::new(u32::from(level.clamp(1, 9))), false))
    }

    /// Append `plain` compressed, flushed to its last byte.
    pub fn encode(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
        let before = self.0.total_in();
        loop {
            let used = (self.0.total_in() - before) as usize;
            out.reserve(KEEP_BUFFER);
            self.0
                .compress_vec(&plain[used..], out, FlushCompress::Sync)
                .map_err(|_| Broken::new("deflate: cannot compress"))?;
            let all = (self.0.total_in() - before) as usize == plain.len();
            if all && out.len() < out.capacity() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LIMIT: usize = usize::MAX;

    fn decode_all(decoder: &mut Decoder, bytes: &[u8], step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in bytes.chunks(step) {
            let decoded = decoder.decode(piece, &mut out, NO_LIMIT).expect("decodes");
            assert_eq!(decoded, Decoded { used: piece.len(), more: false, ended: false });
        }
        out
    }

    #[test]
    fn what_is_encoded_comes_back_after_each_flush_in_pieces_of_any_size() {
        for (level, step) in [(1, 1), (6, 7), (9, 4_096)] {
            let (mut encoder, mut decoder) = (Encoder::new(level), Decoder::default());
            for len in [1, 100, 65_536, 200_000] {
                let plain: Vec<u8> = (0..len).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 20) as u8).collect();
                let mut bytes = Vec::new();
                encoder.encode(&plain, &mut bytes).expect("encodes");
                assert!(bytes.ends_with(&[0, 0, 0xff, 0xff]), "a sync flush");
                assert_eq!(decode_all(&mut decoder, &bytes, step), plain);
            }
        }
    }

    #[test]
    fn a_bomb_is_decoded_no_further_than_asked() {
        let mut bytes = Vec::new();
        Encoder::new(9).encode(&vec![0; 10 << 20], &mut bytes).expect("encodes");
        assert!(bytes.len() < 11_000);
        let (mut decoder, mut total, mut at) = (Decoder::default(), 0, 0);
        loop {
            let mut out = Vec::new();
            let decoded = decoder.decode(&bytes[at..], &mut out, 1 << 16).expect("decodes");
            assert!(out.len() <= (1 << 16) + KEEP_BUFFER);
            total += out.len();
            at += decoded.used;
            if !decoded.more {
                break;
            }
        }
        assert_eq!((total, at), (10 << 20, bytes.len()));
    }

    #[test]
    fn garbage_breaks_the_stream_and_a_last_block_ends_it() {
        assert_eq!(
            Decoder::default().decode(b"\xff\xff\xff", &mut Vec::new(), NO_LIMIT),
            Err(Broken::new("deflate: corrupt data"))
        );
        let empty_last_block = [0x03, 0x00];
        let decoded = Decoder::default().decode(&empty_last_block, &mut Vec::new(), NO_LIMIT);
        assert_eq!(decoded, Ok(Decoded { used: 2, more: false, ended: true }));
    }
}
