//! The sans-I/O core: `Engine`, which owns connections, topics, channels and timers, and its turn.
//!
//! Imports everything but `io`. Its children extend `Engine`, each for one thing. State besides `Engine` itself is
//! below, in folders that never import this one. Begin with `answer_turn` and `deliver_turn`, then `commands`.
//!
//! A turn is: `handle_bytes` for every connection that has some, `answer_turn`, `deliver_turn`. The reactor writes what
//! `poll_dirty` names at the end, or after both halves where `answer_turn` asks for it.
//! Publishes of a turn are collected and decided together, in order of arrival, whatever connection they came on.
//! Answers go out in the order of the commands. Methods are of three kinds: `handle_*` for what the network or the
//! clock brings, `poll_*` for what is to be done outside, and plain verbs for commands from Python
//! (`engine/control.rs`). `now` is always the last argument; nothing here reads a clock.

pub mod budget;
pub mod commands;
pub mod control;
pub mod delivery;
pub mod http;
pub mod input;
pub mod leases;
pub mod limits;
pub mod mqtt;
pub mod session;
pub mod snapshot;
pub mod timeouts;
pub mod turn;
pub mod watch;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use rustls::ServerConfig;
use slotmap::SlotMap;

use crate::arrival::stamps::Stamps;
use crate::clients::connection::{Connection, Mark, Phase};
use crate::clients::link_client::LinkClient;
use crate::clients::pending_input::InputEvent;
use crate::config::Config;
use crate::engine::turn::{Schedule, Turn};
use crate::event::Event;
use crate::http::Service;
use crate::id::IdMaker;
use crate::keys::{ChannelKey, ConnKey, TopicKey};
use crate::limiter::contracts::Contracts;
use crate::memory::{Memory, Stock};
use crate::mqtt::Hub;
use crate::mqtt::elsewhere::link_peers::way_of;
use crate::mqtt::forms::Fan;
use crate::mqtt::saved_session::Renewal;
use crate::protocol::access::{Access, Who};
use crate::protocol::codec;
use crate::protocol::grants::{Grant, Patterns};
use crate::protocol::identify::Identity;
use crate::queueing::channel::Channel;
use crate::queueing::journal::Journal;
use crate::queueing::message::Builder;
use crate::queueing::shared_disk::Storage;
use crate::queueing::topic::{KeptLimits, Topic};
use crate::scheduling::Server;
use crate::scheduling::client_limits::Limits;
use crate::scheduling::departures::Departures;
use crate::scheduling::handshake_queue::Handshakes;
use crate::scheduling::service_time::ServiceTime;
use crate::scheduling::work_budget::Work;
use crate::telemetry::counters::Counters;
use crate::telemetry::latency::Sample;
use crate::telemetry::network_delay::NetworkDelay;
use crate::telemetry::watch_list::WatchList;
use crate::time::NS_PER_S;
use crate::time::{Nanos, WallClock};
use crate::timer::{Timer, Timers};

/// If the publishes of a turn have more messages than this on average, their answers go before its deliveries.
const BULK: usize = 32;

#[derive(Debug)]
pub struct Engine {
    pub config: Config,
    pub clock: WallClock,
    pub conns: SlotMap<ConnKey, Connection>,
    pub topics: SlotMap<TopicKey, Topic>,
    pub channels: SlotMap<ChannelKey, Channel>,

    pub topic_names: HashMap<Box<str>, TopicKey>,
    pub(crate) kept_limits: HashMap<Box<str>, KeptLimits>, // of limited topics that do not exist now
    pub(crate) aware: HashMap<Rc<str>, Vec<ConnKey>>,      // {client id: its aware connections}
    pub contracts: Contracts,

    pub(crate) turn: Turn,
    pub(crate) schedule: Schedule,
    pub(crate) work: Work,
    pub(crate) timers: Timers,
    pub(crate) events: Vec<Event>,

    pub memory: Memory,
    pub(crate) limits: Limits,
    pub counters: Counters,

    pub(crate) disk: Option<Storage>,
    pub tls: Handshakes,
    pub(crate) http: Service,
    pub mqtt: Hub,
    pub(crate) journal: Option<Journal>, // of MQTT's sessions, where there is a disk
    pub(crate) renewal: Renewal,
    pub(crate) fan: Fan, // the message that goes to MQTT's subscribers
    pub(crate) server: Server,

    pub(crate) ids: IdMaker,
    pub(crate) builder: Builder,
    pub(crate) patterns: Patterns,
    pub(crate) access: Access,
    pub(crate) nobody: Rc<Grant>, // what a client may do that does not say who it is
    pub(crate) plain: Vec<u8>,    // what a step of decoding gave, used again
    pub(crate) sampler: u64,

    pub(crate) watch_list: WatchList,
    pub(crate) network_delay: NetworkDelay,
    pub(crate) departures: Departures,

    pub refusal: Option<String>,    // why publishes are refused just now
    pub(crate) takes_limited: bool, // not those to topics with a limit: they wait for it
    pub list_is_final: bool,        // what there is of topics and channels is all that there will be
    pub(crate) has_leases: bool,
}

impl Engine {
    pub fn new(config: Config) -> Self {
        let access = Access::new(config.access.clone());
        let memory = Memory::default();
        Self {
            mqtt: Hub::new(memory.stock(config.max_memory_bytes), Stock::apart(config.max_memory_bytes)),
            list_is_final: false,
            takes_limited: false,
            refusal: (!config.accepting).then(|| config.not_accepting_reason.clone()),
            ids: IdMaker::new(config.node_id),
            server: Server::new(config.lab_service_time_ns),
            nobody: Rc::new(Grant::of(Who::default(), access.rights_of(&Who::default()))),
            access,
            config,
            conns: SlotMap::with_key(),
            topics: SlotMap::with_key(),
            channels: SlotMap::with_key(),
            topic_names: HashMap::new(),
            kept_limits: HashMap::new(),
            aware: HashMap::new(),
            contracts: Contracts::default(),
            disk: None,
            watch_list: WatchList::default(),
            departures: Departures::default(),
            schedule: Schedule::default(),
            timers: Timers::default(),
            events: Vec::new(),
            memory,
            limits: Limits::default(),
            work: Work::default(),
            turn: Turn::default(),
            builder: Builder::default(),
            patterns: Patterns::default(),
            plain: Vec::new(),
            tls: Handshakes::default(),
            clock: WallClock::default(),
            has_leases: false,
            counters: Counters::default(),
            network_delay: NetworkDelay::default(),
            sampler: 0x2545_f491_4f6c_dd1d,
            http: Service::default(),
            journal: None,
            renewal: Renewal::default(),
            fan: Fan::default(),
        }
    }

    /// An engine whose clients may use TLS; `tls` comes from `transport::tls::server_config`.
    pub fn with_tls(config: Config, tls: Option<Arc<ServerConfig>>) -> Self {
        Self { tls: Handshakes::new(tls), ..Self::new(config) }
    }

    /// Other certificates, for handshakes that begin from now on. Sessions of before are not resumed.
    pub fn renew_tls(&mut self, tls: Arc<ServerConfig>) {
        self.tls.config = Some(tls);
    }

    // ---- input from the network -----------------------------------------------------------------------------------

    pub fn handle_accept(&mut self, remote: &str, now: Nanos) -> ConnKey {
        self.counters.accepted += 1;
        let connection = Connection::new(Identity::unknown(&self.config), remote, self.clock.wall(now), now);
        self.limits.count_in(connection.remote_host());
        let key = self.conns.insert(connection);
        self.start_heartbeat(key, now);
        key
    }

    /// A connection could not be accepted, and waits on. `first`: since all that waited were in.
    pub fn handle_accept_failed(&mut self, reason: &str, first: bool) {
        self.counters.accept_failures += 1;
        if first {
            self.events.push(Event::AcceptFailed { reason: reason.into() });
        }
    }

    /// Bytes of one read, and when they arrived.
    pub fn handle_bytes<'a>(&mut self, key: ConnKey, bytes: &[u8], stamps: impl Into<Stamps<'a>>, now: Nanos) {
        let stamps = stamps.into();
        let publishes = self.turn.publishes.len();
        self.turn.shares_stamp = false;
        self.take_bytes(key, bytes, stamps, now);
        if self.turn.publishes.len() > publishes {
            self.counters.sharing.note(&stamps, self.turn.shares_stamp);
        }
    }

    fn take_bytes(&mut self, key: ConnKey, bytes: &[u8], stamps: Stamps<'_>, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.reads()) else { return };
        if conn.layers.is_some() {
            return self.handle_sealed(key, bytes, stamps, now);
        }
        self.handle_plain(key, bytes, stamps, now);
    }

    /// The peer has ended its stream: it still gets the answers to what it completely sent.
    pub fn handle_eof(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.eof = true;
        if conn.heartbeat_ns().is_none() {
            conn.blocked_since = None; // it may have read nothing for any time: its time begins with the next write
        }
        match conn.phase {
            Phase::Lingering => return self.close(key),
            Phase::Magic | Phase::Open if conn.input_state.waits() || conn.has_more_input() => {} // ends after it
            Phase::Magic | Phase::Open | Phase::Flushing => _ = conn.end_input(),
        }
        self.mark_dirty(key);
    }

    /// The connection broke.
    pub fn handle_broken(&mut self, key: ConnKey) {
        self.close(key);
    }

    /// Whether somebody wants to know when what a connection has to send was sent: of deliveries, not of answers.
    pub fn is_timed(&self, key: ConnKey) -> bool {
        self.conns.get(key).is_some_and(|conn| !conn.marks.is_empty())
    }

    /// The socket took `len` bytes; `now` is after the write if that `is_timed`.
    pub fn handle_sent(&mut self, key: ConnKey, len: usize, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.blocked_since.take().is_some() {
            conn.unread_charge = None;
        }
        let sent = conn.advance(len);
        let mut alike: Option<(TopicKey, Sample, u32)> = None; // the last ones
        while let Some(mark) = conn.marks.front().copied().filter(|mark| mark.end <= sent) {
            conn.marks.pop_front();
            if let Some(way) = way_of(mark.trace) {
                self.mqtt.ways.record(way, sample_of(&mark, now), now);
                continue;
            }
            let Some(topic) = self.topics.get_mut(mark.topic) else { continue };
            if let Some(limiter) = &mut topic.limiter {
                limiter.trace.sent(mark.trace, now, mark.consumer_wait);
            }
            let sample = sample_of(&mark, now);
            match &mut alike {
                Some((topic, same, count)) if (*topic, *same) == (mark.topic, sample) => *count += 1,
                _ => record(&mut self.topics, alike.replace((mark.topic, sample, 1)), now),
            }
        }
        record(&mut self.topics, alike, now);
        self.list_if_ready(key);
        self.list_if_owed(key);
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
        let len = conn.pending();
        conn.unread_charge = Some(self.limits.unread.charge(len as u64));
        if self.leaves_too_much(key, len) {
            return self.close(key);
        }
        self.arm_connection(key);
    }

    /// Handles the end of a connection's output: a connection that waited for it proceeds to its end. True: shut the
    /// sending side down.
    pub fn handle_flushed(&mut self, key: ConnKey, now: Nanos) -> bool {
        let Some(conn) = self.conns.get_mut(key) else { return false };
        if conn.http.is_some() {
            self.handle_answers_taken(key, now);
        } else if self.conns.get_mut(key).is_some_and(|conn| conn.note_input(InputEvent::Taken)) {
            self.work.defer(key);
        }
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.phase == Phase::Flushing && !conn.is_held()) else {
            return false;
        };
        if conn.eof {
            self.close(key);
            return false;
        }
        conn.phase = Phase::Lingering;
        let at = now + NS_PER_S; // the client has so long to read a fatal error
        conn.linger_until = at;
        self.timers.arm(&mut conn.armed, at, Timer::Connection(key));
        true
    }

    // ---- the turn -------------------------------------------------------------------------------------------------

    /// The first half of the end of a turn: decides and answers. True: write the answers before the rest.
    ///
    /// Such answers are few and acknowledge many messages: their publishers prepare the next ones during the
    /// deliveries.
    pub fn answer_turn(&mut self, now: Nanos) -> bool {
        self.resume_arrived(now);
        self.run_deferred(now);
        self.decode_on(now);
        self.decide_publishes(now);
        self.write_overflow();
        self.save_sessions(now);
        self.release_held(now);
        let (messages, answers) = (self.turn.messages.len(), self.turn.replies.len());
        self.send_replies(now);
        messages > BULK * answers
    }

    /// The second half: run timers, deliver.
    pub fn deliver_turn(&mut self, now: Nanos) {
        self.start_system_topics(now);
        self.tend_moves(now);
        self.handle_timeouts(now);
        if !self.turn.replies.is_empty() {
            self.send_replies(now); // who is refused must get that before its stream ends
        }
        self.handle_left(now);
        if !self.turn.publishes.is_empty() {
            self.decide_publishes(now); // wills
            self.send_replies(now);
        }
        self.fan_out_rest(now);
        let answered = self.schedule.dirty_conns.len();
        self.send_owed(now);
        self.deliver_all(now);
        self.schedule.dirty_conns.rotate_left(answered); // deliveries go first
        self.save_sessions(now);
        self.renew_journal(now);
        self.seed_links(now);
        self.lend_shared(now);
        self.tell_topic_news(now);
        self.tend_disk(now);
        self.relieve_memory();
        self.tell_limits(now);
        self.mqtt.denials.tell(now, &mut self.events);
        self.mqtt.excess.tell(now, &mut self.events);
        self.work.end_turn();
    }

    /// When the next turn is due without outside input. At once if a write, a close or a timer left deliveries or
    /// answers.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let idle = self.schedule.is_idle()
            && self.tls.is_idle()
            && self.turn.replies.is_empty()
            && !self.is_renewing()
            && self.mqtt.news.due.is_empty()
            && self.mqtt.peers.seeding.is_empty()
            && self.mqtt.peers.lending.is_empty()
            && self.mqtt.moves.is_idle()
            && self.disk.as_ref().is_none_or(|storage| !storage.disk.is_listed() && !storage.disk.has_settled());
        if idle { self.timers.next().into_iter().chain(self.work.next()).min() } else { Some(0) }
    }

    /// Whether messages, queued and collected, fill their memory: then the reactor must decide before it reads more.
    pub fn memory_is_full(&self) -> bool {
        self.memory_used() > self.config.max_memory_bytes
    }

    /// Bytes of messages, waiting or under construction, of MQTT's sessions and wills, of unfinished commands, of
    /// layers, and of requests that Python answers.
    pub fn memory_used(&self) -> u64 {
        self.memory.messages.used()
            + self.mqtt.kept.used()
            + self.memory.layers.used()
            + self.memory.partial.used()
            + self.limits.unfinished.used()
            + self.http.held.used()
    }

    /// Connections that may have something to write, each once. The buffer is the caller's, to be used again.
    pub fn poll_dirty(&mut self, into: &mut Vec<ConnKey>) {
        into.clear();
        std::mem::swap(into, &mut self.schedule.dirty_conns);
        for key in into {
            let Some(conn) = self.conns.get_mut(*key) else { continue };
            conn.dirty = false;
            if conn.layers.is_some() {
                self.seal(*key);
            }
        }
    }

    /// Connections whose sockets are to be closed.
    pub fn poll_closed(&mut self) -> impl Iterator<Item = ConnKey> {
        std::mem::take(&mut self.schedule.closed).into_iter()
    }

    pub fn poll_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    // ---- end of a connection --------------------------------------------------------------------------------------

    /// Forget a connection. What was in flight to it is requeued at once (on purpose not nsqd's way:
    /// `docs/protocol.md`).
    pub(crate) fn close(&mut self, key: ConnKey) {
        let Some(mut conn) = self.conns.remove(key) else { return };
        self.schedule.closed.push(key);
        self.limits.count_out(conn.remote_host());
        if conn.identity().aware {
            forget_aware(&mut self.aware, conn.identity(), key);
        }
        if let Some(http) = &conn.http {
            self.http.connections -= 1;
            http.owed().map(|id| self.http.asked.remove(&id));
        }
        if let Some(LinkClient { number, reason, .. }) = conn.link.take().map(|link| *link) {
            let reason = reason.unwrap_or_else(|| "the connection is broken".into());
            self.events.push(Event::LinkEnded { number, reason });
        }
        self.schedule.left.extend(conn.mqtt.as_mut().and_then(|mqtt| mqtt.session.take()));
        let Some(sub) = conn.subscription.take() else { return };
        let Some(channel) = self.channels.get_mut(sub.channel) else { return };
        channel.remove_consumer(key);
        channel.requeue_of(key, sub.deadlines.iter().map(|(_, id)| *id));
        if channel.consumers.is_empty() && codec::is_ephemeral(&channel.name) {
            self.remove_channel(sub.channel);
        } else {
            self.mark_channel(sub.channel);
        }
    }
}

/// A delivery that was sent by `now`.
fn sample_of(mark: &Mark, now: Nanos) -> Sample {
    Sample { access: mark.due - mark.arrival, consumer_wait: mark.consumer_wait, total: now - mark.arrival }
}

fn record(topics: &mut SlotMap<TopicKey, Topic>, alike: Option<(TopicKey, Sample, u32)>, now: Nanos) {
    if let Some((topic, sample, count)) = alike
        && let Some(topic) = topics.get_mut(topic)
    {
        topic.latency.get_or_insert_default().record(sample, count, topic.promise, now);
    }
}

pub(crate) fn forget_aware(aware: &mut HashMap<Rc<str>, Vec<ConnKey>>, identity: &Identity, key: ConnKey) {
    let Some(id) = &identity.client_id else { return };
    if let Some(keys) = aware.get_mut(id) {
        keys.retain(|other| *other != key);
        if keys.is_empty() {
            aware.remove(id);
        }
    }
}
