//! What one message costs the allocator in steady state: PUB parsed, decided, delivered, written, FIN. One allocation,
//! the frame that all queues share.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use srtm_engine::config::Config;
use srtm_engine::engine::Engine;
use srtm_engine::keys::ConnKey;
use srtm_engine::queueing::topic::Limit;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System.alloc` with this layout.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `at` came from `System.alloc` with this layout.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct World {
    engine: Engine,
    publisher: ConnKey,
    consumer: ConnKey,
    now: i64,
    fin: Vec<u8>,
    dirty: Vec<ConnKey>,
}

impl World {
    fn new(limit: Option<Limit>) -> Self {
        let mut engine = Engine::new(Config { trace_entries: 1_000, ..Config::default() });
        let now = 1_000_000_000;
        if let Some(limit) = limit {
            assert!(engine.set_bucket("t", limit, now));
        }
        let (publisher, consumer) =
            (engine.handle_accept("192.0.2.1:1", now), engine.handle_accept("192.0.2.1:2", now));
        engine.handle_bytes(publisher, b"  V2", now, now);
        engine.handle_bytes(consumer, b"  V2SUB t c\nRDY 100\n", now, now);
        let mut world = Self { engine, publisher, consumer, now, fin: Vec::new(), dirty: Vec::new() };
        world.turn();
        world
    }

    /// A turn and its writes; the id of what the consumer gets becomes its next FIN.
    fn turn(&mut self) {
        self.engine.answer_turn(self.now);
        self.engine.deliver_turn(self.now);
        self.engine.poll_dirty(&mut self.dirty);
        for &key in &self.dirty {
            let unsent = self.engine.unsent(key);
            let len = unsent.len();
            if key == self.consumer && len > 34 {
                self.fin.clear();
                self.fin.extend_from_slice(b"FIN ");
                self.fin.extend_from_slice(&unsent[18..34]);
                self.fin.push(b'\n');
            }
            self.engine.handle_sent(key, len, self.now);
        }
    }

    fn message(&mut self) {
        self.now += 100_000;
        self.engine.handle_bytes(self.publisher, b"PUB t\n\0\0\0\x05hello", self.now, self.now);
        self.turn();
        self.now += 200_000; // where a bucket holds it back, its instant comes here
        self.turn();
        self.engine.handle_bytes(self.consumer, &self.fin, self.now, self.now);
        self.turn();
    }

    fn allocations_a_message(&mut self) -> f64 {
        for _ in 0..5_000 {
            self.message();
        }
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..10_000 {
            self.message();
        }
        (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / 10_000.0
    }
}

fn limit(rate_micro: u64, burst_micro: u64) -> Limit {
    Limit {
        rate_micro,
        burst_micro,
        reject: false,
        max_backlog: 1_000,
        max_backlog_bytes: 1 << 20,
        version: 1,
        full: false,
        expires: i64::MAX,
    }
}

/// One test, for the counter is of the whole process. A hundredth more than one is for histogram slots and the like.
#[test]
fn a_message_costs_one_allocation() {
    let plenty = limit(1_000_000_000_000, 10_000_000);
    let scarce = limit(3_333_333_334, 1_000_000); // a token 0.3 ms after the last one: just as `message` waits for it
    for (name, limit, waits) in
        [("unlimited", None, false), ("with tokens", Some(plenty), false), ("waiting for tokens", Some(scarce), true)]
    {
        let mut world = World::new(limit);
        let cost = world.allocations_a_message();
        assert!((1.0..1.01).contains(&cost), "{name}: {cost} allocations a message");
        assert_eq!(world.engine.memory.messages.used(), 0, "{name}: every message was delivered and finished");
        let counters = &world.engine.topics.values().next().expect("a topic").counters;
        assert_eq!((counters.released, counters.delayed > 14_000), (15_000, waits), "{name}");
    }
}
