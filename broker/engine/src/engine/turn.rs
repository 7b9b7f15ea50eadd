//! What one turn collects: publishes, their messages, and replies; and what it leaves to the next.

use std::collections::VecDeque;

use crate::clients::reply::Reply;
use crate::keys::{ChannelKey, ConnKey, SessionKey, TopicKey};
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
pub(crate) enum DueTimers {
    InFlight(ConnKey),
    Deferred(ChannelKey),
}

/// Who has something to do in this turn, or in the next one.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    pub fan_out: Vec<TopicKey>, // have more to move to their channels
    pub due: Vec<DueTimers>,    // go on in the next turn
    pub dirty_conns: Vec<ConnKey>,
    pub owing: Vec<SessionKey>, // have something to send
    pub noted: Vec<SessionKey>, // have changed, and are to be written
    pub left: Vec<SessionKey>,  // have lost their connections
    pub dirty_channels: VecDeque<ChannelKey>,
    pub closed: Vec<ConnKey>,
    pub resumed: Vec<ConnKey>,   // were deferred, or had more to decode than one turn takes
    pub undecoded: Vec<ConnKey>, // have bytes to decode in the next turn
}

impl Schedule {
    /// Whether nobody waits for the next turn. (What is to be written or closed waits for the reactor.)
    pub fn is_idle(&self) -> bool {
        self.dirty_channels.is_empty()
            && self.undecoded.is_empty()
            && self.fan_out.is_empty()
            && self.owing.is_empty()
            && self.noted.is_empty()
            && self.left.is_empty()
            && self.due.is_empty()
            && self.resumed.is_empty()
    }
}
