//! The sans-I/O core: connections, topics, channels, timers, and the turn.
//!
//! A turn is: `handle_bytes` for every connection that has some, `finish_turn`, then the reactor writes what `poll_dirty` names. Publishes of a turn are
//! collected and decided together in order of arrival, whatever connection they came on (design section 4), and answers go out in the order of
//! the commands. Methods are of three kinds: `handle_*` for what the network or the clock brings, `poll_*` for what is to be done outside, and plain
//! verbs for commands from Python (`commands.rs`). `now` is always the last argument; nothing here reads a clock.

use std::collections::HashMap;

use slotmap::{SlotMap, new_key_type};

use crate::bucket::Nanos;
use crate::channel::{Channel, InFlight, NotYours};
use crate::config::Config;
use crate::connection::{Connection, LINGER_NS, MAX_UNREAD_ANSWERS, Mark, Phase, Published, Subscription};
use crate::error::{self, WireError};
use crate::event::Event;
use crate::id::{IdMaker, MessageId};
use crate::identify::{self, Identity};
use crate::latency::Sample;
use crate::message::{Message, Meter};
use crate::publish::{Outcome, Publish, Source, Turn, Verb};
use crate::timer::{Timer, Timers};
use crate::topic::Topic;
use crate::wire::{self, Command, Context, ParseError, State};

new_key_type! {
    pub struct ConnKey;
    pub struct TopicKey;
    pub struct ChannelKey;
}

#[derive(Debug)]
pub struct Engine {
    pub config: Config,
    pub conns: SlotMap<ConnKey, Connection>,
    pub topics: SlotMap<TopicKey, Topic>,
    pub channels: SlotMap<ChannelKey, Channel>,
    pub topic_names: HashMap<Box<str>, TopicKey>,
    pub(crate) aware: HashMap<Box<str>, Vec<ConnKey>>, // {client id: its aware connections}
    pub(crate) timers: Timers,
    pub(crate) events: Vec<Event>,
    pub meter: Meter,
    pub(crate) turn: Turn,
    pub(crate) ids: IdMaker,
    pub(crate) scratch: Vec<u8>,
    dirty_conns: Vec<ConnKey>,
    dirty_channels: Vec<ChannelKey>,
    closed: Vec<ConnKey>,
    pub wall_offset: i64,        // wall clock minus monotonic clock, kept by the reactor
    pub refusal: Option<String>, // why publishes are refused just now
    pub accepted: u64,
    pub timestamp_fallbacks: u64,
    sampler: u64,
}

/// A reply that waits for the end of the turn.
#[derive(Debug)]
pub(crate) enum Reply {
    Response(&'static [u8]),
    Json(Vec<u8>),
    Error(WireError),
    Publish(usize), // index into `Turn::publishes`
}

impl Engine {
    pub fn new(config: Config) -> Self {
        Self {
            refusal: (!config.accepting).then(|| config.not_accepting_reason.clone()),
            ids: IdMaker::new(config.node_id),
            config,
            conns: SlotMap::with_key(),
            topics: SlotMap::with_key(),
            channels: SlotMap::with_key(),
            topic_names: HashMap::new(),
            aware: HashMap::new(),
            timers: Timers::default(),
            events: Vec::new(),
            meter: Meter::default(),
            turn: Turn::default(),
            scratch: Vec::new(),
            dirty_conns: Vec::new(),
            dirty_channels: Vec::new(),
            closed: Vec::new(),
            wall_offset: 0,
            accepted: 0,
            timestamp_fallbacks: 0,
            sampler: 0x2545_f491_4f6c_dd1d,
        }
    }

    // ---- what the network brings -------------------------------------------------------------------------------------------------------

    pub fn handle_accept(&mut self, remote: &str, now: Nanos) -> ConnKey {
        self.accepted += 1;
        let connection = Connection::new(Identity::unknown(&self.config), remote, now + self.wall_offset, now);
        let key = self.conns.insert(connection);
        self.start_heartbeat(key, now);
        key
    }

    /// Bytes of one read, stamped with the arrival of the last of them.
    pub fn handle_bytes(&mut self, key: ConnKey, bytes: &[u8], stamp: Nanos, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.reads()) else { return };
        if conn.input.is_empty() {
            let used = self.run_commands(key, bytes, stamp, now);
            if let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.reads()) {
                conn.input.extend_from_slice(&bytes[used..]);
            }
            return;
        }
        let mut input = std::mem::take(&mut conn.input);
        input.extend_from_slice(bytes);
        let used = self.run_commands(key, &input, stamp, now);
        if let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.reads() && used < input.len()) {
            input.drain(..used);
            conn.input = input;
        }
    }

    /// The peer has ended its stream: it still gets the answers to what it completely sent.
    pub fn handle_eof(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.eof = true;
        match conn.phase {
            Phase::Magic | Phase::Open | Phase::Flushing => {
                conn.phase = Phase::Flushing;
                self.mark_dirty(key);
            }
            Phase::Lingering => self.close(key),
        }
    }

    /// The connection broke.
    pub fn handle_broken(&mut self, key: ConnKey) {
        self.close(key);
    }

    /// The socket took `len` bytes; `now` is after the write.
    pub fn handle_sent(&mut self, key: ConnKey, len: usize, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.blocked_since = None;
        let sent = conn.advance(len);
        while let Some(mark) = conn.marks.front().copied().filter(|mark| mark.end <= sent) {
            conn.marks.pop_front();
            let Some(topic) = self.topics.get_mut(mark.topic) else { continue };
            let sample = Sample { access: mark.due - mark.arrival, consumer_wait: mark.consumer_wait, total: now - mark.arrival };
            topic.latency.get_or_insert_default().record(sample, now);
            if let Some(limiter) = &mut topic.limiter {
                limiter.trace.sent(mark.trace, now);
            }
        }
        self.list_if_ready(key);
    }

    /// The socket takes bytes again.
    pub fn handle_writable(&mut self, key: ConnKey) {
        self.mark_dirty(key);
    }

    /// What a connection still has to send.
    pub fn unsent(&self, key: ConnKey) -> &[u8] {
        self.conns.get(key).map_or(&[], Connection::unsent)
    }

    /// The socket takes nothing just now.
    pub fn handle_blocked(&mut self, key: ConnKey, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.blocked_since.get_or_insert(now);
        self.arm_connection(key);
    }

    /// All output is written: a connection that was only waiting for that goes on to its end. True: shut the sending side down.
    pub fn handle_flushed(&mut self, key: ConnKey, now: Nanos) -> bool {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.phase == Phase::Flushing) else { return false };
        if conn.eof {
            self.close(key);
            return false;
        }
        conn.phase = Phase::Lingering;
        let at = now + LINGER_NS;
        conn.linger_until = at;
        self.timers.arm(&mut conn.armed, at, Timer::Connection(key));
        true
    }

    // ---- the turn ----------------------------------------------------------------------------------------------------------------------

    /// Decide, answer, run timers, deliver. Afterwards `poll_dirty` names who has something to write.
    pub fn finish_turn(&mut self, now: Nanos) {
        self.decide_publishes(now);
        self.send_replies(now);
        self.handle_timeouts(now);
        while let Some(key) = self.dirty_channels.pop() {
            self.deliver(key, now);
        }
    }

    /// When the next turn is due without news from outside: at once if a write or a close made something deliverable.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        if self.dirty_channels.is_empty() { self.timers.next() } else { Some(0) }
    }

    /// What is queued and collected takes all that it may: nothing more should be read before that is decided.
    pub fn memory_is_full(&self) -> bool {
        self.meter.used() > self.config.max_memory_bytes
    }

    /// Connections that may have something to write, each once. The buffer is the caller's, to be used again.
    pub fn poll_dirty(&mut self, into: &mut Vec<ConnKey>) {
        into.clear();
        std::mem::swap(into, &mut self.dirty_conns);
        for key in into {
            if let Some(conn) = self.conns.get_mut(*key) {
                conn.dirty = false;
            }
        }
    }

    /// Connections whose sockets are to be closed.
    pub fn poll_closed(&mut self) -> impl Iterator<Item = ConnKey> {
        std::mem::take(&mut self.closed).into_iter()
    }

    pub fn poll_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    // ---- commands ----------------------------------------------------------------------------------------------------------------------

    /// Run every whole command in `bytes`; gives how many bytes they took.
    fn run_commands(&mut self, key: ConnKey, bytes: &[u8], stamp: Nanos, now: Nanos) -> usize {
        let mut at = 0;
        loop {
            let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.reads()) else { return at };
            if conn.phase == Phase::Magic {
                let Some(magic) = bytes[at..].first_chunk::<4>() else { return at };
                if magic != wire::MAGIC {
                    self.refuse(key, WireError::new(error::E_BAD_PROTOCOL, ""));
                    return at;
                }
                conn.phase = Phase::Open;
                at += 4;
                continue;
            }
            let context = Context { state: conn.state, heartbeats: conn.identity.heartbeat_ms.is_some(), config: &self.config };
            match wire::parse(&bytes[at..], context) {
                Ok(None) => return at,
                Ok(Some((command, len))) => {
                    conn.last_command = now;
                    at += len;
                    if let Err(error) = self.execute(key, command, stamp, now) {
                        self.refuse(key, error);
                    }
                }
                Err(ParseError::Wire(error)) => self.refuse(key, error),
                Err(ParseError::LineTooLong) => self.close(key),
            }
        }
    }

    fn execute(&mut self, key: ConnKey, command: Command<'_>, stamp: Nanos, now: Nanos) -> Result<(), WireError> {
        match command {
            Command::Pub { topic, body } => self.publish_from(key, Verb::Pub, topic, std::iter::once(body), 0, stamp),
            Command::Mpub { topic, bodies } => self.publish_from(key, Verb::Mpub, topic, bodies, 0, stamp),
            Command::Dpub { topic, defer_ms, body } => {
                self.publish_from(key, Verb::Dpub, topic, std::iter::once(body), defer_ms as u32, stamp)
            }
            Command::Fin(id, word) => self.finish(key, id).map_err(|why| not_yours(error::E_FIN_FAILED, "FIN", word, why)),
            Command::Req(id, word, ms) => self.requeue(key, id, ms, now).map_err(|why| not_yours(error::E_REQ_FAILED, "REQ", word, why)),
            Command::Touch(id, word) => self.touch(key, id, now).map_err(|why| not_yours(error::E_TOUCH_FAILED, "TOUCH", word, why)),
            Command::Rdy(count) => {
                self.set_ready(key, count);
                Ok(())
            }
            Command::Nop => Ok(()),
            Command::Sub { topic, channel } => self.subscribe(key, topic, channel, now),
            Command::Cls => {
                self.start_closing(key);
                Ok(())
            }
            Command::Identify(body) => self.identify(key, body, now),
            Command::Auth(_) => Err(WireError::new(error::E_AUTH_DISABLED, "AUTH disabled")),
        }
    }

    pub(crate) fn reply(&mut self, key: ConnKey, reply: Reply) {
        self.turn.replies.push((key, reply));
    }

    fn refuse(&mut self, key: ConnKey, error: WireError) {
        if error.fatal
            && let Some(conn) = self.conns.get_mut(key)
        {
            conn.phase = Phase::Flushing;
        }
        self.reply(key, Reply::Error(error));
    }

    fn send_replies(&mut self, now: Nanos) {
        let mut replies = std::mem::take(&mut self.turn.replies);
        for (key, reply) in replies.drain(..) {
            let Some(conn) = self.conns.get_mut(key) else { continue };
            match reply {
                Reply::Response(data) => conn.respond(data),
                Reply::Json(data) => conn.respond(&data),
                Reply::Error(error) => conn.fail(&error.to_string()),
                Reply::Publish(index) => {
                    let publish = &self.turn.publishes[index];
                    match &publish.outcome {
                        Outcome::Done { .. } if !conn.identity.receipts => conn.respond(wire::OK),
                        Outcome::Done { wait_ns: Some(wait_ns), fill } => {
                            conn.respond(format!("OK wait_ns={wait_ns} fill={fill:.6}").as_bytes());
                        }
                        Outcome::Done { wait_ns: None, fill } => conn.respond(format!("OK fill={fill:.6}").as_bytes()),
                        refused => {
                            let error = refused.error(publish, now);
                            if error.fatal {
                                conn.phase = Phase::Flushing;
                            }
                            conn.fail(&error.to_string());
                        }
                    }
                }
            }
            if conn.unsent().len() > MAX_UNREAD_ANSWERS + self.config.max_msg_size as usize {
                self.close(key);
            }
            self.mark_dirty(key);
        }
        self.turn.replies = replies;
        self.turn.clear();
    }

    fn identify(&mut self, key: ConnKey, body: &[u8], now: Nanos) -> Result<(), WireError> {
        let identity = identify::parse(body, &self.config)?;
        let answer = identity.answer(&self.config);
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        if conn.identity.aware {
            forget_aware(&mut self.aware, &conn.identity, key);
        }
        *conn.identity = identity;
        conn.published.clear();
        if let (true, Some(id)) = (conn.identity.aware, &conn.identity.client_id) {
            self.aware.entry(id.clone()).or_default().push(key);
        }
        self.start_heartbeat(key, now);
        self.reply(key, Reply::Json(answer));
        Ok(())
    }

    fn subscribe(&mut self, key: ConnKey, topic: &str, channel: &str, now: Nanos) -> Result<(), WireError> {
        let topic_key = self.topic_of(topic, self.config.hold_new_topics);
        let channel_key = self.channel_of(topic_key, channel, now);
        let limit = self.config.max_channel_consumers as usize;
        let Some(target) = self.channels.get_mut(channel_key) else { return Ok(()) };
        if limit > 0 && target.consumers.len() >= limit {
            let text = format!("SUB failed consumers for {topic}:{channel} exceeds limit of {limit}");
            return Err(WireError::new(error::E_SUB_FAILED, text));
        }
        target.consumers.push(key);
        if let Some(conn) = self.conns.get_mut(key) {
            conn.state = State::Subscribed;
            conn.subscription = Some(Box::new(Subscription::new(channel_key)));
        }
        self.reply(key, Reply::Response(wire::OK));
        Ok(())
    }

    fn set_ready(&mut self, key: ConnKey, count: u32) {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.state == State::Subscribed) else { return };
        if let Some(sub) = &mut conn.subscription {
            sub.ready = count;
        }
        self.list_if_ready(key);
    }

    fn start_closing(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.state = State::Closing;
            if let Some(sub) = &mut conn.subscription {
                sub.ready = 0;
            }
        }
        self.reply(key, Reply::Response(wire::CLOSE_WAIT));
    }

    fn finish(&mut self, key: ConnKey, id: Option<MessageId>) -> Result<(), NotYours> {
        self.answered(key, id)?;
        if let Some(sub) = self.conns.get_mut(key).and_then(|conn| conn.subscription.as_mut()) {
            sub.finished += 1;
        }
        self.list_if_ready(key);
        Ok(())
    }

    fn requeue(&mut self, key: ConnKey, id: Option<MessageId>, ms: u64, now: Nanos) -> Result<(), NotYours> {
        let (channel_key, entry) = self.answered(key, id)?;
        if let Some(sub) = self.conns.get_mut(key).and_then(|conn| conn.subscription.as_mut()) {
            sub.requeued += 1;
        }
        let Some(channel) = self.channels.get_mut(channel_key) else { return Ok(()) };
        channel.counters.requeued += 1;
        let delay_ns = ms.min(self.config.max_req_timeout_ms) as Nanos * 1_000_000;
        if delay_ns == 0 {
            channel.queue.push_back(entry.message);
        } else {
            let due = channel.defer(entry.message, now + delay_ns);
            self.timers.arm(&mut channel.armed, due, Timer::Deferred(channel_key));
        }
        self.mark_channel(channel_key);
        self.list_if_ready(key);
        Ok(())
    }

    fn touch(&mut self, key: ConnKey, id: Option<MessageId>, now: Nanos) -> Result<(), NotYours> {
        let limit_ns = self.config.max_msg_timeout_ms as Nanos * 1_000_000;
        let conn = self.conns.get_mut(key).ok_or(NotYours::NotInFlight)?;
        let timeout_ns = conn.identity.msg_timeout_ms as Nanos * 1_000_000;
        let sub = conn.subscription.as_mut().ok_or(NotYours::NotInFlight)?;
        let channel = self.channels.get_mut(sub.channel).ok_or(NotYours::NotInFlight)?;
        let id = id.ok_or(NotYours::NotInFlight)?;
        let entry = channel.in_flight.get_mut(&id).ok_or(NotYours::NotInFlight)?;
        if entry.owner != key {
            return Err(NotYours::OtherOwner);
        }
        let deadline = (now + timeout_ns).min(entry.delivered + limit_ns);
        if deadline != entry.deadline {
            entry.deadline = deadline;
            sub.push_deadline(deadline, id);
            self.timers.arm(&mut sub.armed, deadline, Timer::MessageTimeout(key));
            drop_stale_deadlines(sub, channel);
        }
        Ok(())
    }

    /// Take a message out of flight for FIN and REQ, freeing a slot of its consumer.
    fn answered(&mut self, key: ConnKey, id: Option<MessageId>) -> Result<(ChannelKey, InFlight), NotYours> {
        let conn = self.conns.get_mut(key).ok_or(NotYours::NotInFlight)?;
        let sub = conn.subscription.as_mut().ok_or(NotYours::NotInFlight)?;
        let channel = self.channels.get_mut(sub.channel).ok_or(NotYours::NotInFlight)?;
        let entry = channel.answered(id, key)?;
        sub.in_flight -= 1;
        drop_stale_deadlines(sub, channel);
        Ok((sub.channel, entry))
    }

    // ---- publishing --------------------------------------------------------------------------------------------------------------------

    #[allow(clippy::too_many_arguments)] // the one place where a command's parts and a turn's instants meet
    fn publish_from<'a>(
        &mut self,
        key: ConnKey,
        verb: Verb,
        topic: &str,
        bodies: impl Iterator<Item = &'a [u8]>,
        defer_ms: u32,
        stamp: Nanos,
    ) -> Result<(), WireError> {
        if let Some(reason) = &self.refusal {
            return Err(WireError::new(verb.failed(), format!("{} failed {reason}", verb.name())));
        }
        let index = self.published_index(key, topic);
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        let published = &conn.published[index];
        let source = Source { declared: published.declared, trace_index: published.trace_index, conn: Some(key) };
        let topic = published.topic;
        self.collect(verb, topic, source, bodies, defer_ms, stamp);
        self.turn.replies.push((key, Reply::Publish(self.turn.publishes.len() - 1)));
        Ok(())
    }

    /// The connection's cache entry for a topic, made or renewed where the topic or its publisher list is another by now.
    fn published_index(&mut self, key: ConnKey, name: &str) -> usize {
        let Some(conn) = self.conns.get(key) else { return 0 };
        let cached = conn.published_index(name);
        if let Some(index) = cached {
            let entry = &conn.published[index];
            if self.topics.get(entry.topic).is_some_and(|topic| topic.generation == entry.generation) {
                return index;
            }
        }
        self.look_up_published(key, name, cached)
    }

    #[cold]
    fn look_up_published(&mut self, key: ConnKey, name: &str, cached: Option<usize>) -> usize {
        let topic_key = self.topic_of(name, self.config.hold_new_topics);
        let Some((conn, topic)) = self.conns.get_mut(key).zip(self.topics.get_mut(topic_key)) else { return 0 };
        let client_id = conn.identity.client_id.clone();
        let declared = match (&topic.publishers, &client_id) {
            (None, _) => true,
            (Some(assigned), Some(id)) => assigned.contains(id),
            (Some(_), None) => false,
        };
        let trace_index = topic.limiter.as_mut().map(|limiter| limiter.trace.publisher(conn.client_id()));
        let count = cached.map_or(0, |index| conn.published[index].count);
        let entry = Published { topic: topic_key, name: name.into(), count, generation: topic.generation, declared, trace_index };
        if !declared
            && let Some(id) = client_id
            && topic.strangers.len() < MAX_STRANGERS
            && topic.strangers.insert(id.clone())
        {
            self.events.push(Event::Stranger { topic: name.into(), publisher_id: id.into() });
        }
        match cached {
            Some(index) => {
                conn.published[index] = entry;
                index
            }
            None => conn.remember(entry),
        }
    }

    /// Keep a publish until the end of the turn. The bodies are copied into their frames here.
    pub(crate) fn collect<'a>(
        &mut self,
        verb: Verb,
        topic: TopicKey,
        source: Source,
        bodies: impl Iterator<Item = &'a [u8]>,
        defer_ms: u32,
        stamp: Nanos,
    ) {
        let first = self.turn.messages.len();
        let wall_ns = stamp + self.wall_offset;
        let mut bytes = 0;
        for body in bodies {
            let id = self.ids.next(wall_ns);
            bytes += body.len() as u64;
            let message = Message::new(&mut self.scratch, &self.meter, id, wall_ns, body, stamp, defer_ms);
            self.turn.messages.push(Some(message));
        }
        self.turn.publishes.push(Publish {
            verb,
            topic,
            source,
            stamp,
            first,
            count: (self.turn.messages.len() - first) as u32,
            bytes,
            outcome: Outcome::Undecided,
        });
    }

    /// A released message goes to the topic's channels, or waits in the topic for the first one.
    pub(crate) fn release(&mut self, key: TopicKey, mut message: Message, now: Nanos) {
        let Some(topic) = self.topics.get_mut(key) else { return };
        topic.counters.released += 1;
        message.times.queued = now;
        if topic.flows() {
            self.fan_out(key, message, now);
        } else {
            topic.queue.push_back(message);
        }
    }

    fn fan_out(&mut self, key: TopicKey, message: Message, now: Nanos) {
        let Some(topic) = self.topics.get(key) else { return };
        let Some((&last, others)) = topic.channels.split_last() else { return };
        for &channel in others {
            put(&mut self.channels, &mut self.timers, &mut self.dirty_channels, channel, message.clone(), now);
        }
        put(&mut self.channels, &mut self.timers, &mut self.dirty_channels, last, message, now);
    }

    /// Move what waits in a topic to its channels, if it may move.
    pub(crate) fn pump(&mut self, key: TopicKey, now: Nanos) {
        while let Some(topic) = self.topics.get_mut(key).filter(|topic| topic.flows()) {
            let Some(message) = topic.queue.pop_front() else { break };
            self.fan_out(key, message, now);
        }
    }

    /// Let go what the topic's bucket lets go by `now`, and arm for the next.
    pub(crate) fn release_due(&mut self, key: TopicKey, now: Nanos) {
        self.release_until(key, now, now);
        self.arm_release(key);
    }

    /// Let go what is due by `until`. Before an arrival is decided, what was due before it must be gone, or the bucket's cap would come too late.
    pub(crate) fn release_until(&mut self, key: TopicKey, until: Nanos, now: Nanos) {
        while let Some(limiter) = self.topics.get_mut(key).and_then(|topic| topic.limiter.as_mut()) {
            let Some(message) = limiter.release_due(until, now) else { break };
            self.release(key, message, now);
        }
    }

    pub(crate) fn arm_release(&mut self, key: TopicKey) {
        let Some(topic) = self.topics.get_mut(key) else { return };
        if let Some(due) = topic.limiter.as_ref().and_then(|limiter| limiter.backlog.next_due()) {
            self.timers.arm(&mut topic.armed, due, Timer::Release(key));
        }
    }

    // ---- delivering --------------------------------------------------------------------------------------------------------------------

    /// Give a channel's queue to its ready consumers in turn, until one or the other is empty.
    fn deliver(&mut self, key: ChannelKey, now: Nanos) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        channel.dirty = false;
        if channel.paused {
            return;
        }
        while !channel.queue.is_empty() {
            let Some(consumer) = channel.ready.pop_front() else { break };
            let Some(conn) = self.conns.get_mut(consumer) else { continue };
            let ready = conn.is_ready();
            let timeout_ns = conn.identity.msg_timeout_ms as Nanos * 1_000_000;
            let sample_rate = conn.identity.sample_rate;
            let Some(sub) = conn.subscription.as_mut() else { continue };
            sub.listed = false;
            if !ready {
                continue;
            }
            let Some(mut message) = channel.queue.pop_front() else { break };
            if sample_rate == 0 || draw_percent(&mut self.sampler) <= sample_rate {
                message.attempts = message.attempts.saturating_add(1);
                let deadline = now + timeout_ns;
                sub.in_flight += 1;
                sub.messages += 1;
                sub.push_deadline(deadline, message.id);
                self.timers.arm(&mut sub.armed, deadline, Timer::MessageTimeout(consumer));
                let mark = (message.attempts == 1).then(|| first_delivery(channel.topic, &message, now));
                conn.deliver(&message, mark);
                channel.in_flight.insert(message.id, InFlight { message, owner: consumer, delivered: now, deadline });
                if !conn.dirty {
                    conn.dirty = true;
                    self.dirty_conns.push(consumer);
                }
            }
            let ready = conn.is_ready();
            if let Some(sub) = conn.subscription.as_mut().filter(|_| ready) {
                sub.listed = true;
                channel.ready.push_back(consumer);
            }
        }
    }

    /// A consumer that may have got credit or room joins its channel's ring.
    pub(crate) fn list_if_ready(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.is_ready()) else { return };
        let Some(sub) = conn.subscription.as_mut().filter(|sub| !sub.listed) else { return };
        sub.listed = true;
        let channel_key = sub.channel;
        if let Some(channel) = self.channels.get_mut(channel_key) {
            channel.ready.push_back(key);
            if !channel.queue.is_empty() {
                self.mark_channel(channel_key);
            }
        }
    }

    pub(crate) fn mark_channel(&mut self, key: ChannelKey) {
        if let Some(channel) = self.channels.get_mut(key).filter(|channel| !channel.dirty) {
            channel.dirty = true;
            self.dirty_channels.push(key);
        }
    }

    pub(crate) fn mark_dirty(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key).filter(|conn| !conn.dirty) {
            conn.dirty = true;
            self.dirty_conns.push(key);
        }
    }

    // ---- timers ------------------------------------------------------------------------------------------------------------------------

    fn handle_timeouts(&mut self, now: Nanos) {
        while let Some((at, timer)) = self.timers.pop(now) {
            match timer {
                Timer::Release(key) => {
                    if self.topics.get_mut(key).is_some_and(|topic| topic.armed.fire(at)) {
                        self.release_due(key, now);
                    }
                }
                Timer::Deferred(key) => self.handle_deferred(key, at, now),
                Timer::MessageTimeout(key) => self.handle_message_timeouts(key, at, now),
                Timer::Connection(key) => {
                    if self.conns.get_mut(key).is_some_and(|conn| conn.armed.fire(at)) {
                        self.handle_connection_timer(key, now);
                    }
                }
            }
        }
        self.drop_stale_timers();
    }

    /// Owners that are gone, or armed for earlier since, leave entries behind: a storm of short connections must not pile up those of a minute.
    fn drop_stale_timers(&mut self) {
        let owners = 2 * self.conns.len() + self.channels.len() + self.topics.len();
        if self.timers.entries() < 1_024 + 2 * owners {
            return;
        }
        self.timers.retain(|at, timer| match timer {
            Timer::Release(key) => self.topics.get(key).is_some_and(|topic| topic.armed.is_for(at)),
            Timer::Deferred(key) => self.channels.get(key).is_some_and(|channel| channel.armed.is_for(at)),
            Timer::Connection(key) => self.conns.get(key).is_some_and(|conn| conn.armed.is_for(at)),
            Timer::MessageTimeout(key) => {
                self.conns.get(key).and_then(|conn| conn.subscription.as_ref()).is_some_and(|sub| sub.armed.is_for(at))
            }
        });
    }

    fn handle_deferred(&mut self, key: ChannelKey, at: Nanos, now: Nanos) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        if !channel.armed.fire(at) {
            return;
        }
        let moved = channel.undefer(now);
        if let Some(due) = channel.next_deferred() {
            self.timers.arm(&mut channel.armed, due, Timer::Deferred(key));
        }
        if moved {
            self.mark_channel(key);
        }
    }

    fn handle_message_timeouts(&mut self, key: ConnKey, at: Nanos, now: Nanos) {
        let Some(sub) = self.conns.get_mut(key).and_then(|conn| conn.subscription.as_mut()) else { return };
        if !sub.armed.fire(at) {
            return;
        }
        let channel_key = sub.channel;
        let Some(channel) = self.channels.get_mut(channel_key) else { return };
        while let Some(&(deadline, id)) = sub.deadlines.front().filter(|(deadline, _)| *deadline <= now) {
            sub.deadlines.pop_front();
            let live = channel.in_flight.get(&id).is_some_and(|entry| entry.owner == key && entry.deadline == deadline);
            if let Some(entry) = live.then(|| channel.in_flight.remove(&id)).flatten() {
                sub.in_flight -= 1;
                channel.counters.timed_out += 1;
                channel.queue.push_back(entry.message);
            }
        }
        if let Some(&(deadline, _)) = sub.deadlines.front() {
            self.timers.arm(&mut sub.armed, deadline, Timer::MessageTimeout(key));
        }
        self.list_if_ready(key);
        self.mark_channel(channel_key);
    }

    fn handle_connection_timer(&mut self, key: ConnKey, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let overdue = conn.phase == Phase::Lingering && conn.linger_until <= now;
        if overdue || conn.silence_deadline().is_some_and(|deadline| deadline <= now) {
            return self.close(key);
        }
        if let Some(interval) = conn.heartbeat_ns().filter(|_| conn.next_heartbeat <= now) {
            conn.next_heartbeat = now + interval;
            if conn.phase == Phase::Open {
                conn.respond(wire::HEARTBEAT);
                self.mark_dirty(key);
            }
        }
        self.arm_connection(key);
    }

    fn start_heartbeat(&mut self, key: ConnKey, now: Nanos) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.next_heartbeat = conn.heartbeat_ns().map_or(Nanos::MAX, |interval| now + interval);
        }
        self.arm_connection(key);
    }

    fn arm_connection(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let heartbeat = if conn.phase == Phase::Lingering { conn.linger_until } else { conn.next_heartbeat };
        let at = conn.silence_deadline().map_or(heartbeat, |deadline| deadline.min(heartbeat));
        if at < Nanos::MAX {
            self.timers.arm(&mut conn.armed, at, Timer::Connection(key));
        }
    }

    // ---- the end of a connection -------------------------------------------------------------------------------------------------------

    /// Forget a connection. What was in flight to it is requeued at once (on purpose not nsqd's way: design section 2).
    pub(crate) fn close(&mut self, key: ConnKey) {
        let Some(mut conn) = self.conns.remove(key) else { return };
        self.closed.push(key);
        if conn.identity.aware {
            forget_aware(&mut self.aware, &conn.identity, key);
        }
        let Some(sub) = conn.subscription.take() else { return };
        let Some(channel) = self.channels.get_mut(sub.channel) else { return };
        channel.remove_consumer(key);
        channel.requeue_of(key, sub.deadlines.iter().map(|(_, id)| *id));
        if channel.consumers.is_empty() && wire::is_ephemeral(&channel.name) {
            self.remove_channel(sub.channel);
        } else {
            self.mark_channel(sub.channel);
        }
    }
}

/// Stranger events that one assignment of a topic may cause: more would only be noise, and a hostile client could make up ids for ever.
const MAX_STRANGERS: usize = 100_000;

fn put(
    channels: &mut SlotMap<ChannelKey, Channel>,
    timers: &mut Timers,
    dirty: &mut Vec<ChannelKey>,
    key: ChannelKey,
    message: Message,
    now: Nanos,
) {
    let Some(channel) = channels.get_mut(key) else { return };
    if let Some(due) = channel.put(message, now) {
        timers.arm(&mut channel.armed, due, Timer::Deferred(key));
    }
    if !channel.dirty {
        channel.dirty = true;
        dirty.push(key);
    }
}

fn first_delivery(topic: TopicKey, message: &Message, now: Nanos) -> Mark {
    let times = message.times;
    Mark { end: 0, topic, arrival: times.arrival, due: times.due, consumer_wait: now - times.queued, trace: times.trace }
}

fn drop_stale_deadlines(sub: &mut Subscription, channel: &Channel) {
    let live = |&(deadline, id): &(Nanos, MessageId)| channel.in_flight.get(&id).is_some_and(|entry| entry.deadline == deadline);
    while sub.deadlines.front().is_some_and(|front| !live(front)) {
        sub.deadlines.pop_front();
    }
    if sub.is_stale_heavy() {
        sub.deadlines.retain(live);
    }
}

fn forget_aware(aware: &mut HashMap<Box<str>, Vec<ConnKey>>, identity: &Identity, key: ConnKey) {
    let Some(id) = &identity.client_id else { return };
    if let Some(keys) = aware.get_mut(id) {
        keys.retain(|other| *other != key);
        if keys.is_empty() {
            aware.remove(id);
        }
    }
}

#[cold]
fn not_yours(code: &'static str, command: &str, word: &[u8], why: NotYours) -> WireError {
    WireError::new(code, format!("{command} {} failed {}", String::from_utf8_lossy(word), why.text()))
}

/// 0 to 99, xorshift64*: a draw for `sample_rate`, nothing that must be unpredictable.
fn draw_percent(state: &mut u64) -> u8 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    ((state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % 100) as u8
}
