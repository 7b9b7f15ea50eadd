//! One topic: its limiter (bucket, backlog, trace), messages without a channel, counters and latency.

use std::collections::{HashSet, VecDeque};

use crate::event::Event;
use crate::keys::ChannelKey;
use crate::limiter::backlog::{Backlog, Take};
use crate::limiter::bucket::{Bucket, TOKEN};
use crate::limiter::topic_contracts::TopicContracts;
use crate::limiter::trace::{Entry, Trace};
use crate::memory::Stock;
use crate::queueing::message::{Message, cost_of};
use crate::queueing::queue::Queue;
use crate::telemetry::arrival_bins::{History, Standing};
use crate::telemetry::latency::{Latency, SLOT_NS};
use crate::time::Nanos;
use crate::timer::Armed;

/// A topic's token bucket as the control plane sets it.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub rate_micro: u64,
    pub burst_micro: u64,
    pub reject: bool, // on_excess
    pub max_backlog: u64,
    pub max_backlog_bytes: u64,
    pub version: u64,
    pub full: bool,     // applies to a new bucket only
    pub expires: Nanos, // CLOCK_BOOTTIME; Nanos::MAX: never (`engine/leases.rs`)
}

/// Largest unfinished work of the last 60 s, in slots.
#[derive(Debug, Default)]
struct LargestBacklog {
    slots: VecDeque<(i64, i128)>, // (now / SLOT_NS, units)
}

impl LargestBacklog {
    fn record(&mut self, units: i128, now: Nanos) {
        let number = now / SLOT_NS;
        match self.slots.back_mut() {
            Some((last, largest)) if *last == number => *largest = units.max(*largest),
            _ => {
                self.slots.push_back((number, units));
                self.expire(number);
            }
        }
    }

    fn expire(&mut self, number: i64) {
        while self.slots.front().is_some_and(|(slot, _)| *slot <= number - 12) {
            self.slots.pop_front();
        }
    }

    fn messages(&self, now: Nanos) -> f64 {
        let oldest = now / SLOT_NS - 12;
        let largest = self.slots.iter().filter(|(slot, _)| *slot > oldest).map(|(_, units)| *units).max();
        largest.unwrap_or(0) as f64 / TOKEN as f64
    }
}

#[derive(Debug)]
pub struct Limiter {
    pub limit: Limit,
    pub backlog: Backlog<Message>,
    pub backlog_bytes: u64, // sum over the backlog
    pub stock: Stock,       // the same with what an entry takes
    pub trace: Trace,
    pub lateness_max: Nanos, // actual release minus due
    pub starved_sent: bool,
    pub lapses: u64, // how often its lease ended
    is_void: bool,   // it has ended and was not renewed
    largest: LargestBacklog,
    pub history: History,
}

/// Why a publish is refused: when to try again, if ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess {
    pub retry_at: Option<Nanos>,
}

impl Limiter {
    pub fn new(limit: Limit, trace: Trace, stock: Stock, now: Nanos) -> Self {
        let bucket = Bucket::new(limit.rate_micro, limit.burst_micro, now, limit.full);
        Self {
            limit,
            backlog: Backlog::new(bucket, now),
            backlog_bytes: 0,
            stock,
            trace,
            lateness_max: 0,
            starved_sent: false,
            lapses: 0,
            is_void: false,
            largest: LargestBacklog::default(),
            history: History::new(now),
        }
    }

    /// Applies a new limit. The caller must have released all that was due by `now`.
    pub fn set(&mut self, limit: Limit, now: Nanos) {
        self.turn_history(now);
        self.backlog.set(limit.rate_micro, limit.burst_micro, now);
        self.limit = limit;
        self.starved_sent = false;
        self.is_void = false;
    }

    /// Stops releases at the expiry of the lease, if `boot_now` has reached it; returns whether it ended now.
    ///
    /// `boot_now` is CLOCK_BOOTTIME, which is `suspended` ahead of the monotonic clock.
    pub fn lapse(&mut self, boot_now: Nanos, suspended: Nanos) -> bool {
        if boot_now < self.limit.expires || self.is_void {
            return false;
        }
        let expiry = self.limit.expires.saturating_sub(suspended);
        self.turn_history(expiry);
        self.backlog.set(0, 0, expiry);
        self.is_void = true;
        self.starved_sent = true; // the event of the lease's end replaces that of starvation
        self.lapses += 1;
        true
    }

    /// Extends the lease to `expires`. If it had ended, the bucket restarts empty at `now`.
    pub fn renew(&mut self, expires: Nanos, now: Nanos) {
        self.limit.expires = expires;
        if self.is_void {
            self.set(self.limit, now);
        }
    }

    pub fn is_over(&self, boot_now: Nanos) -> bool {
        boot_now >= self.limit.expires
    }

    /// Whether `count` messages with `bytes` in total, arriving at `at`, are admitted: all or none. Charges nothing.
    ///
    /// `may_wait`: also where the topic refuses what has no token.
    pub fn admit(&self, count: u32, bytes: u64, at: Nanos, may_wait: bool) -> Result<(), Excess> {
        let missing = self.backlog.missing(count, at);
        if missing == 0 {
            return Ok(());
        }
        if self.limit.reject && !may_wait {
            return Err(Excess { retry_at: self.backlog.instant_for(count, at) });
        }
        let waiting = self.backlog.len() as u64 + u64::from(missing);
        let has_room = self.stock.has_room_for(cost_of(u64::from(count), bytes, 1));
        if waiting <= self.limit.max_backlog && self.backlog_bytes + bytes <= self.limit.max_backlog_bytes && has_room {
            return Ok(());
        }
        // At the bound, "delay" becomes "reject". A retry makes sense once as many waiting messages have left.
        let retry_at =
            self.backlog.all_due().nth(missing as usize - 1).or_else(|| self.backlog.all_due().last()).flatten();
        Err(Excess { retry_at })
    }

    /// Decides one admitted message: returns it if released now, else keeps it in the backlog. Also returns its due
    /// instant under the present parameters.
    pub fn decide(
        &mut self,
        mut message: Message,
        publisher: u32,
        stamp: Nanos,
        now: Nanos,
    ) -> (Option<Message>, Option<Nanos>) {
        let arrival = self.backlog.effective(stamp);
        message.times.arrival = arrival;
        message.times.due = arrival;
        let version = self.limit.version;
        message.times.trace =
            self.trace.push(Entry { publisher, wait_us: 0, arrival, due: arrival, released: 0, sent: 0, version });
        let (bytes, cost) = (message.body_len() as u64, message.cost());
        let trace = message.times.trace;
        match self.backlog.arrive(1, arrival, message) {
            Take::Now(mut message) => {
                let due = self.backlog.bucket().at(); // its arrival, or an earlier release if later
                message.times.due = due;
                self.note_release(&message, due, now);
                (Some(message), Some(due))
            }
            Take::Waits(due) => {
                self.backlog_bytes += bytes;
                self.stock.add(cost);
                self.trace.released(trace, due.unwrap_or(0), 0, version);
                (None, due)
            }
        }
    }

    /// Records the delay of a message stamped `at` and due at `due`, just after its decision.
    pub fn note_delay(&mut self, at: Nanos, due: Nanos) {
        self.history.delayed(due - self.backlog.effective(at));
    }

    /// Records the unfinished work after the decision of one publish stamped `at`. Each message increased it, so its
    /// largest value is the present one.
    pub fn note_unfinished(&mut self, at: Nanos, now: Nanos) {
        let unfinished = self.backlog.unfinished(self.backlog.effective(at));
        self.largest.record(unfinished, now);
        self.history.reached(unfinished);
    }

    /// Records `count` arrivals, effective at `at`, whatever their outcome. The caller must have released all that was
    /// due by then.
    pub fn note_arrivals(&mut self, count: u32, at: Nanos) {
        self.turn_history(at);
        self.history.came(count);
    }

    /// The word that the rate of arrivals of this topic has changed, once for each change, or that its traffic is not
    /// steady any more.
    pub fn take_event(&mut self, topic: &str, now: Nanos) -> Option<Event> {
        let is_unsteady = self.history.take_unsteady(now);
        let Some(change) = self.history.take_rate_change() else {
            return is_unsteady.then(|| Event::Unsteady { topic: topic.into() });
        };
        let (since_ns, span_ns, arrivals) = (change.since, change.span, change.arrivals);
        let (version, waiting) = (self.limit.version, self.backlog.len());
        Some(Event::RateChanged { topic: topic.into(), version, since_ns, span_ns, arrivals, waiting })
    }

    /// Closes the history's bins up to `at`; call it before any change at `at`.
    pub fn turn_history(&mut self, at: Nanos) {
        if self.history.is_behind(at) {
            let backlog = &self.backlog;
            let standing = |edge| Standing { waiting: backlog.len(), unfinished: backlog.unfinished(edge) };
            self.history.turn(at, backlog.bucket().rate_micro(), standing);
        }
    }

    /// Releases the head of the backlog if it is due by `until`.
    pub fn release_due(&mut self, until: Nanos, now: Nanos) -> Option<Message> {
        if self.history.is_behind(until)
            && let Some(due) = self.backlog.next_due().filter(|due| *due <= until)
        {
            self.turn_history(due);
        }
        let (due, mut message) = self.backlog.pop_due(until)?;
        self.backlog_bytes -= message.body_len() as u64;
        self.stock.subtract(message.cost());
        message.times.due = due;
        self.note_release(&message, due, now);
        Some(message)
    }

    /// Drops the backlog; its messages pay nothing.
    pub fn drop_waiting(&mut self) {
        self.backlog.clear();
        self.backlog_bytes = 0;
        self.stock.clear();
    }

    /// Its topic is gone. The tokens stay as they are; what waited has paid nothing.
    pub fn outlive_topic(&mut self) {
        self.drop_waiting();
        self.starved_sent = false;
        self.trace = self.trace.renewed();
        self.history.end_steady(0);
    }

    fn note_release(&mut self, message: &Message, due: Nanos, now: Nanos) {
        self.lateness_max = self.lateness_max.max(now - due);
        self.trace.released(message.times.trace, due, now, self.limit.version);
    }

    pub fn fill_tokens(&self, now: Nanos) -> f64 {
        self.backlog.fill(now) as f64 / TOKEN as f64
    }

    /// Fill as a share of the burst, 0 to 1.
    pub fn fill_ratio(&self, now: Nanos) -> f64 {
        let burst = self.backlog.bucket().burst();
        if burst == 0 { 0.0 } else { self.backlog.fill(now) as f64 / burst as f64 }
    }

    pub fn largest_backlog(&self, now: Nanos) -> f64 {
        self.largest.messages(now)
    }
}

#[derive(Debug, Default)]
pub struct Counters {
    pub messages: u64, // accepted
    pub bytes: u64,
    pub received: u64, // accepted and refused
    pub released: u64,
    pub delayed: u64,
    pub rejected: u64,
    pub undeclared: u64,
    pub mqtt_refused: [u64; 3], // publishes that were not taken, by QoS: their client was told, or its connection ended
    pub mqtt_dropped: [u64; 3], // the same without a word
}

/// What holds a topic's publishers, while the topic does not exist.
#[derive(Debug)]
pub(crate) struct KeptLimits {
    pub limiter: Box<Limiter>,
    pub contracts: Option<Box<TopicContracts>>,
}

#[derive(Debug)]
pub struct Topic {
    pub name: Box<str>,
    pub channels: Vec<ChannelKey>,
    pub queue: Queue,                // released, without a channel (or the topic is paused or held)
    pub restored: VecDeque<Message>, // backlog of an earlier incarnation, decided after the present one
    pub paused: bool,
    pub held: bool,            // new: Python is still fetching its channels
    pub(crate) fans_out: bool, // in the engine's list of topics with messages to move or restore
    pub limiter: Option<Box<Limiter>>,
    pub contracts: Option<Box<TopicContracts>>,
    pub publishers: Option<HashSet<Box<str>>>, // assigned to this broker; None: unknown
    pub assignment_version: u64,
    pub next_trace: u64, // sequence number with which the trace of the next limiter begins
    pub generation: u64, // grows whenever what connections cache of the topic is no longer true
    pub unassigned: HashSet<Box<str>>, // publishers reported since the last assignment
    pub armed: Armed,
    pub counters: Counters,
    pub promise: Nanos, // latency that messages are to have at most; 0: none is promised
    pub latency: Option<Box<Latency>>, // allocated at the first delivery: four histograms are large
}

impl Topic {
    pub fn new(name: &str, held: bool, queue: Queue) -> Self {
        Self {
            name: name.into(),
            channels: Vec::new(),
            queue,
            restored: VecDeque::new(),
            paused: false,
            held,
            fans_out: false,
            limiter: None,
            contracts: None,
            publishers: None,
            assignment_version: 0,
            next_trace: 0,
            generation: 0,
            unassigned: HashSet::new(),
            armed: Armed::default(),
            counters: Counters::default(),
            promise: 0,
            latency: None,
        }
    }

    /// Whether messages may move from the topic to its channels.
    pub fn flows(&self) -> bool {
        !self.paused && !self.held && !self.channels.is_empty()
    }

    pub fn waiting(&self) -> usize {
        self.restored.len() + self.limiter.as_ref().map_or(0, |limiter| limiter.backlog.len())
    }
}
