//! What the process asks of its host: memory that is kept, a real-time priority, and why a setting is denied.
//!
//! Imports nothing else of the engine. Begin with `denied`.

pub mod denied;
pub mod heap;
pub mod realtime;
