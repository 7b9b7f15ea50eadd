//! The extension `srtm._native`: the whole boundary between Python and Rust. `srtm/_native.pyi` documents it for
//! Python.
//!
//! Python passes configuration once, and fetches snapshots and events. Rust never calls Python. Calls that may wait
//! release the GIL.

mod bucket;
mod change;
mod engine;
mod errors;
mod flood;
mod http;
mod levels;
mod limiter;
mod loadgen;
mod measurement;
mod slices;
mod station;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, also after a panic: no holder of a lock in this crate can leave its value half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pyo3::pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::bucket::Bucket;
    #[pymodule_export]
    use super::change::{ChangeDetector, DriftDetector};
    #[pymodule_export]
    use super::engine::Engine;
    #[pymodule_export]
    use super::flood::Flood;
    #[pymodule_export]
    use super::http::HttpSession;
    #[pymodule_export]
    use super::levels::LevelTable;
    #[pymodule_export]
    use super::limiter::{Limiter, RespSession, Throttle};
    #[pymodule_export]
    use super::loadgen::LoadGen;
    #[pymodule_export]
    use super::measurement::Measurement;
    #[pymodule_export]
    use super::slices::SliceTable;
    #[pymodule_export]
    use super::station::Station;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
