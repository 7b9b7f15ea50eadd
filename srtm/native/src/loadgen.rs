//! The load generator for Python: JSON in, JSON out, the GIL released wherever a call may wait.

use std::sync::Arc;
use std::time::Duration;

use crate::errors::bad_value;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use srtm_loadgen::{LoadGen as Generator, Plan, RunError};

#[pyclass(frozen, module = "srtm._native")]
pub struct LoadGen {
    generator: Generator,
}

#[pymethods]
impl LoadGen {
    #[new]
    fn new(plan: &[u8]) -> PyResult<LoadGen> {
        let plan = Plan::parse(plan).map_err(bad_value)?;
        Ok(LoadGen { generator: Generator::new(plan)? })
    }

    fn start(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.generator.start()).map_err(|error| raised(&error))
    }

    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let json = serde_json::to_vec(&self.generator.progress());
        Ok(PyBytes::new(py, &json.map_err(|error| PyRuntimeError::new_err(error.to_string()))?))
    }

    fn wait(&self, py: Python<'_>, timeout_ms: u64) -> bool {
        py.detach(|| self.generator.wait(Duration::from_millis(timeout_ms)))
    }

    fn stop(&self) {
        self.generator.stop();
    }

    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let json = py.detach(|| self.generator.result());
        json.map(|json| PyBytes::new(py, &json)).map_err(|error: Arc<RunError>| raised(&error))
    }
}

/// Failures of the system (a connection, a file, a thread) are OSErrors; calls out of order and bugs are RuntimeErrors.
pub fn raised(error: &RunError) -> PyErr {
    let text = error.to_string();
    match error {
        RunError::Connect { .. } | RunError::Files { .. } | RunError::Io(_) => PyOSError::new_err(text),
        RunError::Started | RunError::NotOver | RunError::Panicked => PyRuntimeError::new_err(text),
    }
}
