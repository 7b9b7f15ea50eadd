//! A connection that waits for an answer from Python, for its share of a later turn, for the disk, or until it has read what it was answered: its next
//! commands are kept, with the instants at which they came, until somebody resumes it.
//!
//! Nothing else waits with it. Heartbeats go on, and what it sends meanwhile is bounded: beyond that the reactor leaves its bytes in the kernel.

use crate::arrival::stamps::Stamps;
use crate::clients::pending_input::{InputEvent, InputState, WaitFor};
use crate::engine::{Engine, drop_front};
use crate::keys::ConnKey;
use crate::time::Nanos;

impl Engine {
    /// Keep what comes from a connection until `resume`.
    pub fn defer(&mut self, key: ConnKey, cause: WaitFor) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.note_input(InputEvent::Defer(cause));
        }
    }

    /// What a connection waited for is there: unless it waits for the disk, what was kept runs now, as of its own arrivals. False: it does not wait.
    pub fn resume(&mut self, key: ConnKey, now: Nanos) -> bool {
        let Some(conn) = self.conns.get_mut(key) else { return false };
        let waited = conn.input_state.waits();
        conn.note_input(InputEvent::Resume);
        if !waited || conn.input_state != InputState::Running {
            return waited; // for the disk: it goes on with its answers
        }
        let (mut input, kept) = (std::mem::take(&mut conn.input), std::mem::take(&mut conn.kept_reads));
        (conn.input_charge, conn.unfinished_since) = (None, None);
        conn.last_command = now; // it could not be heard: its silence begins now
        self.schedule.resumed.push(key);
        // In one piece, however many spans it came in: each would cost a look at an unfinished command, and a share could end before the last one.
        if let Some(stamps) = Stamps::exact(kept.spans()) {
            let used = self.run_commands(key, &input, stamps, now);
            if used < input.len() {
                drop_front(&mut input, used);
                self.keep_input(key, input, used, stamps, now);
            }
        }
        self.note_unfinished(key, false, now);
        self.list_if_ready(key); // not before: it may have asked for no more
        self.decode_later(key);
        self.end_if_waited_for(key);
        self.arm_connection(key);
        true
    }

    /// Answers of a connection wait for the disk: so do its next commands, whatever they wait for already.
    pub(crate) fn defer_for_disk(&mut self, key: ConnKey, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.reads()) else { return };
        conn.unfinished_since = None;
        if let Some(http) = &mut conn.http {
            http.stop_clock();
        }
        if !conn.input_state.waits() && !conn.input.is_empty() {
            conn.kept_reads.note(conn.input.len(), now); // no command ends there
        }
        conn.note_input(InputEvent::Store);
    }

    /// Its answers are given: it goes on, unless it waits for something else.
    pub(crate) fn resume_stored(&mut self, key: ConnKey, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let waited_for_more = conn.input_state != InputState::Storing;
        conn.note_input(InputEvent::Stored);
        if waited_for_more {
            return;
        }
        if conn.input.is_empty() {
            self.resume(key, now); // it takes nothing of anybody's share
        } else {
            self.work.resume_later(key);
        }
    }

    pub fn is_waiting(&self, key: ConnKey) -> bool {
        self.conns.get(key).is_some_and(|conn| conn.input_state.waits())
    }

    /// Whether to read on from a connection; once false, `poll_resumed` names it when it is time again.
    pub fn wants_input(&self, key: ConnKey) -> bool {
        let Some(conn) = self.conns.get(key) else { return true };
        !conn.kept_reads.is_full() && conn.layers.as_ref().is_none_or(|layers| layers.wants_input())
    }

    /// Connections whose input waited and goes on.
    pub fn poll_resumed(&mut self) -> impl Iterator<Item = ConnKey> + use<> {
        std::mem::take(&mut self.schedule.resumed).into_iter()
    }

    /// The peer ended its stream while it waited: now that all it sent has run, so does ours.
    pub(crate) fn end_if_waited_for(&mut self, key: ConnKey) {
        let Some(conn) =
            self.conns.get_mut(key).filter(|conn| conn.eof && conn.reads() && !conn.input_state.waits() && !conn.has_more_input())
        else {
            return;
        };
        conn.end_input();
        self.mark_dirty(key);
    }
}
