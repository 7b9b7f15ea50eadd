//! An engine and its clients in memory, on simulated time: what a client sends is bytes, what it gets is frames, and
//! `step` jumps to the next timer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use rustls::ServerConfig;
use srtm_limits::contract::Contract;
use srtm_limits::policy::{Policy, Rule};

use super::memory_store::MemoryStore;
use crate::config::Config;
use crate::engine::Engine;
use crate::keys::ConnKey;
use crate::limiter::trace::Columns;
use crate::queueing::topic::Limit;
use crate::time::Nanos;
use crate::transport::handshake::Handshake;
use crate::transport::tls::server_config;

pub const MS: Nanos = 1_000_000;
pub const S: Nanos = 1_000_000_000;
pub const START: Nanos = 1_000 * S;
const WALL_OFFSET: i64 = 1_700_000_000 * S;
pub const MICRO: u64 = 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Response(String),
    Error(String),
    Message(Delivery),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub wall_ns: i64,
    pub attempts: u16,
    pub id: String,
    pub body: String,
}

pub struct Pair {
    pub engine: Engine,
    pub now: Nanos,
    pub closed: HashSet<ConnKey>,
    pub read_on: HashSet<ConnKey>, // were not read for a while, and are again
    pub ended: HashSet<ConnKey>,   // the engine has shut its sending side down
    pub holds_handshakes: bool,    // their steps wait for `shake_hands`; otherwise a turn takes them at once
    stuck: HashSet<ConnKey>,       // clients that read nothing
    away: VecDeque<Handshake>,
    received: HashMap<ConnKey, Vec<u8>>,
}

impl Default for Pair {
    fn default() -> Self {
        Self::new()
    }
}

impl Pair {
    pub fn new() -> Self {
        Self::with(Config::default())
    }

    pub fn with(config: Config) -> Self {
        let tls = server_config(&config).expect("a usable certificate");
        Self::sealed(config, tls)
    }

    /// With what `server_config` made of the configuration before.
    pub fn sealed(config: Config, tls: Option<Arc<ServerConfig>>) -> Self {
        let mut engine = Engine::with_tls(config, tls);
        engine.clock.set_offset(WALL_OFFSET);
        Self::around(engine, START)
    }

    /// On a disk, as the `incarnation`th process there.
    pub fn on_disk(config: Config, store: &MemoryStore, incarnation: u64, now: Nanos) -> Self {
        let engine = Engine::new(config)
            .with_store(Box::new(store.clone()), incarnation, WALL_OFFSET, now)
            .expect("a sound disk");
        Self::around(engine, now)
    }

    fn around(engine: Engine, now: Nanos) -> Self {
        let (closed, read_on, ended, stuck, away, received) = Default::default();
        Self { engine, now, closed, read_on, ended, holds_handshakes: false, stuck, away, received }
    }

    /// A client that has sent the magic bytes.
    pub fn connect(&mut self) -> ConnKey {
        let key = self.accept();
        self.send(key, b"  V2");
        key
    }

    pub fn accept(&mut self) -> ConnKey {
        self.engine.handle_accept("192.0.2.1:5000", self.now)
    }

    pub fn connect_http(&mut self) -> ConnKey {
        self.engine.handle_accept_http("192.0.2.1:5000", self.now)
    }

    /// What came since the last time, as text.
    pub fn take_text(&mut self, key: ConnKey) -> String {
        text(&self.take_bytes(key))
    }

    pub fn connect_as(&mut self, id: &str) -> ConnKey {
        let key = self.connect();
        let answer = self.ask(key, identify(&format!(r#"{{"client_id":"{id}"}}"#)));
        assert_eq!(answer, [ok()]);
        key
    }

    /// A client that wants receipts and may be told to move.
    pub fn connect_aware(&mut self, id: &str) -> ConnKey {
        let key = self.connect();
        let body = format!(r#"{{"client_id":"{id}","feature_negotiation":true,"srtm":{{"v":1,"receipts":true}}}}"#);
        let answer = self.ask(key, identify(&body));
        assert!(matches!(&answer[..], [Frame::Response(json)] if json.contains(r#""srtm":{"v":1}"#)), "{answer:?}");
        key
    }

    /// A consumer with that much credit.
    pub fn subscribe(&mut self, topic: &str, channel: &str, ready: u32) -> ConnKey {
        let key = self.connect();
        assert_eq!(self.ask(key, format!("SUB {topic} {channel}\n")), [ok()]);
        self.send(key, format!("RDY {ready}\n"));
        self.turn();
        key
    }

    /// Bytes that arrive now; their turn comes later.
    pub fn send(&mut self, key: ConnKey, bytes: impl AsRef<[u8]>) {
        self.send_at(key, bytes, self.now);
    }

    pub fn send_at(&mut self, key: ConnKey, bytes: impl AsRef<[u8]>, stamp: Nanos) {
        self.engine.handle_bytes(key, bytes.as_ref(), stamp, self.now);
    }

    /// As the reactor takes it.
    pub fn turn(&mut self) {
        self.give_handshakes();
        if !self.holds_handshakes {
            while self.shake_hands() {
                self.give_handshakes();
            }
        }
        if self.engine.answer_turn(self.now) {
            self.write_all();
        }
        self.engine.deliver_turn(self.now);
        self.read_on.extend(self.engine.poll_resumed());
        self.write_all();
        self.closed.extend(self.engine.poll_closed());
    }

    /// As the reactor stops: what waits for the disk is answered, and everything goes there.
    pub fn stop(&mut self) -> Result<(), String> {
        self.engine.answer_held(self.now);
        self.write_all();
        self.engine.save()
    }

    fn give_handshakes(&mut self) {
        self.away.extend(std::iter::from_fn(|| self.engine.poll_handshake()));
    }

    /// Take the oldest step of a handshake that is out, and give it back. False: none is.
    pub fn shake_hands(&mut self) -> bool {
        let Some(step) = self.away.pop_front() else { return false };
        self.engine.handle_handshake(step.run(), self.now);
        true
    }

    /// Steps of handshakes that are out.
    pub fn away(&self) -> usize {
        self.away.len()
    }

    fn write_all(&mut self) {
        let mut dirty = Vec::new();
        loop {
            self.engine.poll_dirty(&mut dirty);
            if dirty.is_empty() {
                break;
            }
            for &key in &dirty {
                self.write(key);
            }
        }
    }

    fn write(&mut self, key: ConnKey) {
        if self.stuck.contains(&key) && !self.engine.unsent(key).is_empty() {
            return self.engine.handle_blocked(key, self.now);
        }
        let bytes = self.engine.unsent(key).to_vec();
        if !bytes.is_empty() {
            assert!(!self.ended.contains(&key), "our side has ended: nothing can be sent any more");
            self.received.entry(key).or_default().extend_from_slice(&bytes);
            self.engine.handle_sent(key, bytes.len(), self.now);
        }
        if self.engine.handle_flushed(key, self.now) {
            self.ended.insert(key);
        }
    }

    /// The client stops reading.
    pub fn stick(&mut self, key: ConnKey) {
        self.stuck.insert(key);
    }

    /// It reads again.
    pub fn unstick(&mut self, key: ConnKey) {
        self.stuck.remove(&key);
        self.engine.handle_writable(key);
        self.turn();
    }

    pub fn close(&mut self, key: ConnKey) {
        self.engine.handle_broken(key);
        self.turn();
    }

    /// Send, finish the turn, and give what came.
    pub fn ask(&mut self, key: ConnKey, bytes: impl AsRef<[u8]>) -> Vec<Frame> {
        self.send(key, bytes);
        self.turn();
        self.take(key)
    }

    /// The frames that the client got since the last time.
    pub fn take(&mut self, key: ConnKey) -> Vec<Frame> {
        decode(&self.take_bytes(key))
    }

    /// The same as they went over the socket.
    pub fn take_bytes(&mut self, key: ConnKey) -> Vec<u8> {
        self.received.remove(&key).unwrap_or_default()
    }

    pub fn messages(&mut self, key: ConnKey) -> Vec<Delivery> {
        let frames = self.take(key).into_iter();
        frames.filter_map(|frame| if let Frame::Message(delivery) = frame { Some(delivery) } else { None }).collect()
    }

    pub fn bodies(&mut self, key: ConnKey) -> Vec<String> {
        self.messages(key).into_iter().map(|delivery| delivery.body).collect()
    }

    /// Publish on a connection of its own; gives the one frame of the answer.
    pub fn publish(&mut self, topic: &str, body: &str) -> Frame {
        let key = self.connect();
        self.send(key, pub_(topic, body));
        self.turn();
        while self.engine.is_waiting(key) {
            self.turn(); // a large one is built in several
        }
        let answer = self.take(key);
        self.close(key);
        answer.into_iter().next().expect("an answer")
    }

    /// Jump to the next timer, if it is due by `until`.
    fn step(&mut self, until: Nanos) -> bool {
        match self.engine.poll_timeout().filter(|at| *at <= until) {
            Some(at) => {
                self.now = self.now.max(at);
                self.turn();
                true
            }
            None => false,
        }
    }

    /// Let time pass, every timer at its instant.
    pub fn advance(&mut self, ns: Nanos) {
        let until = self.now + ns;
        while self.step(until) {}
        self.now = until;
    }

    /// Let time pass while the engine is held up; what was due runs in the next turn.
    pub fn stall(&mut self, ns: Nanos) {
        self.now += ns;
    }

    pub fn trace(&self, topic: &str) -> Columns {
        let trace = self.engine.trace(topic).expect("limited");
        let mut columns = Columns { publishers: trace.publishers(0, usize::MAX), ..Columns::default() };
        columns.extend(&trace.entries(trace.range()));
        columns
    }

    pub fn snapshot(&mut self) -> serde_json::Value {
        let (mut snapshot, keys) = self.engine.overview("", true, self.now);
        snapshot.topics = self.engine.topic_views(&keys, "", true, self.now);
        let clients = self.engine.client_views(&snapshot.client_keys());
        snapshot.complete(clients);
        serde_json::to_value(snapshot).expect("JSON")
    }

    /// The view of the only topic.
    pub fn topic(&mut self) -> serde_json::Value {
        self.snapshot()["topics"][0].clone()
    }

    /// The view of the only channel.
    pub fn channel(&mut self) -> serde_json::Value {
        self.topic()["channels"][0].clone()
    }

    pub fn limit(&mut self, topic: &str, limit: Limit) -> bool {
        let now = self.now;
        self.engine.decide_publishes(now);
        let taken = self.engine.set_bucket(topic, limit, now);
        self.turn();
        taken
    }
}

pub fn limit(rate: u64, burst: u64, version: u64) -> Limit {
    let (rate_micro, burst_micro) = (rate * MICRO, burst * MICRO);
    Limit {
        rate_micro,
        burst_micro,
        reject: false,
        max_backlog: 1_000,
        max_backlog_bytes: 1 << 20,
        version,
        full: false,
        expires: Nanos::MAX,
    }
}

/// A contract for all subjects of a namespace: a bucket of `rate` a second, and `burst` at once.
pub fn contract(namespace: &str, rate: u64, burst: u64) -> Contract {
    let rule = Rule::Bucket { rate_micro: rate * MICRO, burst_micro: burst * MICRO, max_debt_micro: 0 };
    let policies = vec![Policy { name: "burst".into(), rule }];
    Contract { namespace: namespace.into(), subject: "*".into(), policies, shadow: false, starts_full: true }
}

pub fn ok() -> Frame {
    response("OK")
}

pub fn response(text: &str) -> Frame {
    Frame::Response(text.into())
}

pub fn error(text: &str) -> Frame {
    Frame::Error(text.into())
}

fn with_body(line: &str, body: &[u8]) -> Vec<u8> {
    [line.as_bytes(), b"\n", &(body.len() as u32).to_be_bytes(), body].concat()
}

pub fn identify(json: &str) -> Vec<u8> {
    with_body("IDENTIFY", json.as_bytes())
}

pub fn pub_(topic: &str, body: &str) -> Vec<u8> {
    with_body(&format!("PUB {topic}"), body.as_bytes())
}

pub fn dpub(topic: &str, ms: u64, body: &str) -> Vec<u8> {
    with_body(&format!("DPUB {topic} {ms}"), body.as_bytes())
}

pub fn mpub(topic: &str, bodies: &[&str]) -> Vec<u8> {
    let mut all = (bodies.len() as u32).to_be_bytes().to_vec();
    for body in bodies {
        all.extend_from_slice(&(body.len() as u32).to_be_bytes());
        all.extend_from_slice(body.as_bytes());
    }
    with_body(&format!("MPUB {topic}"), &all)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn decode(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((size, rest)) = bytes.split_first_chunk::<4>() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*size) as usize);
        bytes = rest;
        frames.push(match frame[3] {
            0 => Frame::Response(text(&frame[4..])),
            1 => Frame::Error(text(&frame[4..])),
            _ => Frame::Message(Delivery {
                wall_ns: i64::from_be_bytes(frame[4..12].try_into().expect("8 bytes")),
                attempts: u16::from_be_bytes(frame[12..14].try_into().expect("2 bytes")),
                id: text(&frame[14..30]),
                body: text(&frame[30..]),
            }),
        });
    }
    frames
}
