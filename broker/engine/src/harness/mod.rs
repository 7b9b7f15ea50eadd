//! Test support: clients and a disk in memory, operations by name, and the laws that hold whatever the input.
//!
//! Imports everything; built for tests and, with the feature `harness`, for the fuzzer. Begin with `pair`.

pub mod invariant;
pub mod memory_store;
pub mod operations;
pub mod pair;
pub mod source;
pub mod targets;
