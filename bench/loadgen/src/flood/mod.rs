//! Closed loops: how much a broker carries when it is given as much as it takes. One thread; no latencies are measured
//! here, for a closed loop that reports them reports too little.
//!
//! Messages are numbered by the first bytes of their bodies, from 0; that what arrived adds up shows that it is what
//! was sent.

mod batch;
mod connect;
mod consumer;
mod fan_out;
mod field;
mod http;
mod plan;
mod publish;
mod read;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;

use crate::connections::link::Link;
use crate::error::RunError;
use crate::flood::field::Field;
use crate::flood::plan::Task;
use crate::job::{Job, held};
use crate::run::{make_room_for, resolve};
pub use plan::FloodPlan;

/// `count` took `elapsed_s`.
#[derive(Debug, Serialize)]
pub struct FloodReport {
    /// Messages acknowledged (publish), received (read) or delivered (fan-out); requests answered; connections
    /// answered.
    pub count: u64,
    pub elapsed_s: f64,
    /// User and system time of the flooding thread meanwhile: near `elapsed_s`, the flood was the limit.
    pub cpu_s: f64,
    /// CLOCK_MONOTONIC, of the same part.
    pub started_ns: i64,
    pub ended_ns: i64,
    /// What came is what was sent, each once. (What does not come at all makes the flood fail at its time limit.)
    pub intact: bool,
}

pub struct Flood {
    plan: Arc<FloodPlan>,
    stop: Arc<AtomicBool>,
    /// Connections that stay.
    held: Arc<Mutex<Vec<Link>>>,
    job: Job<FloodReport>,
}

impl Flood {
    pub fn new(plan: FloodPlan) -> Flood {
        Flood { plan: Arc::new(plan), stop: Arc::default(), held: Arc::default(), job: Job::new() }
    }

    /// Start; errors of the flood itself come from `result`. Once only.
    pub fn start(&self) -> Result<(), RunError> {
        if self.job.started() {
            return Err(RunError::Started);
        }
        let addresses = resolve(std::slice::from_ref(&self.plan.target))?;
        make_room_for(self.plan.task.connections() as u64)?;
        let (plan, stop, kept) = (self.plan.clone(), self.stop.clone(), self.held.clone());
        let work = move || {
            let mut field = Field::new(&plan, addresses[0], &stop)?;
            let (report, links) = run(&mut field, &plan.task)
                .map_err(|source| RunError::Connect { target: plan.target.clone(), source })?;
            *held(kept.lock()) = links;
            Ok(report)
        };
        self.job.start("loadgen-flood", work, |_| ())
    }

    /// True when the flood has ended, well or not.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.job.wait(timeout)
    }

    /// End early, which is a failure; and close the connections that stay.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        held(self.held.lock()).clear();
    }

    /// The result as JSON.
    pub fn result(&self) -> Result<Vec<u8>, Arc<RunError>> {
        let report = self.job.result()?;
        serde_json::to_vec(&*report).map_err(|e| Arc::new(RunError::Io(e.into())))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop();
        self.job.join();
    }
}

/// The report, and the connections that stay.
fn run(field: &mut Field<'_>, task: &Task) -> std::io::Result<(FloodReport, Vec<Link>)> {
    let report = match task {
        Task::Publish { topic, connections, messages, batch, message_size } => {
            publish::run(field, topic, *connections, *messages, *batch, *message_size)?
        }
        Task::Read { topic, channel, messages, rdy, buffered } => {
            read::run(field, topic, channel, *messages, *rdy, *buffered)?
        }
        Task::FanOut { topic, channels, batch, window, message_size, rdy, warmup_s, duration_s } => {
            let asked = fan_out::Asked { topic, channels: *channels, window: *window, rdy: *rdy };
            fan_out::run(field, &asked, *batch, *message_size, (*warmup_s, *duration_s))?
        }
        Task::Http { asks, topic, connections, message_size, warmup_s, duration_s } => {
            http::run(field, (*asks, topic, *message_size), *connections, (*warmup_s, *duration_s))?
        }
        Task::Connect { connections, at_once, yielding } => {
            return connect::run(field, *connections, *at_once, *yielding);
        }
    };
    Ok((report, Vec::new()))
}
