//! The four latency histograms of a topic (ns, HDR): since start with three digits, and over the last 60 s in slots
//! with two.

use std::collections::VecDeque;

use base64::Engine as _;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use serde::Serialize;

use crate::telemetry::latency_buckets::{self, Buckets, TopicBuckets};
use crate::time::Nanos;

/// One delivery in its parts: `total = access + consumer_wait + processing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub access: Nanos,        // arrival to due: the bucket
    pub consumer_wait: Nanos, // no subscriber was ready for it, or it was deferred, or its topic or channel was paused
    pub total: Nanos,         // arrival to the last byte written
}

pub const KINDS: [&str; 4] = ["access", "processing", "consumer_wait", "total"];

impl Sample {
    fn values(self) -> [u64; 4] {
        let processing = self.total - self.access - self.consumer_wait;
        [self.access, processing, self.consumer_wait, self.total].map(|value| value.max(0) as u64)
    }
}

/// 5 s: latencies of as long share a slot.
pub(crate) const SLOT_NS: Nanos = 5_000_000_000;
const SLOTS: i64 = 12;
const RECENT_SLOTS: i64 = 2;

#[derive(Debug)]
struct Slot {
    number: i64, // now / SLOT_NS
    histograms: [Histogram<u32>; 4],
}

#[derive(Debug)]
pub struct Latency {
    since_start: [Histogram<u64>; 4],
    late: u64,             // messages whose access and processing took longer than promised
    slots: VecDeque<Slot>, // ascending numbers; those without a sample are missing
    known: Known,
}

/// The view as of the last call. Quantiles cost more than the messages of a small topic, and all topics are asked for
/// every second.
#[derive(Debug, Default)]
struct Known {
    recorded: u64, // so far
    slot: i64,
    summaries: Summaries,
}

pub(crate) fn histogram<C: hdrhistogram::Counter>(digits: u8) -> Histogram<C> {
    // safe: one to five digits are allowed, and all callers give a constant
    Histogram::new(digits).expect("valid number of digits")
}

/// 1 day: longer waits count as one, so that a message that nobody takes does not make the histogram grow.
const LONGEST_NS: u64 = 86_400_000_000_000;

pub(crate) fn note<C: hdrhistogram::Counter>(histogram: &mut Histogram<C>, value: u64, count: C) {
    // safe: an auto-resizing histogram takes every value
    histogram.record_n(value.min(LONGEST_NS), count).expect("auto-resizing");
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            since_start: std::array::from_fn(|_| histogram(3)),
            late: 0,
            slots: VecDeque::new(),
            known: Known::default(),
        }
    }
}

impl Latency {
    /// Note `count` equal deliveries: those of a batch that one write took. `promise` 0: there is none.
    pub fn record(&mut self, sample: Sample, count: u32, promise: Nanos, now: Nanos) {
        let number = now / SLOT_NS;
        if promise > 0 && sample.total - sample.consumer_wait > promise {
            self.late += u64::from(count);
        }
        if self.slots.back().is_none_or(|slot| slot.number != number) {
            self.open_slot(number);
        }
        let slot = self.slots.back_mut();
        for (kind, value) in sample.values().into_iter().enumerate() {
            note(&mut self.since_start[kind], value, u64::from(count));
        }
        if let Some(slot) = slot {
            for (kind, value) in sample.values().into_iter().enumerate() {
                note(&mut slot.histograms[kind], value, count);
            }
        }
    }

    #[cold]
    fn open_slot(&mut self, number: i64) {
        self.expire(number);
        self.slots.push_back(Slot { number, histograms: std::array::from_fn(|_| histogram(2)) });
    }

    fn expire(&mut self, number: i64) {
        while self.slots.front().is_some_and(|slot| slot.number <= number - SLOTS) {
            self.slots.pop_front();
        }
    }

    fn last_60s(&self, kind: usize, now: Nanos) -> Histogram<u32> {
        self.last_slots(SLOTS, kind, now)
    }

    fn last_slots(&self, slots: i64, kind: usize, now: Nanos) -> Histogram<u32> {
        let mut sum = histogram(2);
        for slot in self.slots.iter().filter(|slot| slot.number > now / SLOT_NS - slots) {
            // safe: an auto-resizing histogram takes every value that another one holds
            sum.add(&slot.histograms[kind]).expect("auto-resizing");
        }
        sum
    }

    pub fn summaries(&mut self, now: Nanos) -> Summaries {
        let (recorded, slot) = (self.since_start[0].len(), now / SLOT_NS);
        let (has_more, is_later) = (recorded != self.known.recorded, slot != self.known.slot);
        if has_more {
            self.known.summaries.since_start = Summary::of_all(|kind| Summary::of(&self.since_start[kind]));
        }
        if has_more || is_later {
            self.expire(slot);
            self.known.summaries.last_60s = Summary::of_all(|kind| Summary::of(&self.last_60s(kind, now)));
            self.known.summaries.recent =
                Summary::of_all(|kind| Summary::of(&self.last_slots(RECENT_SLOTS, kind, now)));
        }
        self.known = Known { recorded, slot, ..self.known };
        self.known.summaries
    }

    /// All since the start, by buckets around `promise`.
    pub fn buckets(&self, topic: &str, promise: Nanos) -> TopicBuckets {
        let bounds_ns = latency_buckets::bounds(promise);
        let [access, processing, _, total] = self.since_start.each_ref().map(|kind| Buckets::of(kind, &bounds_ns));
        TopicBuckets { topic: topic.into(), bounds_ns, late: self.late, access, processing, total }
    }

    /// HDR V2, deflated, in base64: a payload of an `.hlog` line. `None`: no such kind or window.
    pub fn raw(&self, kind: &str, window: &str, now: Nanos) -> Option<String> {
        let kind = KINDS.iter().position(|k| *k == kind)?;
        let mut bytes = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        match window {
            "since_start" => serializer.serialize(&self.since_start[kind], &mut bytes),
            "last_60s" => serializer.serialize(&self.last_60s(kind, now), &mut bytes),
            _ => return None,
        }
        .ok()?;
        Some(base64::engine::general_purpose::STANDARD.encode(bytes))
    }
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Summaries {
    pub since_start: Kinds,
    pub last_60s: Kinds,
    pub recent: Kinds, // the last 5 to 10 s
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Kinds {
    pub access: Summary,
    pub processing: Summary,
    pub consumer_wait: Summary,
    pub total: Summary,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Summary {
    pub count: u64,
    pub p50_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

impl Summary {
    fn of<C: hdrhistogram::Counter>(histogram: &Histogram<C>) -> Self {
        let at = |percentile| histogram.value_at_percentile(percentile);
        Self {
            count: histogram.len(),
            p50_ns: at(50.0),
            p95_ns: at(95.0),
            p99_ns: at(99.0),
            p999_ns: at(99.9),
            max_ns: histogram.max(),
        }
    }

    fn of_all(of: impl Fn(usize) -> Summary) -> Kinds {
        Kinds { access: of(0), processing: of(1), consumer_wait: of(2), total: of(3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_sample_add_up_and_old_ones_leave_the_window() {
        let mut latency = Latency::default();
        latency.record(Sample { access: 1_000, consumer_wait: 2_000, total: 10_000 }, 2, 0, 0);
        let now = latency.summaries(0);
        assert_eq!(now.since_start.access.max_ns, 1_000);
        assert!(now.since_start.processing.max_ns.abs_diff(7_000) <= 7);
        assert_eq!(now.last_60s.total.count, 2);
        assert_eq!(latency.summaries(9_999_999_999).recent.total.count, 2);
        assert_eq!(latency.summaries(10_000_000_000).recent.total.count, 0);
        assert_eq!(latency.summaries(10_000_000_000).last_60s.total.count, 2);
        let later = latency.summaries(61_000_000_000);
        assert_eq!(later.last_60s.total.count, 0);
        assert_eq!(later.since_start.total.count, 2);
    }

    #[test]
    fn whatever_was_asked_before_a_summary_is_that_of_its_instant() {
        let (mut asked_often, mut asked_once) = (Latency::default(), Latency::default());
        for step in 0..200 {
            let now = step * 700_000_000;
            if step % 7 < 3 || step % 100 < 20 {
                for latency in [&mut asked_often, &mut asked_once] {
                    latency.record(Sample { access: step * 1_000, consumer_wait: 0, total: step * 5_000 }, 1, 0, now);
                }
            }
            let seen = serde_json::to_value(asked_often.summaries(now)).expect("JSON");
            asked_once.known = Known::default();
            assert_eq!(seen, serde_json::to_value(asked_once.summaries(now)).expect("JSON"), "{step}");
        }
    }

    #[test]
    fn messages_are_late_by_access_and_processing_and_not_by_what_their_consumer_waits() {
        let mut latency = Latency::default();
        for (promise, total) in [(0, 900), (500, 900), (500, 700), (300, 900)] {
            latency.record(Sample { access: 100, consumer_wait: 300, total }, 2, promise, 0);
        }
        let buckets = latency.buckets("t", 0);
        assert_eq!((buckets.late, buckets.access.counts[0], buckets.topic.as_str()), (4, 8, "t"));
    }

    #[test]
    fn raw_histograms_are_named_by_kind_and_window() {
        let latency = Latency::default();
        assert!(latency.raw("access", "since_start", 0).is_some_and(|text| text.starts_with("HISTFAAA")));
        assert!(latency.raw("access", "yesterday", 0).is_none());
        assert!(latency.raw("speed", "last_60s", 0).is_none());
    }
}
