//! Detects changes of a rate of arrivals: CUSUM of likelihood ratios on counts in short slots. Pure.
//!
//! Each test sums log-likelihood ratios between Poisson counts of the present rate and of one that is larger or smaller
//! by the test's ratio; the sum stays above 0. A change is detected when a sum passes the threshold. A false alarm then
//! takes e^threshold slots in the mean at least, whatever the rate (Lorden, "Procedures for reacting to a change in
//! distribution", 1971). Messages in batches count by the batch: counts are divided by their index of dispersion,
//! estimated beside the rate.
//!
//! A change comes with the new rate: that of the last slots that speak most clearly against the old rate, without the
//! first of them, which is partly of the old rate. So a change waits for the first slot that is all of the new rate.
//! Messages that were only late, and come in one slot, are no change.

use std::f64::consts::LN_2;

/// Six ratios of a new rate to the old one: the logarithm, and the part by which the rate grows.
const TESTS: [(f64, f64); 6] = [
    (2.0 * LN_2, 3.0),               // 4
    (0.405_465_108_108_164_4, 0.5),  // 1.5
    (0.095_310_179_804_324_87, 0.1), // 1.1
    (-0.095_310_179_804_324_87, 1.0 / 1.1 - 1.0),
    (-0.405_465_108_108_164_4, 1.0 / 1.5 - 1.0),
    (-2.0 * LN_2, -0.75),
];

/// A false alarm in e^18 slots per test, if rate and dispersion are known: 15 days of slots of 20 ms. They are
/// estimated, which costs more with large batches.
const THRESHOLD: f64 = 18.0;
/// From a slot that would be a change if confirmed, the rate learns at most this multiple of itself: it may be a burst
/// that was held up.
const OUTLYING: f64 = 4.0;
/// The slots that confirm a change must reach this sum by themselves.
const CONFIRMED: f64 = 3.0;
/// Slots that are kept to look back.
const KEPT: usize = 64;
/// Slots over which the rate is averaged, once there were as many.
const SLOWEST: u32 = 500;
/// Then a slot without a message leaves this part of the rate.
const KEEPS: f64 = 1.0 - 1.0 / SLOWEST as f64;
/// Slots with messages over which the dispersion is averaged. It tells what publishers are like, not what they do now.
const SLOWEST_DISPERSION: f64 = 2_000.0;
/// Slots after a change in which the new rate is only learnt, so that traffic that comes every second is no change each
/// time.
const LEARNING: u32 = 50;
/// The least rate, in messages per slot: compared with 0, every rate is infinitely larger.
const LEAST: f64 = 0.02;
/// Messages for which a dispersion of 1 counts at the beginning.
const PRIOR: f64 = 2.0;
/// The most that one pair of slots adds to the index of dispersion, in multiples of it: a leap of the rate tells
/// nothing about its noise.
const OUTLIER: f64 = 9.0;

/// What came since a change, in the last `slots` slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub arrivals: u64,
    pub slots: u32,
}

/// The latest slots.
#[derive(Debug)]
struct Last {
    counts: [u64; KEPT],
    slots: usize, // so far
}

impl Default for Last {
    fn default() -> Self {
        Self { counts: [0; KEPT], slots: 0 }
    }
}

impl Last {
    fn push(&mut self, count: u64) {
        self.counts[self.slots % KEPT] = count;
        self.slots += 1;
    }

    fn push_empty(&mut self, slots: u32) {
        let slots = slots as usize;
        for at in self.slots..self.slots + slots.min(KEPT) {
            self.counts[at % KEPT] = 0;
        }
        self.slots += slots;
    }

    /// What came since `rate` (messages per slot) changed; `None`: that cannot be told yet.
    fn change_from(&self, rate: f64, index: f64) -> Option<Change> {
        let (mut arrivals, mut clearest, mut best, mut inner) = (0, None, 0.0, 0.0);
        for slots in 1..=self.slots.min(KEPT) {
            let without = Change { arrivals, slots: slots as u32 - 1 };
            arrivals += self.counts[(self.slots - slots) % KEPT];
            let says = log_likelihood_ratio(arrivals as f64, rate * slots as f64) / index;
            if says > best {
                best = says;
                clearest = (without.slots > 0 && inner > CONFIRMED).then_some(without);
            }
            inner = says;
        }
        clearest
    }
}

/// Of Poisson counts: `count` against `expected`, where the true mean is `count`.
fn log_likelihood_ratio(count: f64, expected: f64) -> f64 {
    let log = if count > 0.0 { count * (count / expected).ln() } else { 0.0 };
    log - count + expected
}

/// The index of dispersion, from differences between consecutive slots: a slow change of the rate leaves them as they
/// are.
#[derive(Debug, Clone, Copy)]
struct Dispersion {
    index: f64,
    last: f64,     // messages in the last slot
    squares: f64,  // sum of the squared differences, old ones fading
    messages: f64, // of both slots, likewise
}

impl Default for Dispersion {
    fn default() -> Self {
        Self { index: 1.0, last: 0.0, squares: PRIOR, messages: PRIOR }
    }
}

impl Dispersion {
    fn note(&mut self, count: f64) {
        let (difference, both) = (count - self.last, count + self.last);
        self.last = count;
        if both > 0.0 {
            let kept = 1.0 - 1.0 / SLOWEST_DISPERSION;
            self.squares = self.squares * kept + (difference * difference).min(OUTLIER * self.index * both);
            self.messages = self.messages * kept + both;
            self.index = (self.squares / self.messages).max(1.0);
        }
    }
}

/// What a slot tells.
enum Verdict {
    AsBefore,
    /// The rate changed, or messages were only late: the next slots tell.
    Unconfirmed,
    Changed(Change),
}

/// The detector of one stream.
#[derive(Debug, Default)]
pub struct ChangeDetector {
    rate: f64,  // messages a slot
    slots: u32, // that it is estimated from
    dispersion: Dispersion,
    sums: [f64; TESTS.len()],
    last: Last,
}

impl ChangeDetector {
    /// Whether the rate is known well enough for a change to be seen.
    pub fn is_settled(&self) -> bool {
        self.slots >= LEARNING
    }

    /// Note the messages of the next slot. `Some`: the rate has changed.
    pub fn note(&mut self, count: u64) -> Option<Change> {
        let verdict = if self.is_settled() { self.tested(count) } else { Verdict::AsBefore };
        match verdict {
            Verdict::Changed(change) => {
                self.begin_anew(change);
                return Some(change);
            }
            Verdict::Unconfirmed => self.learn(count as f64, OUTLYING * self.rate.max(LEAST)),
            Verdict::AsBefore => self.learn(count as f64, f64::MAX),
        }
        None
    }

    /// Empty slots that can follow before a change is possible, as far as is known; `None`: any number. Rather too few
    /// than too many.
    pub fn calm_slots(&self) -> Option<u32> {
        if !self.is_settled() {
            return Some(LEARNING - self.slots);
        }
        let most = self.rate * f64::from(SLOWEST); // all that is expected of empty slots before their rate is nothing
        let slots =
            self.sums.iter().zip(TESTS).filter(|(_, (_, growth))| *growth < 0.0).filter_map(|(sum, (_, growth))| {
                let needed = (THRESHOLD - sum).max(0.0) * self.dispersion.index / -growth;
                (needed < most).then(|| (1.0 - needed / most).ln() / KEEPS.ln())
            });
        slots.min_by(f64::total_cmp).map(|slots| slots.min(f64::from(u32::MAX)) as u32)
    }

    /// Note empty slots that follow an empty slot, none of which can be a change (`calm_slots`); in one step where
    /// possible.
    pub fn note_calm(&mut self, slots: u32) {
        let stepped = SLOWEST.saturating_sub(self.slots).min(slots);
        for _ in 0..stepped {
            self.note(0);
        }
        self.skip(slots - stepped);
    }

    /// Note empty slots in one step: with the rate learnt as slowly as it ever is, they are a geometric series.
    fn skip(&mut self, slots: u32) {
        let fading =
            if self.rate > LEAST { (((LEAST / self.rate).ln() / KEEPS.ln()).ceil() as u32).min(slots) } else { 0 };
        let index = self.dispersion.index;
        let passed = |slots: u32| self.rate * f64::from(SLOWEST) * (1.0 - KEEPS.powf(f64::from(slots)));
        let (expected, risen) = (passed(slots), passed(fading) + LEAST * f64::from(slots - fading));
        for (sum, (_, growth)) in self.sums.iter_mut().zip(TESTS) {
            *sum = (*sum - growth * if growth > 0.0 { risen } else { expected } / index).clamp(0.0, 2.0 * THRESHOLD);
        }
        self.last.push_empty(slots);
        self.rate *= KEEPS.powf(f64::from(slots));
        self.slots = self.slots.saturating_add(slots);
    }

    fn tested(&mut self, count: u64) -> Verdict {
        let index = self.dispersion.index;
        let (counted, rate, risen) = (count as f64 / index, self.rate / index, self.rate.max(LEAST) / index);
        for (sum, (log, growth)) in self.sums.iter_mut().zip(TESTS) {
            *sum =
                (*sum + counted * log - growth * if growth > 0.0 { risen } else { rate }).clamp(0.0, 2.0 * THRESHOLD);
        }
        self.last.push(count);
        if self.sums.iter().all(|sum| *sum <= THRESHOLD) {
            return Verdict::AsBefore;
        }
        self.last.change_from(self.rate.max(LEAST), index).map_or(Verdict::Unconfirmed, Verdict::Changed)
    }

    /// Learn the rate from a slot; at most `most` messages of it.
    fn learn(&mut self, count: f64, most: f64) {
        self.slots = self.slots.saturating_add(1);
        self.rate += (count.min(most) - self.rate) / f64::from(self.slots.min(SLOWEST));
        self.dispersion.note(count);
    }

    /// Begin again with the rate of the slots since the change. The dispersion stays.
    fn begin_anew(&mut self, change: Change) {
        *self = Self {
            rate: change.arrivals as f64 / f64::from(change.slots),
            dispersion: self.dispersion,
            ..Self::default()
        };
        self.slots = change.slots.min(LEARNING - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots of a steady stream, after which everything about it is known.
    fn settled(slots: u32, count: u64) -> ChangeDetector {
        let mut detector = ChangeDetector::default();
        assert!((0..slots).all(|_| detector.note(count).is_none()));
        detector
    }

    #[test]
    fn one_slot_with_very_many_messages_is_no_change_nor_is_the_return_to_what_was_before() {
        for slots in [LEARNING, 60, SLOWEST, 2 * SLOWEST] {
            for burst in [200, 5_000, 1_000_000] {
                let mut detector = settled(slots, 20);
                assert_eq!(detector.note(burst), None);
                assert_eq!((0..1_000).find_map(|_| detector.note(20)), None, "{burst} after {slots} slots");
            }
        }
    }

    /// Slots with one message each `apart`, the last of them behind `slots`.
    fn rare(slots: u32, apart: u32) -> ChangeDetector {
        let mut detector = ChangeDetector::default();
        assert!((0..slots).all(|slot| detector.note(u64::from(slot % apart == 0)).is_none()));
        detector
    }

    #[test]
    fn empty_slots_noted_at_once_are_as_each_noted() {
        for (behind, apart) in [(200, 7), (3_001, 10), (3_001, 30), (3_050, 100), (3_013, 49)] {
            for slots in [1, 2, 40, 63, 64, 65, 200, 3_000] {
                let (mut each, mut at_once) = (rare(behind, apart), rare(behind, apart));
                assert_eq!((each.note(0), at_once.note(0)), (None, None));
                if each.calm_slots().is_some_and(|calm| calm < slots) {
                    continue;
                }
                assert!((0..slots).all(|_| each.note(0).is_none()));
                at_once.note_calm(slots);
                let sums = each.sums.iter().zip(at_once.sums);
                assert!(sums.clone().all(|(one, other)| (one - other).abs() < 1e-9), "{apart}, {slots}: {sums:?}");
                assert!((each.rate - at_once.rate).abs() < 1e-12 && each.slots == at_once.slots);
                assert_eq!((each.last.counts, each.last.slots), (at_once.last.counts, at_once.last.slots));
                let told = |detector: &mut ChangeDetector| (0..50).find_map(|_| detector.note(1));
                assert_eq!(told(&mut each), told(&mut at_once));
            }
        }
    }

    #[test]
    fn no_change_is_said_of_so_many_empty_slots_as_are_calm_and_one_soon_after() {
        for apart in [1, 2, 3, 5, 8] {
            for behind in [60, 400, 3_000] {
                let mut detector = rare(behind, apart);
                let calm = detector.calm_slots().expect("an end of this shows");
                assert!((0..calm).all(|_| detector.note(0).is_none()), "every {apart}. slot of {behind}");
                let known_well = behind > SLOWEST; // else the rate fades faster than is reckoned with
                assert!(
                    !known_well || (0..calm / 4 + 5).any(|_| detector.note(0).is_some()),
                    "every {apart}. slot: calm for {calm}"
                );
            }
        }
    }

    #[test]
    fn where_messages_are_so_rare_that_none_says_nothing_all_slots_are_calm() {
        let mut detector = rare(3_000, 60);
        assert_eq!(detector.calm_slots(), None);
        assert_eq!((0..20_000).find_map(|_| detector.note(0)), None);
    }

    #[test]
    fn a_change_that_lasts_is_still_told_after_such_a_slot() {
        let mut detector = settled(SLOWEST, 20);
        detector.note(5_000);
        assert!((0..1_000).all(|_| detector.note(20).is_none()));
        let change = (0..10).find_map(|_| detector.note(80)).expect("four times as many");
        assert_eq!(change.arrivals, 80 * u64::from(change.slots));
    }
}
