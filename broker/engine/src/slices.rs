//! A large MPUB, a slice in each turn: in one piece it would hold everybody up for as long as thousands of messages, or megabytes, take.
//!
//! The command stays at the head of its connection's input, which is parked from turn to turn (`share.rs`), until its last slice is published; that one is
//! answered. A topic with a bucket gets the rest in one piece, for there an MPUB is admitted or refused as a whole.

use crate::bucket::Nanos;
use crate::engine::{ConnKey, Engine, Reply};
use crate::error::WireError;
use crate::message::Meter;
use crate::publish::Verb;
use crate::share::{COPIED_A_UNIT, LARGE_BODY, message_units};
use crate::wire::Bodies;

/// However little a turn has left, a slice has as much.
const LEAST_SLICE_UNITS: usize = 32;

/// What an MPUB costs, copied once, that goes in as a whole wherever it goes: all of it or none.
const WHOLE_UNITS: usize = 512;

/// How far the MPUB that a connection's input begins with is published.
#[derive(Debug, Default, Clone, Copy)]
pub struct Progress {
    pub messages: u32,
    bytes: usize, // of them, with the size before each
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sliced {
    /// It is not: run it as any other command, which costs so much. `limited`: its topic has a bucket.
    Not { units: u32, limited: bool },
    /// There is more for the next turn.
    More,
    /// That was all of it.
    Last,
}

impl Engine {
    /// Publish the next slice of an MPUB whose connection's share of the turn ends at `bound`.
    pub(crate) fn run_slice(
        &mut self,
        key: ConnKey,
        topic: &str,
        bodies: Bodies<'_>,
        stamp: Nanos,
        bound: u32,
    ) -> Result<Sliced, WireError> {
        let Progress { messages: done, bytes: at } = self.conns.get(key).map_or(Progress::default(), |conn| conn.sliced);
        let limited = self.has_limit(topic);
        let there = self.topic_key(topic);
        if let Some(topic) = there {
            self.work.note_topic(topic); // also if it will be refused
        }
        let copies = self.copies_of(topic) as usize;
        let most = self.work.connection_units() as usize;
        if done == 0 {
            let units = bodies.count as usize + bodies.bytes() / COPIED_A_UNIT;
            if limited || units <= WHOLE_UNITS {
                return Ok(Sliced::Not { units: u32::try_from(copies * units).unwrap_or(u32::MAX), limited });
            }
            if !self.is_building(key) {
                self.check_room_for(topic, bodies)?;
            }
        }
        self.check_accepting(Verb::Mpub)?;
        let left = (bound.saturating_sub(self.work.units) as usize).clamp(LEAST_SLICE_UNITS, most);
        let rest = bodies.behind(done, at);
        let len = if limited { usize::MAX } else { slice_len(rest, left / copies) };
        if let Some(large) = rest.take(1).find(|body| !limited && body.len() >= LARGE_BODY) {
            if !self.begin_building(key, large.len()) {
                return Err(Verb::Mpub.refused(&self.no_room_to_build(large.len())));
            }
            if !self.build(key, topic, large, bound) {
                return Ok(Sliced::More);
            }
        }
        let collected = self.collect_from(key, Verb::Mpub, topic, rest.take(len), 0, stamp);
        let index = collected.map_err(|why| Verb::Mpub.refused(&why))?;
        let publish = &self.turn.publishes[index];
        let so_far = Progress { messages: done + publish.count, bytes: at + publish.bytes as usize + 4 * publish.count as usize };
        let last = so_far.messages >= bodies.count;
        if let Some(conn) = self.conns.get_mut(key) {
            conn.sliced = if last { Progress::default() } else { so_far };
        }
        self.reply(key, if last { Reply::Publish(index) } else { Reply::Slice(index) });
        Ok(if last { Sliced::Last } else { Sliced::More })
    }

    pub(crate) fn has_limit(&self, topic: &str) -> bool {
        self.topic_key(topic).and_then(|key| self.topics.get(key)).is_some_and(|topic| topic.limiter.is_some())
    }

    /// Before the first slice: all of them, or none.
    fn check_room_for(&self, topic: &str, bodies: Bodies<'_>) -> Result<(), WireError> {
        let topic = self.topic_key(topic).and_then(|key| self.topics.get(key));
        let copies = topic.map_or(1, |topic| topic.channels.len().max(1)) as u64;
        let more = Meter::cost_of(u64::from(bodies.count), bodies.bytes() as u64, copies);
        if self.has_room_for(more) { Ok(()) } else { Err(Verb::Mpub.refused(&self.memory_is_reached())) }
    }
}

/// How many of `bodies` come to `units`, up to a large one; one at least.
fn slice_len<'a>(bodies: impl Iterator<Item = &'a [u8]>, units: usize) -> usize {
    let mut sum = 0;
    let fitting = bodies.take_while(|body| {
        sum += message_units(body.len()) as usize;
        sum <= units && body.len() < LARGE_BODY
    });
    fitting.count().max(1)
}
