use super::*;
use crate::protocol::identify::Compression;
use crate::transport::testing::*;
use crate::transport::tls::server_config;
use crate::transport::types::{Broken, Step};

const ALL: usize = usize::MAX;
const LEVEL: Compression = Compression::Deflate { level: 6 };

/// The client's half of a compression.
struct Squeezer(Option<Encoder>, Option<Decoder>);

impl Squeezer {
    fn new(compression: Option<Compression>) -> Self {
        let layers = Layers::new(None, compression, 0).expect("no TLS");
        Self(layers.encoder, layers.decoder)
    }

    fn pack(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match &mut self.0 {
            None => out.extend_from_slice(plain),
            Some(Encoder::Snappy(encoder)) => encoder.encode(plain, &mut out).expect("packs"),
            Some(Encoder::Deflate(encoder)) => encoder.encode(plain, &mut out).expect("packs"),
        }
        out
    }

    fn unpack(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match &mut self.1 {
            None => out.extend_from_slice(bytes),
            Some(Decoder::Snappy(decoder)) => {
                let mut at = 0;
                while at < bytes.len() {
                    at += decoder.decode(&bytes[at..], &mut out).expect("whole chunks");
                }
            }
            Some(Decoder::Deflate(decoder)) => {
                decoder.decode(bytes, &mut out, ALL).expect("unpacks");
            }
        }
        out
    }
}

fn decode(layers: &mut Layers) -> Vec<u8> {
    let mut plain = Vec::new();
    assert_eq!(layers.decode(&mut plain, ALL), Ok(Progress::Drained));
    plain
}

fn sent(layers: &mut Layers) -> Vec<u8> {
    let bytes = layers.unsent().to_vec();
    layers.advance(bytes.len());
    bytes
}

/// A client and layers that have shaken hands and switched their output on.
fn pair(tls: bool, compression: Option<Compression>) -> (Option<Client>, Layers) {
    let config = tls.then(|| server_config(&tls_config()).expect("usable").expect("a certificate"));
    let mut layers = Layers::new(config, compression, 0).expect("layers");
    let mut client = tls.then(|| Client::new(TLS13, None));
    if let Some(client) = &mut client {
        layers.start(Step::Tls).expect("starts");
        while layers.is_handshaking() {
            layers.receive(&client.send(b""), 0);
            assert_eq!(decode(&mut layers), b"");
            layers.seal(b"", 0, false).expect("seals");
            client.receive(&sent(&mut layers)).expect("makes sense");
        }
    }
    layers.start(Step::Compression).expect("starts");
    (client, layers)
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|i| b"PUB topic\nbody"[i % 14].wrapping_add((i / 1_000) as u8)).collect()
}

#[test]
fn every_combination_brings_bytes_through_both_ways_in_odd_pieces() {
    for tls in [false, true] {
        for compression in [None, Some(Compression::Snappy), Some(LEVEL)] {
            if !tls && compression.is_none() {
                continue;
            }
            let (mut client, mut layers) = pair(tls, compression);
            let mut squeezer = Squeezer::new(compression);
            for (len, step) in [(5, 1), (1_000, 7), (300_000, 4_099)] {
                let plain = text(len);
                let packed = squeezer.pack(&plain);
                let bytes = client.as_mut().map_or_else(|| packed.clone(), |client| client.send(&packed));
                let mut got = Vec::new();
                for piece in bytes.chunks(step) {
                    layers.receive(piece, 0);
                    got.extend(decode(&mut layers));
                }
                assert!(got == plain, "in: tls {tls}, {compression:?}, {len} bytes");
                layers.seal(&plain, 0, false).expect("seals");
                let bytes = sent(&mut layers);
                let packed =
                    client.as_mut().map_or_else(|| bytes.clone(), |client| client.receive(&bytes).expect("decrypts"));
                assert!(squeezer.unpack(&packed) == plain, "out: tls {tls}, {compression:?}, {len} bytes");
            }
        }
    }
}

#[test]
fn the_plain_stream_counts_as_sent_once_the_bytes_that_carry_it_are() {
    let (_, mut layers) = pair(false, Some(Compression::Snappy));
    layers.seal(b"first", 5, false).expect("seals");
    let first = layers.unsent().len();
    layers.seal(b"second", 11, false).expect("seals");
    assert_eq!(layers.advance(first - 1), 0);
    assert_eq!(layers.advance(1), 5);
    let rest = layers.unsent().len();
    assert_eq!(layers.advance(rest), 11);
    assert!(layers.unsent().is_empty());
    layers.seal(b"x", 12, false).expect("seals");
    assert_eq!(layers.advance(1), 11);
}

#[test]
fn a_bomb_comes_in_steps_and_is_not_read_on_meanwhile() {
    let (mut client, mut layers) = pair(true, Some(LEVEL));
    let bomb = Squeezer::new(Some(LEVEL)).pack(&vec![b'x'; 8 << 20]);
    layers.receive(&client.as_mut().expect("TLS").send(&bomb), 0);
    let (mut total, mut steps) = (0, 0);
    loop {
        let mut plain = Vec::new();
        let progress = layers.decode(&mut plain, 64 << 10).expect("decodes");
        assert!(plain.len() <= 160 << 10, "{}", plain.len());
        total += plain.len();
        steps += 1;
        if progress == Progress::Drained {
            break;
        }
        assert!(!layers.wants_input());
    }
    assert_eq!(total, 8 << 20);
    assert!(steps > 60 && layers.wants_input());
}

#[test]
fn a_notice_of_the_end_and_a_last_block_end_the_stream_after_what_came_before_them() {
    let (mut client, mut layers) = pair(true, None);
    let client = client.as_mut().expect("TLS");
    let mut bytes = client.send(b"NOP\n");
    client.0.send_close_notify();
    bytes.extend(client.send(b""));
    layers.receive(&bytes, 0);
    let mut plain = Vec::new();
    assert_eq!(layers.decode(&mut plain, ALL), Ok(Progress::Ended));
    assert_eq!(plain, b"NOP\n");

    let (_, mut layers) = pair(false, Some(LEVEL));
    layers.receive(&[0x03, 0x00], 0);
    assert_eq!(layers.decode(&mut plain, ALL), Ok(Progress::Ended));
}

#[test]
fn the_end_is_told_by_a_notice_and_nothing_comes_after_it() {
    let (mut client, mut layers) = pair(true, None);
    let client = client.as_mut().expect("TLS");
    layers.seal(b"bye", 3, true).expect("seals");
    layers.seal(b"more", 7, true).expect("ignored");
    assert_eq!(client.receive(&sent(&mut layers)), Ok(b"bye".to_vec()));
    assert!(client.0.process_new_packets().expect("makes sense").peer_has_closed());
}

#[test]
fn damage_breaks_the_stream() {
    let (mut client, mut layers) = pair(true, None);
    let mut bytes = client.as_mut().expect("TLS").send(b"NOP\n");
    *bytes.last_mut().expect("a record") ^= 1;
    layers.receive(&bytes, 0);
    assert_eq!(layers.decode(&mut Vec::new(), ALL), Err(Broken::new("TLS: cannot decrypt peer's message")));

    let (_, mut layers) = pair(false, Some(Compression::Snappy));
    layers.receive(b"CLS\n", 0);
    assert!(layers.decode(&mut Vec::new(), ALL).is_err());
}

#[test]
fn tls_from_the_first_byte_needs_no_start() {
    let config = server_config(&tls_config()).expect("usable").expect("a certificate");
    let mut layers = Layers::tls_server(config, 0).expect("layers");
    let mut client = Client::new(TLS12, None);
    let mut plain = Vec::new();
    while layers.is_handshaking() || plain.is_empty() {
        let request: &[u8] = if client.0.is_handshaking() { b"" } else { b"GET / HTTP/1.1\r\n\r\n" };
        layers.receive(&client.send(request), 0);
        layers.decode(&mut plain, ALL).expect("makes sense");
        layers.seal(b"", 0, false).expect("seals");
        client.receive(&sent(&mut layers)).expect("makes sense");
    }
    assert_eq!(plain, b"GET / HTTP/1.1\r\n\r\n");
}
