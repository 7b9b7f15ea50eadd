//! A simulated broker for Python: a column of arrivals in, columns of delays out, the GIL released between.

use std::sync::Mutex;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use srtm_simulator::{NEVER, Service};

use crate::lock;

#[pyclass(frozen, module = "srtm._native")]
pub struct Station(Mutex<srtm_simulator::Station>);

#[pymethods]
impl Station {
    #[classattr]
    const NEVER_NS: i64 = NEVER;

    #[new]
    #[pyo3(signature = (rate_micro, burst_micro, service_ns, servers = 1, seed = 1))]
    fn new(rate_micro: u64, burst_micro: u64, service_ns: Vec<i64>, servers: usize, seed: u64) -> PyResult<Self> {
        let service = Service::new(service_ns, seed)
            .ok_or_else(|| PyValueError::new_err("service_ns: must have at least one time, and none below 0"))?;
        let station = srtm_simulator::Station::new(rate_micro, burst_micro, servers, service);
        Ok(Self(Mutex::new(station.ok_or_else(|| PyValueError::new_err("servers: 0: must be at least 1"))?)))
    }

    /// Access and processing delays, as bytes of int64, of further arrivals (a buffer of int64, in order of time).
    fn run<'py>(
        &self,
        py: Python<'py>,
        arrival_ns: PyBuffer<i64>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let arrivals = arrival_ns.to_vec(py)?;
        let (access, processing) = py.detach(|| {
            let mut station = lock(&self.0);
            let mut access = Vec::with_capacity(arrivals.len() * size_of::<i64>());
            let mut processing = Vec::with_capacity(arrivals.len() * size_of::<i64>());
            for at in arrivals {
                let (waits, takes) = station.pass(at);
                access.extend_from_slice(&waits.to_ne_bytes());
                processing.extend_from_slice(&takes.to_ne_bytes());
            }
            (access, processing)
        });
        Ok((PyBytes::new(py, &access), PyBytes::new(py, &processing)))
    }
}
