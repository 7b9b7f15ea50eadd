//! Requests by HTTP, run on the engine: publishes and `/ping` are answered here, all others by Python.
//!
//! Imports everything below the engine, and the engine. Begin with `serve`: which request is whose.

pub mod forward;
pub mod publish_routes;
pub mod serve;
