//! Whose commands come in crumbs is read a few at a time (`scheduling/small_reads.rs`), until something comes of it or nothing comes.

use super::Reactor;
use crate::keys::ConnKey;
use crate::time::Nanos;

impl Reactor {
    /// After a read of `len` bytes that brought so many units of `work`: who sends crumbs is waited for no longer.
    pub(super) fn note_crumb(&mut self, key: ConnKey, len: usize, work: u32, now: Nanos) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        if socket.crumbs.note(len, work) && !socket.crumbles && !self.engine.is_waiting(key) {
            socket.crumbles = true;
            self.fragments.add(key, now);
            self.set_interest(key, |socket| socket.reads = false);
        }
    }

    pub(super) fn read_fragments(&mut self, now: Nanos) {
        for key in self.fragments.take_due(now) {
            let Some(socket) = self.sockets.get_mut(key) else { continue };
            socket.crumbles = false;
            if socket.reads || socket.ended || !self.engine.wants_input(key) {
                continue; // waited for already, or by whoever resumes it
            }
            socket.unread.asked_again(&self.waits);
            self.read(key, true, now);
            if self.sockets.get(key).is_some_and(|socket| !socket.crumbles) {
                self.attend(key);
            }
        }
    }
}
