//! History of a limited topic in bins of 100 ms.
//!
//! A bin has its arrivals, the messages that waited for tokens as it began, the largest unfinished work, the access
//! delays of what was decided in it, and the rate of the share in force at its end. The next event closes a bin, with
//! the values at its edges. While somebody asks for bins, a change of the rate shows sooner than a bin is over: in
//! slots, fifths of a bin (`telemetry/change_detector.rs`). Pure.

use std::collections::VecDeque;

use serde::Serialize;

use crate::limiter::bucket::TOKEN;
use crate::telemetry::change_detector::ChangeDetector;
use crate::telemetry::drift_detector::DriftDetector;
use crate::telemetry::share_rates::ShareRates;
use crate::time::{NS_PER_S, Nanos};

pub const BIN_NS: Nanos = 100_000_000;
pub const SLOT_NS: Nanos = BIN_NS / 5;

/// Slots without a message that count in a row: after as many, a rate of 0 is well known.
const LONGEST_SLEEP: i64 = 1_000;

/// Bins that are kept: a reader may be late by as many.
const KEPT: i64 = 128;

/// 10 ms: stamps of a turn may be so much older than the turn, so a bin is given out no earlier after its end.
pub(crate) const SETTLE_NS: Nanos = 10_000_000;

#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    number: i64, // from the clock's zero on
    arrivals: u64,
    waiting: u64,
    unfinished: u64, // thousandths of a message, the largest, rounded up; known when the bin is over
    delay_ns: u64,
}

impl Bin {
    fn is_empty(&self) -> bool {
        self.arrivals == 0 && self.waiting == 0 && self.unfinished == 0
    }
}

/// The values at the beginning of a bin.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standing {
    pub waiting: usize,
    pub unfinished: i128, // units
}

/// The number of the first bin that may still get messages at `now`.
pub fn open_at(now: Nanos) -> i64 {
    (now - SETTLE_NS).div_euclid(BIN_NS)
}

/// When `open_at` becomes `number`.
pub fn opens_at(number: i64) -> Nanos {
    number * BIN_NS + SETTLE_NS
}

/// Bins of one topic. Of those that are over, empty ones are left out.
#[derive(Debug)]
pub struct History {
    end: Nanos, // of the present bin
    present: Bin,
    largest: i128,       // unfinished work of the present bin, units
    over: VecDeque<Bin>, // ascending
    supply: ShareRates,
    slot_end: Nanos,
    in_slot: u64, // messages
    detector: ChangeDetector,
    watched_until: Nanos,
    rate_change: Option<RateChange>,
    steady: Option<Box<SteadyWatch>>, // it is watched, whoever asks, until it is no longer steady
    unsteady: bool,
}

/// Of a topic whose traffic is steady, as far as is known.
#[derive(Debug)]
struct SteadyWatch {
    due: Nanos, // when to look at it
    drift: DriftDetector,
}

/// A change of the rate of arrivals: what came since, until a moment ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateChange {
    pub since: Nanos,
    pub span: Nanos,
    pub arrivals: u64,
}

/// Bins that are over: `first`, and those that follow it. Columns of equal length.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Bins {
    pub first: i64,
    pub arrivals: Vec<u64>,
    pub waiting: Vec<u64>,
    pub unfinished: Vec<f64>,    // messages
    pub delay_ns: Vec<u64>,      // sum over the messages decided in the bin, as things stood then
    pub supply: Vec<(i64, f64)>, // (first bin at whose end it was in force, msg/s); unknown of early bins
}

impl History {
    pub fn new(at: Nanos) -> Self {
        let number = at.div_euclid(BIN_NS);
        Self {
            end: (number + 1) * BIN_NS,
            present: Bin { number, ..Bin::default() },
            largest: 0,
            over: VecDeque::new(),
            supply: ShareRates::default(),
            slot_end: (at.div_euclid(SLOT_NS) + 1) * SLOT_NS,
            in_slot: 0,
            detector: ChangeDetector::default(),
            watched_until: Nanos::MIN,
            rate_change: None,
            steady: None,
            unsteady: false,
        }
    }

    /// Whether `turn` must run before an event at `at` is noted.
    pub fn is_behind(&self, at: Nanos) -> bool {
        at >= self.slot_end
    }

    /// Somebody asks for bins at `now`: look for changes for a while.
    pub fn watch(&mut self, now: Nanos) {
        if now >= self.watched_until {
            self.detector = ChangeDetector::default();
        }
        // 1 s from then on.
        self.watched_until = self.watched_until.max(now + NS_PER_S);
    }

    /// Note at `now` that the topic is steady: it is watched until `end_steady`. False: it was steady before.
    pub fn watch_steady(&mut self, now: Nanos) -> bool {
        if self.steady.is_some() {
            return false;
        }
        self.watch(now);
        self.watched_until = Nanos::MAX;
        let drift = DriftDetector::new(self.present.number + 1);
        self.steady = Some(Box::new(SteadyWatch { due: Nanos::MAX, drift }));
        true
    }

    /// Watch it no longer than if somebody had asked at `now`.
    pub fn end_steady(&mut self, now: Nanos) {
        if self.steady.take().is_some() {
            self.watched_until = now + NS_PER_S;
        }
    }

    /// When to look at the topic, if it is steady.
    pub fn look_due(&self) -> Option<Nanos> {
        self.steady.as_ref().map(|steady| steady.due)
    }

    pub fn set_look_due(&mut self, due: Nanos) {
        if let Some(steady) = &mut self.steady {
            steady.due = due;
        }
    }

    /// The instant before which silence means nothing, as far as is known.
    pub fn speaks_at(&self) -> Nanos {
        self.detector.calm_slots().map_or(Nanos::MAX, |slots| self.slot_end + Nanos::from(slots) * SLOT_NS)
    }

    /// Note that messages wait: another split may be better, so traffic is not steady.
    pub fn waits(&mut self) {
        self.unsteady |= self.steady.is_some();
    }

    /// Whether it was steady until `now`; true once. Then it is watched no longer than if somebody had asked.
    pub fn take_unsteady(&mut self, now: Nanos) -> bool {
        let is_unsteady = std::mem::take(&mut self.unsteady);
        if is_unsteady {
            self.end_steady(now);
        }
        is_unsteady
    }

    /// The change of the rate, once for each.
    pub fn take_rate_change(&mut self) -> Option<RateChange> {
        self.rate_change.take()
    }

    /// Open the slot and the bin of `at`.
    ///
    /// `supply`: the rate in force, in micro-messages per second. `standing`: gives the values at the instants when
    /// bins begin, as nothing has happened since the last event.
    #[cold]
    pub fn turn(&mut self, at: Nanos, supply: u64, standing: impl Fn(Nanos) -> Standing) {
        self.turn_slots(at);
        if at < self.end {
            return;
        }
        let last = at.div_euclid(BIN_NS);
        self.supply.note(self.present.number, supply, last - KEPT);
        self.close();
        for number in (self.present.number + 1).max(last - KEPT)..=last {
            let Standing { waiting, unfinished } = standing(number * BIN_NS);
            self.present = Bin { number, waiting: waiting as u64, ..Bin::default() };
            self.largest = unfinished;
            if number < last {
                self.close();
            }
        }
        self.end = (last + 1) * BIN_NS;
        self.unsteady |= self.steady.as_mut().is_some_and(|steady| steady.drift.pass(last));
        while self.over.front().is_some_and(|bin| bin.number < last - KEPT) {
            self.over.pop_front();
        }
    }

    fn turn_slots(&mut self, at: Nanos) {
        let slots = (at - self.slot_end).div_euclid(SLOT_NS) + 1;
        if slots <= 0 {
            return;
        }
        if at < self.watched_until {
            self.note_slots(slots);
        }
        self.in_slot = 0;
        self.slot_end += slots * SLOT_NS;
    }

    /// Pass the present slot to the detector, and the empty ones behind it; those that mean nothing in one step.
    fn note_slots(&mut self, slots: i64) {
        self.note_slot(self.in_slot, 0);
        let slots = slots.min(LONGEST_SLEEP);
        let mut slot = 1;
        while slot < slots {
            self.note_slot(0, slot);
            slot += 1;
            let left = (slots - slot) as u32;
            let calm = self.detector.calm_slots().map_or(left, |calm| calm.min(left));
            self.detector.note_calm(calm);
            slot += i64::from(calm);
        }
    }

    /// Pass a slot to the detector; `slot`: how many behind the present one.
    fn note_slot(&mut self, count: u64, slot: i64) {
        if let Some(rate_change) = self.detector.note(count) {
            let span = Nanos::from(rate_change.slots) * SLOT_NS;
            self.rate_change =
                Some(RateChange { since: self.slot_end + slot * SLOT_NS - span, span, arrivals: rate_change.arrivals });
        }
    }

    fn close(&mut self) {
        self.present.unfinished = thousandths(self.largest);
        if let Some(steady) = &mut self.steady {
            self.unsteady |= steady.drift.note(self.present.number, self.present.arrivals) || self.present.waiting > 0;
        }
        if !self.present.is_empty() {
            self.over.push_back(self.present);
        }
    }

    /// Note that `count` messages have come.
    pub fn came(&mut self, count: u32) {
        self.present.arrivals += u64::from(count);
        self.in_slot += u64::from(count);
    }

    /// Note that a message waits `delay` for its tokens.
    pub fn delayed(&mut self, delay: Nanos) {
        self.present.delay_ns = self.present.delay_ns.saturating_add(delay.max(0) as u64);
    }

    /// Note that the unfinished work has reached `units`.
    pub fn reached(&mut self, units: i128) {
        self.largest = self.largest.max(units);
    }

    /// Bins from number `since` on and before `until`, all of which are over. `None`: all are empty.
    pub fn between(&self, since: i64, until: i64) -> Option<Bins> {
        let first = since.max(self.present.number - KEPT);
        let there = |number| self.over.partition_point(|bin| bin.number < number);
        let (from, to) = (there(first), there(until));
        if from >= to {
            return None;
        }
        let len = usize::try_from(until - first).ok()?;
        let supply = self.supply.between(first, until);
        let mut bins = Bins {
            first,
            arrivals: vec![0; len],
            waiting: vec![0; len],
            unfinished: vec![0.0; len],
            delay_ns: vec![0; len],
            supply,
        };
        for bin in self.over.range(from..to) {
            let at = usize::try_from(bin.number - first).ok()?;
            bins.arrivals[at] = bin.arrivals;
            bins.waiting[at] = bin.waiting;
            bins.unfinished[at] = bin.unfinished as f64 / 1e3;
            bins.delay_ns[at] = bin.delay_ns.min(1 << 53); // readers take doubles, exact up to here
        }
        Some(bins)
    }
}

fn thousandths(units: i128) -> u64 {
    u64::try_from((units.max(0) + TOKEN / 1_000 - 1) / (TOKEN / 1_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUPPLY: u64 = 5_000_000;

    fn idle(_: Nanos) -> Standing {
        Standing::default()
    }

    #[test]
    fn arrivals_and_the_largest_work_are_those_of_their_bin() {
        let mut history = History::new(0);
        history.came(2);
        history.reached(3 * TOKEN);
        history.reached(2 * TOKEN);
        assert!(!history.is_behind(SLOT_NS - 1) && history.is_behind(SLOT_NS));
        history.delayed(7);
        history.delayed(8);
        history.turn(BIN_NS, SUPPLY, |_| Standing { waiting: 1, unfinished: TOKEN / 2 });
        history.came(1);
        history.turn(2 * BIN_NS, SUPPLY, idle);
        let supply = vec![(0, 5.0)];
        let bins = Bins {
            first: 0,
            arrivals: vec![2, 1],
            waiting: vec![0, 1],
            unfinished: vec![3.0, 0.5],
            delay_ns: vec![15, 0],
            supply,
        };
        assert_eq!(history.between(0, history.present.number), Some(bins));
        assert_eq!(history.between(1, 2).map(|bins| (bins.first, bins.arrivals)), Some((1, vec![1])));
        assert_eq!(history.between(0, 1).map(|bins| bins.arrivals), Some(vec![2]));
        assert_eq!(history.between(2, 2), None, "the present one is not over");
    }

    /// `counts` messages, each at the middle of a slot, from slot `first` on.
    fn fed(history: &mut History, first: i64, counts: &[u32]) {
        for (slot, count) in (first..).zip(counts) {
            history.turn(slot * SLOT_NS + SLOT_NS / 2, SUPPLY, idle);
            history.came(*count);
        }
    }

    /// 20 messages in each of 49 slots; changes are looked for until some slots later.
    fn steady_and_watched() -> History {
        let mut history = History::new(0);
        history.watch(0);
        fed(&mut history, 0, &[20; 49]);
        history.watch(49 * SLOT_NS);
        history
    }

    #[test]
    fn a_change_shows_within_two_slots_with_what_came_in_the_second() {
        let mut history = steady_and_watched();
        fed(&mut history, 49, &[20, 90, 180]);
        assert_eq!(history.take_rate_change(), None, "the last slot is not over");
        history.turn(52 * SLOT_NS, SUPPLY, idle);
        assert_eq!(history.take_rate_change(), Some(RateChange { since: 51 * SLOT_NS, span: SLOT_NS, arrivals: 180 }));
        assert_eq!(history.take_rate_change(), None);
    }

    #[test]
    fn what_comes_late_and_all_at_once_is_no_change() {
        let mut history = steady_and_watched();
        fed(&mut history, 49, &[20, 0, 40, 20, 20, 20, 20]);
        assert_eq!(history.take_rate_change(), None);
    }

    #[test]
    fn an_end_of_all_traffic_shows_when_bins_are_asked_for() {
        let mut history = steady_and_watched();
        fed(&mut history, 49, &[20]);
        history.turn(55 * SLOT_NS, SUPPLY, idle);
        assert_eq!(history.take_rate_change().map(|rate_change| rate_change.arrivals), Some(0));
    }

    #[test]
    fn nobody_looks_for_changes_while_nobody_asks() {
        let mut history = History::new(0);
        fed(&mut history, 0, &[20; 60]);
        fed(&mut history, 60, &[180; 60]);
        assert_eq!(history.take_rate_change(), None);
    }

    #[test]
    fn bins_in_which_nothing_happened_are_as_things_stood() {
        let mut history = History::new(0);
        history.came(5);
        history.turn(4 * BIN_NS, SUPPLY, |at| Standing { waiting: 3, unfinished: TOKEN * i128::from(4 - at / BIN_NS) });
        let bins = history.between(0, history.present.number).expect("bins");
        assert_eq!(
            (bins.arrivals, bins.waiting, bins.unfinished),
            (vec![5, 0, 0, 0], vec![0, 3, 3, 3], vec![0.0, 3.0, 2.0, 1.0])
        );
    }

    #[test]
    fn quiet_times_take_no_room_and_are_told_as_zeros_between_others() {
        let mut history = History::new(0);
        history.came(1);
        history.turn(50 * BIN_NS, SUPPLY, idle);
        history.came(1);
        history.turn(51 * BIN_NS, SUPPLY, idle);
        assert_eq!(history.over.len(), 2);
        assert_eq!(
            history.between(10, 51).map(|bins| (bins.first, bins.arrivals.len(), bins.arrivals[40])),
            Some((10, 41, 1))
        );
        history.turn(100 * BIN_NS, SUPPLY, idle);
        assert_eq!(history.between(60, 100), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut history = History::new(0);
        for number in 1..1_000 {
            history.came(1);
            history.turn(number * BIN_NS, SUPPLY, idle);
        }
        history.turn(1_000_000 * BIN_NS, SUPPLY, |_| Standing { waiting: 1, unfinished: 1 });
        assert!(history.over.len() as i64 <= KEPT);
        let bins = history.between(0, history.present.number).expect("bins");
        assert_eq!((bins.first, bins.waiting.len() as i64), (1_000_000 - KEPT, KEPT));
    }

    #[test]
    fn a_bin_that_is_kept_no_longer_is_left_out_rather_than_told_as_empty() {
        let mut history = History::new(0);
        for number in 1..=KEPT + 3 {
            history.came(1);
            history.turn(number * BIN_NS, SUPPLY, idle);
        }
        let bins = history.between(0, KEPT).expect("bins");
        assert_eq!((bins.first, bins.arrivals), (3, vec![1; KEPT as usize - 3]));
        assert_eq!(history.between(0, 3), None);
    }

    #[test]
    fn work_is_told_to_a_thousandth_of_a_message_and_never_as_less_than_it_is() {
        assert_eq!([0, 1, TOKEN / 1_000, TOKEN / 1_000 + 1, -1].map(thousandths), [0, 1, 1, 2, 0]);
        assert_eq!(thousandths(i128::MAX / 2), u64::MAX);
    }

    #[test]
    fn a_delay_beyond_all_bounds_is_told_as_the_largest() {
        let mut history = History::new(0);
        history.came(2);
        for delay in [Nanos::MAX, Nanos::MAX, Nanos::MAX, -5] {
            history.delayed(delay);
        }
        history.turn(BIN_NS, SUPPLY, idle);
        assert_eq!(history.between(0, 1).map(|bins| bins.delay_ns), Some(vec![1 << 53]));
    }
}
