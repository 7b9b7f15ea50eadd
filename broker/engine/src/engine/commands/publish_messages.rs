//! Makes messages of the turn from a publish: copies its bodies into frames.
//!
//! `engine/commands/admission.rs` decides them at the end of the turn.

use crate::clients::partial_message::no_memory_for;
use crate::clients::publisher_topics::Published;
use crate::clients::reply::Reply;
use crate::engine::Engine;
use crate::event::Event;
use crate::keys::{ConnKey, TopicKey};
use crate::protocol::errors::WireError;
use crate::protocol::verb::Verb;
use crate::queueing::message::Message;
use crate::queueing::publish::{Asked, Outcome, Publish, Source};
use crate::scheduling::work_budget::message_units;
use crate::time::Nanos;

/// `UnassignedPublisher` events that one assignment of a topic may cause: more would only be noise, and a hostile
/// client could make up ids for ever.
const MAX_UNASSIGNED: usize = 100_000;

/// When messages of a publish came, and how long each channel defers them.
#[derive(Debug, Clone, Copy)]
struct Timing {
    defer_ms: u32,
    stamp: Nanos,
}

/// Messages made from a publish.
#[derive(Debug, Default)]
struct Framed {
    bytes: u64, // of the bodies
    units: u32,
    paid: u32, // of these: they were built before
}

impl Engine {
    pub(crate) fn publish_from<'a>(
        &mut self,
        asked: Asked<'_>,
        bodies: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), WireError> {
        self.check_accepting(asked.verb, asked.topic)?;
        let index = self.collect(asked, bodies).map_err(|why| asked.verb.refused(&why))?;
        self.turn.replies.push((asked.key, Reply::Publish(index)));
        Ok(())
    }

    /// Keeps a publish until the end of the turn; returns its index in the turn, or the reason of a refusal.
    pub(crate) fn collect<'a>(
        &mut self,
        asked: Asked<'_>,
        bodies: impl Iterator<Item = &'a [u8]>,
    ) -> Result<usize, String> {
        let Asked { key, verb, topic, defer_ms, stamp, attributes } = asked;
        let (topic, source) = self.source(key, topic)?;
        let mut messages = std::mem::take(&mut self.turn.messages);
        let first = messages.len();
        let framed = self.frame(key, bodies, Timing { defer_ms, stamp }, attributes, &mut messages);
        self.turn.messages = messages;
        let Framed { bytes, units, paid } = framed?;
        let copied = units.saturating_mul(self.copies(Some(topic))).saturating_sub(paid);
        match self.topics.get(topic).is_some_and(|topic| topic.limiter.is_some()) {
            true => self.work.note_ordered(copied),
            false => self.work.note(copied),
        }
        Ok(self.push_publish(verb, topic, source, stamp, first, bytes))
    }

    /// Collects a message of a client that has no connection any more, to be decided in this turn.
    pub(crate) fn collect_alone(&mut self, topic: &str, client_id: &str, attributes: &[u8], body: &[u8], now: Nanos) {
        let key = self.topic_of(topic);
        let Some(topic) = self.topics.get_mut(key) else { return };
        let declared = topic.publishers.as_ref().is_none_or(|assigned| assigned.contains(client_id));
        let trace_index = topic.limiter.as_mut().map(|limiter| limiter.trace.publisher(client_id));
        let source = Source { declared, trace_index, held_to: None, conn: ConnKey::default() };
        let first = self.turn.messages.len();
        let wall_ns = self.clock.of_message(now);
        let id = self.ids.next(wall_ns);
        if self.builder.add_with(attributes, id, wall_ns, body) {
            self.builder.take(&mut self.turn.messages, &self.memory.messages, now, 0);
            self.work.note(message_units(body.len()));
            self.push_publish(Verb::Will, key, source, now, first, body.len() as u64);
        }
    }

    fn source(&mut self, key: ConnKey, topic: &str) -> Result<(TopicKey, Source), String> {
        let index = self.published_index(key, topic)?;
        let published = self.conns.get(key).and_then(|conn| conn.published.get(index)).ok_or("exiting")?;
        let Published { topic, declared, trace_index, ref held_to, .. } = *published;
        Ok((topic, Source { declared, trace_index, held_to: held_to.clone(), conn: key }))
    }

    /// Make messages of a slice of an MPUB, to be kept until the last one; gives the bytes of their bodies.
    pub(crate) fn frame_slice<'a>(
        &mut self,
        key: ConnKey,
        bodies: impl Iterator<Item = &'a [u8]>,
        stamp: Nanos,
        kept: &mut Vec<Option<Message>>,
    ) -> Result<u64, String> {
        let framed = self.frame(key, bodies, Timing { defer_ms: 0, stamp }, &[], kept)?;
        self.work.note(framed.units - framed.paid);
        Ok(framed.bytes)
    }

    /// Collect an MPUB whose slices were kept; gives its index as `collect` does.
    pub(crate) fn publish_kept(
        &mut self,
        key: ConnKey,
        topic: &str,
        kept: &mut Vec<Option<Message>>,
        bytes: u64,
        stamp: Nanos,
    ) -> Result<usize, String> {
        let (topic, source) = self.source(key, topic)?;
        let first = self.turn.messages.len();
        self.turn.messages.append(kept);
        Ok(self.push_publish(Verb::Mpub, topic, source, stamp, first, bytes))
    }

    /// The connection's cache entry for a topic, renewed if the topic or its publisher list has changed.
    fn published_index(&mut self, key: ConnKey, name: &str) -> Result<usize, String> {
        let conn = self.conns.get(key).ok_or("exiting")?;
        // By the topic's own name, which all its publishers share, rather than by each one's copy.
        let holds = |entry: &Published| {
            self.topics
                .get(entry.topic)
                .is_some_and(|topic| topic.generation == entry.generation && *topic.name == *name)
        };
        let known = conn.published.find(holds);
        known.map_or_else(|| self.look_up_published(key, name), Ok)
    }

    #[cold]
    fn look_up_published(&mut self, key: ConnKey, name: &str) -> Result<usize, String> {
        let client = self.conns.get(key).map_or("", |conn| &conn.remote).to_owned();
        if let Some(why) = self.refusal_to_make(name, "", &client) {
            return Err(why);
        }
        let topic_key = self.topic_of(name);
        let (conn, topic) = self.conns.get_mut(key).zip(self.topics.get_mut(topic_key)).ok_or("exiting")?;
        let client_id = conn.identity().client_id.clone();
        let declared = match (&topic.publishers, &client_id) {
            (None, _) => true,
            (Some(assigned), Some(id)) => assigned.contains(&**id),
            (Some(_), None) => false,
        };
        let trace_index = topic.limiter.as_mut().map(|limiter| limiter.trace.publisher(conn.publisher()));
        let held_to = topic.contracts.as_ref().and_then(|contracts| contracts.subject(conn.client_id()));
        let cached = conn.published.position(name);
        let count = cached.and_then(|index| conn.published.get(index)).map_or(0, |entry| entry.count);
        let entry = Published {
            topic: topic_key,
            name: name.into(),
            count,
            generation: topic.generation,
            declared,
            trace_index,
            held_to,
        };
        if !declared
            && let Some(id) = client_id
            && topic.unassigned.len() < MAX_UNASSIGNED
            && topic.unassigned.insert((*id).into())
        {
            self.events.push(Event::UnassignedPublisher { topic: name.into(), publisher_id: String::from(&*id) });
        }
        Ok(conn.published.remember(cached, entry))
    }

    /// Makes messages of `bodies`, appended to `into`: all of them or none.
    ///
    /// It copies the bodies into frames, except large ones that are already built (`clients/partial_message.rs`).
    fn frame<'a>(
        &mut self,
        conn: ConnKey,
        bodies: impl Iterator<Item = &'a [u8]>,
        Timing { defer_ms, stamp }: Timing,
        attributes: &[u8],
        into: &mut Vec<Option<Message>>,
    ) -> Result<Framed, String> {
        let first = into.len();
        let wall_ns = self.clock.of_message(stamp);
        let mut framed = Framed::default();
        for body in bodies {
            if !self.builder.has_room(body.len()) {
                self.builder.take(into, &self.memory.messages, stamp, defer_ms);
            }
            let id = self.ids.next(wall_ns);
            match self.built(conn, body) {
                Some(built) => {
                    self.builder.add_frame(id, built.finish(wall_ns, id, body));
                    framed.paid += message_units(body.len());
                }
                None if self.builder.add_with(attributes, id, wall_ns, body) => {}
                None => {
                    into.truncate(first);
                    return Err(no_memory_for(body.len()));
                }
            }
            framed.bytes += body.len() as u64;
            framed.units += message_units(body.len());
        }
        self.builder.take(into, &self.memory.messages, stamp, defer_ms);
        Ok(framed)
    }

    /// What was collected behind the first messages of the turn is one publish; gives its index.
    pub(crate) fn push_publish(
        &mut self,
        verb: Verb,
        topic: TopicKey,
        source: Source,
        stamp: Nanos,
        first: usize,
        bytes: u64,
    ) -> usize {
        self.work.note_topic(topic);
        let count = (self.turn.messages.len() - first) as u32;
        self.turn.publishes.push(Publish {
            verb,
            topic,
            source,
            stamp,
            first,
            count,
            bytes,
            outcome: Outcome::Undecided,
            unheard: false,
            fate: None,
        });
        self.turn.publishes.len() - 1
    }
}
