//! Requests by HTTP, run on the engine. Imports everything below the engine. Begin with `serve`: which request is whose.

pub mod forward;
pub mod publish_routes;
pub mod serve;
