//! Rust's errors as Python's: the one place where they are converted.

use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use srtm_engine::io::errors::{NotRunning, StartError};

/// A configuration or argument that breaks a rule.
pub fn bad_value(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub fn not_running(error: NotRunning) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// A setting that this host cannot honour is a bad value; anything else is the socket's, with the setting of its
/// address as its file name.
pub fn start_error(StartError { field, error }: StartError) -> PyErr {
    let number = error.raw_os_error().unwrap_or(libc::EINVAL);
    match field {
        Some(field) => PyOSError::new_err((number, error.to_string(), field)),
        None if error.get_ref().is_some_and(|inner| inner.is::<srtm_engine::io::host::denied::Refused>()) => {
            bad_value(error)
        }
        None => os_error(error),
    }
}

/// With its number where it has one, so that Python sees `errno` and makes the fitting subclass.
pub fn os_error(error: std::io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, error.to_string())),
        None => PyOSError::new_err(error.to_string()),
    }
}
