//! What goes to disk, when, what the publisher is told, and what is there again after a stop or a kill.

mod faults;
mod overflow;
mod portions;
mod random;
mod stops;

use std::collections::HashMap;

use proptest::prelude::*;

use super::memory_store::MemoryStore;
use super::pair::*;
use crate::config::Config;
use crate::event::Event;
use crate::keys::ConnKey;
use crate::time::Nanos;

struct World {
    pair: Pair,
    store: MemoryStore,
    config: Config,
    incarnation: u64,
    portion: Option<u64>, // bytes written in a turn
}

impl World {
    fn new(mem_queue_size: usize) -> Self {
        Self::with(Config { mem_queue_size, ..Config::default() })
    }

    fn with(config: Config) -> Self {
        let store = MemoryStore::default();
        let pair = Pair::on_disk(config.clone(), &store, 1, START);
        Self { pair, store, config, incarnation: 1, portion: None }
    }

    /// From now on a turn writes no more than this.
    fn write_in(&mut self, portion: Option<u64>) {
        self.portion = portion;
        portion.into_iter().for_each(|bytes| self.pair.engine.write_in_portions(bytes));
    }

    /// Stop in good order, and start again `down` later.
    fn restart_after(&mut self, down: Nanos) {
        assert_eq!(self.pair.stop(), Ok(()));
        self.start(down);
    }

    fn restart(&mut self) {
        self.restart_after(0);
    }

    fn kill(&mut self) {
        self.start(0);
    }

    fn cut_power(&mut self) {
        self.store = self.store.after_power_cut();
        self.start(0);
    }

    fn start(&mut self, down: Nanos) {
        self.store = self.store.after_kill();
        self.incarnation += 1;
        self.pair = Pair::on_disk(self.config.clone(), &self.store, self.incarnation, self.pair.now + down);
        self.write_in(self.portion);
    }

    /// Another process that knows all topics and channels: nothing is held any more.
    fn release(&mut self, topic: &str) {
        assert!(self.pair.engine.release_topic(topic, self.pair.now));
        self.pair.turn();
    }

    fn publish(&mut self, bodies: &[&str]) {
        for body in bodies {
            assert_eq!(self.pair.publish("t", body), ok(), "{body}");
        }
    }

    fn channel(&mut self, name: &str) {
        self.pair.engine.create_topic("t");
        self.pair.engine.create_channel("t", name, self.pair.now);
    }

    /// All that comes to a new consumer, answered.
    fn drain(&mut self) -> Vec<String> {
        let consumer = self.pair.subscribe("t", "c", 2_500);
        let bodies = finish_all(&mut self.pair, consumer);
        self.pair.close(consumer);
        bodies
    }

    fn depths(&mut self) -> (u64, u64) {
        let channel = self.pair.channel();
        (channel["depth"].as_u64().expect("a number"), channel["backend_depth"].as_u64().expect("a number"))
    }

    fn events(&mut self) -> Vec<Event> {
        let events = self.pair.engine.poll_events().into_iter();
        events
            .filter(|event| matches!(event, Event::DiskFailed { .. } | Event::DiskWorks | Event::DiskRepaired { .. }))
            .collect()
    }

    fn names(&self) -> Vec<String> {
        self.store.names()
    }
}

/// Finish what came, and what comes then, until nothing comes.
fn finish_all(pair: &mut Pair, consumer: ConnKey) -> Vec<String> {
    let mut bodies = Vec::new();
    loop {
        let came = pair.messages(consumer);
        if came.is_empty() && !pair.engine.is_waiting(consumer) {
            return bodies;
        }
        for delivery in came {
            pair.send(consumer, format!("FIN {}\n", delivery.id));
            bodies.push(delivery.body);
        }
        pair.turn();
    }
}

fn disk_full() -> Frame {
    error("E_PUB_FAILED PUB failed write t:c.000000.seg: No space left on device (os error 28)")
}
