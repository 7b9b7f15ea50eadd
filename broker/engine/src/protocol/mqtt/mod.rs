//! MQTT 3.1, 3.1.1 and 5.0: bytes to packets and back, what names and filters may be, what a reason code says.
//!
//! Pure: imports nothing of the engine. A packet borrows from the bytes that it was read from; nothing is copied, and
//! nothing is kept of a packet that is not whole. Begin with `decode`.
//!
//! Clauses in brackets, as `[MQTT-3.1.0-1]`, are those of the OASIS standard 5.0; `3.1.1` names one of the older one.

pub mod attributes;
pub mod decode;
pub mod encode;
pub mod field_reader;
pub mod packet;
pub mod property;
pub mod reason;
pub mod topic_filter;
pub mod version;
