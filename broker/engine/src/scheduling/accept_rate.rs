//! How fast connections come in and go while messages are on their way: a few in a turn, and none for a while behind them, so that a crowd costs the
//! others a bounded share of the time and each message a fraction of what one turn of it takes. Where there are no messages, as fast as turns are.

use crate::time::Nanos;

/// Connections accepted in a turn beside messages.
const FEW: u32 = 2;

/// Behind them none is for so many times as long as they take: their IDENTIFYs come meanwhile.
const REST: Nanos = 2;

/// How long a message says that others are on their way.
const FLOW_NS: Nanos = 10_000_000;

/// Connections closed in a turn: one takes some ten microseconds, most of it the kernel's.
const CLOSES: usize = 32;

/// The same beside messages.
const FEW_CLOSES: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Newcomers {
    flows_until: Nanos,
    came: u32, // in this turn
}

impl Newcomers {
    pub fn note(&mut self) {
        self.came = self.came.saturating_add(1);
    }

    /// A message is on its way at `now`.
    pub fn note_message(&mut self, now: Nanos) {
        self.flows_until = now + FLOW_NS;
    }

    fn are_beside_messages(&self, now: Nanos) -> bool {
        now < self.flows_until
    }

    /// Whether as many came in this turn, which began at `now`, as may beside messages.
    pub fn are_enough(&self, now: Nanos) -> bool {
        self.came >= FEW && self.are_beside_messages(now)
    }

    /// Until when nobody else should come in, for those who did in this turn, which began at `now`, and took `accept_ns` each; `None`: they are no
    /// reason to wait.
    pub fn rest_until(&self, now: Nanos, accept_ns: Nanos) -> Option<Nanos> {
        let took = accept_ns * Nanos::from(self.came);
        (took > 0 && self.are_beside_messages(now)).then(|| now + (REST + 1) * took)
    }

    /// How many of those that go are closed in a turn.
    pub fn closes(&self, now: Nanos) -> usize {
        if self.are_beside_messages(now) { FEW_CLOSES } else { CLOSES }
    }

    pub fn end_turn(&mut self) {
        self.came = 0;
    }
}
