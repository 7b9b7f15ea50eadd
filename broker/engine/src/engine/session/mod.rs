//! TLS and compression of a connection, run on the engine.
//!
//! Imports everything below the engine, and the engine. Begin with `layers`; `handshakes` are given out step by step.

pub mod handshakes;
pub mod layers;
