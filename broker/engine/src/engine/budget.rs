//! What a turn has room for: whose commands run, whose wait for the next one, and what is read and accepted besides.

use crate::clients::connection::Connection;
use crate::clients::pending_input::WaitFor;
use crate::engine::Engine;
use crate::keys::ConnKey;
use crate::scheduling::deferred_reads::Credit;
use crate::scheduling::work_budget::{HOLD_UNITS, TURN_UNITS};
use crate::time::Nanos;

impl Engine {
    /// The rest of what a connection sent runs in a later turn.
    pub(crate) fn defer_to_next_turn(&mut self, key: ConnKey) {
        self.defer(key, WaitFor::Turn);
        self.work.defer(key);
        self.work.postponements += 1;
    }

    /// Go on with the deferred connections, in order, round after round, each for a quantum, until they have used the
    /// turn's budget.
    pub(crate) fn run_deferred(&mut self, now: Nanos) {
        self.work.end_cool_downs(now);
        let end = self.work.units.saturating_add(TURN_UNITS);
        while self.work.units < end
            && let Some(key) = self.work.next_deferred()
        {
            let Some(conn) = self.conns.get_mut(key) else { continue };
            if self.work.cools_down(key, &mut conn.deficit, now) {
                continue;
            }
            if self.work.begin_deferred(&mut conn.deficit) {
                self.resume(key, now);
            } else {
                self.work.defer(key);
            }
        }
    }

    /// Whether the turn's budget is used up: who can wait should.
    pub fn has_a_full_turn(&self) -> bool {
        self.work.units >= TURN_UNITS
    }

    /// Whether something was read that is decided in order of arrival: a publish to a topic with a limit.
    pub fn decides_in_order(&self) -> bool {
        let publishes = self.turn.publishes.iter();
        publishes
            .map(|publish| publish.topic)
            .any(|key| self.topics.get(key).is_some_and(|topic| topic.limiter.is_some()))
    }

    /// Whether enough was read for a turn: what is still unread waits for the next.
    pub fn has_enough_to_do(&self) -> bool {
        self.work.units >= HOLD_UNITS
    }

    /// Whether what a connection sends is for anybody: not once it was refused, and a client may go on for megabytes
    /// until it reads that.
    pub fn is_read(&self, key: ConnKey) -> bool {
        self.conns.get(key).is_some_and(Connection::reads)
    }

    /// How well a consumer can do without having its answers read; `None`: no consumer.
    pub fn credit(&self, key: ConnKey) -> Option<Credit> {
        let conn = self.conns.get(key)?;
        let sub = conn.subscription.as_ref()?;
        // One that publishes too is read at once: its messages must be decided in the turn in which they came.
        let used = if conn.published.is_empty() { u64::from(sub.in_flight) } else { u64::MAX / 4 };
        let ready = u64::from(sub.ready);
        Some(match used {
            _ if 4 * used < ready => Credit::Plenty,
            _ if 2 * used < ready => Credit::Enough,
            _ => Credit::Scarce,
        })
    }

    /// Work units of this turn so far.
    pub fn work_so_far(&self) -> u32 {
        self.work.units
    }
}
