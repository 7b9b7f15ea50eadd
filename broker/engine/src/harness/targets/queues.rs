//! Law: for each channel, what is queued, deferred and in flight (there or before it, in its topic) is as much as was
//! accepted and is neither finished nor emptied; only that is delivered; and in the end all of it is, each message
//! once. Over stops and starts, with all of memory, some or none.

use std::collections::{BTreeSet, HashMap};

use crate::config::Config;
use crate::harness::invariant;
use crate::harness::memory_store::MemoryStore;
use crate::harness::pair::{Delivery, Frame, MS, Pair, S, START, dpub, limit, mpub, ok};
use crate::harness::source::Source;
use crate::keys::ConnKey;

const CHANNELS: [&str; 2] = ["c", "d"];

const LONGEST: usize = 64;

struct Consumer {
    key: ConnKey,
    channel: usize,
    got: Vec<Delivery>, // and not answered yet
}

struct World {
    pair: Pair,
    config: Config,
    disk: Option<(MemoryStore, u64)>, // and the incarnation
    portion: Option<u64>,             // bytes written in a turn
    consumers: Vec<Consumer>,
    owed: [BTreeSet<String>; 2], // bodies, by channel
    published: usize,
    version: u64,
}

pub fn run(input: &[u8]) {
    let mut source = Source::new(input);
    let choice = source.byte();
    let config = Config {
        mem_queue_size: [0, 1, 3, 1_000][usize::from(choice & 3)],
        max_bytes_per_file: 600,
        sync_every: 10,
        msg_timeout_ms: 1_000,
        trace_entries: 64,
        max_memory_bytes: if choice & 4 == 0 { 1 << 20 } else { 6_000 },
        ..Config::default()
    };
    let mut world = World::new(config, choice & 8 == 0, (choice & 16 != 0).then_some(40));
    for _ in 0..LONGEST {
        if source.is_empty() {
            break;
        }
        world.step(source.byte(), source.byte());
        world.settle();
    }
    world.drain();
}

impl World {
    fn new(config: Config, on_disk: bool, portion: Option<u64>) -> Self {
        let disk = on_disk.then(|| (MemoryStore::default(), 1));
        let pair = match &disk {
            Some((store, incarnation)) => Pair::on_disk(config.clone(), store, *incarnation, START),
            None => Pair::with(config.clone()),
        };
        let (consumers, owed) = Default::default();
        let mut world = Self { pair, config, disk, portion, consumers, owed, published: 0, version: 0 };
        world.make_channels();
        world
    }

    fn make_channels(&mut self) {
        self.portion.into_iter().for_each(|bytes| self.pair.engine.write_in_portions(bytes));
        self.pair.engine.create_topic("t");
        for channel in CHANNELS {
            self.pair.engine.create_channel("t", channel, self.pair.now);
        }
    }

    fn step(&mut self, kind: u8, detail: u8) {
        let (channel, flag, now) = (usize::from(detail & 1), detail & 128 != 0, self.pair.now);
        match kind % 24 {
            0..=4 => self.publish(1 + usize::from(detail) % 6, None),
            5 => self.publish(1, Some(u64::from(detail) * 20)),
            6..=7 => self.subscribe(channel, u32::from(detail >> 1) % 5),
            8..=14 => self.answer(usize::from(detail >> 4), detail & 15),
            15..=16 => self.pair.advance(i64::from(detail) * if flag { 100 * MS } else { MS }),
            17 => self.close(usize::from(detail)),
            18 => _ = self.pair.engine.pause_channel("t", CHANNELS[channel], flag),
            19 => _ = self.pair.engine.pause_topic("t", flag, now),
            20 if self.before() == 0 => {
                self.pair.engine.empty_channel("t", CHANNELS[channel]);
                self.owed[channel].clear();
            }
            21 if flag => _ = self.pair.engine.clear_bucket("t", now),
            21 => {
                self.version += 1;
                self.pair.limit("t", limit(u64::from(detail), 1 + u64::from(detail) % 3, self.version));
            }
            22 => self.ready(usize::from(detail >> 4), detail & 7),
            23 if detail < 64 => self.restart(),
            23 if detail < 192 => {
                self.publish_and_restart(1 + usize::from(detail) % 6, 1 + usize::from(detail >> 3 & 7))
            }
            _ => {}
        }
    }

    fn bodies(&mut self, count: usize) -> Vec<String> {
        self.published += count;
        (self.published - count..self.published).map(|number| number.to_string()).collect()
    }

    fn publish(&mut self, count: usize, defer_ms: Option<u64>) {
        let bodies = self.bodies(count);
        let bytes = match defer_ms {
            Some(ms) => dpub("t", ms, &bodies[0]),
            None => mpub("t", &bodies.iter().map(String::as_str).collect::<Vec<_>>()),
        };
        let publisher = self.pair.connect();
        self.pair.send(publisher, bytes);
        self.pair.turn();
        self.pair.advance(0);
        let answer = self.pair.take(publisher);
        self.pair.close(publisher);
        self.note_answer(&answer, &bodies);
    }

    fn note_answer(&mut self, answer: &[Frame], bodies: &[String]) {
        if *answer == [ok()] {
            self.owed.iter_mut().for_each(|owed| owed.extend(bodies.iter().cloned()));
        } else {
            assert!(matches!(answer, [Frame::Error(_)]), "{answer:?}");
        }
    }

    /// Stop when the messages may be written in part: who published them is told all the same.
    fn publish_and_restart(&mut self, count: usize, turns: usize) {
        if self.disk.is_none() {
            return;
        }
        let bodies = self.bodies(count);
        let publisher = self.pair.connect();
        self.pair.send(publisher, mpub("t", &bodies.iter().map(String::as_str).collect::<Vec<_>>()));
        (0..turns).for_each(|_| self.pair.turn());
        assert_eq!(self.pair.stop(), Ok(()));
        let answer = self.pair.take(publisher);
        self.note_answer(&answer, &bodies);
        self.restart();
    }

    fn subscribe(&mut self, channel: usize, ready: u32) {
        if self.consumers.len() < 4 {
            let key = self.pair.subscribe("t", CHANNELS[channel], ready);
            self.consumers.push(Consumer { key, channel, got: Vec::new() });
        }
    }

    /// FIN, REQ or TOUCH for one of the messages that a consumer has.
    fn answer(&mut self, index: usize, how: u8) {
        let count = self.consumers.len();
        let Some(consumer) = self.consumers.get_mut(index % count.max(1)) else { return };
        if consumer.got.is_empty() {
            return;
        }
        let delivery = if how & 3 == 3 {
            consumer.got[0].clone()
        } else {
            consumer.got.remove(usize::from(how >> 2) % consumer.got.len())
        };
        let id = &delivery.id;
        let line = match how & 3 {
            0 => format!("FIN {id}\n"),
            1 => format!("REQ {id} 0\n"),
            2 => format!("REQ {id} {}\n", u32::from(how) * 200),
            _ => format!("TOUCH {id}\n"),
        };
        let (key, channel) = (consumer.key, consumer.channel);
        let frames = self.pair.ask(key, line);
        let refused = frames.iter().any(|frame| matches!(frame, Frame::Error(_)));
        if how & 3 == 0 && !refused {
            assert!(self.owed[channel].remove(&delivery.body), "{} was finished before", delivery.body);
        }
        self.take(key, frames);
    }

    fn close(&mut self, index: usize) {
        if !self.consumers.is_empty() {
            let consumer = self.consumers.remove(index % self.consumers.len());
            self.pair.close(consumer.key);
        }
    }

    fn ready(&mut self, index: usize, ready: u8) {
        let count = self.consumers.len();
        if let Some(consumer) = self.consumers.get(index % count.max(1)) {
            self.pair.send(consumer.key, format!("RDY {ready}\n"));
        }
    }

    /// A stop in good order; then another process, which is told of the channels before anything moves.
    fn restart(&mut self) {
        let Some((store, incarnation)) = self.disk.take() else { return };
        assert_eq!(self.pair.stop(), Ok(()));
        let store = store.after_kill();
        self.pair = Pair::on_disk(self.config.clone(), &store, incarnation + 1, self.pair.now);
        self.disk = Some((store, incarnation + 1));
        self.consumers.clear();
        self.make_channels();
        self.pair.engine.release_topic("t", self.pair.now);
    }

    /// What came is noted, the books are compared.
    fn settle(&mut self) {
        self.pair.turn();
        self.pair.advance(0);
        invariant::check(&self.pair.engine, self.pair.now);
        for key in self.consumers.iter().map(|consumer| consumer.key).collect::<Vec<_>>() {
            let frames = self.pair.take(key);
            self.take(key, frames);
        }
        self.consumers.retain(|consumer| self.pair.engine.conns.contains_key(consumer.key));
        for (channel, name) in CHANNELS.iter().enumerate() {
            assert_eq!(self.counted(name), self.owed[channel].len(), "messages of channel {name}");
        }
    }

    fn take(&mut self, key: ConnKey, frames: Vec<Frame>) {
        let Some(consumer) = self.consumers.iter_mut().find(|consumer| consumer.key == key) else { return };
        for frame in frames {
            if let Frame::Message(delivery) = frame {
                assert!(
                    self.owed[consumer.channel].contains(&delivery.body),
                    "{} is not owed to anybody",
                    delivery.body
                );
                consumer.got.push(delivery);
            }
        }
    }

    /// Messages in the topic: waiting for tokens, or to be copied.
    fn before(&self) -> usize {
        let mut topics = self.pair.engine.topics.values();
        topics.next().map_or(0, |topic| {
            topic.queue.len()
                + topic.restored.len()
                + topic.limiter.as_ref().map_or(0, |limiter| limiter.backlog.iter().count())
        })
    }

    fn counted(&self, name: &str) -> usize {
        let channel = self.pair.engine.channels.values().find(|channel| &*channel.name == name).expect("it is there");
        self.before() + channel.queue.len() + channel.deferred.len() + channel.in_flight.len()
    }

    /// Everything that is owed comes, once.
    fn drain(mut self) {
        let now = self.pair.now;
        self.pair.engine.clear_bucket("t", now);
        self.pair.engine.pause_topic("t", false, now);
        for consumer in std::mem::take(&mut self.consumers) {
            self.pair.close(consumer.key);
        }
        self.pair.turn();
        self.pair.advance(0);
        self.pair.stall(60 * S); // whatever was deferred is due
        self.pair.turn();
        for (channel, name) in CHANNELS.iter().enumerate() {
            self.pair.engine.pause_channel("t", name, false);
            self.settle();
            let came = finish_all(&mut self.pair, name);
            let owed: HashMap<String, u32> =
                std::mem::take(&mut self.owed[channel]).into_iter().map(|body| (body, 1)).collect();
            assert_eq!(came, owed, "deliveries of channel {name}");
        }
        self.settle();
        self.pair.advance(10 * S);
        assert_eq!(self.pair.engine.memory.messages.used(), 0);
        if let Some((store, _)) = &self.disk {
            assert_eq!(store.names(), [""; 0]);
        }
    }
}

/// {body: how often it came}.
fn finish_all(pair: &mut Pair, channel: &str) -> HashMap<String, u32> {
    let consumer = pair.subscribe("t", channel, 100);
    let mut came = HashMap::new();
    loop {
        pair.advance(0);
        let messages = pair.messages(consumer);
        if messages.is_empty() {
            pair.close(consumer);
            return came;
        }
        for delivery in messages {
            pair.send(consumer, format!("FIN {}\n", delivery.id));
            *came.entry(delivery.body).or_default() += 1;
        }
        pair.turn();
    }
}
