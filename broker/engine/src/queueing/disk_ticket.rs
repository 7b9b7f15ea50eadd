//! Tickets of messages that await their write to disk; dropping a publish's last ticket releases its answer.

use std::cell::RefCell;
use std::rc::Rc;

use crate::keys::{ChannelKey, ConnKey, GroupKey, SessionKey, TopicKey};

/// The owner of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Topic(TopicKey),
    Channel(ChannelKey),
    /// What a session of MQTT is owed.
    Session(SessionKey),
    /// What a group of shared subscriptions has.
    Group(GroupKey),
}

/// A publish whose messages are being released.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Released {
    pub topic: TopicKey,
    pub conn: ConnKey,
    pub queues: usize, // number of queues that receive its messages
}

/// Shared by all messages of a publish that overflowed to disk; its drop reports the publish as settled.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) publish: Released,
    pub(crate) fate: Rc<Fate>,
    settled: Rc<RefCell<Vec<ConnKey>>>, // connections to answer
}

impl Ticket {
    pub fn new(publish: Released, settled: &Rc<RefCell<Vec<ConnKey>>>) -> Self {
        Self { publish, fate: Rc::default(), settled: Rc::clone(settled) }
    }

    pub fn fate(&self) -> Rc<Fate> {
        Rc::clone(&self.fate)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.settled.borrow_mut().push(self.publish.conn);
    }
}

/// Outcome of the disk writes of one publish.
#[derive(Debug, Default)]
pub(crate) struct Fate(RefCell<Option<Refusal>>);

impl Fate {
    /// Whether all writes have ended: no ticket is left.
    pub fn is_settled(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) == 1
    }

    pub fn reason(&self) -> Option<String> {
        self.0.borrow().as_ref().map(|refusal| refusal.reason.clone())
    }

    /// Records that one more queue could not write `lost`, (messages, bytes). Returns the number of such queues and the
    /// least loss of one.
    pub(crate) fn refuse(&self, reason: &str, lost: (u64, u64)) -> (usize, (u64, u64)) {
        let mut refusal = self.0.borrow_mut();
        let refusal = refusal.get_or_insert_with(|| Refusal { reason: reason.into(), by: 0, least: lost });
        (refusal.by, refusal.least) = (refusal.by + 1, refusal.least.min(lost));
        (refusal.by, refusal.least)
    }
}

/// Messages of a publish that the disk refused.
#[derive(Debug)]
struct Refusal {
    reason: String,
    by: usize,         // queues
    least: (u64, u64), // messages and bytes of the smallest loss
}
