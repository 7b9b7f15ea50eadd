//! Rust's errors as Python's: the one place where they are converted.

use pyo3::PyErr;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use srtm_engine::io::handle::NotRunning;

/// A configuration or argument that breaks a rule.
pub fn bad_value(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub fn not_running(error: NotRunning) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
