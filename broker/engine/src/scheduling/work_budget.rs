//! Deficit round robin: how much of a turn each connection gets (Shreedhar and Varghese, 1995).
//!
//! Work is counted in units of about 100 ns: a command, a small message, or 256 bytes copied. The rule has four parts:
//!
//! 1. What a connection sends runs until it has used a quantum. What is left of its input is deferred: it joins one
//!    list, at the end, and the reactor reads no more of it than a little.
//! 2. In every turn the deferred connections go on in the order of the list, each with another quantum, round after
//!    round, until they have used the turn's budget together. Who did not come stays at the head.
//! 3. A quantum is not saved up: who sends nothing has one quantum, and no more, whenever it sends again.
//! 4. A command that costs more than what is left of its connection's quantum runs in pieces, if it can: an MPUB in
//!    chunks, a large message in parts. One that cannot runs as a whole, and leaves a deficit, which the next quanta of
//!    its connection pay first. So publishes to a limited topic never wait behind later arrivals for their size.
//!
//! One exception, for a client whose every command goes to many channels: a cool-down. While messages of other topics
//! are on their way, a deficit of more than a quantum is paid by time. Beside the bench's attack unread-messages, p99
//! is 8.9 ms without it.
//!
//! So a turn takes a quantum for each connection that was read, one budget for those that were deferred, and what
//! single commands exceed that by; and in so many turns every connection gets as many quanta as any other.
//! New connections use the same budget, and wait in the kernel's listen queue while it is used up.

use std::collections::{BTreeSet, VecDeque};

use crate::keys::{ConnKey, TopicKey};
use crate::time::NS_PER_S;
use crate::time::Nanos;

/// What one connection may use of a turn: 50 us.
pub(crate) const QUANTUM: u32 = 512;

/// What all deferred connections use of a turn together, and accepting: 100 us.
pub(crate) const TURN_UNITS: u32 = 2 * QUANTUM;

/// From here on nothing more is read before what was read is decided: 4 ms. A fleet of 1,900 that a stopped broker
/// wakes up to, with a message of 5 KB each, stays below: all of it is decided in order of arrival.
pub(crate) const HOLD_UNITS: u32 = 40_000;

/// What a unit takes.
const UNIT_NS: Nanos = 100;

/// A connection cools down for so many times as long as its command took: the others get five sixths of the time.
const COOL_DOWN: Nanos = 5;

/// A cool-down is no longer than that: a command may cost less than it says, where it is refused.
const LONGEST_COOL_DOWN_NS: Nanos = 20_000_000;

/// How long whoever took the turn for `took` waits for the next time.
pub(crate) fn cool_down(took: Nanos) -> Nanos {
    (COOL_DOWN * took).min(LONGEST_COOL_DOWN_NS)
}

/// What a refused command costs beyond being read: its text.
pub(crate) const REFUSAL_UNITS: u32 = 3;

/// What a request by HTTP costs: it is read, and answered, by lines.
pub(crate) const REQUEST_UNITS: u32 = 8;

/// What a PUBLISH of QoS 2 costs beside its message: it is digested, noted under its identifier, and answered by
/// itself.
pub(crate) const NOTED_UNITS: u32 = 8;

/// What a new topic or channel costs, here and in Python, which hears of it.
pub(crate) const CREATION_UNITS: u32 = 64;

/// What an IDENTIFY costs: JSON both ways, a record of the client, and an answer that nobody shares with it.
pub(crate) const IDENTIFY_UNITS: u32 = 320;

/// What an iteration of a password's hash costs: 1 us.
const ITERATION_UNITS: u32 = 10;

/// What a check of a password costs, by the iterations that its user's hash has; 0: it is plain SHA-512, taken once.
pub(crate) fn password_units(iterations: u32) -> u32 {
    iterations.max(1).saturating_mul(ITERATION_UNITS)
}

/// What a new connection costs, for the most part in the kernel; one that is closed costs as much.
pub(crate) const ACCEPT_UNITS: u32 = 256;

/// Connections that are closed in a turn, and drained.
pub(crate) const CONNECTIONS_A_TURN: usize = (TURN_UNITS / ACCEPT_UNITS) as usize;

/// Bytes that take as long to copy as a unit of work.
pub(crate) const COPIED_A_UNIT: usize = 256;

/// Bytes that a quantum copies: 128 KiB. One read brings no more, nor does a turn write more to disk.
pub(crate) const QUANTUM_BYTES: usize = QUANTUM as usize * COPIED_A_UNIT;

/// What a message with a body of `len` bytes costs wherever it is copied to.
pub(crate) fn message_units(len: usize) -> u32 {
    1 + (len / COPIED_A_UNIT) as u32
}

/// What a connection may still use: its quantum of this turn, less what commands have exceeded earlier ones by.
#[derive(Debug, Default, Clone, Copy)]
pub struct Deficit {
    turn: u32,  // of its last quantum
    units: i64, // at most a quantum
    #[cfg(test)]
    pub used: i64, // of all turns, in units
}

impl Deficit {
    fn add(&mut self, quanta: u32, turn: u32) {
        self.turn = turn;
        self.units = (self.units + i64::from(quanta) * i64::from(QUANTUM)).min(i64::from(QUANTUM));
    }

    /// So many units were used. `ordered`: of these, for publishes to limited topics. They leave no deficit, for what
    /// their connection sends next must not be decided behind later arrivals; their bucket limits them.
    pub fn spend(&mut self, units: u32, ordered: u32) {
        let left = self.units - i64::from(units);
        self.units = left.max((left + i64::from(ordered)).min(0));
        #[cfg(test)]
        {
            self.used += i64::from(units);
        }
    }
}

/// The turn's work so far, and the connections whose input is deferred.
#[derive(Debug)]
pub(crate) struct Work {
    turn: u32,
    pub units: u32,
    deferred: VecDeque<ConnKey>,
    pub postponements: u64, // how often the input of a connection was deferred
    pub decoded: usize,     // bytes out of layers
    ordered: u32,           // of `units`: publishes to limited topics by the connection whose commands run
    cooling: BTreeSet<(Nanos, ConnKey)>,
    cools_until: Nanos,      // the last of them, one after the other
    topic: Option<TopicKey>, // whose message was published or delivered last
    alternates: bool,        // topics have, in this turn
    shared_until: Nanos,
}

impl Default for Work {
    fn default() -> Self {
        // A connection that has had no quantum had its last one in turn 0.
        Self {
            turn: 1,
            units: 0,
            deferred: VecDeque::new(),
            postponements: 0,
            decoded: 0,
            ordered: 0,
            cooling: BTreeSet::new(),
            cools_until: Nanos::MIN,
            topic: None,
            alternates: false,
            shared_until: Nanos::MIN,
        }
    }
}

impl Work {
    /// So much was done.
    pub fn note(&mut self, units: u32) {
        self.units = self.units.saturating_add(units);
    }

    /// The same for a publish to a limited topic.
    pub fn note_ordered(&mut self, units: u32) {
        self.note(units);
        self.ordered = self.ordered.saturating_add(units);
    }

    /// Commands of a connection have run since `units` was `before`.
    pub fn end(&self, deficit: &mut Deficit, before: u32) {
        deficit.spend(self.units - before, self.ordered);
    }

    /// A message of this topic is published or delivered.
    pub fn note_topic(&mut self, topic: TopicKey) {
        self.alternates |= self.topic.replace(topic).is_some_and(|before| before != topic);
    }

    /// Commands of a connection begin to run: it has the quanta of all turns since its last, which come to one at most.
    /// Gives the value of `units` at which it has used them.
    pub fn begin(&mut self, deficit: &mut Deficit) -> u32 {
        self.ordered = 0;
        deficit.add(self.turn.wrapping_sub(deficit.turn), self.turn);
        self.units.saturating_add(u32::try_from(deficit.units).unwrap_or(0))
    }

    /// A deferred connection is next: it has one quantum more. False: its deficit took that.
    pub fn begin_deferred(&self, deficit: &mut Deficit) -> bool {
        deficit.add(1, self.turn);
        deficit.units > 0
    }

    /// Whether a deferred connection cools down from now on, for its deficit is more than a quantum, and messages of
    /// other topics are on their way.
    pub fn cools_down(&mut self, key: ConnKey, deficit: &mut Deficit, now: Nanos) -> bool {
        let cools = deficit.units < -i64::from(QUANTUM) && now < self.shared_until;
        if cools {
            let took = UNIT_NS * (i64::from(QUANTUM) - deficit.units);
            self.cools_until = now.max(self.cools_until) + cool_down(took);
            self.cooling.insert((self.cools_until, key));
            deficit.units = 0;
        }
        cools
    }

    /// It is `now`: who has cooled down is first in the list.
    pub fn end_cool_downs(&mut self, now: Nanos) {
        if std::mem::take(&mut self.alternates) {
            self.shared_until = now + NS_PER_S; // a message says so long that others of its topic are on their way
        }
        while let Some(&(_, key)) = self.cooling.first().filter(|(until, _)| *until <= now) {
            self.cooling.pop_first();
            self.deferred.push_front(key);
        }
    }

    /// When the next deferred connection goes on. `None`: none waits.
    pub fn next(&self) -> Option<Nanos> {
        if self.deferred.is_empty() { self.cooling.first().map(|(until, _)| *until) } else { Some(0) }
    }

    /// A connection goes on behind the others that wait.
    pub fn defer(&mut self, key: ConnKey) {
        self.deferred.push_back(key);
    }

    pub fn next_deferred(&mut self) -> Option<ConnKey> {
        self.deferred.pop_front()
    }

    pub fn end_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
        (self.units, self.decoded) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn however_much_a_turn_costs_its_count_does_not_begin_again() {
        let mut work = Work::default();
        (0..2).for_each(|_| work.note(u32::MAX));
        let mut deficit = Deficit::default();
        assert_eq!((work.units, work.begin(&mut deficit)), (u32::MAX, u32::MAX));
    }

    #[test]
    fn a_quantum_is_not_saved_up_and_one_turn_gives_one() {
        let (mut work, mut deficit) = (Work::default(), Deficit::default());
        for _ in 0..3 {
            assert_eq!(work.begin(&mut deficit), QUANTUM);
            deficit.spend(12, 0);
            assert_eq!(work.begin(&mut deficit), QUANTUM - 12, "in the same turn");
            (0..5).for_each(|_| work.end_turn());
        }
    }

    #[test]
    fn what_exceeds_a_quantum_is_paid_by_the_next_ones() {
        let (mut work, mut deficit) = (Work::default(), Deficit::default());
        work.begin(&mut deficit);
        deficit.spend(3 * QUANTUM + 1, 0);
        for _ in 0..2 {
            (0..9).for_each(|_| work.end_turn()); // others come first
            assert!(!work.begin_deferred(&mut deficit), "one a round");
        }
        assert!(work.begin_deferred(&mut deficit));
        assert_eq!(work.begin(&mut deficit), QUANTUM - 1);
    }

    #[test]
    fn publishes_to_limited_topics_leave_no_deficit_and_others_beside_them_do() {
        let quantum = i64::from(QUANTUM);
        for (units, ordered, left) in
            [(9_000, 9_000, 0), (500, 400, 12), (9_000, 8_000, quantum - 1_000), (9_000, 0, quantum - 9_000)]
        {
            let (mut work, mut deficit) = (Work::default(), Deficit::default());
            work.begin(&mut deficit);
            deficit.spend(units, ordered);
            assert_eq!(deficit.units, left, "{ordered} of {units}");
        }
    }

    #[test]
    fn a_deficit_is_paid_by_time_while_messages_of_other_topics_are_on_their_way() {
        let (mut conns, mut topics) = (SlotMap::<ConnKey, ()>::with_key(), SlotMap::<TopicKey, ()>::with_key());
        let (key, one, other) = (conns.insert(()), topics.insert(()), topics.insert(()));
        for shared in [false, true] {
            let (mut work, mut deficit) = (Work::default(), Deficit::default());
            work.note_topic(one);
            work.note_topic(if shared { other } else { one });
            work.end_cool_downs(0);
            work.begin(&mut deficit);
            deficit.spend(2 * QUANTUM, 0);
            assert!(!work.cools_down(key, &mut deficit, 1), "its deficit is small");
            deficit.spend(4_000 - 2 * QUANTUM, 0);
            assert_eq!(work.cools_down(key, &mut deficit, 1), shared);
            assert_eq!(work.next(), shared.then_some(1 + COOL_DOWN * UNIT_NS * 4_000));
            work.end_cool_downs(COOL_DOWN * UNIT_NS * 4_000);
            assert_eq!(work.next_deferred(), None);
            work.end_cool_downs(1 + COOL_DOWN * UNIT_NS * 4_000);
            assert_eq!(work.next_deferred(), shared.then_some(key));
            deficit.spend(u32::MAX, 0);
            assert!(!work.cools_down(key, &mut deficit, NS_PER_S), "the others have gone");
            if shared {
                assert!(work.cools_down(key, &mut deficit, NS_PER_S - 1));
                assert_eq!(work.next(), Some(NS_PER_S - 1 + LONGEST_COOL_DOWN_NS), "it is bounded");
            }
        }
    }

    #[test]
    fn in_so_many_rounds_each_connection_gets_as_many_quanta_whatever_its_commands_cost() {
        let costs: [u32; 5] = [1, 7, QUANTUM, QUANTUM + 1, 20 * QUANTUM];
        let mut work = Work::default();
        let mut deficits = [Deficit::default(); 5];
        const ROUNDS: i64 = 1_000;
        for _ in 0..ROUNDS {
            for (deficit, cost) in deficits.iter_mut().zip(costs) {
                if work.begin_deferred(deficit) {
                    while deficit.units > 0 {
                        deficit.spend(cost, 0);
                    }
                }
            }
            work.end_turn();
        }
        for (Deficit { used, .. }, cost) in deficits.iter().zip(costs) {
            let quanta = ROUNDS * i64::from(QUANTUM);
            assert!((quanta..quanta + i64::from(cost)).contains(used), "{used} of commands that cost {cost}");
        }
    }
}
