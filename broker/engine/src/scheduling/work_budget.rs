//! How much of a turn one connection gets: what it sends beyond its share waits for the next turn, so that a flood holds the others up for a fraction of
//! a millisecond, not for as long as a read of a hundred thousand commands takes.
//!
//! Work is counted in units of very roughly 100 ns: a command is one, each message of a publish one more (a large one more than that, and as often as it is
//! copied), a refused command four, a new topic or channel, an IDENTIFY or a new connection many. A turn that is long because many were read who sent little
//! each has room for more of everything else: what it costs beside them is little.
//! A connection whose share is used up is parked like one that waits for an answer (`engine/input.rs`): what it sent is kept with the instants at which it
//! came, and beyond some of that the reactor leaves its bytes in the kernel.

use std::collections::VecDeque;

use crate::keys::{ConnKey, TopicKey};
use crate::scheduling::accept_rate::Newcomers;
use crate::time::Nanos;

/// Units of commands in a turn, of which one connection may take half; once they are used, every connection still gets `LEAST_SHARE_UNITS`.
const COMMAND_UNITS: u32 = 1_024;

/// The same while messages of more than one topic are on their way.
const SHARED_COMMAND_UNITS: u32 = 512;

/// Enough for what a client that is no flood sends at once.
pub(crate) const LEAST_SHARE_UNITS: u32 = 16;

/// A read that brings no more than that costs many times what it brings, in the kernel, and so does its answer: others may have so much more of the turn for each.
/// A consumer answers for what a whole fleet sent, and must not fall behind because each of them sends little.
const READ_UNITS: u32 = 8;

/// Where more than so many connections wait from earlier turns, others that bring much go behind them.
const SHORT_LINE: usize = 3;

/// From here on nothing more is read before what was read is decided. A fleet that a stopped broker wakes up to, with one publish each, stays below: all
/// of it is decided in order of arrival.
pub(crate) const HOLD_UNITS: u32 = 10_000;

/// How much more may be read if it is publishes to limited topics that are larger than others: messages of 5 KB of 1,900 connections.
const HOLD_IN_ORDER_UNITS: u32 = 40_000;

/// A command of more work is dear: some 0.3 ms in one piece.
const DEAR_UNITS: u32 = 3 * COMMAND_UNITS;

/// Behind a dear command no other such one runs for so many times as long as it takes, where others wait: they get four fifths of the time.
const REST: Nanos = 4;

/// What a command announces may be more than it comes to, for instance where it is refused.
const LONGEST_REST: Nanos = 20_000_000;

/// What a unit takes, for that.
pub(crate) const UNIT_NS: Nanos = 100;

/// What a refused command costs beyond being read: its text.
pub(crate) const REFUSAL_UNITS: u32 = 3;

/// What a request by HTTP costs: it is read, and answered, by lines.
pub(crate) const REQUEST_UNITS: u32 = 8;

/// What a new topic or channel costs, here and in Python, which hears of it.
pub(crate) const CREATION_UNITS: u32 = 64;

/// What an IDENTIFY costs: JSON both ways, a record of the client, and an answer that nobody shares with it.
pub(crate) const IDENTIFY_UNITS: u32 = 320;

/// What a new connection costs, for the most part in the kernel.
pub(crate) const ACCEPT_UNITS: u32 = 256;

/// Bytes that take about as long to copy as a unit of work.
pub(crate) const COPIED_A_UNIT: usize = 256;

/// How long messages of two topics in turn say that some wait for others' work.
const SHARED_NS: Nanos = 1_000_000_000;

/// What a message with a body of `len` bytes costs wherever it is copied to.
pub(crate) fn message_units(len: usize) -> u32 {
    1 + (len / COPIED_A_UNIT) as u32
}

/// What a connection has had of a turn.
#[derive(Debug, Default, Clone, Copy)]
pub struct Share {
    turn: u32, // which
    units: u32,
    pub(crate) floods: bool, // it had more than its share when it was last read
}

/// The turn's work so far.
#[derive(Debug, Default)]
pub(crate) struct Work {
    turn: u32,
    pub units: u32,
    pub(crate) before: u32, // `units` when those that waited since an earlier turn began: they have a share of the turn of their own
    pub(crate) in_line: bool, // those that waited have their share now
    reads: u32,             // that brought little each
    pub decoded: usize,     // bytes out of layers
    pub(crate) oversize: bool, // one command beyond its connection's share has run
    pub(crate) postponed: Vec<ConnKey>, // have commands left for the next turn
    pub(crate) builder: Option<ConnKey>, // of these: whose large message is to be whole first
    pub postponements: u64,
    pub(crate) in_order: u32, // of `units`: what large publishes cost that are decided in order of arrival, beyond one each
    topic: Option<TopicKey>,  // whose message was collected or delivered last
    began: u32,               // `units` when the share under way began
    carries: bool,            // what it was used for carried messages on
    since: Nanos,             // the turn's begin, as near as it is known
    shared_until: Nanos,
    pub newcomers: Newcomers,
    pub(crate) rests_until: Nanos,         // no dear command runs before
    pub(crate) rests: bool,                // the command that was just asked for has to wait until then
    pub(crate) resting: VecDeque<ConnKey>, // theirs have, and are not looked at before
}

impl Work {
    /// A connection's share begins: the value of `units`, and that at which it has had it.
    pub fn begin_share(&mut self, share: Share) -> (u32, u32) {
        (self.began, self.carries) = (self.units, false);
        (self.units, self.bound(share))
    }

    fn bound(&self, share: Share) -> u32 {
        let had = if share.turn == self.turn { share.units } else { 0 };
        let of_turn = if self.goes_behind() { 0 } else { self.stretched(self.turn_units()) };
        let left = self.stretched(self.connection_units()).saturating_sub(had).min(of_turn.saturating_sub(self.units - self.before));
        self.units.saturating_add(left.max(LEAST_SHARE_UNITS.saturating_sub(had)))
    }

    /// What a turn has for those that came with it, and once more for those that waited.
    pub(crate) fn turn_units(&self) -> u32 {
        if self.is_shared() { SHARED_COMMAND_UNITS } else { COMMAND_UNITS }
    }

    /// So many units of a turn that nobody else makes long, in this one.
    pub fn stretched(&self, units: u32) -> u32 {
        let more = u64::from(units) * u64::from(READ_UNITS) * u64::from(self.reads) / u64::from(COMMAND_UNITS);
        units.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
    }

    /// What one connection may have of it.
    pub fn connection_units(&self) -> u32 {
        self.turn_units() / 2
    }

    /// A parked connection goes on with those that wait for their share: where turns are decided and answered. While its output is being written the
    /// answers to what is left of it would come too late if that is the last.
    pub fn resume_later(&mut self, key: ConnKey) {
        self.postponed.push(key);
    }

    /// So much was done.
    pub fn note(&mut self, units: u32) {
        self.units = self.units.saturating_add(units);
    }

    /// A publish of so many `units` was collected. `ordered`: for a limited topic, alone in its command.
    pub fn note_collected(&mut self, units: u32, ordered: bool) {
        self.note(units);
        if ordered {
            self.in_order = self.in_order.saturating_add(units.saturating_sub(1)).min(HOLD_IN_ORDER_UNITS);
        }
    }

    /// Book what was done since `units` was `before`.
    pub fn book(&mut self, share: &mut Share, before: u32) {
        if share.turn != self.turn {
            *share = Share { turn: self.turn, units: 0, ..*share };
        }
        let done = self.units - before;
        share.units = share.units.saturating_add(done);
        self.reads += u32::from(!self.in_line && done <= LEAST_SHARE_UNITS);
    }

    /// It is `now`, in this turn.
    pub fn note_time(&mut self, now: Nanos) {
        self.since = self.since.max(now);
    }

    /// Whether a command of `units` may run where the share ends at `bound`: one in a turn may be larger than that.
    pub fn may_run(&mut self, units: u32, bound: u32) -> bool {
        self.units.saturating_add(units) <= bound || (self.has_room_for_one() && self.may_exceed(units))
    }

    /// The same for a publish to a limited topic: it does not rest, for what came later would take its tokens.
    pub fn may_run_in_order(&mut self, units: u32, bound: u32) -> bool {
        let fits = self.units.saturating_add(units) <= bound;
        let may = fits || self.has_room_for_one();
        self.oversize |= may && !fits;
        may
    }

    fn has_room_for_one(&self) -> bool {
        !self.goes_behind() && !self.oversize
    }

    /// Whether a command of `units` may run although it is larger than a share. If not, its connection is to be postponed.
    pub fn may_exceed(&mut self, units: u32) -> bool {
        if self.is_shared() && units > DEAR_UNITS {
            self.rests = self.since < self.rests_until;
            if self.rests {
                return false;
            }
            self.rests_until = self.since + ((REST + 1) * UNIT_NS * Nanos::from(units)).min(LONGEST_REST);
        }
        self.oversize = true;
        true
    }

    /// The same for an IDENTIFY, which may be dearer than a share: as many run in a shared turn as in any other.
    pub fn may_introduce(&mut self, bound: u32) -> bool {
        (!self.goes_behind() && self.has_room_to_introduce()) || self.may_run(IDENTIFY_UNITS, bound)
    }

    pub(crate) fn has_room_in_line(&self) -> bool {
        (self.units - self.before).saturating_add(IDENTIFY_UNITS) <= self.stretched(self.turn_units())
    }

    pub(crate) fn has_room_to_introduce(&self) -> bool {
        (self.units - self.before).saturating_add(IDENTIFY_UNITS) <= COMMAND_UNITS
    }

    /// Whether what is read now, and is more than a little, goes behind those that wait already.
    fn goes_behind(&self) -> bool {
        !self.in_line && self.postponed.len() > SHORT_LINE
    }

    /// When those that wait go on; `None`: nobody does.
    pub fn next(&self) -> Option<Nanos> {
        if !self.postponed.is_empty() {
            return Some(0);
        }
        (!self.resting.is_empty()).then_some(self.rests_until)
    }

    /// A message of this topic is collected or delivered.
    pub fn note_topic(&mut self, topic: TopicKey) {
        self.newcomers.note_message(self.since);
        self.note_carrying();
        if self.topic.replace(topic).is_some_and(|before| before != topic) {
            self.others_wait();
        }
    }

    /// What the connection asks for whose share it is carries messages on.
    pub fn note_carrying(&mut self) {
        self.carries = true;
    }

    /// Its share is used up. If that carried no message, those that are on their way waited for it.
    pub(crate) fn note_flood(&mut self) {
        if self.units > self.began && !self.carries && self.topic.is_some() {
            self.others_wait();
        }
    }

    fn others_wait(&mut self) {
        self.shared_until = self.shared_until.max(self.since + SHARED_NS);
    }

    /// Whether messages of more than one topic are on their way, or some beside a flood of other commands: then turns are short, and copies for many
    /// channels, and deliveries, are shared out too. Where there is one flow alone, larger portions cost nobody anything, and it less.
    pub fn is_shared(&self) -> bool {
        self.since < self.shared_until
    }

    /// From now on others always wait.
    #[cfg(any(test, feature = "harness"))]
    pub fn stay_shared(&mut self) {
        self.shared_until = Nanos::MAX;
    }

    pub fn end_turn(&mut self, now: Nanos) {
        self.turn = self.turn.wrapping_add(1);
        self.newcomers.end_turn();
        (self.units, self.before, self.in_order, self.in_line, self.decoded, self.oversize) = (0, 0, 0, false, 0, false);
        self.reads = 0;
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_much_a_turn_costs_its_count_does_not_begin_again() {
        let mut work = Work::default();
        for _ in 0..2 {
            work.note_collected(u32::MAX, true);
            work.note(1);
        }
        assert_eq!((work.units, work.in_order), (u32::MAX, HOLD_IN_ORDER_UNITS));
        let mut share = Share::default();
        work.book(&mut share, 0);
        work.book(&mut share, 0);
        assert_eq!(work.bound(share), u32::MAX);
        assert!(!work.has_room_in_line() && !work.has_room_to_introduce());
    }

    #[test]
    fn what_a_command_announces_keeps_others_waiting_for_a_bounded_time() {
        let mut work = Work { shared_until: SHARED_NS, ..Work::default() };
        assert!(work.may_run(u32::MAX, 0));
        assert_eq!(work.rests_until, LONGEST_REST);
        work.end_turn(LONGEST_REST - 1);
        assert!(!work.may_run(DEAR_UNITS + 1, 0));
        assert!(work.may_run(DEAR_UNITS, 0), "it is not dear");
        work.end_turn(LONGEST_REST);
        assert!(work.may_run(DEAR_UNITS + 1, 0));
        assert_eq!(work.rests_until - LONGEST_REST, (REST + 1) * UNIT_NS * Nanos::from(DEAR_UNITS + 1));
    }
}
