//! Floods for Python: JSON in, JSON out, the GIL released wherever a call may wait.

use std::sync::Arc;
use std::time::Duration;

use crate::errors::bad_value;
use crate::loadgen::raised;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use srtm_loadgen::{Flood as Generator, FloodPlan, RunError};

#[pyclass(frozen, module = "srtm._native")]
pub struct Flood {
    generator: Generator,
}

#[pymethods]
impl Flood {
    #[new]
    fn new(plan: &[u8]) -> PyResult<Flood> {
        Ok(Flood { generator: Generator::new(FloodPlan::parse(plan).map_err(bad_value)?) })
    }

    fn start(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.generator.start()).map_err(|error| raised(&error))
    }

    fn wait(&self, py: Python<'_>, timeout_ms: u64) -> bool {
        py.detach(|| self.generator.wait(Duration::from_millis(timeout_ms)))
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.generator.stop());
    }

    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let json = py.detach(|| self.generator.result());
        json.map(|json| PyBytes::new(py, &json)).map_err(|error: Arc<RunError>| raised(&error))
    }
}
