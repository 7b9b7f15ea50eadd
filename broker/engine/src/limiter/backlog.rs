//! FIFO queue of messages that wait for tokens of one bucket.
//!
//! Only the head has a release instant; each other message gets its own when it becomes the head. So a change of
//! parameters costs nothing per waiting message. All instants lie on one line of exact integers: they are equal to the
//! nanosecond, however they are computed.

use std::collections::VecDeque;

use crate::limiter::bucket::{Bucket, TOKEN};
use crate::time::Nanos;

#[derive(Debug)]
pub struct Backlog<T> {
    bucket: Bucket,
    waiting: VecDeque<(u32, T)>, // (tokens, item); if not empty, the head lacks tokens
    waiting_cost: i128,          // sum over `waiting`, units
    last_decision: Nanos,        // every arrival counts at this instant or later
}

/// Outcome of an arrival.
#[derive(Debug, PartialEq, Eq)]
pub enum Take<T> {
    /// Released on arrival: the bucket had the tokens.
    Now(T),
    /// Queued until this instant under the present parameters. `None`: these parameters never release it.
    Waits(Option<Nanos>),
}

impl<T> Backlog<T> {
    pub fn new(bucket: Bucket, at: Nanos) -> Self {
        Self { bucket, waiting: VecDeque::new(), waiting_cost: 0, last_decision: at }
    }

    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The message that is released next.
    pub fn head(&self) -> Option<&T> {
        self.waiting.front().map(|(_, item)| item)
    }

    /// The instant that counts for an arrival stamped `at`: no arrival precedes the last decision.
    pub fn effective(&self, at: Nanos) -> Nanos {
        at.max(self.last_decision)
    }

    /// How many of `cost` tokens would have to wait if they arrived at `at`.
    pub fn missing(&self, cost: u32, at: Nanos) -> u32 {
        if !self.is_empty() {
            return cost;
        }
        let there = (self.bucket.fill(self.effective(at)).max(0) / TOKEN).min(i128::from(cost));
        cost - u32::try_from(there).unwrap_or(cost)
    }

    /// The instant at which `cost` tokens that arrive at `at` are available behind the queue. `None`: never under these
    /// parameters.
    pub fn instant_for(&self, cost: u32, at: Nanos) -> Option<Nanos> {
        let cost = i128::from(cost) * TOKEN;
        if self.is_empty() && cost > self.bucket.burst() {
            return None;
        }
        let mut bucket = self.bucket.clone();
        if self.is_empty() {
            bucket.debit(0, self.effective(at));
        }
        bucket.instant_of(self.waiting_cost + cost)
    }

    /// Decides an arrival. `at` must come from `effective`, and arrivals must come in its order.
    pub fn arrive(&mut self, cost: u32, at: Nanos, item: T) -> Take<T> {
        self.last_decision = at;
        let units = i128::from(cost) * TOKEN;
        if self.waiting.is_empty() && self.bucket.take_now(units, at) {
            return Take::Now(item);
        }
        if self.waiting.is_empty() {
            self.bucket.debit(0, at); // apply the cap before the head starts to take tokens as they accrue
        }
        self.waiting.push_back((cost, item));
        self.waiting_cost += units;
        Take::Waits(self.tail_due())
    }

    /// Release instant of the head.
    pub fn next_due(&self) -> Option<Nanos> {
        let (cost, _) = self.waiting.front()?;
        let cost = i128::from(*cost) * TOKEN;
        if cost > self.bucket.burst() {
            return None;
        }
        self.bucket.instant_of(cost)
    }

    /// Removes and pays the head if its release instant is not after `now`; returns both.
    pub fn pop_due(&mut self, now: Nanos) -> Option<(Nanos, T)> {
        let due = self.next_due().filter(|due| *due <= now)?;
        let (cost, item) = self.waiting.pop_front()?;
        let units = i128::from(cost) * TOKEN;
        self.bucket.pay_at(units, due);
        self.waiting_cost -= units;
        Some((due, item))
    }

    pub fn debit(&mut self, cost: u32, at: Nanos) {
        let at = self.effective(at);
        self.last_decision = at;
        self.bucket.debit(i128::from(cost) * TOKEN, at);
    }

    /// Sets new parameters. The caller must have popped all that was due by `at`.
    pub fn set(&mut self, rate_micro: u64, burst_micro: u64, at: Nanos) {
        let at = self.effective(at);
        self.last_decision = at;
        let waiting = !self.is_empty();
        self.bucket.set(rate_micro, burst_micro, at, waiting);
    }

    /// Tokens available at `at`, in units.
    pub fn fill(&self, at: Nanos) -> i128 {
        if self.is_empty() { self.bucket.fill(at) } else { self.bucket.accrued(at).min(self.bucket.burst()) }
    }

    /// Unfinished work U = b - tokens + waiting, in units: what the bucket still owes at `at` (appendix A of the
    /// paper).
    pub fn unfinished(&self, at: Nanos) -> i128 {
        self.bucket.burst() - self.fill(at) + self.waiting_cost
    }

    /// All waiting messages, unpaid: the limit is being removed.
    pub fn into_waiting(self) -> impl Iterator<Item = T> {
        self.waiting.into_iter().map(|(_, item)| item)
    }

    /// Drops all waiting messages; they have paid nothing. The cap applies again from the last payment on.
    pub fn clear(&mut self) {
        self.waiting = VecDeque::new();
        self.waiting_cost = 0;
    }

    #[cfg(any(test, feature = "harness"))]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.waiting.iter().map(|(_, item)| item)
    }

    /// Release instants of all waiting messages, in order, under the present parameters.
    pub fn all_due(&self) -> impl Iterator<Item = Option<Nanos>> + '_ {
        let mut sum = 0;
        self.waiting.iter().map(move |(cost, _)| {
            let cost = i128::from(*cost) * TOKEN;
            sum += cost;
            if cost > self.bucket.burst() { None } else { self.bucket.instant_of(sum) }
        })
    }

    fn tail_due(&self) -> Option<Nanos> {
        let (cost, _) = self.waiting.back()?;
        if i128::from(*cost) * TOKEN > self.bucket.burst() {
            return None;
        }
        self.bucket.instant_of(self.waiting_cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: u64 = 1_000_000;

    fn backlog(rate: u64, burst: u64, full: bool) -> Backlog<u32> {
        Backlog::new(Bucket::new(rate * MICRO, burst * MICRO, 0, full), 0)
    }

    #[test]
    fn what_waits_is_released_in_order_at_exact_instants() {
        let mut backlog = backlog(1_000, 1, true);
        assert_eq!(backlog.arrive(1, 0, 1), Take::Now(1));
        assert_eq!(backlog.arrive(1, 0, 2), Take::Waits(Some(1_000_000)));
        assert_eq!(backlog.arrive(1, 500, 3), Take::Waits(Some(2_000_000)));
        assert_eq!(backlog.pop_due(999_999), None);
        assert_eq!(backlog.pop_due(5_000_000), Some((1_000_000, 2)));
        assert_eq!(backlog.pop_due(5_000_000), Some((2_000_000, 3)));
        assert_eq!(backlog.pop_due(5_000_000), None);
    }

    #[test]
    fn a_change_of_rate_retimes_what_waits() {
        let mut backlog = backlog(1_000, 1, false);
        backlog.arrive(1, 0, 1);
        backlog.set(2_000 * MICRO, MICRO, 500_000);
        assert_eq!(backlog.next_due(), Some(750_000)); // half a token had accrued; the rest accrues at twice the rate
        backlog.set(0, 0, 600_000);
        assert_eq!(backlog.next_due(), None);
        backlog.set(1_000 * MICRO, MICRO, 700_000);
        assert_eq!(backlog.next_due(), Some(1_700_000)); // the zero share emptied the bucket
    }

    #[test]
    fn a_stamp_older_than_the_last_decision_counts_as_that_decision() {
        let mut backlog = backlog(1_000, 5, true);
        backlog.arrive(1, 1_000, 1);
        assert_eq!(backlog.effective(400), 1_000);
    }

    #[test]
    fn more_tokens_than_the_bucket_holds_never_come() {
        let mut backlog = backlog(1_000, 2, true);
        assert_eq!(backlog.instant_for(3, 0), None);
        assert_eq!(backlog.arrive(3, 0, 1), Take::Waits(None));
    }
}
