//! Deferred reads of consumers: answers that may wait are read together, once a millisecond
//! (`scheduling/deferred_reads.rs`).
//!
//! A consumer that waited for an answer, or had no new message, is watched by epoll again.

use super::Reactor;
use crate::keys::ConnKey;
use crate::scheduling::deferred_reads::{Credit, DEFERRED_READ_NS};
use crate::time::Nanos;

impl Reactor {
    /// Reads the consumers with deferred answers. One that was sent nothing meanwhile is watched by epoll again.
    pub(super) fn read_deferred(&mut self, now: Nanos) {
        let mut keys = self.deferred_reads.take_due(now);
        for key in keys.drain(..) {
            let Some(socket) = self.sockets.get_mut(key) else { continue };
            socket.defers_reads = false;
            if socket.reads || socket.ended || !self.engine.wants_input(key) {
                continue; // waited for already, or by whoever resumes it
            }
            if now - socket.written > DEFERRED_READ_NS {
                self.attend(key);
                continue;
            }
            socket.defers_reads = true;
            socket.unread.asked_again(&self.waits);
            self.deferred_reads.add(key, now);
            self.read(key, true, now); // what is left is asked for when its time comes
        }
        self.deferred_reads.give_back(keys);
    }

    /// After a write to a consumer: its answers may wait, or must not any more.
    pub(super) fn pace(&mut self, key: ConnKey, now: Nanos) {
        let Some(credit) = self.engine.credit(key) else { return };
        let Some(socket) = self.sockets.get_mut(key) else { return };
        let often = now - std::mem::replace(&mut socket.written, now) < DEFERRED_READ_NS;
        match credit {
            Credit::Plenty if often && socket.reads => {
                if !std::mem::replace(&mut socket.defers_reads, true) {
                    self.deferred_reads.add(key, now);
                }
                self.set_interest(key, |socket| socket.reads = false);
            }
            Credit::Scarce if socket.defers_reads && !socket.reads => self.attend(key),
            _ => {}
        }
    }

    /// Wait for what a connection sends, again.
    pub(super) fn attend(&mut self, key: ConnKey) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        socket.unread.asked_again(&self.waits);
        if self.engine.wants_input(key) {
            self.set_interest(key, |socket| socket.reads = !socket.ended);
        }
    }

    /// Those that waited for an answer and have it are read again, if their stream has not ended meanwhile.
    pub(super) fn read_on(&mut self) {
        for key in self.engine.poll_resumed() {
            if self.engine.wants_input(key) {
                self.attend(key);
            }
        }
    }
}
