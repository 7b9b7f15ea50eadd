//! Input of connections: bytes that run as commands, unfinished commands that are kept, and input that is deferred.
//!
//! A connection's input waits for Python, for a later turn, for the disk, or for its client to read answers
//! (`clients::pending_input`). Its next commands are kept with their arrivals until the input resumes. No other
//! connection waits with it. Heartbeats go on. Kept bytes are bounded: beyond the bound the reactor leaves bytes in the
//! kernel.

use crate::arrival::stamps::Stamps;
use crate::clients::connection::Connection;
use crate::clients::pending_input::{InputEvent, InputState, WaitFor};
use crate::engine::Engine;
use crate::keys::ConnKey;
use crate::memory::LARGE_BYTES;
use crate::protocol::codec;
use crate::protocol::errors::WireError;
use crate::protocol::link_frames;
use crate::scheduling::work_budget::QUANTUM_BYTES;
use crate::time::Nanos;

/// Part of a large unfinished command that must have arrived before it gets room for the whole: one in this many bytes.
///
/// A command of at most `PROMISED_BYTES` gets it at once.
const PROMISED: usize = 8;
const PROMISED_BYTES: usize = 8 << 20;

impl Engine {
    /// Bytes of commands, out of the layers if there are any.
    pub(crate) fn handle_plain(&mut self, key: ConnKey, bytes: &[u8], stamps: Stamps<'_>, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.input.is_empty() {
            let used = self.run_commands(key, bytes, stamps, now);
            // What comes behind a fatal error is not worth a copy.
            if used < bytes.len() && self.conns.get(key).is_some_and(Connection::reads) {
                self.keep_input(key, bytes[used..].to_vec(), used, stamps, now);
            }
            return;
        }
        let mut input = std::mem::take(&mut conn.input);
        conn.input_charge = None;
        let unfinished_since = conn.unfinished_since.take();
        let stamps = stamps.behind(input.len());
        let whole = match (&conn.http, &conn.mqtt, &conn.link) {
            (Some(http), ..) => http.announced_len(),
            (None, Some(mqtt), _) => mqtt.announced_len(&input),
            (None, None, Some(_)) => link_frames::announced_len(&input),
            (None, None, None) => codec::announced_len(&input),
        };
        make_room(&mut input, bytes.len(), whole, self.room_to_promise());
        input.extend_from_slice(bytes);
        let used = self.run_commands(key, &input, stamps, now);
        if used < input.len() {
            drop_front(&mut input, used);
            let since = unfinished_since.filter(|_| used == 0);
            self.keep_input(key, input, used, stamps, since.unwrap_or(now));
        }
    }

    /// Keeps an unfinished command, or the input of a waiting connection, unless all such input would exceed its memory
    /// bound.
    ///
    /// `stamps` counts from `used` bytes before it; the command began to arrive at `begun`.
    pub(crate) fn keep_input(&mut self, key: ConnKey, input: Vec<u8>, used: usize, stamps: Stamps<'_>, begun: Nanos) {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.reads()) else { return };
        if conn.layers.as_ref().is_some_and(|layers| !layers.has_begun()) {
            return self.begin_layers(key, &input, stamps.at(usize::MAX)); // after an IDENTIFY
        }
        let room = (input.capacity() - input.len()) as u64; // mostly untouched address space
        conn.input_charge =
            Some((self.limits.unfinished.charge(input.len() as u64), self.limits.promised.charge(room)));
        if conn.input_state.waits() {
            for (end, stamp) in stamps.rest(used, used + input.len()) {
                conn.kept_reads.note(end, stamp);
            }
        } else if conn.http.is_none() && !conn.terms.heartbeats {
            conn.unfinished_since = Some(begun);
        }
        let len = input.len();
        conn.input = input;
        let (speaks_http, is_watched) = (conn.http.is_some(), conn.unfinished_since.is_some());
        let builds = conn.mqtt.is_none() && conn.link.is_none(); // large messages as they come in
        if is_watched {
            self.arm_connection(key);
        }
        if self.is_waiting(key) {
            return; // it is we who keep it, and no more than `KeptReads::is_full` allows
        }
        if builds
            && !speaks_http
            && let Some(error) = self.refusal_of_announced(key)
        {
            return self.refuse(key, error);
        }
        let Some(why) = self.keeps_too_much(key, len) else {
            if len > QUANTUM_BYTES && builds {
                self.build_unfinished(key);
            }
            return;
        };
        if speaks_http {
            return self.refuse_unfinished(key, &why, begun);
        }
        self.refuse(key, WireError::invalid(format!("unfinished command: {why}")));
    }

    /// Keep what comes from a connection until `resume`.
    pub fn defer(&mut self, key: ConnKey, cause: WaitFor) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.note_input(InputEvent::Defer(cause));
        }
    }

    /// Resumes a connection, unless it waits for the disk: kept input runs now, with its own arrivals. False: it was
    /// not waiting.
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
        // In one piece, however many spans it came in: each would cost a look at an unfinished command, and the quantum
        // could end before the last one.
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

    /// Makes the next commands of a connection wait while its answers wait for the disk.
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
            self.resume(key, now); // it costs nothing
        } else {
            self.work.defer(key);
        }
    }

    pub fn is_waiting(&self, key: ConnKey) -> bool {
        self.conns.get(key).is_some_and(|conn| conn.input_state.waits())
    }

    /// Whether to read on from a connection; once false, `poll_resumed` names it when it is time again.
    pub fn wants_input(&self, key: ConnKey) -> bool {
        let Some(conn) = self.conns.get(key) else { return true };
        !conn.keeps_enough() && conn.layers.as_ref().is_none_or(|layers| layers.wants_input())
    }

    /// Connections whose input waited and goes on.
    pub fn poll_resumed(&mut self) -> impl Iterator<Item = ConnKey> + use<> {
        std::mem::take(&mut self.schedule.resumed).into_iter()
    }

    /// The peer ended its stream while it waited: now that all it sent has run, so does ours.
    pub(crate) fn end_if_waited_for(&mut self, key: ConnKey) {
        let Some(conn) = self
            .conns
            .get_mut(key)
            .filter(|conn| conn.eof && conn.reads() && !conn.input_state.waits() && !conn.has_more_input())
        else {
            return;
        };
        conn.end_input();
        self.mark_dirty(key);
    }
}

/// Reserves room for `more` bytes of an unfinished command; for a large one, for the `whole` command.
///
/// Growth in steps would copy a large command again and again, each time to new memory. `most`: a whole command beyond
/// this is not reserved ahead. Untouched room is address space alone, unless it was used before.
fn make_room(input: &mut Vec<u8>, more: usize, whole: Option<usize>, most: u64) {
    let len = input.len() + more;
    // The read that ends it may bring some of the next one.
    if len > input.capacity()
        && len > QUANTUM_BYTES
        && let Some(whole) = whole.filter(|whole| (len..=PROMISED_BYTES.max(PROMISED * len)).contains(whole))
        && (whole + QUANTUM_BYTES) as u64 <= most
    {
        let _ = input.try_reserve_exact(whole + QUANTUM_BYTES - input.len()); // without it grows by copies
    }
}

/// Removes `used` bytes from the front. The room of a large command is freed, since the next one would keep it
/// uncharged.
fn drop_front(input: &mut Vec<u8>, used: usize) {
    if used == 0 {
        return;
    }
    input.drain(..used);
    if input.capacity() > LARGE_BYTES.max(2 * input.len()) {
        input.shrink_to_fit();
    }
}
