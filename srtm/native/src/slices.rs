//! The slices of `limiting/core` for Python. Time is a parameter of every call.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use srtm_limits::slices::Slices;

use crate::levels::{Subject, Units};
use crate::lock;

type Counts = BTreeMap<i64, u32>; // tokens by the number of a slice

#[pyclass(frozen, module = "srtm._native")]
pub struct SliceTable(Mutex<Slices>);

#[pymethods]
impl SliceTable {
    #[new]
    fn new(slices: NonZeroU32, weighted: bool) -> Self {
        Self(Mutex::new(Slices::new(slices, weighted)))
    }

    fn __len__(&self) -> usize {
        lock(&self.0).len()
    }

    fn __contains__(&self, subject: Subject) -> bool {
        lock(&self.0).has(&subject.0)
    }

    fn counts(&self, subject: Subject, now: i64) -> Option<Counts> {
        lock(&self.0).counts(&subject.0, now).map(|counts| counts.into_iter().collect())
    }

    fn put(&self, subject: Subject, counts: BTreeMap<i64, Units>, now: i64) {
        let counts: Vec<_> =
            counts.into_iter().map(|(number, tokens)| (number, tokens.0.clamp(0, u32::MAX.into()) as u32)).collect();
        lock(&self.0).put(&subject.0, &counts, now);
    }

    fn add(&self, subject: Subject, number: i64, tokens: Units, now: i64) -> bool {
        let tokens = tokens.0.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        lock(&self.0).add(&subject.0, number, tokens, now)
    }

    fn all<'py>(&self, py: Python<'py>, now: i64) -> Vec<(Bound<'py, PyBytes>, Counts)> {
        let slices = lock(&self.0);
        slices.all(now).map(|(subject, counts)| (PyBytes::new(py, &subject), counts.into_iter().collect())).collect()
    }

    fn forget(&self, kept: HashSet<Subject>, now: i64) -> usize {
        let kept = kept.into_iter().map(|subject| subject.0).collect();
        lock(&self.0).forget(&kept, now)
    }

    fn bytes(&self) -> usize {
        lock(&self.0).bytes()
    }
}
