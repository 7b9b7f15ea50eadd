//! Connections of HTTP whose checks the limiter of `limiting/core` decides.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use srtm_limits::http::{Answer, Families, Session, Settings, Waits};

use crate::limiter::{Clocks, Limiter, halves, now};
use crate::lock;

type Bytes<'py> = Bound<'py, PyBytes>;
type Asked<'py> = (String, Bytes<'py>, Vec<(Bytes<'py>, Bytes<'py>)>, Bytes<'py>); // method, target, headers, body

#[pyclass(frozen, module = "srtm._native")]
pub struct HttpSession(Mutex<Session>);

fn named(waits: Waits) -> &'static str {
    match waits {
        Waits::Bytes => "bytes",
        Waits::Body => "body",
        Waits::Room => "room",
        Waits::Admission => "admission",
        Waits::Answer => "answer",
        Waits::Server => "server",
        Waits::End => "end",
    }
}

#[pymethods]
impl HttpSession {
    #[new]
    fn new(key: [u8; 16], needs_token: bool, headers: Vec<String>, most_body: usize) -> Self {
        let has = |family: &str| headers.iter().any(|each| each == family);
        let families =
            Families { ratelimit: has("ratelimit"), x_ratelimit: has("x-ratelimit"), retry_after: has("retry-after") };
        Self(Mutex::new(Session::new(halves(key), Settings { needs_token, families, most_body })))
    }

    fn feed<'py>(
        &self,
        py: Python<'py>,
        received: &[u8],
        limiter: Option<&Limiter>,
        clocks: Clocks,
    ) -> (Bytes<'py>, &'static str) {
        let mut out = Vec::new();
        let mut held = limiter.map(|limiter| lock(&limiter.0));
        let waits = lock(&self.0).feed(received, held.as_deref_mut(), now(clocks), &mut out);
        (PyBytes::new(py, &out), named(waits))
    }

    #[getter]
    fn authorization(&self) -> Option<String> {
        lock(&self.0).authorization().map(|given| given.iter().map(|byte| char::from(*byte)).collect())
    }

    fn admit(&self, is_admitted: bool) {
        lock(&self.0).admit(is_admitted);
    }

    #[getter]
    fn asked<'py>(&self, py: Python<'py>) -> Option<Asked<'py>> {
        let session = lock(&self.0);
        let asked = session.asked()?;
        let bytes = |content: &[u8]| PyBytes::new(py, content);
        let headers = asked.headers.iter().map(|(name, value)| (bytes(name.as_bytes()), bytes(value))).collect();
        Some((asked.method.clone(), bytes(asked.target.as_bytes()), headers, bytes(&asked.body)))
    }

    fn answer<'py>(
        &self,
        py: Python<'py>,
        status: u16,
        headers: Vec<(Vec<u8>, Vec<u8>)>,
        body: Vec<u8>,
        clocks: Clocks,
    ) -> (Bytes<'py>, &'static str) {
        let mut out = Vec::new();
        let waits = lock(&self.0).answer(&Answer { status, headers, body }, now(clocks), &mut out);
        (PyBytes::new(py, &out), named(waits))
    }

    #[getter]
    fn rest<'py>(&self, py: Python<'py>) -> Bytes<'py> {
        PyBytes::new(py, lock(&self.0).rest())
    }
}
