//! What breaks a stream's layers, and what switches them.

use std::fmt::Display;

/// The stream cannot be decoded: the connection ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(String);

impl Broken {
    #[cold]
    pub fn new(reason: &str) -> Self {
        Self(reason.into())
    }

    #[cold]
    pub fn tls(error: &dyn Display) -> Self {
        Self(format!("TLS: {error}"))
    }
}

/// A step of the output towards its layers, in the order in which clients expect them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Tls,
    Compression,
    /// Back to plain bytes, for the error after a handshake that failed.
    Plain,
}
