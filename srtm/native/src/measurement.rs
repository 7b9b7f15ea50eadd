//! `srtm._native.Measurement`: delays of a topic's messages, as Python holds them.

use std::sync::{Mutex, MutexGuard};

use pyo3::prelude::*;
use srtm_engine::telemetry::measurement;
use srtm_engine::time::Nanos;

use crate::engine::Engine;
use crate::errors::{bad_value, not_running};
use crate::lock;

/// Numbers of intervals, messages in them, those that were late, sums of latencies.
type Columns = (Vec<i64>, Vec<i64>, Vec<i64>, Vec<i64>);

/// Publisher names; their indices, then arrival of the first, gaps, access and processing.
type Recording = (Vec<String>, Vec<u32>, i64, Vec<i64>, Vec<i64>, Vec<i64>);

#[pyclass(frozen, module = "srtm._native")]
pub struct Measurement {
    engine: Py<Engine>,
    topic: String,
    measured: Mutex<measurement::Measurement>,
}

impl Measurement {
    fn measured(&self) -> MutexGuard<'_, measurement::Measurement> {
        lock(&self.measured)
    }
}

#[pymethods]
impl Measurement {
    #[new]
    fn new(py: Python<'_>, engine: Py<Engine>, topic: String, target_ns: Nanos) -> PyResult<Self> {
        if target_ns <= 0 {
            return Err(bad_value(format!("target_ns {target_ns}: must be above 0")));
        }
        let (handle, name) = (engine.get().handle(), topic.clone());
        let measured = py.detach(|| handle.measure(name, target_ns)).map_err(not_running)?;
        let measured = measured.ok_or_else(|| bad_value(format!("topic {topic:?} has no limit")))?;
        Ok(Self { engine, topic, measured: Mutex::new(measured) })
    }

    fn advance(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.engine.get().handle();
        py.detach(|| handle.advance(&self.topic, &mut self.measured())).map_err(not_running)
    }

    fn intervals(&self, end: bool) -> Columns {
        let intervals = self.measured().intervals(end);
        let column = |of: fn(&measurement::Interval) -> i64| intervals.iter().map(of).collect();
        (column(|i| i.number), column(|i| i.count), column(|i| i.late), column(|i| i.latency))
    }

    fn percentiles(&self, percentile: f64) -> (u64, u64, u64, u64) {
        let (count, [access, processing, total]) = self.measured().percentiles(percentile);
        (count, access, processing, total)
    }

    fn recent(&self, percentile: f64) -> (u64, u64, u64) {
        let (share, total) = self.measured().recent(percentile);
        (share.count, share.late, total)
    }

    fn gaps(&self) -> (u64, u64) {
        let measured = self.measured();
        (measured.lost, measured.unsent)
    }

    fn recording(&self, py: Python<'_>) -> PyResult<Recording> {
        let (handle, range) = (self.engine.get().handle(), self.measured().done());
        let (recording, names, offset) = py.detach(|| handle.recording(&self.topic, range)).map_err(not_running)?;
        let first = if recording.publisher.is_empty() { 0 } else { recording.first + offset };
        Ok((names, recording.publisher, first, recording.gap, recording.access, recording.processing))
    }
}
