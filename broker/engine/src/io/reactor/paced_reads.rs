//! Reads the connections that wait for a round of small reads (`scheduling/small_reads.rs`).

use super::Reactor;
use crate::keys::ConnKey;
use crate::time::Nanos;

impl Reactor {
    /// After a read of `len` bytes that cost `units` of work: stops waiting for a client of small reads.
    pub(super) fn note_small_read(&mut self, key: ConnKey, len: usize, units: u32, now: Nanos) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        if socket.small_reads.record(len, units) && !socket.is_paced && !self.engine.is_waiting(key) {
            socket.is_paced = true;
            self.rounds.add(key, now);
            self.set_interest(key, |socket| socket.reads = false);
        }
    }

    /// Reads the connections of a round that is due. One that completes a command is waited for again.
    pub(super) fn read_paced(&mut self, now: Nanos) {
        for key in self.rounds.take_due(now) {
            let Some(socket) = self.sockets.get_mut(key) else { continue };
            socket.is_paced = false;
            if socket.reads || socket.ended || !self.engine.wants_input(key) {
                continue; // epoll waits for it already, or whoever resumes it will
            }
            socket.unread.asked_again(&self.waits);
            self.read(key, true, now);
            if self.sockets.get(key).is_some_and(|socket| !socket.is_paced) {
                self.attend(key);
            }
        }
    }
}
