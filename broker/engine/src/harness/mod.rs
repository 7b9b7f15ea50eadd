//! What judges the engine without sockets, clocks or threads, for tests and (feature `harness`) for the fuzzer: clients and a disk in memory, operations
//! by name, and the laws that hold whatever the input.

pub mod invariant;
pub mod memory_store;
pub mod operations;
pub mod pair;
pub mod source;
pub mod targets;
