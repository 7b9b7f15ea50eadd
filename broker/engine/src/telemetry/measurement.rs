//! One measurement of a limited topic, from its trace: what has arrived since it began, by interval, late or not, and
//! how long its parts took. Pure.
//!
//! Entries are taken in order of decision, each once it was sent. One that waits holds up those behind it: they are
//! seldom sent much earlier. So an interval is complete when it is told.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use hdrhistogram::Histogram;

use crate::limiter::trace::{Entry, LastSent};
use crate::telemetry::arrival_bins::SETTLE_NS;
use crate::telemetry::latency::{histogram, note};
use crate::time::Nanos;

/// 2 s: a message that was not sent so long after its release (or twice the target) is not measured.
///
/// No subscriber is there for it, or its first delivery was lost. While messages before it are still being sent, it is
/// on its way, however long that takes.
const UNSENT_NS: Nanos = 2_000_000_000;

/// Network delays to and from this broker, by publisher (index in the trace).
#[derive(Debug, Clone, Default)]
pub struct Network {
    pub publishers: HashMap<u32, Nanos>,
    /// Their median.
    pub typical_publisher: Nanos,
    /// The median of theirs.
    pub subscribers: Nanos,
}

impl Network {
    /// A message of a typical publisher to a typical subscriber.
    pub fn typical(&self) -> Nanos {
        self.typical_publisher + self.subscribers
    }

    fn of(&self, publisher: u32) -> Nanos {
        self.publishers.get(&publisher).copied().unwrap_or_default() + self.subscribers
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    pub number: i64,
    pub count: i64,
    pub late: i64,
    pub latency: Nanos, // sum over the messages
}

/// Messages since the last call, and how many of them were late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    pub count: u64,
    pub late: u64,
}

#[derive(Debug)]
pub struct Measurement {
    target: Nanos, // also the length of an interval
    began: Nanos,
    first: u64,             // sequence number of the first entry that may count
    cursor: u64,            // everything before is done
    waits_in: Option<i64>,  // the interval in which the entry at the cursor arrived, if it is not sent yet
    open: Option<Interval>, // more of it may come
    whole: Vec<Interval>,   // not told yet
    access: Histogram<u64>, // since it began, as the next two
    processing: Histogram<u64>,
    total: Histogram<u64>,
    recent: Share,
    recent_total: Histogram<u64>,
    pub network: Arc<Network>,
    pub lost: u64,   // the trace dropped it before it was sent
    pub unsent: u64, // given up
}

impl Measurement {
    /// Measure what arrives from `began` on. `next`: the sequence number of the trace's next entry. `target`: in ns,
    /// above 0.
    pub fn new(next: u64, target: Nanos, began: Nanos) -> Self {
        Self {
            target,
            began,
            first: next,
            cursor: next,
            waits_in: None,
            open: None,
            whole: Vec::new(),
            access: histogram(3),
            processing: histogram(3),
            total: histogram(3),
            recent: Share::default(),
            recent_total: histogram(3),
            network: Arc::default(),
            lost: 0,
            unsent: 0,
        }
    }

    /// The sequence number of the entry that is wanted next.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Entries that are done and that the trace still has.
    pub fn done(&self) -> Range<u64> {
        self.first..self.cursor
    }

    /// Take `entries` of the trace from sequence number `first` on, and its `last_sent`, read at `now`. True: all are
    /// done.
    pub fn take(&mut self, first: u64, entries: &[Entry], last_sent: LastSent, now: Nanos) -> bool {
        self.lost += first.saturating_sub(self.cursor);
        self.cursor = self.cursor.max(first);
        self.waits_in = None;
        for entry in entries {
            if entry.sent != 0 {
                self.count(entry);
            } else if self.is_given_up(entry, last_sent, now) {
                self.unsent += u64::from(entry.arrival >= self.began);
            } else {
                self.waits_in = Some(self.interval_of(entry));
                return false;
            }
            self.cursor += 1;
        }
        if self.open.is_some_and(|open| self.began + (open.number + 1) * self.target + SETTLE_NS <= now) {
            self.whole.extend(self.open.take());
        }
        true
    }

    /// Whether the entry at the cursor, which is not sent yet, is no longer waited for.
    fn is_given_up(&self, entry: &Entry, last_sent: LastSent, now: Nanos) -> bool {
        let is_on_its_way = last_sent.sequence < self.cursor;
        let quiet_since = if is_on_its_way { entry.released.max(last_sent.at) } else { entry.released };
        entry.released != 0 && now - quiet_since > UNSENT_NS.max(self.target.saturating_mul(2))
    }

    fn interval_of(&self, entry: &Entry) -> i64 {
        (entry.arrival - self.began).div_euclid(self.target)
    }

    fn count(&mut self, entry: &Entry) {
        let number = self.interval_of(entry);
        if number < 0 {
            return; // it came before, and was decided late
        }
        let access = (entry.due - entry.arrival).max(0);
        let processing = processing(entry);
        let total = access + processing + self.network.of(entry.publisher);
        for (histogram, value) in
            [(&mut self.access, access), (&mut self.processing, processing), (&mut self.total, total)]
        {
            note(histogram, value as u64, 1);
        }
        note(&mut self.recent_total, total as u64, 1);
        let late = i64::from(total > self.target);
        self.recent.count += 1;
        self.recent.late += late as u64;
        match &mut self.open {
            Some(open) if open.number == number => {
                *open =
                    Interval { number, count: open.count + 1, late: open.late + late, latency: open.latency + total };
            }
            open => self.whole.extend(open.replace(Interval { number, count: 1, late, latency: total })),
        }
    }

    /// Intervals that are over and sent, since the last call. `end`: the measurement is over, and so is the last
    /// interval.
    pub fn intervals(&mut self, end: bool) -> Vec<Interval> {
        if end && self.open.is_some_and(|open| self.waits_in != Some(open.number)) {
            self.whole.extend(self.open.take());
        }
        std::mem::take(&mut self.whole)
    }

    /// Messages since it began, and the percentile of access, of processing, and of both with the network (ns).
    pub fn percentiles(&self, percentile: f64) -> (u64, [u64; 3]) {
        let of = |histogram: &Histogram<u64>| histogram.value_at_percentile(percentile);
        (self.total.len(), [of(&self.access), of(&self.processing), of(&self.total)])
    }

    /// Messages since the last call, how many of them were late, and the percentile of the total (ns).
    pub fn recent(&mut self, percentile: f64) -> (Share, u64) {
        let worst = self.recent_total.value_at_percentile(percentile);
        self.recent_total.reset();
        (std::mem::take(&mut self.recent), worst)
    }
}

/// From due to sent, without the wait for a subscriber.
fn processing(entry: &Entry) -> Nanos {
    (entry.sent - entry.due - Nanos::from(entry.wait_us) * 1_000).max(0)
}

/// What was sent, in order of decision, as differences.
#[derive(Debug, Default)]
pub struct Recording {
    pub publisher: Vec<u32>,
    pub first: Nanos, // arrival of the first
    pub gap: Vec<Nanos>,
    pub access: Vec<Nanos>,
    pub processing: Vec<Nanos>,
    last: Nanos,
}

impl Recording {
    pub fn extend(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| entry.sent != 0) {
            if self.publisher.is_empty() {
                (self.first, self.last) = (entry.arrival, entry.arrival);
            }
            self.publisher.push(entry.publisher);
            self.gap.push((entry.arrival - self.last).max(0));
            self.access.push((entry.due - entry.arrival).max(0));
            self.processing.push(processing(entry));
            self.last = self.last.max(entry.arrival);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Nanos = 1_000;
    const MS: Nanos = 1_000_000;

    fn sent(arrival: Nanos, access: Nanos, processing: Nanos) -> Entry {
        let due = arrival + access;
        Entry { publisher: 0, wait_us: 0, arrival, due, released: due, sent: due + processing, version: 1 }
    }

    const NONE: LastSent = LastSent { sequence: 0, at: 0 };

    fn waiting(arrival: Nanos, released: Nanos) -> Entry {
        Entry { released, sent: 0, ..sent(arrival, 0, 0) }
    }

    fn told(number: i64, count: i64, late: i64, latency: Nanos) -> Interval {
        Interval { number, count, late, latency }
    }

    #[test]
    fn messages_are_counted_by_the_interval_of_their_arrival_once() {
        let mut measurement = Measurement::new(7, MS, 0);
        let entries = [sent(0, 0, 100 * US), sent(MS - 1, 2 * MS, 0), sent(3 * MS, MS, 0)];
        assert!(measurement.take(7, &entries, NONE, 4 * MS));
        assert_eq!(measurement.intervals(false), [told(0, 2, 1, 2 * MS + 100 * US)]);
        assert_eq!(measurement.cursor(), 10);
        assert!(measurement.take(10, &[sent(3 * MS + 1, MS, 1)], NONE, 5 * MS));
        assert_eq!(measurement.intervals(true), [told(3, 2, 1, 2 * MS + 1)]); // exactly the target is in time
        assert_eq!(measurement.percentiles(100.0).0, 4);
    }

    #[test]
    fn one_that_is_not_sent_yet_comes_later_with_those_behind_it() {
        let mut measurement = Measurement::new(0, MS, 0);
        assert!(!measurement.take(0, &[sent(0, 0, 1), waiting(1, 1), sent(5 * MS, 0, 1)], NONE, MS));
        assert_eq!((measurement.cursor(), measurement.intervals(true)), (1, vec![]));
        assert!(measurement.take(1, &[sent(1, 0, 2), sent(5 * MS, 0, 1)], NONE, 6 * MS));
        assert_eq!(measurement.intervals(true), [told(0, 2, 0, 3), told(5, 1, 0, 1)]);
    }

    #[test]
    fn what_nobody_takes_is_given_up_but_not_what_waits_for_its_token() {
        let mut measurement = Measurement::new(0, MS, 0);
        assert!(measurement.take(0, &[waiting(0, 1)], NONE, UNSENT_NS + 2));
        assert!(!measurement.take(1, &[waiting(1, 0)], NONE, 10 * UNSENT_NS));
        assert_eq!((measurement.unsent, measurement.cursor()), (1, 1));
    }

    #[test]
    fn what_is_next_in_line_is_waited_for_while_others_are_sent_and_what_was_overtaken_is_not() {
        let mut measurement = Measurement::new(7, MS, 0);
        let next = LastSent { sequence: 6, at: 9 * UNSENT_NS };
        assert!(!measurement.take(7, &[waiting(0, 1)], next, 10 * UNSENT_NS));
        assert!(measurement.take(7, &[waiting(0, 1)], next, 10 * UNSENT_NS + 1));
        assert!(measurement.take(8, &[waiting(0, 1)], LastSent { sequence: 9, at: 9 * UNSENT_NS }, 10 * UNSENT_NS));
        assert_eq!(measurement.unsent, 2);
    }

    #[test]
    fn nothing_is_given_up_within_twice_its_target() {
        let mut measurement = Measurement::new(0, UNSENT_NS, 0);
        assert!(!measurement.take(0, &[waiting(0, 1)], NONE, 2 * UNSENT_NS));
        assert!(measurement.take(0, &[waiting(0, 1)], NONE, 2 * UNSENT_NS + 2));
    }

    #[test]
    fn what_the_trace_dropped_before_it_was_sent_is_counted_as_lost() {
        let mut measurement = Measurement::new(5, MS, 0);
        assert!(measurement.take(9, &[sent(0, 0, 1)], NONE, MS));
        assert_eq!((measurement.lost, measurement.cursor()), (4, 10));
    }

    #[test]
    fn an_interval_is_told_when_it_is_over_though_nothing_follows() {
        let mut measurement = Measurement::new(0, MS, 0);
        measurement.take(0, &[sent(0, 0, 1)], NONE, 2 * MS);
        assert_eq!(measurement.intervals(false), []);
        measurement.take(1, &[], NONE, MS + SETTLE_NS);
        assert_eq!(measurement.intervals(false), [told(0, 1, 0, 1)]);
    }

    #[test]
    fn what_came_before_it_began_does_not_count() {
        let mut measurement = Measurement::new(0, MS, 10 * MS);
        measurement.take(0, &[sent(10 * MS - 1, 0, 1), sent(10 * MS, 0, 1)], NONE, 11 * MS);
        assert_eq!(measurement.intervals(true), [told(0, 1, 0, 1)]);
    }

    #[test]
    fn the_network_is_part_of_the_total_and_the_wait_for_a_subscriber_is_not() {
        let mut measurement = Measurement::new(0, MS, 0);
        measurement.network = Arc::new(Network {
            publishers: HashMap::from([(0, 30 * US)]),
            typical_publisher: 30 * US,
            subscribers: 20 * US,
        });
        let entry = Entry { wait_us: 900, ..sent(0, 100 * US, MS) };
        measurement.take(0, &[entry, Entry { publisher: 1, ..entry }], NONE, MS);
        assert_eq!(measurement.intervals(true), [told(0, 2, 0, (250 + 220) * US)]);
        let (_, [access, processing, total]) = measurement.percentiles(100.0);
        assert!(
            [(access, 100 * US), (processing, 100 * US), (total, 250 * US)]
                .iter()
                .all(|(a, b)| a.abs_diff(*b as u64) < 200)
        );
    }

    #[test]
    fn the_recent_share_of_late_messages_begins_anew_each_time() {
        let mut measurement = Measurement::new(0, MS, 0);
        measurement.take(0, &[sent(0, 2 * MS, 0), sent(0, 0, 1)], NONE, MS);
        let (share, worst) = measurement.recent(100.0);
        assert_eq!(share, Share { count: 2, late: 1 });
        assert!(worst.abs_diff(2 * MS as u64) < 2_000);
        assert_eq!(measurement.recent(100.0), (Share::default(), 0));
    }

    #[test]
    fn a_recording_is_of_what_was_sent_in_differences() {
        let mut recording = Recording::default();
        recording.extend(&[sent(1_000, 0, 3), waiting(1_500, 0), Entry { publisher: 2, ..sent(2_000, 10, 4) }]);
        recording.extend(&[sent(2_005, 20, 5)]);
        assert_eq!((recording.first, recording.publisher), (1_000, vec![0, 2, 0]));
        assert_eq!(
            (recording.gap, recording.access, recording.processing),
            (vec![0, 1_000, 5], vec![0, 10, 20], vec![3, 4, 5])
        );
    }
}
