//! TLS and compression of a connection, at work. Imports everything below the engine. Begin with `layers`.

pub mod handshakes;
pub mod layers;
