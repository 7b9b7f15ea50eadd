//! What a subject has of each policy: a few words in its slot, or an entry in a store beside the table.
//!
//! Every policy answers three questions: what would it say (`look`), take it (`take`), and is it at rest (`rests`), so
//! that the subject may be forgotten.

use std::collections::VecDeque;

use crate::Nanos;
use crate::bucket::{Bucket, TOKEN};
use crate::policy::Rule;

const UNITS_PER_MICRO: i128 = 1_000_000_000;
const NONE: u32 = u32::MAX;

/// The two clocks of a decision, in ns: monotonic, and the wall's for windows that are aligned to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub mono: Nanos,
    pub wall: Nanos,
}

/// What a policy says of a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub allowed: bool,
    /// How much would be left now, whole, before anything is taken.
    pub remaining: u64,
    /// If refused: when the cost may be there. If allowed: how long to wait first (`pace`). `Nanos::MAX`: never.
    pub wait: Nanos,
    /// When everything is there again.
    pub reset: Nanos,
}

/// Subjects' entries that do not fit into words: logs of requests, and open requests.
#[derive(Debug, Default)]
pub struct Stores {
    logs: Slab<VecDeque<(Nanos, u32)>>,  // (time, cost), oldest first
    opens: Slab<Vec<(u64, Nanos, u32)>>, // (grant, when it expires, cost)
}

#[derive(Debug)]
struct Slab<T> {
    all: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { all: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Slab<T> {
    fn of(&self, at: u32) -> Option<&T> {
        self.all.get(at as usize)
    }

    /// The entry that `word` points to, made if there is none.
    fn made(&mut self, word: &mut u32) -> &mut T {
        if *word == NONE {
            *word = self.free.pop().unwrap_or_else(|| {
                self.all.push(T::default());
                self.all.len() as u32 - 1
            });
        }
        &mut self.all[*word as usize]
    }

    fn free(&mut self, at: u32) {
        if let Some(entry) = self.all.get_mut(at as usize) {
            *entry = T::default();
            self.free.push(at);
        }
    }
}

impl Rule {
    /// A new subject's state: nothing used. A bucket begins full where `full`.
    pub(crate) fn begin(&self, words: &mut [u32], now: Now, full: bool) {
        words.fill(0);
        match *self {
            Self::Bucket { rate_micro, burst_micro, .. } | Self::Pace { rate_micro, burst_micro, .. } => {
                save(words, &Bucket::new(rate_micro, burst_micro, now.mono, full));
            }
            Self::Window { .. } => words[0] = self.slice_at(now).0,
            Self::Log { .. } | Self::Concurrency { .. } => words[0] = NONE,
        }
    }

    /// What the policy says of `cost`. Changes nothing.
    pub(crate) fn look(&self, words: &[u32], stores: &Stores, cost: u32, now: Now) -> Look {
        match *self {
            Self::Bucket { .. } => look_bucket(&self.bucket(words), cost, now.mono, None),
            Self::Pace { max_wait_ns, .. } => look_bucket(&self.bucket(words), cost, now.mono, Some(max_wait_ns)),
            Self::Window { quota, .. } => Window::of(self, words, now).look(quota, cost),
            Self::Log { quota, window_ns } => look_log(stores.logs.of(words[0]), quota, window_ns, cost, now.mono),
            Self::Concurrency { quota, .. } => look_open(stores.opens.of(words[0]), quota, cost, now.mono),
        }
    }

    /// Takes `cost`, after `look` allowed it. `grant`: by which an open request is released.
    pub(crate) fn take(&self, words: &mut [u32], stores: &mut Stores, cost: u32, grant: u64, now: Now) {
        if cost == 0 {
            return; // nothing to note: a log of such requests would grow without bound
        }
        match *self {
            Self::Bucket { .. } | Self::Pace { .. } => {
                let mut bucket = self.bucket(words);
                bucket.debit(i128::from(cost) * TOKEN, now.mono);
                save(words, &bucket);
            }
            Self::Window { .. } => self.count(words, i64::from(cost), now),
            Self::Log { window_ns, .. } => {
                let log = stores.logs.made(&mut words[0]);
                while log.front().is_some_and(|(at, _)| *at <= now.mono - window_ns) {
                    log.pop_front();
                }
                log.push_back((now.mono, cost));
            }
            Self::Concurrency { expires_ns, .. } => {
                let open = stores.opens.made(&mut words[0]);
                open.retain(|(_, expires, _)| *expires > now.mono);
                open.push((grant, now.mono + expires_ns, cost));
            }
        }
    }

    /// Takes `more` after the fact, or gives back what is below 0. A bucket may fall below zero, by its largest debt.
    pub(crate) fn correct(&self, words: &mut [u32], stores: &mut Stores, more: i64, now: Now) {
        match *self {
            Self::Bucket { max_debt_micro, .. } => {
                let mut bucket = self.bucket(words);
                let debt = -i128::from(max_debt_micro) * UNITS_PER_MICRO;
                let fill = bucket.fill(now.mono);
                // What is over the burst is lost; a debt that is there is not forgiven by its own bound.
                let wanted = (fill - i128::from(more) * TOKEN).max(debt.min(fill)).min(bucket.burst());
                bucket.debit(fill - wanted, now.mono);
                save(words, &bucket);
            }
            Self::Pace { .. } => {
                let mut bucket = self.bucket(words);
                let fill = bucket.fill(now.mono);
                let wanted = (fill - i128::from(more) * TOKEN).min(bucket.burst());
                bucket.debit(fill - wanted, now.mono);
                save(words, &bucket);
            }
            Self::Window { .. } => self.count(words, more, now),
            Self::Log { quota, .. } => {
                let log = stores.logs.made(&mut words[0]);
                if let Ok(cost) = u32::try_from(more) {
                    if cost > 0 && log.len() < 2 * quota as usize {
                        log.push_back((now.mono, cost));
                    }
                    return;
                }
                let mut back = u32::try_from(-more).unwrap_or(u32::MAX);
                while back > 0
                    && let Some((_, cost)) = log.back_mut()
                {
                    let given = back.min(*cost);
                    (*cost, back) = (*cost - given, back - given);
                    if *cost == 0 {
                        log.pop_back();
                    }
                }
            }
            Self::Concurrency { .. } => {}
        }
    }

    /// By how much a bucket is below zero, whole tokens, rounded up.
    pub(crate) fn overdraft(&self, words: &[u32], now: Now) -> u64 {
        match *self {
            Self::Bucket { .. } | Self::Pace { .. } => {
                let below = (-self.bucket(words).fill(now.mono)).max(0);
                u64::try_from((below + TOKEN - 1) / TOKEN).unwrap_or(u64::MAX)
            }
            Self::Window { .. } | Self::Log { .. } | Self::Concurrency { .. } => 0,
        }
    }

    /// Ends an open request. False: it is not open.
    pub(crate) fn release(&self, words: &[u32], stores: &mut Stores, grant: u64) -> bool {
        let Self::Concurrency { .. } = self else { return false };
        let Some(open) = stores.opens.all.get_mut(words[0] as usize) else { return false };
        let before = open.len();
        open.retain(|(number, ..)| *number != grant);
        open.len() < before
    }

    /// Whether the state is that of a new subject: it may be forgotten.
    pub(crate) fn rests(&self, words: &[u32], stores: &Stores, now: Now) -> bool {
        match *self {
            Self::Bucket { .. } | Self::Pace { .. } => {
                let bucket = self.bucket(words);
                bucket.fill(now.mono) >= bucket.burst()
            }
            Self::Window { .. } => Window::of(self, words, now).sum() == 0,
            Self::Log { window_ns, .. } => {
                stores.logs.of(words[0]).is_none_or(|log| log.back().is_none_or(|(at, _)| *at <= now.mono - window_ns))
            }
            Self::Concurrency { .. } => {
                stores.opens.of(words[0]).is_none_or(|open| open.iter().all(|(_, expires, _)| *expires <= now.mono))
            }
        }
    }

    /// The subject is forgotten.
    pub(crate) fn end(&self, words: &[u32], stores: &mut Stores) {
        match self {
            Self::Log { .. } => stores.logs.free(words[0]),
            Self::Concurrency { .. } => stores.opens.free(words[0]),
            _ => {}
        }
    }

    /// The state of a subject under `old`, which has as many words, goes on under this rule: a change mints nothing.
    pub(crate) fn adopt(&self, old: &Self, words: &mut [u32], now: Now) {
        match (self, old) {
            (
                Self::Bucket { rate_micro, burst_micro, .. } | Self::Pace { rate_micro, burst_micro, .. },
                Self::Bucket { .. } | Self::Pace { .. },
            ) => {
                let mut bucket = old.bucket(words);
                bucket.set(*rate_micro, *burst_micro, now.mono, false);
                save(words, &bucket);
            }
            (
                Self::Window { window_ns, slices, aligned, .. },
                Self::Window { window_ns: w, slices: s, aligned: a, .. },
            ) if (window_ns, slices, aligned) != (w, s, a) => {
                let used = Window::of(old, words, now).sum();
                self.begin(words, now, true);
                self.count(words, i64::from(u32::try_from(used).unwrap_or(u32::MAX)), now);
            }
            _ => {}
        }
    }

    /// The state that a subject had at `saved`, in another process perhaps, goes on: time that the wall clock says has
    /// passed since then counts. A wall clock that was set back lets none pass.
    pub(crate) fn restore(&self, words: &mut [u32], old: &[u32], saved: Now, now: Now) {
        let passed = now.wall.saturating_sub(saved.wall).max(0);
        let shift = now.mono.saturating_sub(passed).saturating_sub(saved.mono);
        match *self {
            Self::Bucket { rate_micro, burst_micro, .. } | Self::Pace { rate_micro, burst_micro, .. } => {
                let (fill, at) = load(old);
                let burst = i128::from(burst_micro) * UNITS_PER_MICRO;
                let fill = fill.clamp(-i128::from(u64::MAX) * UNITS_PER_MICRO, burst);
                let at = at.saturating_add(shift).min(now.mono);
                save(words, &Bucket::restored(rate_micro, burst_micro, (fill, at)));
            }
            Self::Window { aligned, .. } => {
                words.copy_from_slice(old);
                if !aligned {
                    // To the next whole slice: what was used counts for a part of a slice longer.
                    let (.., length) = self.slice_at(now);
                    words[0] = old[0].wrapping_add(-((-shift).div_euclid(length)) as u32);
                }
            }
            Self::Log { .. } | Self::Concurrency { .. } => {}
        }
    }

    fn bucket(&self, words: &[u32]) -> Bucket {
        let (Self::Bucket { rate_micro, burst_micro, .. } | Self::Pace { rate_micro, burst_micro, .. }) = *self else {
            unreachable!("only buckets have one")
        };
        Bucket::restored(rate_micro, burst_micro, load(words))
    }

    /// The number of the slice of now, modulo 2^32, and the nanoseconds of it that have passed.
    fn slice_at(&self, now: Now) -> (u32, Nanos, Nanos) {
        let Self::Window { window_ns, slices, aligned, .. } = *self else { unreachable!("only windows have slices") };
        let (time, length) = (if aligned { now.wall } else { now.mono }, window_ns / Nanos::from(slices));
        (time.div_euclid(length) as u32, time.rem_euclid(length), length)
    }

    /// Moves on to the slice of now, and counts `more` there; what is below 0 is taken from the newest slices.
    fn count(&self, words: &mut [u32], more: i64, now: Now) {
        let (number, ..) = self.slice_at(now);
        let kept = words.len() - 1;
        words[0] = newest(words, number);
        let number = if is_behind(words[0], number) { words[0] } else { number };
        let gone = (number.wrapping_sub(words[0]) as usize).min(kept);
        words.copy_within(1..=kept - gone, 1 + gone); // newest first
        words[1..=gone].fill(0);
        words[0] = number;
        let mut left = more;
        for count in &mut words[1..] {
            let after = (i64::from(*count) + left).clamp(0, i64::from(u32::MAX));
            left -= after - i64::from(*count);
            *count = after as u32;
            if left >= 0 {
                break;
            }
        }
    }
}

/// Whether the slice of now is before the newest that was counted in: the wall clock was set back.
fn is_behind(newest: u32, now: u32) -> bool {
    (now.wrapping_sub(newest) as i32) < 0
}

/// The number of the newest slice that was counted in. After a wall clock that was set back by little, counting goes on
/// there until the clock is there again. After more than a window that may be years: then the window is a new one, as
/// after a clock that was set ahead.
fn newest(words: &[u32], now: u32) -> u32 {
    let kept = words.len() as u32 - 1;
    let is_far = is_behind(words[0], now) && words[0].wrapping_sub(now) > kept;
    if is_far { now.wrapping_sub(kept) } else { words[0] }
}

/// The fill and instant that `save` left.
pub(crate) fn load(words: &[u32]) -> (i128, Nanos) {
    let at = u64::from(words[4]) | u64::from(words[5]) << 32;
    let units = (0..4).fold(0u128, |sum, word| sum | u128::from(words[word]) << (32 * word));
    (units as i128, at as i64)
}

pub(crate) fn save(words: &mut [u32], bucket: &Bucket) {
    store(words, bucket.state());
}

pub(crate) fn store(words: &mut [u32], (units, at): (i128, Nanos)) {
    for (word, place) in words[..4].iter_mut().enumerate() {
        *place = (units as u128 >> (32 * word)) as u32;
    }
    (words[4], words[5]) = (at as u64 as u32, (at as u64 >> 32) as u32);
}

fn look_bucket(bucket: &Bucket, cost: u32, now: Nanos, max_wait: Option<Nanos>) -> Look {
    let (now, cost) = (now.max(bucket.at()), i128::from(cost) * TOKEN);
    let (fill, rate) = (bucket.fill(now), i128::from(bucket.rate_micro()).max(1));
    // From the fill of now, which has its cap: a bucket at rest earns nothing for a later cost above its burst.
    let wait_for = |units: i128| Nanos::try_from(((units - fill).max(0) + rate - 1) / rate).unwrap_or(Nanos::MAX);
    let wait = if fill >= cost {
        0
    } else if cost > bucket.burst() && max_wait.is_none() {
        Nanos::MAX // more than the bucket ever has
    } else {
        wait_for(cost)
    };
    Look {
        allowed: max_wait.map_or(wait == 0, |most| wait <= most),
        remaining: (fill.max(0) / TOKEN) as u64,
        wait,
        reset: wait_for(bucket.burst()),
    }
}

fn look_log(log: Option<&VecDeque<(Nanos, u32)>>, quota: u32, window: Nanos, cost: u32, now: Nanos) -> Look {
    let inside = || log.into_iter().flatten().filter(|(at, _)| *at > now - window);
    let used: u64 = inside().map(|(_, cost)| u64::from(*cost)).sum();
    let (quota, cost) = (u64::from(quota), u64::from(cost));
    let mut wait = if cost > quota { Nanos::MAX } else { 0 };
    if used + cost > quota && cost <= quota {
        let mut left = used;
        for (at, gone) in inside() {
            left -= u64::from(*gone);
            if left + cost <= quota {
                wait = at + window - now;
                break;
            }
        }
    }
    let reset = inside().next_back().map_or(0, |(at, _)| at + window - now);
    Look { allowed: used + cost <= quota, remaining: quota.saturating_sub(used), wait, reset }
}

fn look_open(open: Option<&Vec<(u64, Nanos, u32)>>, quota: u32, cost: u32, now: Nanos) -> Look {
    let live = || open.into_iter().flatten().filter(|(_, expires, _)| *expires > now);
    let used: u64 = live().map(|(.., cost)| u64::from(*cost)).sum();
    let (quota, cost) = (u64::from(quota), u64::from(cost));
    let allowed = used + cost <= quota;
    let mut ends: Vec<_> = live().map(|(_, expires, cost)| (expires - now, u64::from(*cost))).collect();
    ends.sort_unstable();
    let mut wait = if cost > quota { Nanos::MAX } else { 0 };
    let mut left = used;
    for (end, gone) in &ends {
        if left + cost <= quota || cost > quota {
            break;
        }
        (wait, left) = (*end, left - gone);
    }
    Look { allowed, remaining: quota.saturating_sub(used), wait, reset: ends.last().map_or(0, |(end, _)| *end) }
}

/// The slices of a window as of now, newest first.
struct Window<'a> {
    words: &'a [u32],
    newest: u32, // number of the first slice in `words`
    number: u32, // of the slice of now
    slices: u32, // that count whole
    weighted: bool,
    passed: Nanos, // of the slice of now
    length: Nanos,
}

impl<'a> Window<'a> {
    fn of(rule: &Rule, words: &'a [u32], now: Now) -> Self {
        let (Rule::Window { slices, weighted, .. }, (number, passed, length)) = (rule, rule.slice_at(now)) else {
            unreachable!("only windows have slices")
        };
        let newest = newest(words, number);
        let (number, passed) = if is_behind(newest, number) { (newest, 0) } else { (number, passed) };
        Self { words, newest, number, slices: u32::from(*slices), weighted: *weighted, passed, length }
    }

    /// The count of the slice so many before that of now, or after it where negative.
    fn count(&self, back: i64) -> u64 {
        let since_newest = i64::from(self.number.wrapping_sub(self.newest));
        let counts = &self.words[1..];
        usize::try_from(back - since_newest)
            .ok()
            .and_then(|place| counts.get(place))
            .map_or(0, |count| u64::from(*count))
    }

    fn sum(&self) -> u64 {
        (0..i64::from(self.slices) + i64::from(self.weighted)).map(|back| self.count(back)).sum()
    }

    /// Whole slices of a window that ends in the slice so many after that of now, and the one that leaves it.
    fn parts(&self, ahead: i64) -> (u64, u64) {
        let slices = i64::from(self.slices);
        let whole = (0..slices).map(|back| self.count(back - ahead)).sum();
        (whole, if self.weighted { self.count(slices - ahead) } else { 0 })
    }

    fn look(&self, quota: u32, cost: u32) -> Look {
        let (quota, cost, length) = (u128::from(quota), u128::from(cost), self.length as u128);
        let (whole, leaving) = self.parts(0);
        let used = u128::from(whole) * length + u128::from(leaving) * (self.length - self.passed) as u128;
        let room = (quota * length).saturating_sub(used);
        let allowed = room >= cost * length;
        let wait = if allowed {
            0
        } else if cost > quota {
            Nanos::MAX
        } else {
            self.wait(quota, cost)
        };
        let kept = i64::from(self.slices) + i64::from(self.weighted);
        let newest = (0..kept).find(|back| self.count(*back) > 0);
        let reset = newest.map_or(0, |back| (kept - back) * self.length - self.passed);
        Look { allowed, remaining: (room / length) as u64, wait, reset }
    }

    /// Nanoseconds until `cost` is at most what the window has left.
    fn wait(&self, quota: u128, cost: u128) -> Nanos {
        let length = self.length as u128;
        for ahead in 0..=i64::from(self.slices) + 1 {
            let (whole, leaving) = self.parts(ahead);
            let Some(room) = quota.checked_sub(cost + u128::from(whole)) else { continue };
            // Of the slice that leaves, no more than `room` may still be inside.
            let into = (length * u128::from(leaving).saturating_sub(room)).div_ceil(u128::from(leaving.max(1)));
            let at = ahead * self.length - self.passed + into as Nanos;
            if at >= 0 && (into as Nanos) < self.length {
                return at;
            }
        }
        Nanos::MAX
    }
}
