//! TLS and compression layers of a connection: IDENTIFY adds them, and input is decoded in bounded steps.
//!
//! Decoded commands run at once, with the arrival of their read. Output of one read beyond `LARGE_BYTES` is deferred to
//! the next turn, which bounds the delay by decompression bombs. `engine/session/handshakes.rs` runs handshakes.

use std::sync::Arc;

use crate::arrival::stamps::Stamps;
use crate::clients::connection::Phase;
use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::keys::ConnKey;
use crate::memory::{LARGE_BYTES, SMALL_BYTES};
use crate::protocol::codec;
use crate::protocol::errors::{self, WireError};
use crate::protocol::identify::Features;
use crate::time::{Nanos, SHORT_PATIENCE_NS};
use crate::transport::buffer::KEEP_BUFFER;
use crate::transport::types::Step;
use crate::transport::{Layers, Progress};

/// Layers may take this part of `max_memory_bytes`, besides what messages take.
const LAYERS_SHARE: u64 = 4;

impl Engine {
    /// Adds the layers that IDENTIFY granted to a connection. The IDENTIFY answer and all earlier output go out in
    /// clear.
    pub(crate) fn upgrade(&mut self, key: ConnKey, features: Features, now: Nanos) -> Result<(), WireError> {
        let tls = self.tls.config.as_ref().filter(|_| features.tls).map(Arc::clone);
        let first = if tls.is_some() { Step::Tls } else { Step::Compression };
        let layers =
            Layers::new(tls, features.compression, now + SHORT_PATIENCE_NS).map_err(|error| identify_failed(&error))?;
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        conn.layers = Some(Box::new(layers));
        self.charge_layers(key);
        // Layers have a bound of their own: consumers must get in when messages fill memory, and idle clients must not
        // lock publishers out.
        let limit = self.config.max_memory_bytes / LAYERS_SHARE;
        if self.memory.layers.used() > limit {
            return Err(identify_failed(&format_args!(
                "layers of all connections take the {limit} bytes that they may"
            )));
        }
        self.reply(key, Reply::Start(first));
        if first == Step::Compression {
            self.reply(key, Reply::Response(codec::OK));
        }
        self.arm_connection(key);
        Ok(())
    }

    /// Bytes behind the IDENTIFY that asked for layers, in the same read: they belong to the new ones.
    pub(crate) fn begin_layers(&mut self, key: ConnKey, bytes: &[u8], stamp: Nanos) {
        let Some(layers) = self.conns.get_mut(key).and_then(|conn| conn.layers.as_mut()) else { return };
        if layers.is_handshaking() {
            layers.keep(bytes, stamp);
            return self.shake_hands(key);
        }
        layers.receive(bytes, stamp);
        layers.postpone();
        self.decode_later(key);
    }

    /// Bytes of a socket for a connection with layers: what arrived at one instant is decoded with it.
    pub(crate) fn handle_sealed(&mut self, key: ConnKey, bytes: &[u8], stamps: Stamps<'_>, now: Nanos) {
        let mut start = 0;
        for (end, stamp) in stamps.rest(0, bytes.len()) {
            let Some(layers) = self.conns.get_mut(key).and_then(|conn| conn.layers.as_mut()) else { return };
            let part = &bytes[start..end];
            start = end;
            if layers.is_handshaking() {
                layers.keep(part, stamp);
                self.shake_hands(key);
            } else {
                layers.receive(part, stamp);
                self.decode_in_line(key, now);
            }
        }
    }

    /// What was just received is decoded, unless what came before it waits for the next turn.
    pub(crate) fn decode_in_line(&mut self, key: ConnKey, now: Nanos) {
        if self.conns.get(key).and_then(|conn| conn.layers.as_ref()).is_some_and(|layers| layers.has_more()) {
            self.decode_later(key);
        } else {
            self.decode(key, now);
        }
    }

    /// A connection that has something to decode gets to it in the next turn.
    pub(crate) fn decode_later(&mut self, key: ConnKey) {
        let layers = self.conns.get_mut(key).and_then(|conn| conn.layers.as_mut());
        if let Some(layers) = layers.filter(|layers| layers.has_more() && !layers.listed) {
            layers.listed = true;
            self.schedule.undecoded.push(key);
        }
    }

    /// Go on with what was put off.
    pub(crate) fn decode_on(&mut self, now: Nanos) {
        for key in std::mem::take(&mut self.schedule.undecoded) {
            let Some(layers) = self.conns.get_mut(key).and_then(|conn| conn.layers.as_mut()) else { continue };
            layers.listed = false;
            self.decode(key, now);
            self.schedule.resumed.push(key);
        }
    }

    /// Decode and run what there is, as much as a turn takes.
    pub(crate) fn decode(&mut self, key: ConnKey, now: Nanos) {
        let mut budget = LARGE_BYTES.saturating_sub(self.work.decoded).max(SMALL_BYTES);
        loop {
            let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.reads()) else { return };
            let keeps_enough = conn.keeps_enough();
            let Some(layers) = &mut conn.layers else { return };
            if keeps_enough {
                return layers.postpone(); // `resume` goes on
            }
            let stamp = layers.stamp;
            let mut plain = std::mem::take(&mut self.plain);
            plain.clear();
            let progress = layers.decode(&mut plain, KEEP_BUFFER.min(budget));
            if layers.wants_write() {
                self.mark_dirty(key);
            }
            if !plain.is_empty() {
                self.handle_plain(key, &plain, stamp.into(), now);
            }
            budget = budget.saturating_sub(plain.len());
            self.work.decoded += plain.len();
            self.plain = plain;
            match progress {
                Ok(Progress::More) if budget > 0 => {}
                Ok(Progress::More) => {
                    self.decode_later(key);
                    break;
                }
                Ok(Progress::Drained) => {
                    self.end_if_waited_for(key);
                    break;
                }
                Ok(Progress::Ended) => return self.handle_eof(key),
                // The other side made no sense: it gets the answers to what did, and the end.
                Err(_) => return self.handle_eof(key),
            }
        }
        self.charge_layers(key);
    }

    /// What the layers hold counts against the memory limit.
    pub(crate) fn charge_layers(&mut self, key: ConnKey) {
        let Some(layers) = self.conns.get_mut(key).and_then(|conn| conn.layers.as_mut()) else { return };
        layers.charge = Some(self.memory.layers.charge(layers.memory()));
    }

    /// Output goes through the layers once a write turn.
    pub(crate) fn seal(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let last = conn.phase == Phase::Flushing && !conn.is_held();
        if conn.seal(last).is_err() {
            self.close(key);
        }
    }
}

#[cold]
pub(crate) fn identify_failed(reason: &dyn std::fmt::Display) -> WireError {
    WireError::new(errors::E_IDENTIFY_FAILED, format!("IDENTIFY failed {reason}"))
}
