//! One piece of work on a thread of its own: started once, waited for, its outcome kept.

use std::sync::{Arc, Condvar, LockResult, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::RunError;

enum Outcome<T> {
    NotYet,
    Over(Result<Arc<T>, Arc<RunError>>),
}

struct Ending<T> {
    outcome: Mutex<Outcome<T>>,
    reached: Condvar,
}

pub struct Job<T> {
    ending: Arc<Ending<T>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<T: Send + Sync + 'static> Job<T> {
    pub fn new() -> Job<T> {
        Job {
            ending: Arc::new(Ending { outcome: Mutex::new(Outcome::NotYet), reached: Condvar::new() }),
            thread: Mutex::new(None),
        }
    }

    /// Once only. `finished` is told whether the work went well before anybody who waits.
    pub fn start(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, RunError> + Send + 'static,
        finished: impl FnOnce(bool) + Send + 'static,
    ) -> Result<(), RunError> {
        let mut thread = held(self.thread.lock());
        if thread.is_some() {
            return Err(RunError::Started);
        }
        let (ending, worker) = (self.ending.clone(), name.to_owned());
        let conduct = move || {
            // A thread of its own, so that a panic ends the work with an error instead of leaving waiters waiting.
            let worker = thread::Builder::new().name(worker).spawn(work);
            let outcome =
                worker.map_err(RunError::Io).and_then(|worker| worker.join().unwrap_or(Err(RunError::Panicked)));
            finished(outcome.is_ok());
            *held(ending.outcome.lock()) = Outcome::Over(outcome.map(Arc::new).map_err(Arc::new));
            ending.reached.notify_all();
        };
        *thread = Some(thread::Builder::new().name(name.to_owned()).spawn(conduct)?);
        Ok(())
    }

    pub fn started(&self) -> bool {
        held(self.thread.lock()).is_some()
    }

    /// True when the work has ended, well or not.
    pub fn wait(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut outcome = held(self.ending.outcome.lock());
        while matches!(*outcome, Outcome::NotYet) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            outcome = held(self.ending.reached.wait_timeout(outcome, left)).0;
        }
        true
    }

    pub fn result(&self) -> Result<Arc<T>, Arc<RunError>> {
        match &*held(self.ending.outcome.lock()) {
            Outcome::NotYet => Err(Arc::new(RunError::NotOver)),
            Outcome::Over(outcome) => outcome.clone(),
        }
    }

    /// Wait without end for work that was told to stop.
    pub fn join(&self) {
        if let Some(thread) = held(self.thread.lock()).take() {
            // The thread catches the panics of the others and has none of its own to report.
            let _ = thread.join();
        }
    }
}

/// A lock, whatever a panic left: nothing that holds one of these can leave its value half changed.
pub(crate) fn held<T>(lock: LockResult<T>) -> T {
    lock.unwrap_or_else(PoisonError::into_inner)
}
