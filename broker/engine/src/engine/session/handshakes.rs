//! TLS handshakes, run step by step on a worker thread, so that a storm of them delays no message.
//!
//! A handshake costs about 1 ms (an RSA signature), most of it in one step. Input during the handshake is kept, read by
//! read, and decoded afterwards with its own arrivals. Few steps are out at once. A connection closed or expired before
//! its turn costs nothing, and the result of its step is dropped. No other connection waits, and the handshake's
//! deadline holds in every state.

use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::engine::session::layers::identify_failed;
use crate::keys::ConnKey;
use crate::protocol::codec;
use crate::time::{Nanos, SHORT_PATIENCE_NS};
use crate::transport::handshake::Handshake;
use crate::transport::types::{Broken, Step};

impl Engine {
    /// A connection has something for its handshake.
    pub(crate) fn shake_hands(&mut self, key: ConnKey) {
        self.charge_layers(key);
        let layers = self.conns.get_mut(key).and_then(|conn| conn.layers.as_mut());
        if let Some(layers) = layers.filter(|layers| layers.wants_handshake() && !layers.listed) {
            layers.listed = true;
            self.tls.push(key);
        }
    }

    /// The next handshake step: `run` it on any thread, and return it. At most `MAX_AWAY` are out at once.
    pub fn poll_handshake(&mut self) -> Option<Handshake> {
        while let Some(key) = self.tls.pop() {
            let Some(layers) =
                self.conns.get_mut(key).filter(|conn| conn.reads()).and_then(|conn| conn.layers.as_mut())
            else {
                continue;
            };
            layers.listed = false;
            if let Some(step) = layers.give_handshake(key) {
                self.tls.note_given();
                return Some(step);
            }
        }
        None
    }

    /// Takes back a finished step. Input behind the handshake runs now, with its own arrivals.
    pub fn handle_handshake(&mut self, step: Handshake, now: Nanos) {
        self.tls.note_taken();
        let key = step.key;
        let conn = self.conns.get_mut(key).filter(|conn| conn.reads());
        let Some(layers) = conn.and_then(|conn| conn.layers.as_mut()) else { return }; // closed or told off meanwhile
        let was_full = !layers.wants_input();
        let outcome = layers.take_handshake(step);
        let handshaking = layers.is_handshaking();
        if layers.wants_write() {
            self.mark_dirty(key);
        }
        match (outcome, handshaking) {
            (Err(error), true) => self.handshake_failed(key, &error),
            (Err(_), false) => {
                self.handshake_done(key); // what makes no sense came behind it
                self.handle_eof(key);
            }
            (Ok(()), true) => {
                self.shake_hands(key);
                self.end_if_waited_for(key);
            }
            (Ok(()), false) => self.run_behind_handshake(key, now),
        }
        if was_full {
            self.schedule.resumed.push(key);
        }
    }

    /// The handshake is over: what came with its last bytes runs, then read by read what came later.
    fn run_behind_handshake(&mut self, key: ConnKey, now: Nanos) {
        self.handshake_done(key);
        self.decode(key, now);
        while let Some(layers) = self.conns.get_mut(key).and_then(|conn| conn.layers.as_mut()) {
            if !layers.receive_kept() {
                return;
            }
            self.decode_in_line(key, now);
        }
    }

    /// Inside TLS: `OK`, and once more under the compression if there is one.
    fn handshake_done(&mut self, key: ConnKey) {
        let Some(layers) = self.conns.get_mut(key).and_then(|conn| conn.layers.as_mut()) else { return };
        layers.note_session();
        let (negotiated, compressed) = (layers.are_negotiated(), layers.compression().is_some());
        if negotiated {
            self.reply(key, Reply::Response(codec::OK));
        }
        if compressed {
            self.reply(key, Reply::Start(Step::Compression));
            self.reply(key, Reply::Response(codec::OK));
        }
        self.arm_connection(key);
    }

    /// The error goes out in clear, behind TLS's own alert; under TLS from the first byte only the alert does.
    fn handshake_failed(&mut self, key: ConnKey, error: &Broken) {
        if !self.negotiated_layers(key) {
            self.mark_dirty(key);
            return self.end_requests(key);
        }
        self.reply(key, Reply::Start(Step::Plain));
        self.refuse(key, identify_failed(error));
    }

    fn negotiated_layers(&self, key: ConnKey) -> bool {
        self.conns.get(key).and_then(|conn| conn.layers.as_ref()).is_some_and(|layers| layers.are_negotiated())
    }

    pub(crate) fn handshake_timed_out(&mut self, key: ConnKey) {
        if !self.negotiated_layers(key) {
            return self.close(key);
        }
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.start(Step::Plain).is_err() {
            return self.close(key);
        }
        conn.fail(
            &identify_failed(&format_args!("TLS: no handshake within {} s", SHORT_PATIENCE_NS / 1_000_000_000))
                .to_string(),
        );
        conn.end_input();
        self.mark_dirty(key);
    }
}
