//! Connections that send a few bytes at a time are read a few at once (`scheduling/small_reads.rs`), until something comes of it or nothing comes.

use super::Reactor;
use crate::keys::ConnKey;
use crate::time::Nanos;

impl Reactor {
    /// After a read of `len` bytes that brought so many units of `work`: who sends little at a time is waited for no longer.
    pub(super) fn note_small_read(&mut self, key: ConnKey, len: usize, work: u32, now: Nanos) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        if socket.small_reads.note(len, work) && !socket.is_paced && !self.engine.is_waiting(key) {
            socket.is_paced = true;
            self.paced.add(key, now);
            self.set_interest(key, |socket| socket.reads = false);
        }
    }

    pub(super) fn read_paced(&mut self, now: Nanos) {
        for key in self.paced.take_due(now) {
            let Some(socket) = self.sockets.get_mut(key) else { continue };
            socket.is_paced = false;
            if socket.reads || socket.ended || !self.engine.wants_input(key) {
                continue; // waited for already, or by whoever resumes it
            }
            socket.unread.asked_again(&self.waits);
            self.read(key, true, now);
            if self.sockets.get(key).is_some_and(|socket| !socket.is_paced) {
                self.attend(key);
            }
        }
    }
}
