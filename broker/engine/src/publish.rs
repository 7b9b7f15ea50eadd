//! The publishes of one turn, and what the topic's bucket makes of each: decided together, in order of arrival.

use crate::bucket::Nanos;
use crate::building::no_memory_for;
use crate::connection::Published;
use crate::engine::{ConnKey, Engine, Reply, TopicKey};
use crate::error::{self, WireError};
use crate::event::Event;
use crate::message::{ENTRY_OVERHEAD, Message};
use crate::queue::Queue;
use crate::share::message_units;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Pub,
    Mpub,
    Dpub,
}

impl Verb {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pub => "PUB",
            Self::Mpub => "MPUB",
            Self::Dpub => "DPUB",
        }
    }

    #[cold]
    pub fn refused(self, why: &str) -> WireError {
        WireError::new(self.failed(), format!("{} failed {why}", self.name()))
    }

    pub fn failed(self) -> &'static str {
        match self {
            Self::Pub => error::E_PUB_FAILED,
            Self::Mpub => error::E_MPUB_FAILED,
            Self::Dpub => error::E_DPUB_FAILED,
        }
    }
}

/// Where a publish came from.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    pub declared: bool,
    pub trace_index: Option<u32>,
    pub conn: ConnKey,
}

#[derive(Debug)]
pub struct Publish {
    pub verb: Verb,
    pub topic: TopicKey,
    pub source: Source,
    pub stamp: Nanos,
    pub first: usize, // its messages are Turn::messages[first..first + count]
    pub count: u32,
    pub bytes: u64,
    pub outcome: Outcome,
}

#[derive(Debug, PartialEq)]
pub enum Outcome {
    Undecided,
    /// Accepted; the last of its messages waits this long for tokens, as things stand. `None`: under a share of nothing nobody can tell.
    Done {
        wait_ns: Option<Nanos>,
        fill: f64,
    },
    /// Refused by the bucket; `None`: no instant can be told.
    Limited {
        retry_at: Option<Nanos>,
    },
    /// More messages than the bucket ever holds.
    TooLarge {
        burst: f64,
    },
    Failed(String),
}

impl Outcome {
    /// How long until trying again makes sense, in whole ms. Where nobody can tell (a share of nothing), a second.
    pub fn retry_ms(retry_at: Option<Nanos>, now: Nanos) -> i64 {
        retry_at.map_or(1_000, |at| ((at - now).max(0) as u64).div_ceil(1_000_000).max(1) as i64)
    }

    /// The error frame of a refusal.
    #[cold]
    pub fn error(&self, publish: &Publish, now: Nanos) -> WireError {
        let verb = publish.verb;
        match self {
            Self::Limited { retry_at } => {
                let text = format!("{} retry after {} ms", verb.name(), Self::retry_ms(*retry_at, now));
                WireError::new(error::E_RATE_LIMITED, text)
            }
            Self::TooLarge { burst } => {
                let text = format!("{} of {} messages can never pass a burst of {burst}: send fewer at once", verb.name(), publish.count);
                WireError::new(error::E_RATE_LIMITED, text)
            }
            Self::Failed(reason) => WireError::new(verb.failed(), format!("{} failed {reason}", verb.name())),
            Self::Undecided | Self::Done { .. } => WireError::new(verb.failed(), format!("{} failed", verb.name())),
        }
    }
}

/// What became messages.
#[derive(Debug, Default)]
struct Framed {
    bytes: u64, // of the bodies
    units: u32,
    paid: u32, // of these: they were built before
}

/// Buffers of a turn, used again from turn to turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub publishes: Vec<Publish>,
    pub messages: Vec<Option<Message>>,
    pub replies: Vec<(ConnKey, Reply)>,
    pub shares_stamp: bool, // a publish of the present read ended before the read did
    order: Vec<usize>,
    decided: usize, // publishes[..decided] have their outcome
}

impl Turn {
    /// Forget everything: the answers are given.
    pub fn clear(&mut self) {
        self.publishes.clear();
        self.messages.clear();
        self.decided = 0;
    }
}

/// What it costs to write a message to a file, as often as to copy it in memory.
const DISK_COPY: u32 = 4;

/// Stranger events that one assignment of a topic may cause: more would only be noise, and a hostile client could make up ids for ever.
const MAX_STRANGERS: usize = 100_000;

impl Engine {
    #[allow(clippy::too_many_arguments)] // the one place where a command's parts and a turn's instants meet
    pub(crate) fn publish_from<'a>(
        &mut self,
        key: ConnKey,
        verb: Verb,
        topic: &str,
        bodies: impl Iterator<Item = &'a [u8]>,
        defer_ms: u32,
        stamp: Nanos,
    ) -> Result<(), WireError> {
        self.check_accepting(verb)?;
        let collected = self.collect_from(key, verb, topic, bodies, defer_ms, stamp);
        let index = collected.map_err(|why| verb.refused(&why))?;
        self.turn.replies.push((key, Reply::Publish(index)));
        Ok(())
    }

    pub(crate) fn check_accepting(&self, verb: Verb) -> Result<(), WireError> {
        self.refusal.as_ref().map_or(Ok(()), |reason| Err(verb.refused(reason)))
    }

    pub(crate) fn memory_is_reached(&self) -> String {
        format!("memory limit of {} bytes reached: nobody drains what is queued", self.config.max_memory_bytes)
    }

    /// Collect a publish of a connection; gives its index among those of the turn, or why it cannot be.
    pub(crate) fn collect_from<'a>(
        &mut self,
        key: ConnKey,
        verb: Verb,
        topic: &str,
        bodies: impl Iterator<Item = &'a [u8]>,
        defer_ms: u32,
        stamp: Nanos,
    ) -> Result<usize, String> {
        let index = self.published_index(key, topic)?;
        let published = self.conns.get(key).and_then(|conn| conn.published.get(index)).ok_or("exiting")?;
        let source = Source { declared: published.declared, trace_index: published.trace_index, conn: key };
        let topic = published.topic;
        self.collect(verb, topic, source, bodies, defer_ms, stamp)
    }

    /// The connection's cache entry for a topic, made or renewed where the topic or its publisher list is another by now.
    fn published_index(&mut self, key: ConnKey, name: &str) -> Result<usize, String> {
        let conn = self.conns.get(key).ok_or("exiting")?;
        let cached = conn.published_index(name);
        if let Some(index) = cached {
            let entry = &conn.published[index];
            if self.topics.get(entry.topic).is_some_and(|topic| topic.generation == entry.generation) {
                return Ok(index);
            }
        }
        self.look_up_published(key, name, cached)
    }

    #[cold]
    fn look_up_published(&mut self, key: ConnKey, name: &str, cached: Option<usize>) -> Result<usize, String> {
        let client = self.conns.get(key).map_or("", |conn| &conn.remote).to_owned();
        if let Some(why) = self.refusal_to_make(name, "", &client) {
            return Err(why);
        }
        let topic_key = self.topic_of(name);
        let (conn, topic) = self.conns.get_mut(key).zip(self.topics.get_mut(topic_key)).ok_or("exiting")?;
        let client_id = conn.identity.client_id.clone();
        let declared = match (&topic.publishers, &client_id) {
            (None, _) => true,
            (Some(assigned), Some(id)) => assigned.contains(id),
            (Some(_), None) => false,
        };
        let trace_index = topic.limiter.as_mut().map(|limiter| limiter.trace.publisher(conn.publisher()));
        let count = cached.map_or(0, |index| conn.published[index].count);
        let entry = Published { topic: topic_key, name: name.into(), count, generation: topic.generation, declared, trace_index };
        if !declared
            && let Some(id) = client_id
            && topic.strangers.len() < MAX_STRANGERS
            && topic.strangers.insert(id.clone())
        {
            self.events.push(Event::Stranger { topic: name.into(), publisher_id: id.into() });
        }
        Ok(match cached {
            Some(index) => {
                conn.published[index] = entry;
                index
            }
            None => conn.remember(entry),
        })
    }

    /// Keep a publish until the end of the turn; gives its index, or why it cannot be kept.
    fn collect<'a>(
        &mut self,
        verb: Verb,
        topic: TopicKey,
        source: Source,
        bodies: impl Iterator<Item = &'a [u8]>,
        defer_ms: u32,
        stamp: Nanos,
    ) -> Result<usize, String> {
        let mut messages = std::mem::take(&mut self.turn.messages);
        let first = messages.len();
        let framed = self.frame(source.conn, bodies, defer_ms, stamp, &mut messages);
        self.turn.messages = messages;
        let Framed { bytes, units, paid } = framed?;
        let ordered = units > 1 && verb != Verb::Mpub && self.topics.get(topic).is_some_and(|topic| topic.limiter.is_some());
        let copied = units.saturating_mul(self.counted_copies(topic)).saturating_sub(paid);
        self.work.note_collected(copied, ordered);
        Ok(self.push_publish(verb, topic, source, stamp, first, bytes))
    }

    /// Make messages of `bodies` behind those that are `into`. The bodies are copied into their frames here, but for large ones that were built before
    /// (`building.rs`). Refused is all of it or nothing.
    fn frame<'a>(
        &mut self,
        conn: ConnKey,
        bodies: impl Iterator<Item = &'a [u8]>,
        defer_ms: u32,
        stamp: Nanos,
        into: &mut Vec<Option<Message>>,
    ) -> Result<Framed, String> {
        let first = into.len();
        let wall_ns = self.wall_time(stamp);
        let mut framed = Framed::default();
        for body in bodies {
            if !self.builder.has_room(body.len()) {
                self.builder.take(into, &self.meter, stamp, defer_ms);
            }
            let id = self.ids.next(wall_ns);
            match self.built(conn, body) {
                Some(built) => {
                    self.builder.add_frame(id, built.finish(wall_ns, id, body));
                    framed.paid += message_units(body.len());
                }
                None if self.builder.add(id, wall_ns, body) => {}
                None => {
                    into.truncate(first);
                    return Err(no_memory_for(body.len()));
                }
            }
            framed.bytes += body.len() as u64;
            framed.units += message_units(body.len());
        }
        self.builder.take(into, &self.meter, stamp, defer_ms);
        Ok(framed)
    }

    /// What was collected behind the first messages of the turn is one publish; gives its index.
    fn push_publish(&mut self, verb: Verb, topic: TopicKey, source: Source, stamp: Nanos, first: usize, bytes: u64) -> usize {
        self.work.note_topic(topic);
        let count = (self.turn.messages.len() - first) as u32;
        self.turn.publishes.push(Publish { verb, topic, source, stamp, first, count, bytes, outcome: Outcome::Undecided });
        self.turn.publishes.len() - 1
    }

    /// Whether messages that will cost so much have room besides those that are there or built. What clients hold besides (layers, requests, unfinished commands)
    /// has bounds of its own, and must not stop all publishers.
    pub(crate) fn has_room_for(&self, cost: u64) -> bool {
        self.meter.used() + self.buildings.used() + cost <= self.config.max_memory_bytes
    }

    /// How often what is published to a topic counts: once a channel where others wait for the copies, and more if they go to disk.
    pub(crate) fn counted_copies(&self, topic: TopicKey) -> u32 {
        let Some(topic) = self.topics.get(topic).filter(|_| self.work.is_shared()) else { return 1 };
        let to_disk = |queue: &Queue| if queue.backend_len() > 0 { DISK_COPY } else { 1 };
        let channels = topic.channels.iter().filter_map(|key| self.channels.get(*key));
        channels.map(|channel| to_disk(&channel.queue)).sum::<u32>().max(to_disk(&topic.queue))
    }

    /// The same by the topic's name; one that is not there is copied once.
    pub(crate) fn copies_of(&self, topic: &str) -> u32 {
        self.topic_key(topic).map_or(1, |topic| self.counted_copies(topic)).max(1)
    }

    /// Decide all publishes so far in order of arrival; those that came together stay in order of reading.
    pub(crate) fn decide_publishes(&mut self, now: Nanos) {
        let mut order = std::mem::take(&mut self.turn.order);
        order.clear();
        order.extend(self.turn.decided..self.turn.publishes.len());
        self.turn.decided = self.turn.publishes.len();
        order.sort_by_key(|&index| self.turn.publishes[index].stamp);
        for &index in &order {
            let outcome = self.decide(index, now);
            self.answers_for(None);
            let publish = &mut self.turn.publishes[index];
            publish.outcome = outcome;
            // What was refused gives its memory back before the next is decided.
            self.turn.messages[publish.first..publish.first + publish.count as usize].fill_with(|| None);
        }
        self.turn.order = order;
        self.write_overflow();
    }

    fn decide(&mut self, index: usize, now: Nanos) -> Outcome {
        let publish = &self.turn.publishes[index];
        let (key, count, bytes, source) = (publish.topic, publish.count, publish.bytes, publish.source);
        let (first, stamp) = (publish.first, publish.stamp.min(now));
        let effective =
            self.topics.get(key).and_then(|topic| topic.limiter.as_ref()).map_or(stamp, |limiter| limiter.backlog.effective(stamp));
        self.release_until(key, effective, now);
        self.answers_for(Some(index));
        let used = self.meter.used(); // of messages alone, as `has_room_for` has it
        let Some(topic) = self.topics.get_mut(key) else { return Outcome::Failed("exiting".into()) };
        topic.counters.received += u64::from(count);
        if let Some(limiter) = &mut topic.limiter {
            limiter.note_arrivals(count, effective);
            self.events.extend(limiter.moved(&topic.name));
        }
        let undeclared = u64::from(count) * u64::from(!source.declared);
        topic.counters.undeclared += undeclared;
        // It is charged already; copies for further channels are not, which share the frames.
        let copies = topic.channels.len().saturating_sub(1) as u64;
        let more = copies * u64::from(count) * ENTRY_OVERHEAD;
        if used + more > self.config.max_memory_bytes {
            topic.counters.rejected += u64::from(count);
            return Outcome::Failed(self.memory_is_reached());
        }
        if let Some(limiter) = &topic.limiter
            && let Err(excess) = limiter.admit(count, bytes, effective)
        {
            topic.counters.rejected += u64::from(count);
            let burst = limiter.limit.burst_micro as f64 / 1e6;
            return if limiter.limit.reject && burst > 0.0 && f64::from(count) > burst {
                Outcome::TooLarge { burst }
            } else {
                Outcome::Limited { retry_at: excess.retry_at }
            };
        }
        topic.counters.messages += u64::from(count);
        topic.counters.bytes += bytes;
        if let Some(conn) = self.conns.get_mut(source.conn) {
            conn.count_published(key, count);
        }
        if topic.limiter.is_some() {
            return self.charge(key, first..first + count as usize, source, stamp, now);
        }
        self.release_all(key, first..first + count as usize, now);
        Outcome::Done { wait_ns: Some(0), fill: 1.0 }
    }

    /// Pass admitted messages through the topic's bucket, one token each.
    fn charge(&mut self, key: TopicKey, messages: std::ops::Range<usize>, source: Source, stamp: Nanos, now: Nanos) -> Outcome {
        let mut last_due = Some(stamp);
        for index in messages {
            let Some(message) = self.turn.messages[index].take() else { continue };
            let Some(topic) = self.topics.get_mut(key) else { continue };
            let Some(limiter) = topic.limiter.as_mut() else { continue };
            let (released, due) = limiter.decide(message, source.trace_index.unwrap_or(0), stamp, now);
            last_due = due;
            match released {
                Some(message) => self.release(key, message, now),
                None => topic.counters.delayed += 1,
            }
        }
        self.arm_release(key);
        let Some(topic) = self.topics.get_mut(key) else { return Outcome::Failed("exiting".into()) };
        let Some(limiter) = topic.limiter.as_mut() else { return Outcome::Failed("exiting".into()) };
        if last_due.is_none() && !limiter.starved_told {
            limiter.starved_told = true;
            self.events.push(Event::Starved { topic: topic.name.to_string(), waiting: limiter.backlog.len() });
        }
        let wait_ns = last_due.map(|due| (due - stamp).max(0));
        Outcome::Done { wait_ns, fill: limiter.fill_ratio(now).max(0.0) }
    }
}
