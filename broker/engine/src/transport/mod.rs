//! Layers between a socket's bytes and a connection's bytes: TLS, and inside it snappy, deflate or WebSocket.
//!
//! Pure: imports `config`, `keys`, `memory`, `protocol` and `time`. Begin with `Layers`, here.
//!
//! `Layers` belongs to one connection and is absent (`None`) on a plain one. Input: `receive` what the socket gave,
//! then `decode` in bounded steps, so that what a small input unpacks to is consumed before the next step. Output:
//! `seal` once a write turn, after which `unsent` is what the socket gets and `advance` tells how far the plain stream
//! has been sent. The two directions switch at different moments: input at once, output when `start` says so, because
//! answers given earlier must still go out under the old layers.
//!
//! A TLS handshake is taken out in steps (`give_handshake`) and back in (`take_handshake`). Meanwhile there is no
//! session here: what comes is kept as it is, and what there is to say inside TLS waits.

pub mod buffer;
pub mod common_name;
pub mod deflate;
pub mod handshake;
pub mod snappy;
#[cfg(any(test, feature = "harness"))]
pub mod testing;
pub mod tls;
pub mod types;
pub mod websocket;

use std::collections::VecDeque;
use std::sync::Arc;

use rustls::ServerConfig;

use crate::memory::Charge;
use crate::memory::LARGE_BYTES;
use crate::protocol::identify::Compression;
use crate::time::Nanos;
use crate::transport::buffer::{KEEP_BUFFER, Kept, Queue};
use crate::transport::tls::{Session, Tls};
use crate::transport::types::{Broken, Step};
use crate::transport::websocket::WebSocket;

/// Bytes of unsent output beyond which a consumer gets no further messages, and of sent output beyond which it is cut
/// off the front.
pub(crate) const HIGH_WATER: usize = 1 << 20;

// Bytes charged for the state of a layer. Deflate was measured (334 KiB); the others take a third of this when idle.
const TLS_OR_SNAPPY_BYTES: u64 = 40 << 10;
const DEFLATE_BYTES: u64 = 336 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// All complete records and chunks are decoded.
    Drained,
    /// Decoding stopped at the limit: there is more.
    More,
    /// The client has ended its stream.
    Ended,
}

#[derive(Debug)]
enum Decoder {
    Snappy(snappy::Decoder),
    Deflate(deflate::Decoder),
}

#[derive(Debug)]
enum Encoder {
    Snappy(Box<snappy::Encoder>),
    Deflate(deflate::Encoder),
}

#[derive(Debug)]
pub struct Layers {
    tls: Option<Box<Tls>>,
    away: Option<usize>, // the session is out for a step of its handshake, with so many bytes
    kept: Kept,          // for the handshake's next step
    decoder: Option<Decoder>,
    encoder: Option<Encoder>,
    websocket: Option<Box<WebSocket>>, // in the place of compression
    compression: Option<Compression>,
    session: Option<Session>,
    received: Queue,  // from the socket
    decrypted: Queue, // out of TLS, for the decompressor
    more: bool,       // the last step stopped at its limit
    begun: bool,
    ended: bool,      // the client said that nothing more comes
    negotiated: bool, // by IDENTIFY
    tls_out: bool,
    compress_out: bool,
    closed: bool, // nothing more may be sealed
    compressed: Vec<u8>,
    sealed: Vec<u8>, // for the socket
    sealed_at: usize,
    sealed_offset: u64,         // of sealed[0] in the stream of the socket
    ends: VecDeque<(u64, u64)>, // (offset for the socket, offset of the plain stream) after each `seal`, ascending
    plain_sent: u64,
    pub stamp: Nanos,              // arrival of the last bytes received
    pub handshake_deadline: Nanos, // while handshaking
    pub(crate) listed: bool,       // in the engine's list of those to decode on
    pub(crate) charge: Option<Charge>,
}

impl Layers {
    /// TLS from the next byte on, both ways, as on an HTTPS port. `deadline`: of the handshake.
    pub fn tls_server(config: Arc<ServerConfig>, deadline: Nanos) -> Result<Self, Broken> {
        Ok(Self { tls_out: true, negotiated: false, ..Self::new(Some(config), None, deadline)? })
    }

    /// WebSocket from the next byte on, both ways; inside TLS if there is a configuration for it.
    /// `origins`: as `WebSocket::new` takes them.
    pub fn websocket(
        tls: Option<Arc<ServerConfig>>,
        origins: Option<Vec<String>>,
        deadline: Nanos,
    ) -> Result<Self, Broken> {
        let websocket = Some(Box::new(WebSocket::new(origins)));
        Ok(Self { tls_out: tls.is_some(), negotiated: false, websocket, ..Self::new(tls, None, deadline)? })
    }

    /// The layers that IDENTIFY granted. Input passes them at once, output step by step (`start`).
    pub fn new(
        tls: Option<Arc<ServerConfig>>,
        compression: Option<Compression>,
        deadline: Nanos,
    ) -> Result<Self, Broken> {
        let (decoder, encoder) = match compression {
            None => (None, None),
            Some(Compression::Snappy) => {
                (Some(Decoder::Snappy(snappy::Decoder::default())), Some(Encoder::Snappy(Box::default())))
            }
            Some(Compression::Deflate { level }) => (
                Some(Decoder::Deflate(deflate::Decoder::default())),
                Some(Encoder::Deflate(deflate::Encoder::new(level))),
            ),
        };
        Ok(Self {
            tls: tls.map(Tls::new).transpose()?.map(Box::new),
            away: None,
            kept: Kept::default(),
            decoder,
            encoder,
            websocket: None,
            compression,
            received: Queue::default(),
            decrypted: Queue::default(),
            more: false,
            begun: false,
            ended: false,
            session: None,
            negotiated: true,
            tls_out: false,
            compress_out: false,
            closed: false,
            compressed: Vec::new(),
            sealed: Vec::new(),
            sealed_at: 0,
            sealed_offset: 0,
            ends: VecDeque::new(),
            plain_sent: 0,
            stamp: 0,
            handshake_deadline: deadline,
            listed: false,
            charge: None,
        })
    }

    pub fn has_tls(&self) -> bool {
        self.tls.is_some() || self.away.is_some()
    }

    /// Whether IDENTIFY asked for them, so that `OK` answers each step, and an error frame a failure.
    pub fn are_negotiated(&self) -> bool {
        self.negotiated
    }

    pub fn is_handshaking(&self) -> bool {
        self.away.is_some() || self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }

    /// The TLS session. `None`: there is no TLS, or the handshake is not over.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    pub fn is_websocket(&self) -> bool {
        self.websocket.is_some()
    }

    /// Keep what the handshake settled.
    pub fn note_session(&mut self) {
        self.session = self.tls.as_ref().and_then(|tls| tls.session());
    }

    /// Common name of the client's certificate.
    pub fn peer_name(&self) -> Option<&str> {
        self.session.as_ref()?.peer_name.as_deref()
    }

    /// Bytes charged for the layers: their state, and what is not decoded yet.
    pub fn memory(&self) -> u64 {
        let compression = match self.compression {
            None => 0,
            Some(Compression::Snappy) => TLS_OR_SNAPPY_BYTES,
            Some(Compression::Deflate { .. }) => DEFLATE_BYTES,
        };
        let state = compression + if self.has_tls() { TLS_OR_SNAPPY_BYTES } else { 0 };
        state + (self.received.len() + self.decrypted.len() + self.kept.len() + self.away.unwrap_or(0)) as u64
    }

    // ---- input ----

    /// Take bytes of the socket, the last of which arrived at `stamp`.
    pub fn receive(&mut self, bytes: &[u8], stamp: Nanos) {
        self.begun = true;
        self.stamp = stamp;
        self.received.push(bytes);
    }

    /// Whether anything was received.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether decoding can go on without further bytes from the socket.
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// Whether to read further from the socket: less is kept undecoded than the decompressor's largest chunk takes.
    pub fn wants_input(&self) -> bool {
        !self.more && self.received.len() <= 2 * LARGE_BYTES && !self.kept.is_full()
    }

    /// Leave what there is to a later turn.
    pub fn postpone(&mut self) {
        self.more = true;
    }

    /// Decode into `plain` until it holds `limit` bytes (or up to a record and a chunk more: 80 KiB).
    pub fn decode(&mut self, plain: &mut Vec<u8>, limit: usize) -> Result<Progress, Broken> {
        self.more = false;
        loop {
            let before = (self.received.len(), self.decrypted.len(), plain.len());
            self.decrypt(plain, limit)?;
            self.decompress(plain, limit)?;
            self.more = plain.len() >= limit;
            if self.more {
                return Ok(Progress::More);
            }
            if before == (self.received.len(), self.decrypted.len(), plain.len()) {
                return Ok(if self.ended { Progress::Ended } else { Progress::Drained });
            }
        }
    }

    fn decrypt(&mut self, plain: &mut Vec<u8>, limit: usize) -> Result<(), Broken> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let (target, limit) = if self.decoder.is_some() || self.websocket.is_some() {
            (self.decrypted.tail(), 2 * LARGE_BYTES)
        } else {
            (plain, limit)
        };
        self.ended |= tls.decode(&mut self.received, target, limit)?;
        Ok(())
    }

    fn decompress(&mut self, plain: &mut Vec<u8>, limit: usize) -> Result<(), Broken> {
        let source = if self.tls.is_some() { &mut self.decrypted } else { &mut self.received };
        if let Some(websocket) = &mut self.websocket {
            let (used, ended) = websocket.decode(source.waiting(), plain, limit)?;
            source.take(used);
            self.ended |= ended;
            return Ok(());
        }
        match &mut self.decoder {
            None => {}
            Some(Decoder::Snappy(decoder)) => {
                while plain.len() < limit {
                    let used = decoder.decode(source.waiting(), plain)?;
                    if used == 0 {
                        break;
                    }
                    source.take(used);
                }
            }
            Some(Decoder::Deflate(decoder)) => {
                let decoded = decoder.decode(source.waiting(), plain, limit)?;
                source.take(decoded.used);
                self.ended |= decoded.ended;
            }
        }
        Ok(())
    }

    // ---- output ----

    /// Switch the layers of the output, from here on. What was written before must be sealed.
    pub fn start(&mut self, step: Step) -> Result<(), Broken> {
        match step {
            Step::Tls => self.tls_out = true,
            Step::Compression => self.compress_out = true,
            Step::Plain => {
                if let Some(tls) = self.tls.as_mut().filter(|_| self.tls_out) {
                    tls.drain(&mut self.sealed)?; // its alert
                }
                (self.tls_out, self.compress_out) = (false, false);
            }
        }
        Ok(())
    }

    /// Whether output must wait for the session.
    pub fn holds_output(&self) -> bool {
        self.tls_out && self.away.is_some()
    }

    /// Whether `seal` has something to do even without plain bytes.
    pub fn wants_write(&self) -> bool {
        self.tls_out && self.tls.as_ref().is_some_and(|tls| tls.wants_write())
            || self.websocket.as_ref().is_some_and(|websocket| websocket.has_answers())
    }

    /// Seal the output of a turn, up to `plain_end` of the plain stream, with one flush at its end. `last`: nothing
    /// comes after it.
    pub fn seal(&mut self, plain: &[u8], plain_end: u64, last: bool) -> Result<(), Broken> {
        if self.closed {
            return Ok(());
        }
        let plain = if self.holds_output() { &[] } else { plain }; // at the end: TLS that has not begun says nothing
        self.compressed.clear();
        if let Some(websocket) = &mut self.websocket {
            websocket.encode(plain, last, &mut self.compressed);
        }
        let bytes = match self.encoder.as_mut().filter(|_| self.compress_out && !plain.is_empty()) {
            None if self.websocket.is_some() => &self.compressed,
            None => plain,
            Some(Encoder::Snappy(encoder)) => {
                encoder.encode(plain, &mut self.compressed)?;
                &self.compressed
            }
            Some(Encoder::Deflate(encoder)) => {
                encoder.encode(plain, &mut self.compressed)?;
                &self.compressed
            }
        };
        match self.tls.as_mut().filter(|_| self.tls_out) {
            None => self.sealed.extend_from_slice(bytes),
            Some(tls) => {
                tls.encode(bytes, &mut self.sealed)?;
                if last {
                    tls.close(&mut self.sealed)?;
                }
            }
        }
        self.compressed.shrink_to(KEEP_BUFFER);
        self.closed = last;
        self.ends.push_back((self.sealed_offset + self.sealed.len() as u64, plain_end));
        Ok(())
    }

    /// Bytes for the socket.
    pub fn unsent(&self) -> &[u8] {
        &self.sealed[self.sealed_at..]
    }

    /// The socket took `len` bytes. Gives the offset up to which the plain stream has been sent.
    pub fn advance(&mut self, len: usize) -> u64 {
        self.sealed_at += len;
        let sent = self.sealed_offset + self.sealed_at as u64;
        while let Some((_, plain)) = self.ends.front().filter(|(end, _)| *end <= sent) {
            self.plain_sent = *plain;
            self.ends.pop_front();
        }
        if self.sealed_at == self.sealed.len() {
            self.sealed.clear();
            self.sealed.shrink_to(KEEP_BUFFER);
        } else if self.sealed_at > HIGH_WATER {
            self.sealed.drain(..self.sealed_at);
        } else {
            return self.plain_sent;
        }
        self.sealed_offset = sent;
        self.sealed_at = 0;
        self.plain_sent
    }
}

#[cfg(test)]
#[path = "../tests/transport.rs"]
mod tests;
