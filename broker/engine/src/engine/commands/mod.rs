//! Commands of clients, run on the engine; the answers are kept for the end of the turn.
//!
//! Imports everything below the engine, and the engine. Begin with `run_commands`; `admission` decides publishes,
//! `refuse` answers a bad frame and ends the connection where that is fatal.

pub mod admission;
pub mod authorization;
pub mod contract_checks;
pub mod large_messages;
pub mod large_mpub;
pub mod left_command;
pub mod publish_messages;

use crate::arrival::stamps::Stamps;
use crate::clients::connection::{Connection, Phase, Subscription};
use crate::clients::mpub_progress::{Batch, Sliced};
use crate::clients::pending_input::WaitFor;
use crate::clients::reply::Reply;
use crate::config::{Config, TlsRequired};
use crate::engine::http::publish_routes::write_outcome;
use crate::engine::{Engine, forget_aware};
use crate::http::answer::Exchange;
use crate::id::MessageId;
use crate::keys::{ChannelKey, ConnKey};
use crate::memory::LARGE_BYTES;
use crate::protocol::codec::{self, Command, Context, ParseError, State};
use crate::protocol::errors::{self, WireError};
use crate::protocol::identify;
use crate::protocol::mqtt::reason::Reason;
use crate::protocol::verb::Verb;
use crate::queueing::channel::{Channel, InFlight, NotYours};
use crate::queueing::publish::{Asked, Outcome, Publish};
use crate::queueing::zone_preference::Nearness;
use crate::scheduling::client_limits::Limit;
use crate::scheduling::work_budget::{IDENTIFY_UNITS, REFUSAL_UNITS};
use crate::time::Nanos;
use crate::timer::Timer;

/// When a command may run.
enum Ready {
    Now,
    NextTurn,     // it goes on then
    OnceAnswered, // by an auth server
    Done,         // it has run, in pieces
}

impl Engine {
    /// Run the whole commands in `bytes`, as many as the connection's quantum allows; gives how many bytes they took.
    pub(crate) fn run_commands(&mut self, key: ConnKey, bytes: &[u8], stamps: Stamps<'_>, now: Nanos) -> usize {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.takes_commands()) else { return 0 };
        if conn.http.is_some() {
            return self.run_requests(key, bytes, stamps, now);
        }
        if conn.mqtt.is_some() {
            return self.run_packets(key, bytes, stamps, now);
        }
        if conn.link.is_some() {
            return self.run_frames(key, bytes, stamps, now);
        }
        let (before, bound) = (self.work.units, self.work.begin(&mut conn.deficit));
        let used = self.run_until(bound, key, bytes, stamps, now);
        if let Some(conn) = self.conns.get_mut(key) {
            self.work.end(&mut conn.deficit, before);
        }
        used
    }

    /// Run commands until the turn's work has come to `bound`.
    fn run_until(&mut self, bound: u32, key: ConnKey, bytes: &[u8], stamps: Stamps<'_>, now: Nanos) -> usize {
        let mut at = 0;
        loop {
            let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.takes_commands()) else { return at };
            if self.work.units >= bound && at < bytes.len() {
                self.defer_to_next_turn(key);
                return at;
            }
            if conn.leaves_answers(self.config.max_msg_size as usize) {
                self.defer(key, WaitFor::Client);
                return at;
            }
            self.work.note(1);
            if conn.phase == Phase::Magic {
                if !self.takes_magic(key, &bytes[at..]) {
                    return at;
                }
                at += codec::MAGIC.len();
                continue;
            }
            if !self.has_looked_through(key, &bytes[at..], bound) {
                self.defer_to_next_turn(key);
                return at;
            }
            let Some(conn) = self.conns.get_mut(key) else { return at };
            let (command, len) = match codec::parse(&bytes[at..], context_of(conn, &self.config)) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => return at,
                Err(error) => {
                    self.refuse_unparsed(key, error);
                    continue;
                }
            };
            conn.last_command = now;
            let (stamp, publishes) = (stamps.at(at + len), self.turn.publishes.len());
            match self.make_ready(key, &command, stamp, bound, now) {
                Ok(Ready::Now) => {}
                Ok(Ready::Done) => {
                    at += len;
                    continue;
                }
                Ok(Ready::NextTurn) => {
                    self.defer_to_next_turn(key);
                    return at;
                }
                Ok(Ready::OnceAnswered) => return at,
                Err(error) => {
                    self.refuse(key, error);
                    return at;
                }
            }
            at += len;
            if let Err(error) = self.execute(key, command, stamp, now) {
                self.refuse(key, error);
            }
            self.turn.shares_stamp |= at < bytes.len() && self.turn.publishes.len() > publishes;
        }
    }

    /// Whether the bytes begin with those that a connection begins with. Others are refused.
    fn takes_magic(&mut self, key: ConnKey, bytes: &[u8]) -> bool {
        let Some(magic) = bytes.first_chunk::<4>() else { return false };
        if magic != codec::MAGIC {
            self.refuse(key, WireError::new(errors::E_BAD_PROTOCOL, ""));
            return false;
        }
        if let Some(conn) = self.conns.get_mut(key) {
            conn.phase = Phase::Open;
        }
        true
    }

    #[cold]
    fn refuse_unparsed(&mut self, key: ConnKey, error: ParseError) {
        match error {
            ParseError::Wire(error) => self.refuse(key, error),
            ParseError::TooManyMessages(error) => {
                self.note_limit(Limit::MpubMessages, key);
                self.refuse(key, error);
            }
            ParseError::LineTooLong => self.close(key),
        }
    }

    /// Whether a command may run now, as a whole; what goes in pieces goes on here. An error refuses it.
    #[inline]
    fn make_ready(
        &mut self,
        key: ConnKey,
        command: &Command<'_>,
        stamp: Nanos,
        bound: u32,
        now: Nanos,
    ) -> Result<Ready, WireError> {
        let is_link = self.conns.get(key).is_some_and(|conn| conn.terms.linked); // it has shown its key
        if self.judges_clients() && !is_link && !self.may_run(key, command, now)? {
            return Ok(Ready::OnceAnswered);
        }
        if !self.is_built(key, command, bound)? {
            return Ok(Ready::NextTurn);
        }
        let Command::Mpub { topic, bodies } = *command else { return Ok(Ready::Now) };
        let sliced = self.run_slice(Batch { key, topic, stamp, bound, exchange: None }, bodies);
        Ok(match sliced.map_err(|why| Verb::Mpub.refused(&why))? {
            Sliced::Whole => Ready::Now,
            Sliced::Later => Ready::NextTurn,
            Sliced::Done => Ready::Done,
        })
    }

    /// Whether the message of a PUB or DPUB, if it is large, is whole; it is built until the turn's work has come to
    /// `bound`. One for a limited topic was built as it came in: what stays behind would be decided behind later
    /// arrivals.
    fn is_built(&mut self, key: ConnKey, command: &Command<'_>, bound: u32) -> Result<bool, WireError> {
        let (verb, topic, body) = match command {
            Command::Pub { topic, body } => (Verb::Pub, topic, body),
            Command::Dpub { topic, body, .. } => (Verb::Dpub, topic, body),
            _ => return Ok(true),
        };
        if body.len() < LARGE_BYTES || self.has_limit(topic) {
            return Ok(true);
        }
        self.check_accepting(verb, topic)?;
        if let Some(why) = self.refusal_to_build(key, topic, body.len()) {
            return Err(verb.refused(&why));
        }
        Ok(self.build(key, body, bound))
    }

    fn execute(&mut self, key: ConnKey, command: Command<'_>, stamp: Nanos, now: Nanos) -> Result<(), WireError> {
        match command {
            Command::Pub { topic, body } => self.publish_from(
                Asked { key, verb: Verb::Pub, topic, defer_ms: 0, stamp, attributes: b"" },
                std::iter::once(body),
            ),
            Command::Mpub { topic, bodies } => {
                self.publish_from(Asked { key, verb: Verb::Mpub, topic, defer_ms: 0, stamp, attributes: b"" }, bodies)
            }
            Command::Dpub { topic, defer_ms, body } => self.publish_from(
                Asked { key, verb: Verb::Dpub, topic, defer_ms: defer_ms as u32, stamp, attributes: b"" },
                std::iter::once(body),
            ),
            Command::Fin(id, word) => {
                self.finish(key, id, now).map_err(|why| not_yours(errors::E_FIN_FAILED, "FIN", word, why))
            }
            Command::Req(id, word, ms) => {
                self.requeue(key, id, ms, now).map_err(|why| not_yours(errors::E_REQ_FAILED, "REQ", word, why))
            }
            Command::Touch(id, word) => {
                self.touch(key, id, now).map_err(|why| not_yours(errors::E_TOUCH_FAILED, "TOUCH", word, why))
            }
            Command::Rdy(count) => {
                self.set_ready(key, count);
                Ok(())
            }
            Command::Nop => Ok(()),
            Command::Left { topic, number } => {
                self.ask_left(key, topic, number, now);
                Ok(())
            }
            Command::Sub { topic, channel } => self.subscribe(key, topic, channel, now),
            Command::Cls => {
                self.start_closing(key);
                Ok(())
            }
            Command::Identify(body) => self.identify(key, body, now),
            Command::Auth(secret) => self.auth(key, secret),
        }
    }

    pub(crate) fn reply(&mut self, key: ConnKey, reply: Reply) {
        self.turn.replies.push((key, reply));
    }

    pub(crate) fn refuse(&mut self, key: ConnKey, error: WireError) {
        self.work.note(REFUSAL_UNITS);
        if self.conns.get(key).is_some_and(|conn| conn.mqtt.is_some()) {
            return self.end_mqtt(key, Reason::QUOTA_EXCEEDED, &error.text);
        }
        if self.conns.get(key).is_some_and(|conn| conn.link.is_some()) {
            return self.end_link(key, &error.text);
        }
        if error.fatal {
            self.end_input_of(key);
        }
        self.reply(key, Reply::Error(error));
    }

    /// Ends the commands of a connection. If it left bytes in the kernel, the reactor drops them and all that follow.
    pub(crate) fn end_input_of(&mut self, key: ConnKey) {
        if self.conns.get_mut(key).is_some_and(Connection::end_input) {
            self.schedule.resumed.push(key);
        }
    }

    pub(crate) fn send_replies(&mut self, now: Nanos) {
        let mut replies = std::mem::take(&mut self.turn.replies);
        let mut publishes = std::mem::take(&mut self.turn.publishes);
        let mut refused_on_the_way = Vec::new(); // a slice of an MPUB was
        for (key, reply) in replies.drain(..) {
            if refused_on_the_way.contains(&key) {
                continue;
            }
            let publish = reply.index().and_then(|index| publishes.get_mut(index));
            if self.is_held(key, publish.as_deref()) {
                self.hold(key, reply, publish.cloned(), now);
            } else if self.give(key, reply, publish, now) {
                refused_on_the_way.push(key);
            }
        }
        refused_on_the_way.into_iter().for_each(|key| self.end_refused(key));
        replies.append(&mut self.turn.replies); // of connections that end by their answer
        self.turn.replies = replies;
        publishes.clear();
        self.turn.publishes = publishes;
        self.turn.clear();
    }

    /// Write an answer, if to a publish then to that one. True: it refuses a slice of an MPUB, and is the last.
    pub(crate) fn give(&mut self, key: ConnKey, reply: Reply, publish: Option<&mut Publish>, now: Nanos) -> bool {
        let Some(conn) = self.conns.get_mut(key) else { return false };
        self.mqtt.counters.packets_out += u64::from(conn.mqtt.is_some());
        match reply {
            Reply::Response(data) => conn.respond(data),
            Reply::Json(data) => conn.respond(&data),
            Reply::Error(error) => conn.fail(&error.to_string()),
            Reply::Raw(answer) => conn.append(answer),
            Reply::Start(step) => {
                if conn.start(step).is_err() {
                    self.close(key);
                }
                return false;
            }
            Reply::Mqtt(_, id, qos) => {
                let Some(publish) = publish else { return false };
                publish.settle();
                self.answer_mqtt_publish(key, publish, id, qos, now);
            }
            Reply::Linked(_, id) => {
                let Some(publish) = publish else { return false };
                publish.settle();
                let publish = publish.clone();
                self.answer_linked(key, &publish, id);
            }
            Reply::Publish(_) | Reply::Slice(_) | Reply::Published(..) => {
                let Some(publish) = publish else { return false };
                publish.settle();
                let is_slice = matches!(reply, Reply::Slice(_));
                if is_slice && matches!(publish.outcome, Outcome::Done { .. }) {
                    return false;
                }
                if conn.http.is_some() {
                    let exchange = if let Reply::Published(_, exchange) = reply { exchange } else { Exchange::LAST };
                    self.http.date.set(self.clock.wall(now).div_euclid(1_000_000_000));
                    write_outcome(conn.output(), publish, exchange, &self.http.date, now);
                } else if answer_publish(conn, publish, now) {
                    self.schedule.resumed.push(key);
                }
                self.mark_dirty(key);
                return is_slice;
            }
        }
        self.mark_dirty(key);
        false
    }

    pub(crate) fn identify(&mut self, key: ConnKey, body: &[u8], now: Nanos) -> Result<(), WireError> {
        self.work.note(IDENTIFY_UNITS);
        let mut identity = identify::parse(body, &self.config)?;
        self.identify_link(&mut identity)?;
        let answer = identity.answer(&self.config);
        let features = identity.features;
        if features.any() && self.conns.get(key).is_some_and(|conn| conn.layers.is_some()) {
            return Err(WireError::new(
                errors::E_IDENTIFY_FAILED,
                "IDENTIFY failed TLS and compression can be asked for once",
            ));
        }
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        if conn.identity().aware {
            forget_aware(&mut self.aware, conn.identity(), key);
        }
        conn.identify(identity);
        if let (true, Some(id)) = (conn.identity().aware, &conn.identity().client_id) {
            self.aware.entry(id.clone()).or_default().push(key);
        }
        self.start_heartbeat(key, now);
        self.reply(key, Reply::Json(answer));
        if features.any() { self.upgrade(key, features, now) } else { Ok(()) }
    }

    pub(crate) fn subscribe(&mut self, key: ConnKey, topic: &str, channel: &str, now: Nanos) -> Result<(), WireError> {
        let client = self.conns.get(key).map_or("", |conn| &conn.remote).to_owned();
        if let Some(why) = self.refusal_to_make(topic, channel, &client) {
            return Err(WireError::new(errors::E_SUB_FAILED, format!("SUB failed {why}")));
        }
        self.take_link_channel(key, topic, channel)?;
        let topic_key = self.topic_of(topic);
        let channel_key = self.channel_of(topic_key, channel, now);
        let limit = self.config.max_channel_consumers as usize;
        let Some(target) = self.channels.get_mut(channel_key) else { return Ok(()) };
        if limit > 0 && target.consumers.len() >= limit {
            let text = format!("SUB failed consumers for {topic}:{channel} exceeds limit of {limit}");
            return Err(WireError::new(errors::E_SUB_FAILED, text));
        }
        target.consumers.push(key);
        if let Some(conn) = self.conns.get_mut(key) {
            conn.state = State::Subscribed;
            conn.subscription =
                Some(Box::new(Subscription::new(channel_key, Nearness::of(conn.identity(), &self.config))));
        }
        self.reply(key, Reply::Response(codec::OK));
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
        self.reply(key, Reply::Response(codec::CLOSE_WAIT));
    }

    pub(crate) fn finish(&mut self, key: ConnKey, id: Option<MessageId>, now: Nanos) -> Result<(), NotYours> {
        let (channel, entry) = self.answered(key, id)?;
        if !self.config.e2e_percentiles.is_empty() {
            self.note_end_to_end(channel, &entry, now);
        }
        if let Some(sub) = self.conns.get_mut(key).and_then(|conn| conn.subscription.as_mut()) {
            sub.finished += 1;
        }
        self.list_if_ready(key);
        Ok(())
    }

    #[cold]
    fn note_end_to_end(&mut self, key: ChannelKey, entry: &InFlight, now: Nanos) {
        let latency_ns = self.clock.wall(now) - entry.message.wall_ns();
        if let Some(channel) = self.channels.get_mut(key) {
            channel.e2e.get_or_insert_default().record(latency_ns, self.config.e2e_window_ns(), now);
        }
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
        let timeout_ns = conn.identity().msg_timeout_ms as Nanos * 1_000_000;
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
    pub(crate) fn answered(&mut self, key: ConnKey, id: Option<MessageId>) -> Result<(ChannelKey, InFlight), NotYours> {
        let conn = self.conns.get_mut(key).ok_or(NotYours::NotInFlight)?;
        let sub = conn.subscription.as_mut().ok_or(NotYours::NotInFlight)?;
        let channel = self.channels.get_mut(sub.channel).ok_or(NotYours::NotInFlight)?;
        let entry = channel.answered(id, key)?;
        sub.in_flight -= 1;
        // Most answers come in the order of their deliveries, and cost no search then.
        if sub.deadlines.front().is_some_and(|(_, first)| *first == entry.message.id) {
            sub.deadlines.pop_front();
        }
        drop_stale_deadlines(sub, channel);
        let (channel_key, starved) = (sub.channel, channel.starved);
        if starved {
            self.mark_channel(channel_key);
        }
        Ok((channel_key, entry))
    }
}

/// What a connection's commands are read by.
#[inline]
fn context_of<'a>(conn: &Connection, config: &'a Config) -> Context<'a> {
    Context {
        state: conn.state,
        heartbeats: conn.terms.heartbeats,
        needs_tls: config.tls_required != TlsRequired::False && !conn.has_tls(),
        asks_left: conn.terms.left,
        checked: conn.sliced.is_some(),
        seen: conn.seen,
        config,
    }
}

/// Gives whether the refusal is fatal to a connection whose input waited.
fn answer_publish(conn: &mut Connection, publish: &Publish, now: Nanos) -> bool {
    let mut waited = false;
    match &publish.outcome {
        Outcome::Done { .. } if !conn.terms.receipts => conn.respond(codec::OK),
        Outcome::Done { wait_ns: Some(wait_ns), fill } => {
            conn.respond(format!("OK wait_ns={wait_ns} fill={fill:.6}").as_bytes())
        }
        Outcome::Done { wait_ns: None, fill } => conn.respond(format!("OK fill={fill:.6}").as_bytes()),
        refused => {
            let error = refused.error(publish, now);
            if error.fatal {
                waited = conn.end_input();
            }
            conn.fail(&error.to_string());
        }
    }
    waited
}

/// Those of answered messages may stay until they are too many: an alarm that finds only them costs little.
fn drop_stale_deadlines(sub: &mut Subscription, channel: &Channel) {
    if sub.is_stale_heavy() {
        sub.deadlines
            .retain(|(deadline, id)| channel.in_flight.get(id).is_some_and(|entry| entry.deadline == *deadline));
    }
}

#[cold]
fn not_yours(code: &'static str, command: &str, word: &[u8], why: NotYours) -> WireError {
    WireError::new(code, format!("{command} {} failed {}", String::from_utf8_lossy(word), why.text()))
}
