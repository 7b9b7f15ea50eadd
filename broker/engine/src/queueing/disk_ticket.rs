//! Tickets of messages that are to be written to disk: the last one of a publish tells that its answer may go.

use std::cell::RefCell;
use std::rc::Rc;

use crate::keys::{ChannelKey, ConnKey, TopicKey};

/// Whose queue it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Topic(TopicKey),
    Channel(ChannelKey),
}

/// A publish whose messages are being released.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Released {
    pub topic: TopicKey,
    pub conn: ConnKey,
    pub queues: usize, // that its messages go to
}

/// Of a publish of which something overflowed, and is to be written.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) publish: Released,
    pub(crate) fate: Rc<Fate>,
    settled: Rc<RefCell<Vec<ConnKey>>>, // connections that hear of it
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

/// What becomes of a publish of which something overflowed.
#[derive(Debug, Default)]
pub(crate) struct Fate(RefCell<Option<Refusal>>);

impl Fate {
    /// Whether nothing is to be written any more: no ticket is left.
    pub fn is_settled(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) == 1
    }

    pub fn reason(&self) -> Option<String> {
        self.0.borrow().as_ref().map(|refusal| refusal.reason.clone())
    }

    /// One more queue could not write so many messages and bytes. Gives how many queues could not, and the fewest that one could not.
    pub(crate) fn refuse(&self, reason: &str, lost: (u64, u64)) -> (usize, (u64, u64)) {
        let mut refusal = self.0.borrow_mut();
        let refusal = refusal.get_or_insert_with(|| Refusal { reason: reason.into(), by: 0, least: lost });
        (refusal.by, refusal.least) = (refusal.by + 1, refusal.least.min(lost));
        (refusal.by, refusal.least)
    }
}

/// What the disk refused of a publish.
#[derive(Debug)]
struct Refusal {
    reason: String,
    by: usize,         // queues
    least: (u64, u64), // messages and their bytes, where it was fewest
}
