//! A large MPUB, by either port, a slice in each turn: in one piece it would hold everybody up for as long as thousands
//! of messages, or megabytes, take.
//!
//! The command stays at the head of its connection's input, which is deferred from turn to turn
//! (`scheduling/work_budget.rs`), until its last slice is in; that one is answered. A topic with a bucket admits or
//! refuses an MPUB as a whole: there its slices become messages that wait for the last one, and are decided with it.

use crate::clients::mpub_progress::{Batch, Progress, Sliced};
use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::keys::ConnKey;
use crate::memory::Charge;
use crate::memory::LARGE_BYTES;
use crate::protocol::codec::{self, Bodies, Seen};
use crate::protocol::verb::Verb;
use crate::queueing::message::cost_of;
use crate::queueing::publish::Asked;
use crate::scheduling::work_budget::{COPIED_A_UNIT, QUANTUM, message_units};

/// Messages that a unit of work looks through: whether they are as they must be.
pub(crate) const LOOKS_A_UNIT: u32 = 32;

impl Engine {
    /// Take in the next slice of an MPUB. The error says why all that is left of it is refused.
    pub(crate) fn run_slice(&mut self, batch: Batch<'_>, bodies: Bodies<'_>) -> Result<Sliced, String> {
        let Batch { key, topic, .. } = batch;
        let Some(conn) = self.conns.get_mut(key) else { return Ok(Sliced::Later) };
        let before = conn.sliced.take();
        if before.is_none() {
            conn.seen = Seen::default(); // all of it was, and is not again
        }
        let mut progress = match before {
            Some(progress) => progress,
            None => {
                let units = bodies.count as usize + bodies.bytes() / COPIED_A_UNIT;
                if units <= QUANTUM as usize {
                    return Ok(Sliced::Whole);
                }
                self.check_room_for(topic, bodies)?;
                Box::new(Progress { left: bodies.count, ..Progress::default() })
            }
        };
        if let Some(reason) = self.refusal_of(topic) {
            return Err(reason.clone());
        }
        let rest = bodies.behind(progress.messages, progress.bytes);
        let sliced = if self.has_limit(topic) || !progress.kept.is_empty() {
            self.keep_slice(batch, rest, &mut progress)?
        } else {
            self.publish_slice(batch, rest, &mut progress)?
        };
        if sliced == Sliced::Later
            && let Some(conn) = self.conns.get_mut(key)
        {
            conn.sliced = Some(progress);
        }
        Ok(sliced)
    }

    /// Whether the MPUB that `input` begins with, if it does and is whole, has few enough messages that nobody has
    /// looked at to parse it. If not, some were looked at now.
    pub(crate) fn has_looked_through(&mut self, key: ConnKey, input: &[u8], bound: u32) -> bool {
        let may_be_large = input.len() > LARGE_BYTES && input.starts_with(b"MPUB ");
        let Some((count, rest)) = may_be_large.then(|| codec::whole_mpub(input)).flatten() else { return true };
        if self.conns.get(key).is_some_and(|conn| conn.sliced.is_some()) {
            return true; // all of it was
        }
        self.has_looked_at_most(key, count, rest, bound)
    }

    /// The same of `rest`, the `count` messages with their sizes of an MPUB by either port.
    pub(crate) fn has_looked_at_most(&mut self, key: ConnKey, count: u32, rest: &[u8], bound: u32) -> bool {
        let Some(conn) = self.conns.get_mut(key) else { return true };
        let (before, most) = (conn.seen.messages, self.config.max_mpub_messages);
        let units = bound.saturating_sub(self.work.units);
        let looks = units.saturating_mul(LOOKS_A_UNIT);
        if count.saturating_sub(before) <= looks || (most > 0 && count > most) {
            return true;
        }
        conn.seen = conn.seen.look(rest, looks, &self.config);
        self.work.note(units);
        conn.seen.messages - before < looks // then the next is at fault, which whoever parses it says
    }

    /// Publish the next messages.
    fn publish_slice(&mut self, batch: Batch<'_>, rest: Bodies<'_>, progress: &mut Progress) -> Result<Sliced, String> {
        let Batch { key, topic, stamp, exchange, .. } = batch;
        let Some(len) = self.next_slice(batch, rest, self.copies(self.topic_key(topic)))? else {
            return Ok(Sliced::Later);
        };
        let mut behind = rest;
        let index = self.collect(
            Asked { key, verb: Verb::Mpub, topic, defer_ms: 0, stamp, attributes: b"" },
            behind.by_ref().take(len),
        )?;
        progress.note(rest, behind);
        if progress.left > 0 {
            self.reply(key, Reply::Slice(index));
            return Ok(Sliced::Later);
        }
        self.reply(key, Reply::published(index, exchange));
        Ok(Sliced::Done)
    }

    /// Make messages of the next bodies, and publish them all with the last.
    fn keep_slice(&mut self, batch: Batch<'_>, rest: Bodies<'_>, progress: &mut Progress) -> Result<Sliced, String> {
        let Batch { key, topic, stamp, exchange, .. } = batch;
        if progress.left > 0 {
            let mut behind = rest;
            progress.room = None; // what is made now is charged by itself
            let Some(len) = self.next_slice(batch, rest, 1)? else {
                behind.next(); // so is what is built
                progress.room = Some(self.reserve(behind));
                return Ok(Sliced::Later);
            };
            progress.kept_bytes += self.frame_slice(key, behind.by_ref().take(len), stamp, &mut progress.kept)?;
            progress.note(rest, behind);
            progress.room = Some(self.reserve(behind));
        }
        if progress.left > 0 {
            return Ok(Sliced::Later);
        }
        self.work.note_ordered(progress.kept.len() as u32);
        let index = self.publish_kept(key, topic, &mut progress.kept, progress.kept_bytes, stamp)?;
        self.reply(key, Reply::published(index, exchange));
        Ok(Sliced::Done)
    }

    fn reserve(&self, bodies: Bodies<'_>) -> Charge {
        self.memory.reserved.charge(cost_of(u64::from(bodies.count), bodies.bytes() as u64, 1))
    }

    /// How many of `rest` are the next slice. `None`: the first is large, and not all of it is built.
    fn next_slice(&mut self, batch: Batch<'_>, rest: Bodies<'_>, copies: u32) -> Result<Option<usize>, String> {
        let Batch { key, bound, .. } = batch;
        if let Some(large) = rest.take(1).find(|body| body.len() >= LARGE_BYTES) {
            if !self.begin_building(key, large.len()) {
                return Err(self.no_room_to_build(large.len()));
            }
            if !self.build(key, large, bound) {
                return Ok(None);
            }
        }
        let left = bound.saturating_sub(self.work.units);
        Ok(Some(slice_len(rest, (left / copies) as usize)))
    }

    pub(crate) fn has_limit(&self, topic: &str) -> bool {
        self.topic_key(topic).and_then(|key| self.topics.get(key)).is_some_and(|topic| topic.limiter.is_some())
    }

    /// Before the first slice: all of them, or none.
    fn check_room_for(&self, topic: &str, bodies: Bodies<'_>) -> Result<(), String> {
        let topic = self.topic_key(topic).and_then(|key| self.topics.get(key));
        let copies = topic.map_or(1, |topic| topic.channels.len().max(1)) as u64;
        let more = cost_of(u64::from(bodies.count), bodies.bytes() as u64, copies);
        if self.has_room_for(more) { Ok(()) } else { Err(self.memory_is_reached()) }
    }
}

/// How many of `bodies` come to `units`, up to a large one; one at least.
fn slice_len<'a>(bodies: impl Iterator<Item = &'a [u8]>, units: usize) -> usize {
    let mut sum = 0;
    let fitting = bodies.take_while(|body| {
        sum += message_units(body.len()) as usize;
        sum <= units && body.len() < LARGE_BYTES
    });
    fitting.count().max(1)
}
