//! Invariant, after every turn of any sequence of bytes, accepts, closes, commands and time jumps: the meter is the sum over all queues; each message in
//! flight is counted by its owner and by nobody else, and has a deadline that is armed; each consumer is in its channel's ring at most once, and exactly
//! if it is marked as listed; a connection that wants a message is listed; keys that owners hold lead somewhere; nothing is past its due time. No panic.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::pair::*;
use crate::bucket::Nanos;
use crate::config::Config;
use crate::engine::{ConnKey, Engine};
use crate::message::{Message, Meter};
use crate::topic::Limit;

#[derive(Debug, Clone)]
enum Operation {
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
    Empty(usize),
    Delete(usize),
    DeleteChannel(usize),
    Publishers(usize),
    Http(usize),
}

const TOPICS: [&str; 3] = ["a", "b", "c#ephemeral"];

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let topic = prop::sample::select(&TOPICS[..]);
    prop_oneof![
        (topic.clone(), 1..300usize).prop_map(|(topic, len)| pub_(topic, &"x".repeat(len))),
        (topic.clone(), 1..5usize).prop_map(|(topic, count)| mpub(topic, &vec!["yy"; count])),
        (topic.clone(), 0..5_000u64).prop_map(|(topic, ms)| dpub(topic, ms, "z")),
        (topic, prop_oneof![Just("x"), Just("y#ephemeral")]).prop_map(|(t, c)| format!("SUB {t} {c}\nRDY 3\n").into_bytes()),
        (0..10u32).prop_map(|count| format!("RDY {count}\n").into_bytes()),
        Just(identify(r#"{"client_id":"p","msg_timeout":1000,"srtm":{"v":1,"receipts":true}}"#)),
        Just(identify(r#"{"heartbeat_interval":-1,"sample_rate":50}"#)),
        Just(b"NOP\nCLS\n".to_vec()),
        Just(b"FIN 0123456789abcdef\nTOUCH 0123456789abcdef\n".to_vec()),
        Just(b"PUB a\n\0\0\0\x05cut".to_vec()),
        prop::collection::vec(any::<u8>(), 0..30),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let (conn, topic) = (0..6usize, 0..TOPICS.len());
    prop_oneof![
        3 => Just(Operation::Accept),
        1 => conn.clone().prop_map(Operation::Close),
        1 => conn.clone().prop_map(Operation::Eof),
        1 => conn.clone().prop_map(Operation::Stick),
        1 => conn.clone().prop_map(Operation::Unstick),
        14 => (conn.clone(), bytes()).prop_map(|(conn, bytes)| Operation::Send(conn, bytes)),
        8 => (conn, 0..4u8).prop_map(|(conn, how)| Operation::Answer(conn, how)),
        4 => prop_oneof![0..10 * MS, S..40 * S].prop_map(Operation::Time),
        2 => (topic.clone(), 0..2_000u64, 1..5u64, any::<bool>()).prop_map(|(topic, rate, burst, reject)| {
            Operation::Share { topic, rate, burst: if rate == 0 { 0 } else { burst }, reject }
        }),
        1 => topic.clone().prop_map(Operation::Clear),
        1 => (topic.clone(), any::<bool>()).prop_map(|(topic, paused)| Operation::Pause(topic, paused)),
        1 => topic.clone().prop_map(Operation::Empty),
        1 => topic.clone().prop_map(Operation::Delete),
        1 => topic.clone().prop_map(Operation::DeleteChannel),
        1 => topic.clone().prop_map(Operation::Publishers),
        1 => topic.prop_map(Operation::Http),
    ]
}

struct World {
    pair: Pair,
    conns: Vec<ConnKey>,
    ids: HashMap<ConnKey, Vec<String>>,
    version: u64,
}

impl World {
    fn apply(&mut self, operation: Operation) {
        let now = self.pair.now;
        match operation {
            Operation::Accept => {
                let key = self.pair.connect();
                self.conns.push(key);
                if self.conns.len() > 6 {
                    self.conns.remove(0);
                }
            }
            Operation::Close(i) => self.with(i, |pair, key| pair.engine.handle_broken(key)),
            Operation::Eof(i) => self.with(i, |pair, key| pair.engine.handle_eof(key)),
            Operation::Stick(i) => self.with(i, Pair::stick),
            Operation::Unstick(i) => self.with(i, Pair::unstick),
            Operation::Send(i, bytes) => self.with(i, |pair, key| pair.send(key, bytes)),
            Operation::Answer(i, how) => self.answer(i, how),
            Operation::Time(ns) => self.pair.stall(ns),
            Operation::Share { topic, rate, burst, reject } => {
                self.version += 1;
                self.pair.limit(TOPICS[topic], Limit { reject, max_backlog: 20, ..limit(rate, burst, self.version) });
            }
            Operation::Clear(topic) => _ = self.pair.engine.clear_bucket(TOPICS[topic], now),
            Operation::Pause(topic, paused) => _ = self.pair.engine.pause_topic(TOPICS[topic], paused, now),
            Operation::Empty(topic) => {
                self.pair.engine.empty_topic(TOPICS[topic]);
                self.pair.engine.empty_channel(TOPICS[topic], "x");
            }
            Operation::Delete(topic) => _ = self.pair.engine.delete_topic(TOPICS[topic]),
            Operation::DeleteChannel(topic) => _ = self.pair.engine.delete_channel(TOPICS[topic], "x"),
            Operation::Publishers(topic) => {
                self.version += 1;
                self.pair.engine.set_publishers(TOPICS[topic], vec!["q".into()], self.version);
                self.pair.engine.move_publisher(TOPICS[topic], "p", "127.0.0.1:1", self.version);
            }
            Operation::Http(topic) => {
                let key = self.pair.connect_http();
                let topic = TOPICS[topic].replace('#', "%23");
                self.pair.send(key, format!("POST /pub?topic={topic} HTTP/1.0\r\nContent-Length: 1\r\n\r\nh"));
            }
        }
    }

    fn with(&mut self, index: usize, act: impl FnOnce(&mut Pair, ConnKey)) {
        if let Some(key) = self.conns.get(index) {
            act(&mut self.pair, *key);
        }
    }

    fn answer(&mut self, index: usize, how: u8) {
        let Some(key) = self.conns.get(index).copied() else { return };
        let ids = self.ids.entry(key).or_default();
        ids.extend(self.pair.messages(key).into_iter().map(|message| message.id));
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
}

fn cost<'a>(messages: impl Iterator<Item = &'a Message>) -> u64 {
    messages.map(|message| Meter::cost_of(message.body_len())).sum()
}

fn check(engine: &Engine, now: Nanos) {
    let mut used = 0;
    for topic in engine.topics.values() {
        used += cost(topic.queue.memory().iter());
        if let Some(limiter) = &topic.limiter {
            used += cost(limiter.backlog.iter());
            assert_eq!(limiter.backlog_bytes, limiter.backlog.iter().map(|message| message.body_len() as u64).sum::<u64>());
            assert!(limiter.backlog.next_due().is_none_or(|due| due > now), "a message is due and still waits");
        }
        assert!(topic.channels.iter().all(|key| engine.channels.contains_key(*key)));
    }
    let mut in_flight: HashMap<ConnKey, u32> = HashMap::new();
    for (key, channel) in &engine.channels {
        used += cost(channel.queue.memory().iter())
            + cost(channel.in_flight.values().map(|entry| &entry.message))
            + cost(channel.deferred.values());
        assert!(engine.topics[channel.topic].channels.contains(&key));
        assert!(channel.next_deferred().is_none_or(|due| due > now), "a deferred message is due");
        for (id, entry) in &channel.in_flight {
            *in_flight.entry(entry.owner).or_default() += 1;
            assert!(entry.deadline > now, "a message timeout is due");
            let sub = engine.conns[entry.owner].subscription.as_ref().expect("an owner is a consumer");
            assert!(sub.deadlines.contains(&(entry.deadline, *id)), "a message in flight has no deadline");
        }
        for consumer in &channel.consumers {
            let conn = &engine.conns[*consumer];
            let sub = conn.subscription.as_ref().expect("a consumer is subscribed");
            assert_eq!(sub.channel, key);
            assert_eq!(channel.ready.iter().filter(|other| *other == consumer).count(), usize::from(sub.listed));
            assert!(sub.listed || !conn.is_ready(), "a consumer wants messages and is not listed");
            let served = !channel.paused && !channel.queue.is_empty();
            assert!(!(served && conn.is_ready()), "a message and a ready consumer have not met");
        }
        assert!(channel.ready.iter().all(|consumer| channel.consumers.contains(consumer)));
    }
    for (key, conn) in &engine.conns {
        if let Some(sub) = &conn.subscription {
            assert_eq!(sub.in_flight, in_flight.get(&key).copied().unwrap_or(0));
            assert!(sub.deadlines.iter().is_sorted_by_key(|(deadline, _)| *deadline));
        }
    }
    assert_eq!(engine.meter.used(), used);
    assert!(engine.poll_timeout().is_none_or(|at| at > now), "a timer is due");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(16), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_operations_keeps_the_invariant(operations in prop::collection::vec((operation(), any::<bool>()), 1..120)) {
        let config = Config { max_memory_bytes: 20_000, max_channel_consumers: 3, ..Config::default() };
        let mut world = World { pair: Pair::with(config), conns: Vec::new(), ids: HashMap::new(), version: 0 };
        for (operation, turn) in operations {
            world.apply(operation);
            if turn {
                world.pair.turn();
                world.pair.advance(0); // the turns that this one called for
                check(&world.pair.engine, world.pair.now);
            }
        }
        for topic in TOPICS {
            world.pair.engine.delete_topic(topic);
        }
        world.pair.turn();
        prop_assert_eq!(world.pair.engine.meter.used(), 0);
    }
}
