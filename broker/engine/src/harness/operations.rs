//! Everything that may happen to an engine, by name, and an interpreter: for random sequences (tests) and for those
//! that the fuzzer invents.

use std::collections::HashMap;

use crate::clients::mqtt_client::MqttAddresses;
use crate::config::Config;
use crate::harness::invariant;
use crate::harness::memory_store::MemoryStore;
use crate::harness::pair::{Pair, S, START, contract, limit};
use crate::http::answer::Answer;
use crate::keys::{ConnKey, TopicKey};
use crate::limiter::topic_contracts::Terms;
use crate::queueing::topic::Limit;
use crate::telemetry::arrival_bins::open_at;
use crate::time::Nanos;

pub const TOPICS: [&str; 3] = ["a", "b", "c#ephemeral"];

/// Connections that operations can name: of them all, the latest.
pub const CONNECTIONS: usize = 6;

#[derive(Debug, Clone)]
pub enum Operation {
    Accept,
    Close(usize),
    Eof(usize),
    Stick(usize),
    Unstick(usize),
    Send(usize, Vec<u8>),
    /// Answer the oldest message that this client got: FIN, REQ 0, REQ later, TOUCH.
    Answer(usize, u8),
    Time(Nanos),
    Share {
        topic: usize,
        rate: u64,
        burst: u64,
        reject: bool,
    },
    Clear(usize),
    Pause(usize, bool),
    PauseChannel(usize, bool),
    Empty(usize),
    Delete(usize),
    DeleteChannel(usize),
    Publishers(usize),
    /// Clients of a topic are held to a bucket of that burst; 0: to none.
    Contract(usize, u64),
    Accepting(bool),
    /// A new connection of the HTTP port, and its first bytes.
    Http(Vec<u8>),
    /// Python answers all requests that it was handed.
    Respond,
    Snapshot,
    /// Python asks for as many of the latest bins.
    Histories(i64),
    /// The engine looks for changes of traffic by itself, in all topics, or no longer.
    Watch(bool),
    /// The wall clock is set.
    Wall(i64),
    /// So many bytes may still be written to the disk.
    Space(Option<usize>),
    /// A turn alone, whatever it leaves to the next ones.
    Turn,
    /// A stop in good order, and a start.
    Restart,
    Kill,
}

pub struct World {
    pub pair: Pair,
    config: Config,
    disk: Option<(MemoryStore, u64)>, // and the incarnation
    portion: Option<u64>,             // bytes written in a turn
    conns: Vec<ConnKey>,
    ids: HashMap<ConnKey, Vec<String>>,
    version: u64,
    bins: HashMap<(TopicKey, u64, i64), [u64; 4]>, // what was told, by limiter and number
}

impl World {
    pub fn in_memory(config: Config) -> Self {
        let (conns, ids, bins) = Default::default();
        Self { pair: Pair::with(config.clone()), config, disk: None, portion: None, conns, ids, version: 0, bins }
    }

    pub fn on_disk(config: Config, portion: Option<u64>) -> Self {
        let store = MemoryStore::default();
        let mut pair = Pair::on_disk(config.clone(), &store, 1, START);
        portion.into_iter().for_each(|bytes| pair.engine.write_in_portions(bytes));
        Self { pair, disk: Some((store, 1)), portion, ..Self::in_memory(config) }
    }

    pub fn apply(&mut self, operation: Operation) {
        let now = self.pair.now;
        match operation {
            Operation::Accept => {
                let key = self.pair.connect();
                self.note(key);
            }
            Operation::Close(i) => self.with(i, |pair, key| pair.engine.handle_broken(key)),
            Operation::Eof(i) => self.with(i, |pair, key| pair.engine.handle_eof(key)),
            Operation::Stick(i) => self.with(i, Pair::stick),
            Operation::Unstick(i) => self.with(i, Pair::unstick),
            Operation::Send(i, bytes) => self.with(i, |pair, key| pair.send(key, bytes)),
            Operation::Answer(i, how) => self.answer(i, how),
            Operation::Time(ns) => self.pair.stall(ns),
            Operation::Http(bytes) => {
                let key = self.pair.connect_http();
                self.pair.send(key, bytes);
                self.note(key);
            }
            Operation::Respond => self.respond(),
            Operation::Snapshot => _ = self.pair.snapshot(),
            Operation::Histories(count) => self.read_histories(count),
            Operation::Watch(true) => self.pair.engine.watch(TOPICS.map(str::to_owned).to_vec(), &[], now),
            Operation::Watch(false) => self.pair.engine.watch(Vec::new(), &TOPICS.map(str::to_owned), now),
            Operation::Wall(offset) => self.pair.engine.clock.set_offset(offset),
            Operation::Accepting(accepting) => self.pair.engine.set_accepting(accepting, "on request", now),
            Operation::Space(space) => self.with_disk(|store| store.with(|disk| disk.space = space)),
            Operation::Turn => self.pair.turn(),
            Operation::Restart => self.restart(true),
            Operation::Kill => self.restart(false),
            command => self.command(command, now),
        }
    }

    /// What Python tells the engine of a topic.
    fn command(&mut self, command: Operation, now: Nanos) {
        let engine = &mut self.pair.engine;
        match command {
            Operation::Share { topic, rate, burst, reject } => {
                self.version += 1;
                self.pair.limit(TOPICS[topic], Limit { reject, max_backlog: 20, ..limit(rate, burst, self.version) });
            }
            Operation::Clear(topic) => {
                engine.clear_bucket(TOPICS[topic], now);
                engine.delete_unused_topic(TOPICS[topic]);
            }
            Operation::Pause(topic, paused) => _ = engine.pause_topic(TOPICS[topic], paused, now),
            Operation::PauseChannel(topic, paused) => _ = engine.pause_channel(TOPICS[topic], "x", paused),
            Operation::Empty(topic) => {
                engine.empty_topic(TOPICS[topic]);
                engine.empty_channel(TOPICS[topic], "x");
            }
            Operation::Delete(topic) => _ = engine.delete_topic(TOPICS[topic]),
            Operation::DeleteChannel(topic) => _ = engine.delete_channel(TOPICS[topic], "x"),
            Operation::Publishers(topic) => {
                self.version += 1;
                engine.set_publishers(TOPICS[topic], vec!["q".into()], self.version);
                let mqtt = MqttAddresses { clear: "127.0.0.1:2".into(), ..MqttAddresses::default() };
                engine.move_publisher(TOPICS[topic], "p", "127.0.0.1:1", &mqtt, self.version, now);
            }
            Operation::Contract(topic, burst) => {
                let (name, namespace) = (TOPICS[topic], if burst == 0 { "" } else { "all" });
                if burst == 0 {
                    engine.remove_contract("all", "*");
                } else {
                    engine.set_contracts(vec![(contract("all", 1, burst), false)], false, now);
                }
                let (publishers, consumers) = (namespace.into(), namespace.into());
                engine.set_terms(name, Terms { publishers, consumers, ..Terms::default() });
            }
            other => unreachable!("{other:?} is no command"),
        }
    }

    fn note(&mut self, key: ConnKey) {
        self.conns.push(key);
        if self.conns.len() > CONNECTIONS {
            self.conns.remove(0);
        }
    }

    fn with(&mut self, index: usize, act: impl FnOnce(&mut Pair, ConnKey)) {
        if let Some(key) = self.conns.get(index) {
            act(&mut self.pair, *key);
        }
    }

    fn with_disk(&mut self, act: impl FnOnce(&MemoryStore)) {
        if let Some((store, _)) = &self.disk {
            act(store);
        }
    }

    fn answer(&mut self, index: usize, how: u8) {
        let Some(key) = self.conns.get(index).copied() else { return };
        let ids = self.ids.entry(key).or_default();
        if self.pair.engine.conns.get(key).is_some_and(|conn| conn.http.is_none()) {
            ids.extend(self.pair.messages(key).into_iter().map(|message| message.id));
        }
        if ids.is_empty() {
            return;
        }
        let line = match how {
            0 => format!("FIN {}\n", ids.remove(0)),
            1 => format!("REQ {} 0\n", ids.remove(0)),
            2 => format!("REQ {} 700\n", ids.remove(0)),
            _ => format!("TOUCH {}\n", ids[0]),
        };
        self.pair.send(key, line);
    }

    fn respond(&mut self) {
        for request in self.pair.engine.poll_handed() {
            let answer = Answer { status: 200, content_type: "", headers: &[], body: request.target.as_bytes() };
            self.pair.engine.respond(request.id, &answer, self.pair.now);
        }
    }

    /// What was told of a bin is told again, however late.
    fn read_histories(&mut self, count: i64) {
        let until = open_at(self.pair.now);
        for topic in self.pair.engine.histories(&TOPICS.map(str::to_owned), until - count, until, self.pair.now) {
            let (key, began) = self.pair.engine.trace_identity(&topic.topic).expect("a topic with bins has a limit");
            let bins = topic.bins;
            for (at, number) in (bins.first..until).enumerate() {
                let told = [bins.arrivals[at], bins.waiting[at], bins.unfinished[at].to_bits(), bins.delay_ns[at]];
                assert_eq!(*self.bins.entry((key, began, number)).or_insert(told), told, "bin {number} is another now");
            }
            assert!(bins.supply.is_sorted_by(|(a, _), (b, _)| a < b), "{:?}", bins.supply);
            assert!(bins.supply.iter().all(|(number, rate)| (bins.first..until).contains(number) && rate.is_finite()));
        }
    }

    /// Another process on the same disk, which knows no more of the topics than what lies there.
    fn restart(&mut self, saved: bool) {
        let Some((store, incarnation)) = self.disk.take() else { return };
        if saved {
            let full = store.with(|disk| disk.space.take()).is_some();
            let outcome = self.pair.stop();
            assert!(full || outcome.is_ok(), "{outcome:?}");
        }
        let store = store.after_kill();
        self.pair = Pair::on_disk(self.config.clone(), &store, incarnation + 1, self.pair.now);
        self.portion.into_iter().for_each(|bytes| self.pair.engine.write_in_portions(bytes));
        self.disk = Some((store, incarnation + 1));
        self.conns.clear();
        self.ids.clear();
        self.bins.clear();
        for topic in TOPICS {
            self.pair.engine.release_topic(topic, self.pair.now);
        }
    }

    /// A turn, and those that it called for, after which the invariant holds.
    pub fn turn(&mut self) {
        self.pair.turn();
        self.pair.advance(0);
        invariant::check(&self.pair.engine, self.pair.now);
    }

    /// All connections and topics go: nothing may be left, neither in memory nor on disk.
    pub fn end(mut self) {
        self.with_disk(|store| store.with(|disk| disk.space = None));
        for key in self.pair.engine.conns.keys().collect::<Vec<_>>() {
            self.pair.engine.handle_broken(key);
        }
        self.turn();
        for topic in TOPICS {
            self.pair.engine.delete_topic(topic);
        }
        self.pair.advance(10 * S);
        let engine = &self.pair.engine;
        assert_eq!(
            (
                engine.memory.messages.used(),
                engine.memory.layers.used(),
                engine.memory.partial.used(),
                engine.http.held.used()
            ),
            (0, 0, 0, 0),
            "bytes of messages, layers, buildings and requests"
        );
        assert!(self.pair.engine.conns.is_empty() && self.pair.engine.channels.is_empty());
        self.with_disk(|store| assert_eq!(store.names(), [""; 0]));
    }
}
