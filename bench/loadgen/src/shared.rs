//! What the threads of one run tell each other and those who ask: flags and counters, no locks.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

use serde::Serialize;

use crate::sys::{self, Wake};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Phase {
    Idle,
    Connecting,
    Warmup,
    Measuring,
    Draining,
    Done,
    Failed,
}

const PHASES: [Phase; 7] =
    [Phase::Idle, Phase::Connecting, Phase::Warmup, Phase::Measuring, Phase::Draining, Phase::Done, Phase::Failed];

pub struct Shared {
    /// Somebody asked for an early end.
    stop: AtomicBool,
    /// The sender has seen all that it waits for: the receiver may end.
    over: AtomicBool,
    phase: AtomicU8,
    started_ns: AtomicI64,
    measured_from_ns: AtomicI64,
    pub offered: AtomicU64,
    pub sent: AtomicU64,
    pub refused: AtomicU64,
    pub received: AtomicU64,
    pub lateness_p99_ns: AtomicU64,
    pub latency_p99_ns: AtomicU64,
    /// By publisher: how many it has sent, warm-up included. Written before the bytes leave, read when they arrive.
    sequences: Box<[AtomicU64]>,
    pub wake_sender: Wake,
    pub wake_receiver: Wake,
}

#[derive(Debug, Serialize)]
pub struct Progress {
    phase: Phase,
    elapsed_s: f64,
    offered: u64,
    sent: u64,
    refused: u64,
    received: u64,
    lateness_p99_ms: f64,
    p99_ms: f64,
}

impl Shared {
    pub fn new(publishers: usize) -> io::Result<Shared> {
        Ok(Shared {
            stop: AtomicBool::new(false),
            over: AtomicBool::new(false),
            phase: AtomicU8::new(Phase::Idle as u8),
            started_ns: AtomicI64::new(0),
            measured_from_ns: AtomicI64::new(0),
            offered: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            received: AtomicU64::new(0),
            lateness_p99_ns: AtomicU64::new(0),
            latency_p99_ns: AtomicU64::new(0),
            sequences: (0..publishers).map(|_| AtomicU64::new(0)).collect(),
            wake_sender: Wake::new()?,
            wake_receiver: Wake::new()?,
        })
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake_sender.set();
        self.wake_receiver.set();
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.wake_receiver.set();
    }

    pub fn over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// The first instants of the run and of its measured part, CLOCK_MONOTONIC. Before anything is sent.
    pub fn begin(&self, started_ns: i64, measured_from_ns: i64) {
        self.started_ns.store(started_ns, Ordering::Relaxed);
        self.measured_from_ns.store(measured_from_ns, Ordering::Release);
        self.enter(Phase::Warmup);
    }

    /// 0 before `begin`.
    pub fn measured_from_ns(&self) -> i64 {
        self.measured_from_ns.load(Ordering::Acquire)
    }

    pub fn set_sequence(&self, publisher: usize, next: u64) {
        self.sequences[publisher].store(next, Ordering::Release);
    }

    /// How many messages `publisher` has sent; 0 for one that is not in the plan.
    pub fn sequence(&self, publisher: u32) -> u64 {
        self.sequences.get(publisher as usize).map_or(0, |next| next.load(Ordering::Acquire))
    }

    pub fn progress(&self) -> Progress {
        let started = self.started_ns.load(Ordering::Relaxed);
        let ms = |nanos: &AtomicU64| nanos.load(Ordering::Relaxed) as f64 / 1e6;
        Progress {
            phase: PHASES[usize::from(self.phase.load(Ordering::Acquire))],
            elapsed_s: if started == 0 { 0.0 } else { (sys::now_ns() - started).max(0) as f64 / 1e9 },
            offered: self.offered.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            lateness_p99_ms: ms(&self.lateness_p99_ns),
            p99_ms: ms(&self.latency_p99_ns),
        }
    }
}
