//! What every flood stands on: a poller, a time limit, greeted connections, and the measure of the part that counts.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::connections::link::{Link, State};
use crate::flood::{FloodPlan, FloodReport};
use crate::protocol::codec::Frame;
use crate::sys::{self, Poller};

/// How long a stop may go unnoticed.
const TICK_NS: i64 = 100_000_000;
const READ_AT_ONCE: usize = 1 << 18;

pub struct Field<'a> {
    pub address: SocketAddr,
    pub poller: Poller,
    pub buffer: Vec<u8>,
    stop: &'a AtomicBool,
    deadline_ns: i64,
}

impl<'a> Field<'a> {
    pub fn new(plan: &FloodPlan, address: SocketAddr, stop: &'a AtomicBool) -> io::Result<Field<'a>> {
        let deadline_ns = sys::now_ns() + (plan.limit_s * 1e9) as i64;
        Ok(Field { address, poller: Poller::new()?, buffer: vec![0; READ_AT_ONCE], stop, deadline_ns })
    }

    /// What is ready, perhaps nothing. Stopped, or too late: an error.
    pub fn wait(&mut self) -> io::Result<Vec<(usize, u32)>> {
        if self.stop.load(Ordering::Acquire) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the flood was stopped"));
        }
        if sys::now_ns() > self.deadline_ns {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the flood did not end within its time limit"));
        }
        Ok(self.poller.wait(TICK_NS)?.map(|(token, readiness)| (token as usize, readiness)).collect())
    }

    /// `count` connections whose IDENTIFY was answered, at most `at_once` of them under way; their tokens are their
    /// numbers.
    pub fn greet(
        &mut self,
        count: usize,
        at_once: usize,
        hello: impl Fn(usize) -> Vec<u8>,
        accept: impl Fn(&[u8]) -> io::Result<()>,
    ) -> io::Result<Vec<Link>> {
        let mut links: Vec<Link> = (0..count).map(|i| Link::new(self.address, i as u64)).collect();
        let (mut opened, mut ready) = (0, 0);
        while ready < count {
            while opened < count && opened - ready < at_once {
                links[opened].open(&self.poller)?;
                opened += 1;
            }
            for (i, _) in self.wait()? {
                ready += usize::from(self.greet_one(&mut links[i], &hello(i), &accept)?);
            }
        }
        Ok(links)
    }

    /// One step of a greeting; true: it was the last.
    fn greet_one(
        &mut self,
        link: &mut Link,
        hello: &[u8],
        accept: impl Fn(&[u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        match link.state {
            State::Connecting => link.established(&self.poller, hello).map(|()| false),
            State::Greeting => {
                let mut answered = false;
                link.receive(&mut self.buffer, |frame, _| match frame {
                    Frame::Response(answer) => {
                        answered = true;
                        accept(answer)
                    }
                    other => Err(unexpected(&other)),
                })?;
                if answered {
                    link.state = State::Ready;
                }
                Ok(answered)
            }
            State::Down | State::Ready => Ok(false),
        }
    }
}

pub fn unexpected(frame: &Frame<'_>) -> io::Error {
    io::Error::other(match frame {
        Frame::Error(text) => String::from_utf8_lossy(text).into_owned(),
        Frame::Response(text) => format!("an answer that nobody waits for: {}", String::from_utf8_lossy(text)),
        Frame::Message { .. } => "a message that nobody asked for".to_owned(),
    })
}

/// The part of a flood that counts.
pub struct Meter {
    started_ns: i64,
    cpu_before_ns: i64,
    count_before: u64,
}

impl Meter {
    pub fn start(count: u64) -> Meter {
        Meter { started_ns: sys::now_ns(), cpu_before_ns: sys::thread_cpu_ns(), count_before: count }
    }

    /// `count` as at the start; nothing is wrong so far.
    pub fn stop(&self, count: u64) -> FloodReport {
        let ended_ns = sys::now_ns();
        FloodReport {
            count: count - self.count_before,
            elapsed_s: (ended_ns - self.started_ns) as f64 / 1e9,
            cpu_s: (sys::thread_cpu_ns() - self.cpu_before_ns) as f64 / 1e9,
            started_ns: self.started_ns,
            ended_ns,
            intact: true,
        }
    }
}

/// A warm-up and then a part that counts, of fixed lengths.
pub struct Window {
    starts_ns: i64,
    ends_ns: i64,
    meter: Option<Meter>,
    report: Option<FloodReport>,
}

impl Window {
    pub fn new((warmup_s, duration_s): (f64, f64)) -> Window {
        let starts_ns = sys::now_ns() + (warmup_s * 1e9) as i64;
        Window { starts_ns, ends_ns: starts_ns + (duration_s * 1e9) as i64, meter: None, report: None }
    }

    /// To be told often how much there is; true: the part that counts is over.
    pub fn look(&mut self, count: u64) -> bool {
        let now_ns = sys::now_ns();
        match &self.meter {
            None if now_ns >= self.starts_ns => self.meter = Some(Meter::start(count)),
            Some(meter) if now_ns >= self.ends_ns && self.report.is_none() => self.report = Some(meter.stop(count)),
            _ => {}
        }
        self.report.is_some()
    }

    pub fn report(self) -> io::Result<FloodReport> {
        self.report.ok_or_else(|| io::Error::other("the part that counts was not reached"))
    }
}
