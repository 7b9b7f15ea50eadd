//! What a turn has room for: whose commands run, whose wait for the next one, and what is read and accepted besides.

use crate::clients::connection::Connection;
use crate::clients::pending_input::WaitFor;
use crate::engine::Engine;
use crate::keys::ConnKey;
use crate::scheduling::deferred_reads::Credit;
use crate::scheduling::work_budget::{ACCEPT_UNITS, HOLD_UNITS, UNIT_NS};
use crate::time::Nanos;

/// So many of those that wait are looked at for one that builds a large message, at either end of the line.
const LOOKED_AT: usize = 64;

impl Engine {
    /// The rest of what a connection sent runs in the next turn.
    pub(crate) fn defer_to_next_turn(&mut self, key: ConnKey) {
        self.defer(key, WaitFor::Turn);
        self.work.note_flood();
        if let Some(conn) = self.conns.get_mut(key) {
            conn.share.floods = true;
        }
        if std::mem::take(&mut self.work.rests) {
            self.work.resting.push_back(key);
        } else {
            self.work.postponed.push(key);
        }
        self.work.postponements += 1;
    }

    /// Go on with those whose share was used up in an earlier turn. What was read since takes nothing from them, and the first of them runs whatever it
    /// has. Where they are many, some of them wait on, first in line. Of those that rest one goes on, before the others.
    pub(crate) fn run_deferred(&mut self, now: Nanos) {
        self.work.note_time(now);
        if now >= self.work.rests_until
            && let Some(rested) = self.work.resting.pop_front()
        {
            self.work.postponed.insert(0, rested);
        }
        let mut waiting = std::mem::take(&mut self.work.postponed).into_iter();
        (self.work.before, self.work.in_line, self.work.oversize) = (self.work.units, true, false);
        while let Some(key) = waiting.next() {
            self.resume(key, now);
            // Who comes next may need as much as is left, or more than a share, and must not be tried in vain: it would go behind those that ran.
            let next = waiting.as_slice().first();
            let introduces = next.and_then(|key| self.conns.get(*key)).is_some_and(|conn| conn.input.starts_with(b"IDENTIFY"));
            let fits = if introduces { self.work.has_room_to_introduce() } else { self.work.has_room_in_line() };
            if self.work.oversize || !fits {
                break;
            }
        }
        let again = std::mem::take(&mut self.work.postponed);
        self.work.postponed.extend(waiting);
        self.work.postponed.extend(again);
        self.let_builder_forward();
    }

    /// One of those that build large messages comes every second time until its message is whole. Were all to build in turn, all would be whole late, and
    /// leave their commands unfinished until then.
    fn let_builder_forward(&mut self) {
        if self.memory.partial.used() == 0 {
            return;
        }
        let line = &mut self.work.postponed;
        let builds = |key: &ConnKey| self.conns.get(*key).is_some_and(|conn| conn.building.is_some());
        let before = self.work.builder.filter(builds).and_then(|builder| line.iter().position(|key| *key == builder));
        let at = before
            .or_else(|| line.iter().take(LOOKED_AT).position(builds))
            .or_else(|| (line.len().saturating_sub(LOOKED_AT)..line.len()).rfind(|at| builds(&line[*at])));
        self.work.builder = at.map(|at| line[at]);
        if let Some(at) = at
            && at > 1
        {
            line[1..=at].rotate_right(1);
        }
    }

    /// Whether those that came with this turn have had all of it: who can wait should.
    pub fn has_a_full_turn(&self) -> bool {
        self.work.units >= self.work.turn_units()
    }

    /// Whether what one connection sends should come in small portions: others wait for each read.
    pub fn reads_little(&self) -> bool {
        self.work.is_shared()
    }

    /// Whether something was read that is decided in order of arrival: a publish to a topic with a limit.
    pub fn decides_in_order(&self) -> bool {
        let publishes = self.turn.publishes.iter();
        publishes.map(|publish| publish.topic).any(|key| self.topics.get(key).is_some_and(|topic| topic.limiter.is_some()))
    }

    /// Whether enough was read for a turn: what is still unread waits for the next.
    pub fn has_enough_to_do(&self) -> bool {
        self.work.units - self.work.in_order >= HOLD_UNITS
    }

    /// Whether what is read of a connection would only wait for many turns, for what it had last was more than its share: it is moved with each.
    pub fn is_flooded_by(&mut self, key: ConnKey) -> bool {
        self.conns.get_mut(key).is_some_and(|conn| std::mem::take(&mut conn.share.floods))
    }

    /// Whether what a connection sends is for anybody: not once it was refused, and a client may go on for megabytes until it reads that.
    pub fn is_read(&self, key: ConnKey) -> bool {
        self.conns.get(key).is_some_and(Connection::reads)
    }

    /// Whether who has not come in yet should wait for another turn than this one, which began at `now`.
    pub fn has_enough_newcomers(&self, now: Nanos) -> bool {
        self.has_a_full_turn() || self.work.newcomers.are_enough(now)
    }

    /// Until when nobody else should come in, for those who did in this turn, which began at `now`; `None`: they are no reason to wait.
    pub fn newcomers_rest_until(&self, now: Nanos) -> Option<Nanos> {
        self.work.newcomers.rest_until(now, UNIT_NS * Nanos::from(ACCEPT_UNITS))
    }

    /// How many of those that go are closed in a turn.
    pub fn closes(&self, now: Nanos) -> usize {
        self.work.newcomers.closes(now)
    }

    /// Units of work in this turn so far (`scheduling/work_budget.rs`).
    pub fn work_so_far(&self) -> u32 {
        self.work.units
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
}
