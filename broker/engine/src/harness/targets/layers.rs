//! Law: whatever a client sends under TLS, snappy or deflate, a step of decoding gives no more than was asked for (and
//! a chunk), the engine keeps no more than its limits say, and gives everything back with the connection.

use std::sync::{Arc, LazyLock};

use rustls::ServerConfig;

use crate::config::Config;
use crate::harness::pair::{Pair, identify};
use crate::harness::source::Source;
use crate::protocol::identify::Compression;
use crate::transport::testing::tls_config;
use crate::transport::tls::server_config;
use crate::transport::{Layers, Progress, deflate};

/// What one step may give beyond its limit: a record and a chunk.
const BEYOND: usize = 80 << 10;

/// Bytes before they are compressed, at most: more than a turn decodes, so that another has the rest.
const PLAIN: usize = 320 << 10;

/// What a connection under layers may be charged: their state, a turn's undecoded bytes, an unfinished command.
const CHARGED: u64 = 8 << 20;

static CONFIG: LazyLock<Config> = LazyLock::new(tls_config);
static TLS: LazyLock<Option<Arc<ServerConfig>>> =
    LazyLock::new(|| server_config(&CONFIG).expect("a usable certificate"));

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let choice = source.byte();
    let compression =
        [None, Some(Compression::Snappy), Some(Compression::Deflate { level: 1 })][usize::from(choice & 15) % 3];
    let with_tls = compression.is_none() || choice & 16 != 0;
    let sealed = if choice & 32 == 0 { source.rest().to_vec() } else { seal(&mut source, compression) };
    let limit = 1 << (usize::from(choice >> 6) * 5); // 1 byte to 32 KiB
    decode(with_tls, compression, &sealed, limit);
    serve(with_tls, compression, &sealed);
}

/// The layers alone.
fn decode(with_tls: bool, compression: Option<Compression>, sealed: &[u8], limit: usize) {
    let tls = TLS.clone().filter(|_| with_tls);
    let Ok(mut layers) = Layers::new(tls, compression, 0) else { return };
    let mut plain = Vec::new();
    for piece in Source::new(sealed).pieces() {
        layers.receive(piece, 0);
        loop {
            plain.clear();
            let progress = layers.decode(&mut plain, limit);
            assert!(plain.len() <= limit + BEYOND, "{} bytes in a step of {limit}", plain.len());
            match progress {
                Ok(Progress::More) => assert!(!plain.is_empty(), "more and more of nothing"),
                Ok(Progress::Drained) => break,
                Ok(Progress::Ended) | Err(_) => return,
            }
        }
    }
}

/// The same as a client that has negotiated them.
fn serve(with_tls: bool, compression: Option<Compression>, sealed: &[u8]) {
    let mut pair = Pair::sealed(CONFIG.clone(), TLS.clone());
    let key = pair.connect();
    let (snappy, deflate) =
        (compression == Some(Compression::Snappy), matches!(compression, Some(Compression::Deflate { .. })));
    let asked = format!(
        r#"{{"feature_negotiation":true,"tls_v1":{with_tls},"snappy":{snappy},"deflate":{deflate},"deflate_level":1}}"#
    );
    pair.send(key, identify(&asked));
    pair.turn();
    for piece in Source::new(sealed).pieces() {
        pair.send(key, piece);
        pair.turn();
        while pair.engine.poll_timeout() == Some(0) {
            pair.turn();
        }
        assert!(pair.engine.memory.layers.used() <= CHARGED, "{} bytes are kept", pair.engine.memory.layers.used());
    }
    pair.engine.handle_eof(key);
    pair.turn();
    pair.close(key);
    assert_eq!(pair.engine.memory.layers.used(), 0);
}

/// A stream whose checksums are right, made of parts: valid ones, and ones whose content the input says.
fn seal(source: &mut Source<'_>, compression: Option<Compression>) -> Vec<u8> {
    let mut sealed = source.bytes(8).to_vec(); // where it is cut
    if compression != Some(Compression::Snappy) {
        let plain = repeated(source.rest(), 1 + sealed.first().copied().map_or(0, usize::from) * 8);
        deflate::Encoder::new(1).encode(&plain, &mut sealed).expect("compresses");
        return sealed;
    }
    sealed.extend_from_slice(b"\xff\x06\x00\x00sNaPpY");
    while !source.is_empty() {
        let (kind, data) = ([0x00, 0x01, 0xfe, 0x80][source.below(4)], source.text());
        let content =
            if kind == 0 { snap::raw::Decoder::new().decompress_vec(data).unwrap_or_default() } else { data.to_vec() };
        let crc = crc32c::crc32c(&content).rotate_right(15).wrapping_add(0xa282_ead8);
        sealed.push(kind);
        sealed.extend_from_slice(&(data.len() as u32 + 4).to_le_bytes()[..3]);
        sealed.extend_from_slice(&crc.to_le_bytes());
        sealed.extend_from_slice(data);
    }
    sealed
}

/// The part that many times, or as often as there is room for it, but once.
fn repeated(part: &[u8], times: usize) -> Vec<u8> {
    let fitting = PLAIN / part.len().max(1);
    part.repeat(times.min(fitting.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_fits_and_needs_more_than_a_turn() {
        assert_eq!(repeated(b"ab", 3), b"ababab");
        assert_eq!(repeated(b"", 2_041), b"");
        let long = repeated(&[0; 4_096], 2_041).len();
        assert!((256 << 10) < long && long <= PLAIN, "{long} bytes");
        assert_eq!(repeated(&[0; PLAIN + 1], 9).len(), PLAIN + 1);
    }
}
