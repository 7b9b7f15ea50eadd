//! Where the system gives no memory for a large message, its publisher is told so, and everybody else goes on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use srtm_engine::config::Config;
use srtm_engine::engine::Engine;
use srtm_engine::keys::ConnKey;
use srtm_engine::queueing::topic::Limit;

/// Gives nothing from so many bytes on.
struct Scarce;

static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);

// SAFETY: every call is passed on unchanged to the system's allocator, or refused as the contract allows.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= MOST.load(Ordering::Relaxed) {
            return null_mut();
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System.alloc` with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Scarce = Scarce;

const MEGABYTE: usize = 1_000_000;
const NOW: i64 = 1_000_000_000;

/// A command that announces `body`, with what else stands in front of that.
fn command(line: &str, before: &[u32], body: &[u8]) -> Vec<u8> {
    let before: Vec<u8> = before.iter().flat_map(|word| word.to_be_bytes()).collect();
    let size = (before.len() + body.len()) as u32;
    [line.as_bytes(), b"\n", &size.to_be_bytes(), &before, body].concat()
}

fn connect(engine: &mut Engine) -> ConnKey {
    let key = engine.handle_accept("192.0.2.1:1", NOW);
    engine.handle_bytes(key, b"  V2", NOW, NOW);
    key
}

/// What `key` is answered, without the head of its frame.
fn ask(engine: &mut Engine, key: ConnKey, bytes: &[u8]) -> String {
    engine.handle_bytes(key, bytes, NOW, NOW);
    for _ in 0..100 {
        engine.answer_turn(NOW);
        engine.deliver_turn(NOW);
        if !engine.unsent(key).is_empty() {
            break;
        }
    }
    String::from_utf8_lossy(engine.unsent(key).get(8..).unwrap_or_default()).into_owned()
}

/// One test, for the allocator is of the whole process.
#[test]
fn a_publish_that_the_system_has_no_memory_for_is_refused_and_leaves_nothing() {
    let mut engine = Engine::new(Config::default());
    let (plenty, tokens) = (1_000_000_000_000, 1_000_000_000);
    let limit = Limit {
        rate_micro: plenty,
        burst_micro: tokens,
        reject: false,
        max_backlog: 10,
        max_backlog_bytes: u64::MAX,
        version: 1,
        full: true,
        expires: i64::MAX,
    };
    assert!(engine.set_bucket("limited", limit, NOW));
    let body = vec![b'x'; MEGABYTE];
    let calm = connect(&mut engine);
    for (verb, bytes) in [
        ("PUB", command("PUB t", &[], &body)),
        ("DPUB", command("DPUB t 5", &[], &body)),
        ("MPUB", command("MPUB t", &[1, MEGABYTE as u32], &body)),
        ("PUB", command("PUB limited", &[], &body)),
    ] {
        let key = connect(&mut engine);
        MOST.store(MEGABYTE / 2, Ordering::Relaxed);
        let answer = ask(&mut engine, key, &bytes);
        MOST.store(usize::MAX, Ordering::Relaxed);
        assert_eq!(answer, format!("E_{verb}_FAILED {verb} failed the system gives no memory for 1000000 bytes"));
        assert_eq!(engine.memory_used(), 0, "{verb}");
        assert_eq!(ask(&mut engine, calm, b"PUB other#ephemeral\n\0\0\0\x01x"), "OK");
        let len = engine.unsent(calm).len();
        engine.handle_sent(calm, len, NOW);
        engine.delete_topic("other#ephemeral");
        let key = connect(&mut engine);
        assert_eq!(ask(&mut engine, key, &bytes), "OK", "{verb}: once there is some");
        engine.empty_topic("t");
        engine.empty_topic("limited");
    }
}
