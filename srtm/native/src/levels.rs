//! The levels of `limiting/core` for Python. Time is a parameter of every call.

use std::collections::HashSet;
use std::sync::Mutex;

use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyTuple};
use srtm_limits::Nanos;
use srtm_limits::levels::{self, Levels};

use crate::errors::bad_value;
use crate::lock;

#[pyclass(frozen, module = "srtm._native")]
pub struct LevelTable(Mutex<Levels>);

#[derive(PartialEq, Eq, Hash)]
pub struct Subject(pub levels::Subject);

impl<'a, 'py> FromPyObject<'a, 'py> for Subject {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let subject = given.cast::<PyBytes>()?;
        subject.as_bytes().try_into().map(Self).map_err(|_| bad_value("a subject has 16 bytes"))
    }
}

#[derive(PartialEq, Eq, Hash)]
struct Key(levels::Key);

impl<'a, 'py> FromPyObject<'a, 'py> for Key {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let key = given.cast::<PyTuple>()?;
        let subject: Subject = key.get_item(0)?.extract()?;
        Ok(Self((subject.0, key.get_item(1)?.extract()?)))
    }
}

/// What is beyond 128 bits counts as the largest number of its sign.
pub struct Units(pub i128);

impl<'a, 'py> FromPyObject<'a, 'py> for Units {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(few) = given.extract::<i64>() {
            return Ok(Self(few.into()));
        }
        match given.extract::<i128>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => {
                Ok(Self(if given.lt(0)? { i128::MIN } else { i128::MAX }))
            }
            found => found.map(Self),
        }
    }
}

impl<'py> IntoPyObject<'py> for Units {
    type Target = PyInt;
    type Output = Bound<'py, PyInt>;
    type Error = std::convert::Infallible;

    /// Most numbers have 64 bits, whose way is the shorter one.
    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        match i64::try_from(self.0) {
            Ok(few) => few.into_pyobject(py),
            Err(_) => self.0.into_pyobject(py),
        }
    }
}

fn plain(units: Vec<Units>) -> Vec<i128> {
    units.into_iter().map(|units| units.0).collect()
}

impl LevelTable {
    /// Runs `of` where the policy of `key` is there.
    fn with<T>(&self, key: &Key, of: impl FnOnce(&mut Levels, &levels::Key) -> T) -> PyResult<T> {
        let mut levels = lock(&self.0);
        if usize::from(key.0.1) >= levels.policies() {
            let there = levels.policies();
            return Err(PyIndexError::new_err(format!("policy {} of {there}, counted from 0", key.0.1)));
        }
        Ok(of(&mut levels, &key.0))
    }

    /// Runs `of` with as many numbers as there are policies.
    fn with_all(&self, units: Vec<Units>, of: impl FnOnce(&mut Levels, Vec<i128>)) -> PyResult<()> {
        let mut levels = lock(&self.0);
        if units.len() != levels.policies() {
            return Err(bad_value(format!("{} numbers for {} policies", units.len(), levels.policies())));
        }
        of(&mut levels, plain(units));
        Ok(())
    }
}

#[pymethods]
impl LevelTable {
    #[new]
    fn new(rates: Vec<Units>) -> Self {
        Self(Mutex::new(Levels::new(plain(rates))))
    }

    fn __len__(&self) -> usize {
        lock(&self.0).len()
    }

    fn __contains__(&self, key: Key) -> bool {
        lock(&self.0).has(&key.0)
    }

    fn level(&self, key: Key, at_ns: Nanos) -> PyResult<Option<Units>> {
        self.with(&key, |levels, key| levels.level(key, at_ns).map(Units))
    }

    fn put(&self, key: Key, units: Units, at_ns: Nanos) -> PyResult<()> {
        self.with(&key, |levels, key| levels.put(key, units.0, at_ns))
    }

    fn add(&self, key: Key, units: Units, at_ns: Nanos) -> PyResult<Option<Units>> {
        self.with(&key, |levels, key| levels.add(key, units.0, at_ns).map(Units))
    }

    fn add_to_all(&self, units: Vec<Units>, at_ns: Nanos) -> PyResult<()> {
        self.with_all(units, |levels, units| levels.add_to_all(&units, at_ns))
    }

    fn raise_all(&self, units: Vec<Units>, at_ns: Nanos) -> PyResult<()> {
        self.with_all(units, |levels, units| levels.raise_all(&units, at_ns))
    }

    fn change(&self, rates: Vec<Units>, at_ns: Nanos) -> PyResult<()> {
        self.with_all(rates, |levels, rates| levels.change(rates, at_ns))
    }

    fn levels<'py>(&self, py: Python<'py>, at_ns: Nanos) -> Vec<((Bound<'py, PyBytes>, u8), Units)> {
        let levels = lock(&self.0);
        levels
            .all(at_ns)
            .map(|((subject, policy), units)| ((PyBytes::new(py, &subject), policy), Units(units)))
            .collect()
    }

    fn forget(&self, policies: Vec<u8>, kept: HashSet<Key>, at_ns: Nanos) -> usize {
        let kept = kept.into_iter().map(|key| key.0).collect();
        lock(&self.0).forget(&policies, &kept, at_ns)
    }

    fn bytes(&self) -> usize {
        lock(&self.0).bytes()
    }
}
