//! TLS handshakes: given out step by step, taken back when somebody has taken the step, so that no storm of them holds anybody up.
//!
//! A handshake costs about a millisecond (an RSA signature), and most of that is one step. What comes from a connection while it shakes hands is kept,
//! read by read; behind the handshake it is decoded as of its own arrivals. Few steps are out at once: a connection that is closed or too late before its
//! turn costs nothing, and its step that is out already is not missed. Nothing else waits, and the handshake's deadline holds wherever it is.

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
