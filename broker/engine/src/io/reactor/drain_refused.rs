//! Bytes that refused clients go on sending: they are dropped for a sixth of the time at most. The kernel takes much
//! more for them than the engine, and those that are served would wait. Left unread, they would reset the stream as it
//! is closed, and the client would not learn the reason (RFC 2525, section 2.17).

use std::os::fd::AsRawFd;

use super::Reactor;
use crate::io::clock;
use crate::io::socket::{self, Received};
use crate::keys::ConnKey;
use crate::scheduling::work_budget::{CONNECTIONS_A_TURN, QUANTUM_BYTES, cool_down};
use crate::time::Nanos;

impl Reactor {
    /// There are bytes on a connection, and they are for nobody.
    pub(super) fn drop_later(&mut self, key: ConnKey) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        if !std::mem::replace(&mut socket.dropping, true) {
            self.dropping.push_back(key);
            self.arrivals.forget(key); // or it would count as missed in each turn
        }
    }

    /// When the next bytes are dropped.
    pub(super) fn drops_at(&self) -> Option<Nanos> {
        (!self.dropping.is_empty()).then_some(self.drops_at)
    }

    pub(super) fn drop_some(&mut self) {
        if self.dropping.is_empty() {
            return;
        }
        let begun = clock::monotonic();
        if begun >= self.drops_at {
            self.drop_quantum();
            let ended = clock::monotonic();
            self.drops_at = ended + cool_down(ended - begun);
        }
    }

    fn drop_quantum(&mut self) {
        let mut room = QUANTUM_BYTES;
        for _ in 0..CONNECTIONS_A_TURN.min(self.dropping.len()) {
            if room == 0 {
                return;
            }
            let Some(key) = self.dropping.pop_front() else { return };
            let Some(socket) = self.sockets.get_mut(key) else { continue };
            let received = socket::drop_bytes(socket.fd.as_raw_fd(), &mut self.buffer[..room]);
            socket.dropping = matches!(received, Received::Bytes(..));
            match received {
                Received::Bytes(len, _) => {
                    room -= len;
                    self.dropping.push_back(key); // the end may follow without an edge
                }
                Received::Nothing => {} // more of it is an edge
                Received::End => {
                    self.engine.handle_eof(key);
                    self.set_interest(key, |socket| (socket.reads, socket.ended) = (false, true));
                }
                Received::Broken => self.engine.handle_broken(key),
            }
        }
    }
}
