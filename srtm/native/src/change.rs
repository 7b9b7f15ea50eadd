//! The engine's detectors of changes and of drift, for tests and simulations.

use std::sync::Mutex;

use pyo3::prelude::*;
use srtm_engine::telemetry::arrival_bins::SLOT_NS as ENGINE_SLOT_NS;
use srtm_engine::telemetry::{change_detector, drift_detector};

use crate::lock;

#[pyclass(frozen, module = "srtm._native")]
#[derive(Default)]
pub struct ChangeDetector(Mutex<change_detector::ChangeDetector>);

#[pymethods]
impl ChangeDetector {
    #[classattr]
    const SLOT_NS: i64 = ENGINE_SLOT_NS;

    #[new]
    fn new() -> Self {
        Self::default()
    }

    #[getter]
    fn is_settled(&self) -> bool {
        lock(&self.0).is_settled()
    }

    fn note(&self, count: u64) -> Option<(u64, u32)> {
        lock(&self.0).note(count).map(|moved| (moved.arrivals, moved.slots))
    }
}

#[pyclass(frozen, module = "srtm._native")]
pub struct DriftDetector(Mutex<drift_detector::DriftDetector>);

#[pymethods]
impl DriftDetector {
    #[new]
    fn new(first: i64) -> Self {
        Self(Mutex::new(drift_detector::DriftDetector::new(first)))
    }

    fn note(&self, number: i64, count: u64) -> bool {
        lock(&self.0).note(number, count)
    }
}
