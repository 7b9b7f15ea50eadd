//! The line of connections with a TLS handshake to go on with: few steps are out at once.

use std::collections::VecDeque;
use std::sync::Arc;

use rustls::ServerConfig;

use crate::keys::ConnKey;

/// Steps that are out at once: enough that whoever takes them need not wait for the engine's next turn.
pub const MAX_AWAY: usize = 8;

/// Connections whose handshakes go on, in order, each at most once.
#[derive(Debug, Default)]
pub struct Handshakes {
    pub(crate) config: Option<Arc<ServerConfig>>, // None: clients may not ask for TLS
    waiting: VecDeque<ConnKey>,
    away: usize,
}

impl Handshakes {
    pub fn new(config: Option<Arc<ServerConfig>>) -> Self {
        Self { config, ..Self::default() }
    }

    pub fn is_offered(&self) -> bool {
        self.config.is_some()
    }

    /// Whether there is nothing to give out now.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() || self.away >= MAX_AWAY
    }

    pub(crate) fn push(&mut self, key: ConnKey) {
        self.waiting.push_back(key);
    }

    /// Whose step is next, if one may be given out now.
    pub(crate) fn pop(&mut self) -> Option<ConnKey> {
        if self.is_idle() { None } else { self.waiting.pop_front() }
    }

    /// A step was given out.
    pub(crate) fn note_given(&mut self) {
        self.away += 1;
    }

    /// A step came back.
    pub(crate) fn note_taken(&mut self) {
        self.away = self.away.saturating_sub(1);
    }
}
