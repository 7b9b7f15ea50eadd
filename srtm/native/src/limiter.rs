//! The limiter of `limiting/core` for Python. Time is a parameter of every call.

use std::sync::Mutex;

use pyo3::exceptions::PyLookupError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use srtm_limits::Nanos;
use srtm_limits::contract::Contract;
use srtm_limits::limiter::kept_use::Used;
use srtm_limits::limiter::{self, Refused};
use srtm_limits::resp::Session;
use srtm_limits::state::{Look, Now};
use srtm_limits::throttle;

use crate::errors::bad_value;
use crate::lock;

pub type Clocks = (Nanos, Nanos); // monotonic, wall
type Counts = (u64, u64, u64); // checks allowed, checks refused, cost allowed
type Said = (bool, u64, Option<Nanos>, Option<Nanos>); // allowed, remaining, wait, reset
type Changed<'py> = (u32, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>); // contract, hash, words
type Verdict<'py> = (bool, u32, Vec<Said>, Option<Nanos>, Option<Bound<'py, PyBytes>>, bool, bool);

#[pyclass(frozen, module = "srtm._native")]
pub struct Limiter(pub Mutex<limiter::Limiter>);

pub fn now((mono, wall): Clocks) -> Now {
    Now { mono, wall }
}

fn refused(error: Refused) -> PyErr {
    match error {
        Refused::NoContract => PyLookupError::new_err(error.to_string()),
        _ => bad_value(error),
    }
}

fn finite(wait: Nanos) -> Option<Nanos> {
    Some(wait).filter(|wait| *wait < Nanos::MAX)
}

fn said(look: &Look) -> Said {
    (look.allowed, look.remaining, finite(look.wait), finite(look.reset))
}

fn verdict(py: Python<'_>, found: limiter::Verdict) -> Verdict<'_> {
    let policies = found.policies.iter().map(said).collect();
    let grant = found.grant.map(|grant| PyBytes::new(py, &grant));
    (found.allowed, found.contract, policies, finite(found.wait), grant, found.shared, found.shadowed)
}

#[pymethods]
impl Limiter {
    #[new]
    #[pyo3(signature = (key, max_subjects, subjects_key = None))]
    fn new(key: [u8; 16], max_subjects: u64, subjects_key: Option<[u8; 16]>) -> Self {
        let made = limiter::Limiter::new(halves(key), max_subjects);
        Self(Mutex::new(made.with_subjects_key(halves(subjects_key.unwrap_or(key)))))
    }

    fn keep(&self, contract: u32, policies: u8) {
        lock(&self.0).keep(contract, policies);
    }

    fn changed<'py>(&self, py: Python<'py>, most: usize) -> Vec<Changed<'py>> {
        let found = lock(&self.0).changed(most);
        let bytes = |words: &[u32]| PyBytes::new(py, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
        found.iter().map(|used| (used.contract, bytes(&used.hash), used.words.as_deref().map(bytes))).collect()
    }

    fn restore(&self, contract: u32, hash: [u8; 16], words: &[u8], saved: Clocks, clocks: Clocks) -> bool {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
        let part = |place: usize| number(&hash[4 * place..4 * place + 4]);
        let hash = [part(0), part(1), part(2), part(3)];
        let used = Used { contract, hash, words: Some(words.chunks(4).map(number).collect()) };
        lock(&self.0).restore(&used, now(saved), now(clocks))
    }

    fn put_contract(&self, contract: &[u8], clocks: Clocks) -> PyResult<u32> {
        let contract: Contract = serde_json::from_slice(contract).map_err(bad_value)?;
        lock(&self.0).put_contract(contract, now(clocks)).map_err(refused)
    }

    fn remove_contract(&self, namespace: &str, subject: &str) -> bool {
        lock(&self.0).remove_contract(namespace, subject)
    }

    fn check<'py>(
        &self,
        py: Python<'py>,
        namespace: &str,
        subject: &str,
        cost: u32,
        clocks: Clocks,
    ) -> PyResult<Verdict<'py>> {
        let found = lock(&self.0).check(namespace, subject, cost, now(clocks));
        found.map(|found| verdict(py, found)).map_err(refused)
    }

    fn peek<'py>(
        &self,
        py: Python<'py>,
        namespace: &str,
        subject: &str,
        cost: u32,
        clocks: Clocks,
    ) -> PyResult<Verdict<'py>> {
        let found = lock(&self.0).peek(namespace, subject, cost, now(clocks));
        found.map(|found| verdict(py, found)).map_err(refused)
    }

    fn correct(&self, grant: &[u8], cost: u32, clocks: Clocks) -> PyResult<()> {
        lock(&self.0).correct(grant, cost, now(clocks)).map_err(refused)
    }

    fn release(&self, grant: &[u8], clocks: Clocks) -> PyResult<()> {
        lock(&self.0).release(grant, now(clocks)).map_err(refused)
    }

    fn charge(&self, namespace: &str, subject: &str, cost: i64, clocks: Clocks) -> PyResult<()> {
        lock(&self.0).charge(namespace, subject, cost, now(clocks)).map_err(refused)
    }

    fn reset(&self, namespace: &str, subject: &str) -> bool {
        lock(&self.0).reset(namespace, subject)
    }

    fn sweep(&self, slots: usize, clocks: Clocks) {
        lock(&self.0).sweep(slots, now(clocks));
    }

    fn counts(&self, contract: u32) -> Option<Vec<Counts>> {
        let limiter = lock(&self.0);
        let counts = limiter.counts(contract)?;
        Some(counts.iter().map(|count| (count.allowed, count.refused, count.cost)).collect())
    }

    fn heaviest(&self, namespace: &str, most: usize) -> Vec<(String, u64, u64)> {
        let found = lock(&self.0).heaviest(namespace, most);
        found.into_iter().map(|heavy| (heavy.subject.into(), heavy.count, heavy.error)).collect()
    }

    fn subjects(&self) -> Vec<(String, u64)> {
        lock(&self.0).subjects().map(|(namespace, count)| (namespace.to_owned(), count)).collect()
    }

    fn bytes(&self) -> usize {
        lock(&self.0).bytes()
    }
}

pub fn halves(key: [u8; 16]) -> (u64, u64) {
    let whole = u128::from_le_bytes(key);
    (whole as u64, (whole >> 64) as u64)
}

#[pyclass(frozen, module = "srtm._native")]
pub struct Throttle(Mutex<throttle::Throttle>);

#[pymethods]
impl Throttle {
    #[new]
    fn new(key: [u8; 16], max_keys: usize) -> Self {
        Self(Mutex::new(throttle::Throttle::new(halves(key), max_keys)))
    }

    fn sweep(&self, slots: usize, at_ns: Nanos) {
        lock(&self.0).sweep(slots, at_ns);
    }

    fn keys(&self) -> usize {
        lock(&self.0).keys()
    }
}

#[pyclass(frozen, module = "srtm._native")]
pub struct RespSession(Mutex<Session>);

#[pymethods]
impl RespSession {
    #[new]
    fn new(needs_token: bool) -> Self {
        Self(Mutex::new(Session::new(needs_token)))
    }

    fn feed<'py>(&self, py: Python<'py>, received: &[u8], throttle: &Throttle, at_ns: Nanos) -> Bound<'py, PyBytes> {
        let mut out = Vec::new();
        lock(&self.0).feed(received, &mut lock(&throttle.0), at_ns, &mut out);
        PyBytes::new(py, &out)
    }

    fn authenticate<'py>(&self, py: Python<'py>, is_known: bool) -> Bound<'py, PyBytes> {
        let mut out = Vec::new();
        lock(&self.0).authenticate(is_known, &mut out);
        PyBytes::new(py, &out)
    }

    #[getter]
    fn token(&self) -> Option<String> {
        lock(&self.0).token().map(str::to_owned)
    }

    #[getter]
    fn has_more(&self) -> bool {
        lock(&self.0).has_more()
    }

    #[getter]
    fn is_closed(&self) -> bool {
        lock(&self.0).is_closed()
    }
}
