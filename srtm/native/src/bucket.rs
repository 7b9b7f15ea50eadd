//! The engine's bucket for differential tests: the same `Backlog` that a topic uses, with nothing but costs in it.

use std::sync::{Mutex, MutexGuard};

use pyo3::prelude::*;
use srtm_engine::limiter::backlog::{Backlog, Take};
use srtm_engine::limiter::bucket;

use crate::lock;

#[pyclass(frozen, module = "srtm._native")]
pub struct Bucket(Mutex<Backlog<()>>);

impl Bucket {
    fn backlog(&self) -> MutexGuard<'_, Backlog<()>> {
        lock(&self.0)
    }
}

fn pop_until(backlog: &mut Backlog<()>, at_ns: i64) {
    while backlog.pop_due(at_ns).is_some() {}
}

#[pymethods]
impl Bucket {
    #[new]
    #[pyo3(signature = (rate_micro, burst_micro, at_ns, full = true))]
    fn new(rate_micro: u64, burst_micro: u64, at_ns: i64, full: bool) -> Self {
        Self(Mutex::new(Backlog::new(bucket::Bucket::new(rate_micro, burst_micro, at_ns, full), at_ns)))
    }

    fn take(&self, cost: u32, at_ns: i64) -> Option<i64> {
        let mut backlog = self.backlog();
        let at_ns = backlog.effective(at_ns);
        pop_until(&mut backlog, at_ns);
        match backlog.arrive(cost, at_ns, ()) {
            Take::Now(()) => Some(at_ns),
            Take::Waits(due) => due,
        }
    }

    fn debit(&self, cost: u32, at_ns: i64) {
        let mut backlog = self.backlog();
        let at_ns = backlog.effective(at_ns);
        pop_until(&mut backlog, at_ns);
        backlog.debit(cost, at_ns);
    }

    fn set(&self, rate_micro: u64, burst_micro: u64, at_ns: i64) -> Vec<Option<i64>> {
        let mut backlog = self.backlog();
        let at_ns = backlog.effective(at_ns);
        pop_until(&mut backlog, at_ns);
        backlog.set(rate_micro, burst_micro, at_ns);
        backlog.all_due().collect()
    }

    fn fill_units(&self, at_ns: i64) -> i128 {
        let mut backlog = self.backlog();
        pop_until(&mut backlog, at_ns);
        backlog.fill(at_ns)
    }
}
