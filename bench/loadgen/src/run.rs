//! One run from start to result: resolve, connect subscribers, then publishers, send, drain, report.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::body::BodyFormat;
use crate::plan::Plan;
use crate::publisher::Sender;
use crate::report::RunReport;
use crate::schedule::split_mix;
use crate::shared::{Phase, Progress, Shared};
use crate::subscriber::Receiver;
use crate::sys;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{target}: {source}")]
    Connect { target: String, source: io::Error },
    #[error("{needed} open files are needed for the connections of this plan, and the limit is {limit} (ulimit -Hn)")]
    Files { needed: u64, limit: u64 },
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the load generator was started already")]
    Started,
    #[error("the run has not ended")]
    NotOver,
    #[error("a thread of the load generator panicked")]
    Panicked,
}

/// Files besides the connections: pollers, wakes, and what the process may open meanwhile.
const SPARE_FILES: u64 = 64;

enum Outcome {
    NotYet,
    Over(Result<Box<RunReport>, Arc<RunError>>),
}

struct Ending {
    outcome: Mutex<Outcome>,
    reached: Condvar,
}

pub struct LoadGen {
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    ending: Arc<Ending>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl LoadGen {
    pub fn new(plan: Plan) -> io::Result<LoadGen> {
        let shared = Arc::new(Shared::new(plan.publishers.ids.len())?);
        let ending = Arc::new(Ending { outcome: Mutex::new(Outcome::NotYet), reached: Condvar::new() });
        Ok(LoadGen { plan: Arc::new(plan), shared, ending, thread: Mutex::new(None) })
    }

    /// Start the threads; errors of the run itself come from `result`. Once only.
    pub fn start(&self) -> Result<(), RunError> {
        let mut thread = locked(&self.thread);
        if thread.is_some() {
            return Err(RunError::Started);
        }
        let addresses = resolve(&self.plan.targets)?;
        make_room_for((self.plan.publishers.ids.len() + self.plan.subscribers.len()) as u64)?;
        let (plan, shared, ending) = (self.plan.clone(), self.shared.clone(), self.ending.clone());
        shared.enter(Phase::Connecting);
        let conduct = move || {
            let inner = (plan, shared.clone());
            // A thread of its own, so that a panic ends the run with an error instead of leaving waiters waiting.
            let sender = thread::Builder::new().name("loadgen-send".to_owned()).spawn(move || conduct(&inner.0, &inner.1, &addresses));
            let outcome = sender.map_err(RunError::Io).and_then(|sender| sender.join().unwrap_or(Err(RunError::Panicked)));
            shared.enter(if outcome.is_ok() { Phase::Done } else { Phase::Failed });
            *locked(&ending.outcome) = Outcome::Over(outcome.map(Box::new).map_err(Arc::new));
            ending.reached.notify_all();
        };
        *thread = Some(thread::Builder::new().name("loadgen".to_owned()).spawn(conduct)?);
        Ok(())
    }

    pub fn progress(&self) -> Progress {
        self.shared.progress()
    }

    /// True when the run has ended, well or not.
    pub fn wait(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut outcome = locked(&self.ending.outcome);
        while matches!(*outcome, Outcome::NotYet) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            outcome = self.ending.reached.wait_timeout(outcome, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// End early: nothing more is sent nor waited for.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// The result as JSON.
    pub fn result(&self) -> Result<Vec<u8>, Arc<RunError>> {
        match &*locked(&self.ending.outcome) {
            Outcome::NotYet => Err(Arc::new(RunError::NotOver)),
            Outcome::Over(Err(error)) => Err(error.clone()),
            Outcome::Over(Ok(report)) => serde_json::to_vec(report).map_err(|e| Arc::new(RunError::Io(e.into()))),
        }
    }
}

impl Drop for LoadGen {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = locked(&self.thread).take() {
            // The thread catches the panics of the others and has none of its own to report.
            let _ = thread.join();
        }
    }
}

/// The sender's thread: it starts the receiver and takes its report.
fn conduct(plan: &Plan, shared: &Shared, addresses: &[SocketAddr]) -> Result<RunReport, RunError> {
    let format = BodyFormat::new(run_id(plan.seed), plan.message_size);
    let sender = Sender::new(plan, addresses, shared, &format)?;
    let receiver = Receiver::new(plan, addresses, shared, &format)?;
    thread::scope(|scope| {
        let (subscribed, when_subscribed) = mpsc::channel();
        let receiving = thread::Builder::new().name("loadgen-recv".to_owned());
        let receiving = receiving.spawn_scoped(scope, move || receiver.run(&subscribed))?;
        let sent = when_subscribed.recv().unwrap_or(Err(RunError::Panicked)).and_then(|()| sender.run());
        shared.end();
        let received = receiving.join().unwrap_or(Err(RunError::Panicked));
        Ok(RunReport::new(plan, sent?, received?, shared.stopped()))
    })
}

/// Differs from run to run, so that what an earlier run left in a broker is recognized.
fn run_id(seed: u64) -> u64 {
    let mut state = seed ^ sys::wall_ns() as u64 ^ (u64::from(std::process::id()) << 40);
    split_mix(&mut state)
}

fn resolve(targets: &[String]) -> Result<Vec<SocketAddr>, RunError> {
    let address = |target: &String| {
        let failed = |source| RunError::Connect { target: target.clone(), source };
        let mut found = target.to_socket_addrs().map_err(failed)?;
        found.next().ok_or_else(|| failed(io::Error::new(io::ErrorKind::NotFound, "no such address")))
    };
    targets.iter().map(address).collect()
}

fn make_room_for(connections: u64) -> Result<(), RunError> {
    let needed = sys::open_files()? + connections + SPARE_FILES;
    let limit = sys::raise_file_limit()?;
    if needed > limit { Err(RunError::Files { needed, limit }) } else { Ok(()) }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds one of these locks can leave its value half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
