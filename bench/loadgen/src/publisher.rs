//! The sending thread: every publisher connection, and the clock that drives them.
//!
//! A message is *offered* at its intended instant, *sent* when the socket has taken its last byte, *acknowledged* or
//! *refused* by the broker's answer.
//! While a socket is full or a connection down, its messages wait in order and are sent late; latency counts from their
//! intended instants all the same. What waits is bounded: beyond that, messages are offered and never sent. Messages
//! whose answer was outstanding when a connection broke are not sent again: whether they arrived is what the run finds
//! out.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use crate::connections::answers::{CONNECTION, ErrorLog};
use crate::connections::link::{Arrival, Link, State};
use crate::connections::outbox::{Command, Outbox};
use crate::connections::retries::Retries;
use crate::error::RunError;
use crate::plan::Plan;
use crate::plan::schedule::Schedule;
use crate::protocol::body::{BodyFormat, Stamp};
use crate::protocol::{Driver, Event, Role};
use crate::results::histogram::Latencies;
use crate::shared::{Phase, Shared};
use crate::sys::{self, EVENTS_A_WAIT, Poller};

/// Handshakes under way at once: below any broker's listen backlog, where a connection too many costs a second.
const CONNECTING: usize = 64;
const CONNECT_NS: i64 = 30_000_000_000;
/// From the last handshake to the start: lets the broker come to rest.
const START_NS: i64 = 20_000_000;
/// Sends between two looks at the sockets, when the thread is behind.
const SENDS_A_TURN: usize = 64;
/// Every connection's answers are read at least this often, `SWEEP` connections a turn.
const SWEEP_NS: i64 = 1_000_000_000;
const SWEEP: usize = 32;
const LONGEST_SLEEP_NS: i64 = 20_000_000;
const DRAIN_TICK_NS: i64 = 2_000_000;
const PROGRESS_NS: i64 = 500_000_000;
/// All that waits for sockets, over all connections.
const MOST_WAITING_BYTES: usize = 256 << 20;

/// Measured messages of one publisher.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub offered: u64,
    pub sent: u64,
    pub acknowledged: u64,
    pub refused: u64,
}

struct Publisher<D> {
    link: Link,
    driver: D,
    outbox: Outbox,
    /// Written, not answered, where publishes are: oldest first.
    awaiting: VecDeque<Command>,
    next_sequence: u64,
    read_at_ns: i64,
    /// Copies that the channels of its broker make of a message.
    copies: u64,
    counts: Counts,
}

pub struct SenderReport {
    pub counts: Vec<Counts>,
    pub lateness: Latencies,
    pub acknowledgements: Latencies,
    pub errors: ErrorLog,
    pub reconnects: u64,
    pub cpu_ns: i64,
}

pub struct Sender<'a, D> {
    plan: &'a Plan,
    shared: &'a Shared,
    format: &'a BodyFormat,
    poller: Poller,
    publishers: Vec<Publisher<D>>,
    retries: Retries,
    waiting_bytes: usize,
    /// Copies of measured messages that should arrive, as far as is known.
    expected: u64,
    cursor: usize,
    buffer: Vec<u8>,
    /// What the driver has answered, until it is in an outbox.
    replies: Vec<u8>,
    report: SenderReport,
}

impl<'a, D: Driver<'a>> Sender<'a, D> {
    pub fn new(
        plan: &'a Plan,
        addresses: &[SocketAddr],
        shared: &'a Shared,
        format: &'a BodyFormat,
    ) -> io::Result<Sender<'a, D>> {
        let poller = Poller::new()?;
        poller.add_wake(&shared.wake_sender)?;
        let copies = plan.channels_at();
        let publisher = |(i, target): (usize, &usize)| Publisher {
            link: Link::new(addresses[*target], i as u64),
            driver: D::new(plan, *target, Role::Publisher { id: &plan.publishers.ids[i] }),
            outbox: Outbox::default(),
            awaiting: VecDeque::new(),
            next_sequence: 0,
            read_at_ns: 0,
            copies: copies[*target].len() as u64,
            counts: Counts::default(),
        };
        Ok(Sender {
            plan,
            shared,
            format,
            poller,
            publishers: plan.publishers.target.iter().enumerate().map(publisher).collect(),
            retries: Retries::default(),
            waiting_bytes: 0,
            expected: 0,
            cursor: 0,
            buffer: vec![0; 1 << 16],
            replies: Vec::new(),
            report: SenderReport {
                counts: Vec::new(),
                lateness: Latencies::new(),
                acknowledgements: Latencies::new(),
                errors: ErrorLog::default(),
                reconnects: 0,
                cpu_ns: 0,
            },
        })
    }

    /// Connect, send the plan, wait for what is on its way. Ends early when told to stop.
    pub fn run(mut self) -> Result<SenderReport, RunError> {
        sys::make_timers_exact()?;
        self.connect_all()?;
        let cpu_before_ns = sys::thread_cpu_ns();
        self.send_all()?;
        self.report.cpu_ns = sys::thread_cpu_ns() - cpu_before_ns;
        self.shared.enter(Phase::Draining);
        self.drain()?;
        self.report.counts = self.publishers.iter().map(|p| p.counts).collect();
        Ok(self.report)
    }

    /// All publishers greeted, or the first failure: a run that starts crippled measures nothing.
    fn connect_all(&mut self) -> Result<(), RunError> {
        let deadline_ns = sys::now_ns() + CONNECT_NS;
        let (mut opened, mut ready) = (0, 0);
        let mut sockets = Vec::with_capacity(EVENTS_A_WAIT);
        while ready < self.publishers.len() && !self.shared.stopped() {
            while opened < self.publishers.len() && opened - ready < CONNECTING {
                let opening = self.publishers[opened].link.open(&self.poller);
                opening.map_err(|error| self.no_connection(opened, error))?;
                opened += 1;
            }
            self.poller.wait_into(&mut sockets, deadline_ns - sys::now_ns(), &self.shared.wake_sender)?;
            for (token, _) in &sockets {
                let i = *token as usize;
                self.step_greeting(i).map_err(|error| self.no_connection(i, error))?;
                ready += usize::from(self.publishers[i].link.state == State::Ready);
            }
            if sys::now_ns() > deadline_ns {
                let late = self.publishers.iter().position(|p| p.link.state != State::Ready);
                return Err(self.no_connection(late.unwrap_or(0), io::ErrorKind::TimedOut.into()));
            }
        }
        Ok(())
    }

    fn no_connection(&self, publisher: usize, source: io::Error) -> RunError {
        RunError::Connect { target: self.plan.targets[self.plan.publishers.target[publisher]].clone(), source }
    }

    /// The heart: sleep to the next instant, send, then see to the sockets.
    fn send_all(&mut self) -> io::Result<()> {
        let mut schedule = Schedule::new(self.plan);
        let mut ready = Vec::with_capacity(EVENTS_A_WAIT);
        let start_ns = sys::now_ns() + START_NS;
        let mut progress_at_ns = start_ns;
        self.shared.begin(start_ns, start_ns + self.plan.warmup_ns() as i64);
        while let Some(next_at) = schedule.next_at().filter(|_| !self.shared.stopped()) {
            let sleep_ns = start_ns + next_at as i64 - sys::now_ns();
            self.poller.wait_into(&mut ready, sleep_ns.min(self.sweep_interval_ns()), &self.shared.wake_sender)?;
            self.send_due(&mut schedule, start_ns);
            self.handle_sockets(&ready);
            if sys::now_ns() >= progress_at_ns {
                self.publish_progress(next_at >= self.plan.warmup_ns());
                progress_at_ns = sys::now_ns() + PROGRESS_NS;
            }
        }
        Ok(())
    }

    fn send_due(&mut self, schedule: &mut Schedule, start_ns: i64) {
        let now_ns = sys::now_ns();
        for _ in 0..SENDS_A_TURN {
            if schedule.next_at().is_none_or(|at| start_ns + at as i64 > now_ns) {
                return;
            }
            let Some((at, members)) = schedule.pop() else { return };
            let measured = at >= self.plan.warmup_ns();
            // Somebody must be last, but not always the same, and not always those of the same broker.
            let (last, first) = members.split_at(at as usize % members.len());
            first.iter().chain(last).for_each(|member| self.offer(*member as usize, start_ns + at as i64, measured));
        }
    }

    /// Wait for everything measured to arrive, at most the plan's drain time. The receiver says how far it is; so a
    /// tick, in a part that is not measured.
    fn drain(&mut self) -> io::Result<()> {
        let deadline_ns = sys::now_ns() + self.plan.drain_ns() as i64;
        let mut ready = Vec::with_capacity(EVENTS_A_WAIT);
        while !self.shared.stopped() && sys::now_ns() < deadline_ns {
            self.poller.wait_into(&mut ready, DRAIN_TICK_NS, &self.shared.wake_sender)?;
            self.handle_sockets(&ready);
            let mut settled = true;
            for i in 0..self.publishers.len() {
                if !self.publishers[i].awaiting.is_empty() {
                    self.read_answers(i);
                }
                settled &= self.publishers[i].awaiting.is_empty() && self.publishers[i].outbox.unwritten().is_empty();
            }
            if settled && self.shared.received.load(Ordering::Acquire) >= self.expected {
                break;
            }
        }
        Ok(())
    }

    fn handle_sockets(&mut self, ready: &[(u64, u32)]) {
        for (token, readiness) in ready {
            self.handle_ready(*token as usize, *readiness);
        }
        let now_ns = sys::now_ns();
        while let Some(i) = self.retries.due(now_ns) {
            if let Err(error) = self.publishers[i].link.open(&self.poller) {
                self.drop_link(i, &error);
            }
        }
        self.sweep(now_ns);
    }

    fn handle_ready(&mut self, i: usize, readiness: u32) {
        match self.publishers[i].link.state {
            State::Down => {}
            State::Connecting | State::Greeting => {
                if let Err(error) = self.step_greeting(i) {
                    self.drop_link(i, &error);
                }
            }
            State::Ready => {
                if readiness & (sys::CLOSED | sys::BROKEN) != 0 {
                    while self.read_answers(i) {}
                }
                if readiness & sys::WRITABLE != 0 {
                    self.flush(i);
                }
            }
        }
    }

    /// Connecting -> Greeting -> Ready; then what waited is sent.
    fn step_greeting(&mut self, i: usize) -> io::Result<()> {
        let publisher = &mut self.publishers[i];
        if publisher.link.state == State::Connecting {
            let mut hello = Vec::new();
            publisher.driver.greet(&mut hello);
            return publisher.link.established(&self.poller, &hello);
        }
        let mut greeted = false;
        publisher.link.events(&mut publisher.driver, &mut self.replies, &mut self.buffer, |event, _| {
            match event {
                Event::Nothing => {}
                Event::Ready | Event::Taken => greeted = true,
                Event::Refused(text) => return Err(io::Error::other(String::from_utf8_lossy(text).into_owned())),
                Event::Message(_) => return Err(unasked_message()),
            }
            Ok(())
        })?;
        self.reply(i);
        if greeted {
            self.publishers[i].link.state = State::Ready;
            self.publishers[i].link.watch(&self.poller, 0)?;
            self.flush(i);
        }
        Ok(())
    }

    /// A message (or batch) of publisher `i` is due. The answer to the one before is read first: two of them in one
    /// socket would share a stamp.
    fn offer(&mut self, i: usize, intended_ns: i64, measured: bool) {
        if !self.publishers[i].awaiting.is_empty() {
            self.read_answers(i);
        }
        let count = self.plan.publishers.batch[i];
        if measured {
            self.report.lateness.record(sys::now_ns() - intended_ns);
            self.publishers[i].counts.offered += u64::from(count);
            self.shared.offered.fetch_add(u64::from(count), Ordering::Relaxed);
        }
        if self.waiting_bytes <= MOST_WAITING_BYTES {
            self.enqueue(i, Command { messages: count, measured, intended_ns });
            self.flush(i);
        }
    }

    fn enqueue(&mut self, i: usize, command: Command) {
        let publisher = &mut self.publishers[i];
        let (driver, format) = (&mut publisher.driver, self.format);
        let first = Stamp {
            publisher: i as u32,
            sequence: publisher.next_sequence,
            intended_ns: command.intended_ns,
            measured: command.measured,
        };
        publisher.next_sequence += u64::from(command.messages);
        self.shared.set_sequence(i, publisher.next_sequence);
        let before = publisher.outbox.unwritten().len();
        if D::BATCHES && self.plan.mpub && command.messages > 1 {
            publisher.outbox.push(command, |out| driver.publish(format, first, command.messages, out));
        } else {
            for n in 0..u64::from(command.messages) {
                let stamp = Stamp { sequence: first.sequence + n, ..first };
                publisher.outbox.push(Command { messages: 1, ..command }, |out| driver.publish(format, stamp, 1, out));
            }
        }
        self.waiting_bytes += publisher.outbox.unwritten().len() - before;
    }

    /// Write what the socket takes of what waits.
    fn flush(&mut self, i: usize) {
        let publisher = &mut self.publishers[i];
        if publisher.link.state != State::Ready || publisher.outbox.unwritten().is_empty() {
            return;
        }
        let waiting = publisher.outbox.unwritten().len();
        let outcome = publisher.link.send(publisher.outbox.unwritten()).and_then(|written| {
            self.waiting_bytes -= written;
            self.complete(i, written);
            let interest = if written < waiting { sys::WRITABLE } else { 0 };
            self.publishers[i].link.watch(&self.poller, interest)
        });
        if let Err(error) = outcome {
            self.drop_link(i, &error);
        }
    }

    /// `written` more bytes of publisher `i` are the kernel's: count the messages that this completes.
    fn complete(&mut self, i: usize, written: usize) {
        let Publisher { driver, outbox, awaiting, counts, copies, .. } = &mut self.publishers[i];
        let (answered, mut sent) = (driver.answered(), 0);
        outbox.advance(written, |command| {
            if command.messages > 0 {
                if answered {
                    awaiting.push_back(command);
                }
                sent += if command.measured { u64::from(command.messages) } else { 0 };
            }
        });
        counts.sent += sent;
        self.expected += sent * *copies;
        self.shared.sent.fetch_add(sent, Ordering::Relaxed);
    }

    /// Read once what the broker answered; false: there was nothing, or the connection is gone.
    fn read_answers(&mut self, i: usize) -> bool {
        let Publisher { link, driver, awaiting, counts, copies, read_at_ns, .. } = &mut self.publishers[i];
        if link.state != State::Ready {
            return false;
        }
        let report = &mut self.report;
        let mut refused = 0;
        let outcome = link.events(driver, &mut self.replies, &mut self.buffer, |event, arrival| {
            match event {
                Event::Nothing | Event::Ready => {}
                Event::Taken => {
                    if let Some(command) = awaiting.pop_front().filter(|command| command.measured) {
                        counts.acknowledged += u64::from(command.messages);
                        if let Some(latency_ns) = since(command.intended_ns, arrival) {
                            report.acknowledgements.record(latency_ns);
                        }
                    }
                }
                Event::Refused(text) => {
                    report.errors.note_frame(text);
                    let command = awaiting.pop_front().filter(|command| command.measured);
                    refused += command.map_or(0, |command| u64::from(command.messages));
                }
                Event::Message(_) => return Err(unasked_message()),
            }
            Ok(())
        });
        *read_at_ns = sys::now_ns();
        counts.refused += refused;
        self.expected -= refused * *copies;
        self.shared.refused.fetch_add(refused, Ordering::Relaxed);
        self.reply(i);
        match outcome {
            Ok(read) => read,
            // (Writing the answers may have met the end of the connection first: it is opened again once.)
            Err(error) if self.publishers[i].link.state != State::Down => {
                self.drop_link(i, &error);
                false
            }
            Err(_) => false,
        }
    }

    /// What the driver of publisher `i` has answered, to heartbeats and the like, goes out behind what waits.
    fn reply(&mut self, i: usize) {
        if self.replies.is_empty() {
            return;
        }
        self.publishers[i].outbox.push(Command::UNANSWERED, |out| out.extend_from_slice(&self.replies));
        self.waiting_bytes += self.replies.len();
        self.replies.clear();
        self.flush(i);
    }

    /// What publisher `i` was about to answer is for nobody any more, least of all for the next one that answers. No
    /// message is among that.
    fn drop_link(&mut self, i: usize, error: &io::Error) {
        self.replies.clear();
        let publisher = &mut self.publishers[i];
        publisher.link.close();
        publisher.awaiting.clear();
        self.waiting_bytes -= publisher.outbox.unwritten().len();
        publisher.outbox.rewind();
        self.waiting_bytes += publisher.outbox.unwritten().len();
        let id = &self.plan.publishers.ids[i];
        self.report.errors.note(CONNECTION, format!("{CONNECTION} publisher {id}: {error}"));
        self.report.reconnects += 1;
        self.retries.add(i, sys::now_ns());
    }

    /// Answers, heartbeats and closings on connections that send seldom.
    fn sweep(&mut self, now_ns: i64) {
        for _ in 0..SWEEP.min(self.publishers.len()) {
            let i = self.cursor;
            self.cursor = (self.cursor + 1) % self.publishers.len();
            if now_ns - self.publishers[i].read_at_ns > SWEEP_NS {
                self.read_answers(i);
            }
        }
    }

    fn sweep_interval_ns(&self) -> i64 {
        (SWEEP_NS * SWEEP as i64 / self.publishers.len() as i64).min(LONGEST_SLEEP_NS)
    }

    fn publish_progress(&self, measuring: bool) {
        if measuring {
            self.shared.enter(Phase::Measuring);
        }
        let p99_ns = (self.report.lateness.at_percentile_ms(99.0) * 1e6) as u64;
        self.shared.lateness_p99_ns.store(p99_ns, Ordering::Relaxed);
    }
}

fn unasked_message() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message for a connection without a subscription")
}

/// From an intended instant to the kernel's stamp of the answer; None where it gave none. Answers that came together
/// have the stamp of the last: too late for the others, by less than the last one took.
fn since(intended_ns: i64, arrival: Arrival) -> Option<i64> {
    let wall_minus_monotonic_ns = sys::wall_ns() - sys::now_ns();
    Some(arrival.kernel_wall_ns? - wall_minus_monotonic_ns - intended_ns)
}
