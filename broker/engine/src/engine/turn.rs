//! What one turn collects: publishes, their messages, and replies; and what it leaves to the next.

use crate::clients::reply::Reply;
use crate::keys::{ChannelKey, ConnKey};
use crate::queueing::message::Message;
use crate::queueing::publish::Publish;

/// Buffers of a turn, used again from turn to turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub publishes: Vec<Publish>,
    pub messages: Vec<Option<Message>>,
    pub replies: Vec<(ConnKey, Reply)>,
    pub shares_stamp: bool, // a publish of the present read ended before the read did
    pub(crate) order: Vec<usize>,
    pub(crate) decided: usize, // publishes[..decided] have their outcome
}

impl Turn {
    /// Forget everything: the answers are given.
    pub fn clear(&mut self) {
        self.publishes.clear();
        self.messages.clear();
        self.decided = 0;
    }
}

/// Whose messages are due, more of them than a turn takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Overdue {
    InFlight(ConnKey),
    Deferred(ChannelKey),
}
