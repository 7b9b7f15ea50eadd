//! The receiving thread: every subscriber connection. Acknowledges what came in one read with one write, and notes what
//! arrived and when.
//!
//! A message's latency runs from its intended instant to the instant at which the read that brought it returned; only
//! its first receipt counts.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender as Channel;

use crate::connections::answers::{CONNECTION, ErrorLog};
use crate::connections::link::{Link, State};
use crate::connections::retries::{RECONNECT_NS, Retries};
use crate::error::RunError;
use crate::plan::{Plan, Subscriber};
use crate::protocol::body::{BodyFormat, Stamp};
use crate::protocol::{Driver, Event, Role};
use crate::results::histogram::Latencies;
use crate::results::ledger::{Ledger, Receipt};
use crate::results::timeline::Timeline;
use crate::shared::Shared;
use crate::sys::{self, EVENTS_A_WAIT, Poller};

const CONNECT_NS: i64 = 10_000_000_000;
const PROGRESS_NS: i64 = 500_000_000;

struct Consumer<D> {
    link: Link,
    driver: D,
    target: usize,
    /// Index into the ledgers.
    channel: usize,
    /// Commands that the socket has not taken.
    out: Vec<u8>,
    /// The broker has said so.
    subscribed: bool,
}

pub struct ReceiverReport {
    /// By channel, in the order of `Plan::channels`.
    pub ledgers: Vec<Ledger>,
    pub latency: Latencies,
    /// The same by target.
    pub latency_at: Vec<Latencies>,
    pub timeline: Timeline,
    /// Where the plan asks for it: intended instant (CLOCK_MONOTONIC) and latency of each, ns.
    pub each: Vec<(i64, i64)>,
    /// Messages that are not of this run, or not as they were sent.
    pub foreign: u64,
    pub errors: ErrorLog,
    pub reconnects: u64,
    pub cpu_ns: i64,
}

/// Where receipts go, apart from the connections so that both can be borrowed at once.
struct Books<'a> {
    plan: &'a Plan,
    shared: &'a Shared,
    format: &'a BodyFormat,
    report: ReceiverReport,
}

pub struct Receiver<'a, D> {
    poller: Poller,
    consumers: Vec<Consumer<D>>,
    retries: Retries,
    buffer: Vec<u8>,
    books: Books<'a>,
}

impl<'a, D: Driver<'a>> Receiver<'a, D> {
    pub fn new(
        plan: &'a Plan,
        addresses: &[SocketAddr],
        shared: &'a Shared,
        format: &'a BodyFormat,
    ) -> io::Result<Receiver<'a, D>> {
        let poller = Poller::new()?;
        poller.add_wake(&shared.wake_receiver)?;
        let channels = plan.channels();
        let consumer = |(i, s): (usize, &'a Subscriber)| Consumer {
            link: Link::new(addresses[s.target], i as u64),
            driver: D::new(plan, s.target, Role::Subscriber { number: i, spec: s }),
            target: s.target,
            channel: channels.iter().position(|name| *name == s.channel).unwrap_or(0),
            out: Vec::new(),
            subscribed: false,
        };
        let report = ReceiverReport {
            ledgers: channels.iter().map(|_| Ledger::new(plan.publishers.ids.len())).collect(),
            latency: Latencies::new(),
            latency_at: plan.targets.iter().map(|_| Latencies::new()).collect(),
            timeline: Timeline::new(plan.end_ns() - plan.warmup_ns()),
            each: Vec::new(),
            foreign: 0,
            errors: ErrorLog::default(),
            reconnects: 0,
            cpu_ns: 0,
        };
        Ok(Receiver {
            poller,
            consumers: plan.subscribers.iter().enumerate().map(consumer).collect(),
            retries: Retries::default(),
            buffer: vec![0; 1 << 18],
            books: Books { plan, shared, format, report },
        })
    }

    /// Subscribe, say so on `ready`, receive until the run is over or stopped.
    pub fn run(mut self, ready: &Channel<Result<(), RunError>>) -> Result<ReceiverReport, RunError> {
        sys::make_timers_exact()?;
        let outcome = self.subscribe_all();
        let failed = outcome.is_err();
        // The sender waits for this word; where it is gone already there is nobody to tell.
        let _ = ready.send(outcome);
        if failed {
            return Ok(self.books.report);
        }
        let cpu_before_ns = sys::thread_cpu_ns();
        self.receive_all()?;
        self.books.report.cpu_ns = sys::thread_cpu_ns() - cpu_before_ns;
        Ok(self.books.report)
    }

    fn subscribe_all(&mut self) -> Result<(), RunError> {
        let deadline_ns = sys::now_ns() + CONNECT_NS;
        for i in 0..self.consumers.len() {
            let opening = self.consumers[i].link.open(&self.poller);
            opening.map_err(|error| self.no_subscription(i, error))?;
        }
        let mut ready = Vec::with_capacity(EVENTS_A_WAIT);
        while !self.books.shared.stopped() {
            let Some(late) = self.consumers.iter().position(|c| !c.subscribed) else { break };
            if sys::now_ns() > deadline_ns {
                return Err(self.no_subscription(late, io::ErrorKind::TimedOut.into()));
            }
            self.poller.wait_into(&mut ready, deadline_ns - sys::now_ns(), &self.books.shared.wake_receiver)?;
            for (token, readiness) in &ready {
                let i = *token as usize;
                self.step(i, *readiness).map_err(|error| self.no_subscription(i, error))?;
            }
        }
        Ok(())
    }

    fn no_subscription(&self, i: usize, source: io::Error) -> RunError {
        RunError::Connect { target: self.books.plan.targets[self.consumers[i].target].clone(), source }
    }

    fn receive_all(&mut self) -> io::Result<()> {
        let (mut progress_at_ns, mut ready) = (0, Vec::with_capacity(EVENTS_A_WAIT));
        while !self.books.shared.over() && !self.books.shared.stopped() {
            let timeout_ns = if self.retries.is_empty() { PROGRESS_NS } else { RECONNECT_NS / 4 };
            self.poller.wait_into(&mut ready, timeout_ns, &self.books.shared.wake_receiver)?;
            for (token, readiness) in &ready {
                let i = *token as usize;
                if let Err(error) = self.step(i, *readiness) {
                    self.drop_link(i, &error);
                }
            }
            let now_ns = sys::now_ns();
            self.reconnect(now_ns);
            if now_ns >= progress_at_ns {
                self.books.publish_progress();
                progress_at_ns = now_ns + PROGRESS_NS;
            }
        }
        Ok(())
    }

    /// Something happened on connection `i`: greet, read, acknowledge.
    fn step(&mut self, i: usize, readiness: u32) -> io::Result<()> {
        let Consumer { link, driver, target, channel, out, subscribed } = &mut self.consumers[i];
        if link.state == State::Connecting {
            let mut hello = Vec::new();
            driver.greet(&mut hello);
            return link.established(&self.poller, &hello);
        }
        if readiness & (sys::READABLE | sys::CLOSED | sys::BROKEN) != 0 {
            let books = &mut self.books;
            link.events(driver, out, &mut self.buffer, |event, arrival| {
                match event {
                    Event::Message(body) => books.receive(body, *target, *channel, arrival.read_ns),
                    Event::Ready => *subscribed = true,
                    Event::Nothing | Event::Taken => {}
                    Event::Refused(text) if *subscribed => books.report.errors.note_frame(text),
                    Event::Refused(text) => return Err(io::Error::other(String::from_utf8_lossy(text).into_owned())),
                }
                Ok(())
            })?;
        }
        let written = if out.is_empty() { 0 } else { link.send(out)? };
        out.drain(..written);
        link.watch(&self.poller, if out.is_empty() { sys::READABLE } else { sys::READABLE | sys::WRITABLE })
    }

    fn drop_link(&mut self, i: usize, error: &io::Error) {
        let consumer = &mut self.consumers[i];
        consumer.link.close();
        consumer.out.clear();
        consumer.subscribed = false;
        let target = &self.books.plan.targets[consumer.target];
        self.books.report.errors.note(CONNECTION, format!("{CONNECTION} subscriber at {target}: {error}"));
        self.books.report.reconnects += 1;
        self.retries.add(i, sys::now_ns());
    }

    fn reconnect(&mut self, now_ns: i64) {
        while let Some(i) = self.retries.due(now_ns) {
            if let Err(error) = self.consumers[i].link.open(&self.poller) {
                self.drop_link(i, &error);
            }
        }
    }
}

impl Books<'_> {
    fn receive(&mut self, body: &[u8], target: usize, channel: usize, read_ns: i64) {
        let receipt = match self.format.read(body) {
            Some(stamp) if self.published_at(&stamp) == Some(&target) => {
                let receipt = self.report.ledgers[channel].note(&stamp, self.shared.sequence(stamp.publisher));
                if receipt == Receipt::First && stamp.measured {
                    let latency_ns = read_ns - stamp.intended_ns;
                    self.report.latency.record(latency_ns);
                    self.report.latency_at[target].record(latency_ns);
                    self.report.timeline.record(stamp.intended_ns - self.shared.measured_from_ns(), latency_ns);
                    if self.plan.keep_each {
                        self.report.each.push((stamp.intended_ns, latency_ns));
                    }
                    self.shared.received.fetch_add(1, Ordering::Release);
                }
                receipt
            }
            _ => Receipt::Unknown,
        };
        self.report.foreign += u64::from(receipt == Receipt::Unknown);
    }

    fn published_at(&self, stamp: &Stamp) -> Option<&usize> {
        self.plan.publishers.target.get(stamp.publisher as usize)
    }

    fn publish_progress(&self) {
        let p99_ns = (self.report.latency.at_percentile_ms(99.0) * 1e6) as u64;
        self.shared.latency_p99_ns.store(p99_ns, Ordering::Relaxed);
    }
}
