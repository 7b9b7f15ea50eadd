//! One run from start to result: resolve, connect subscribers, then publishers, send, drain, report.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::error::RunError;
use crate::job::Job;
use crate::plan::Plan;
use crate::plan::schedule::split_mix;
use crate::protocol::body::BodyFormat;
use crate::protocol::{Driver, Mqtt, Nats, Nsq, Protocol, Redis};
use crate::publisher::Sender;
use crate::results::report::RunReport;
use crate::shared::{Phase, Progress, Shared};
use crate::subscriber::Receiver;
use crate::sys;

/// Files besides the connections: pollers, wakes, and what the process may open meanwhile.
const SPARE_FILES: u64 = 64;

pub struct LoadGen {
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    job: Job<RunReport>,
}

impl LoadGen {
    pub fn new(plan: Plan) -> io::Result<LoadGen> {
        let shared = Arc::new(Shared::new(plan.publishers.ids.len())?);
        Ok(LoadGen { plan: Arc::new(plan), shared, job: Job::new() })
    }

    /// Start the threads; errors of the run itself come from `result`. Once only.
    pub fn start(&self) -> Result<(), RunError> {
        if self.job.started() {
            return Err(RunError::Started);
        }
        let subscribe_at = if self.plan.subscribe_at.is_empty() { &self.plan.targets } else { &self.plan.subscribe_at };
        let addresses = (resolve(&self.plan.targets)?, resolve(subscribe_at)?);
        make_room_for((self.plan.publishers.ids.len() + self.plan.subscribers.len()) as u64)?;
        self.shared.enter(Phase::Connecting);
        let (plan, shared, finished) = (self.plan.clone(), self.shared.clone(), self.shared.clone());
        let end = move |well| finished.enter(if well { Phase::Done } else { Phase::Failed });
        self.job.start("loadgen-send", move || conduct(&plan, &shared, &addresses), end)
    }

    pub fn progress(&self) -> Progress {
        self.shared.progress()
    }

    /// True when the run has ended, well or not.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.job.wait(timeout)
    }

    /// End early: nothing more is sent nor waited for.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// The result as JSON.
    pub fn result(&self) -> Result<Vec<u8>, Arc<RunError>> {
        let report = self.job.result()?;
        serde_json::to_vec(&*report).map_err(|e| Arc::new(RunError::Io(e.into())))
    }
}

impl Drop for LoadGen {
    fn drop(&mut self) {
        self.stop();
        self.job.join();
    }
}

/// Where publishers and where subscribers connect, by target.
type Addresses = (Vec<SocketAddr>, Vec<SocketAddr>);

fn conduct(plan: &Plan, shared: &Shared, addresses: &Addresses) -> Result<RunReport, RunError> {
    let format = BodyFormat::new(run_id(plan.seed), plan.message_size);
    match plan.protocol {
        Protocol::Nsq => conduct_as::<Nsq>(plan, shared, addresses, &format),
        Protocol::Nats => conduct_as::<Nats>(plan, shared, addresses, &format),
        Protocol::Mqtt => conduct_as::<Mqtt>(plan, shared, addresses, &format),
        Protocol::Redis => conduct_as::<Redis>(plan, shared, addresses, &format),
    }
}

/// The sender's thread: it starts the receiver and takes its report.
fn conduct_as<'a, D: Driver<'a> + Send>(
    plan: &'a Plan,
    shared: &'a Shared,
    (publish_at, subscribe_at): &Addresses,
    format: &'a BodyFormat,
) -> Result<RunReport, RunError> {
    let sender = Sender::<D>::new(plan, publish_at, shared, format)?;
    let receiver = Receiver::<D>::new(plan, subscribe_at, shared, format)?;
    thread::scope(|scope| {
        let (subscribed, when_subscribed) = mpsc::channel();
        let receiving = thread::Builder::new().name("loadgen-recv".to_owned());
        let receiving = receiving.spawn_scoped(scope, move || receiver.run(&subscribed))?;
        let sent = when_subscribed.recv().unwrap_or(Err(RunError::Panicked)).and_then(|()| sender.run());
        shared.end();
        let received = receiving.join().unwrap_or(Err(RunError::Panicked));
        Ok(RunReport::new(plan, sent?, received?, shared))
    })
}

/// Differs from run to run, so that what an earlier run left in a broker is recognized.
fn run_id(seed: u64) -> u64 {
    let mut state = seed ^ sys::wall_ns() as u64 ^ (u64::from(std::process::id()) << 40);
    split_mix(&mut state)
}

pub fn resolve(targets: &[String]) -> Result<Vec<SocketAddr>, RunError> {
    let address = |target: &String| {
        let failed = |source| RunError::Connect { target: target.clone(), source };
        let mut found = target.to_socket_addrs().map_err(failed)?;
        found.next().ok_or_else(|| failed(io::Error::new(io::ErrorKind::NotFound, "no such address")))
    };
    targets.iter().map(address).collect()
}

pub fn make_room_for(connections: u64) -> Result<(), RunError> {
    let needed = sys::open_files()? + connections + SPARE_FILES;
    let limit = sys::raise_file_limit()?;
    if needed > limit { Err(RunError::Files { needed, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_connections_than_open_files_are_refused() {
        assert!(make_room_for(1).is_ok());
        let error = make_room_for(1 << 40).expect_err("too many").to_string();
        assert!(error.contains("open files are needed for the connections of this plan"), "{error}");
    }
}
