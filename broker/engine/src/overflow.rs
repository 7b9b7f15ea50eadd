//! What overflows to disk in a turn, and the answers that wait for that.
//!
//! Nothing is acknowledged before it is written, to memory or to a file. Where messages of one topic alone are on their way a turn writes all that overflowed in
//! it. Where others wait it writes a portion and goes on in the next turn, queue by queue: some kilobytes take microseconds, a megabyte on memory that is new to
//! the page cache one or two milliseconds. A publish of which something is left is answered when nothing is any more: each message that is to be written holds
//! its `Ticket`. Behind such an answer all others of the connection wait, and its next commands (`parking.rs`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::bucket::Nanos;
use crate::engine::{ConnKey, Engine, Reply, TopicKey};
use crate::publish::Publish;
use crate::queue::{Refused, Rest};
use crate::storage::Owner;

/// Bytes written to disk in a turn where others wait, or one message.
pub(crate) const PORTION: u64 = 16 << 10;

/// Of a publish of which something overflowed.
#[derive(Debug)]
pub(crate) struct Ticket {
    topic: TopicKey,
    refusal: RefCell<Option<Refusal>>,
}

/// What the disk refused of a publish.
#[derive(Debug)]
struct Refusal {
    reason: String,
    by: usize,         // queues
    least: (u64, u64), // messages and their bytes, where it was fewest
}

impl Ticket {
    pub fn new(topic: TopicKey) -> Self {
        Self { topic, refusal: RefCell::default() }
    }

    pub fn reason(&self) -> Option<String> {
        self.refusal.borrow().as_ref().map(|refusal| refusal.reason.clone())
    }

    /// One more queue could not write so many messages and bytes. Gives how many queues could not.
    fn refuse(&self, reason: &str, lost: (u64, u64)) -> usize {
        let mut refusal = self.refusal.borrow_mut();
        let refusal = refusal.get_or_insert_with(|| Refusal { reason: reason.into(), by: 0, least: lost });
        (refusal.by, refusal.least) = (refusal.by + 1, refusal.least.min(lost));
        refusal.by
    }

    fn least(&self) -> (u64, u64) {
        self.refusal.borrow().as_ref().map_or((0, 0), |refusal| refusal.least)
    }
}

/// An answer that waits for the disk, or behind one that does.
#[derive(Debug)]
pub(crate) struct Held {
    reply: Reply,
    publish: Option<Publish>, // that it answers
}

impl Held {
    fn waits(&self) -> bool {
        self.publish.as_ref().is_some_and(|publish| !publish.is_written())
    }
}

impl Engine {
    /// From now on messages are released for a publish to this topic, until `take_ticket`: if the disk refuses one of them, it is answered so.
    pub(crate) fn begin_ticket(&self, topic: TopicKey) {
        if let Some(disk) = &self.disk {
            disk.begin_ticket(topic);
        }
    }

    /// Of the publish that was just decided, if any of it overflowed.
    pub(crate) fn take_ticket(&self) -> Option<Rc<Ticket>> {
        self.disk.as_ref().and_then(|disk| disk.take_ticket())
    }

    /// Write what overflowed, where nobody else waits: before anything is answered.
    pub(crate) fn write_overflow(&mut self) {
        if !self.work.is_shared() {
            self.write_listed(u64::MAX);
        }
    }

    /// The very end of a turn, behind what is delivered and answered: write a portion of what overflowed, where others wait.
    pub fn store_turn(&mut self) {
        if self.work.is_shared() {
            self.write_listed(self.portion);
        }
    }

    /// From now on others always wait, and portions have so many bytes.
    #[cfg(any(test, feature = "harness"))]
    pub fn write_in_portions(&mut self, bytes: u64) {
        self.portion = bytes;
        self.work.stay_shared();
    }

    /// Write what overflowed, queue by queue, until that has come to `most` bytes.
    fn write_listed(&mut self, most: u64) {
        let Some(disk) = self.disk.clone().filter(|disk| disk.is_listed()) else { return };
        let (mut owners, mut left) = (VecDeque::from(disk.take_listed()), most);
        let mut begun = None;
        while left > 0 {
            let Some(owner) = owners.pop_front() else { break };
            let Some(queue) = self.queue_of(owner) else { continue };
            let written = queue.write(left);
            queue.sync_if_due();
            left = left.saturating_sub(written.bytes);
            match written.rest {
                Rest::Nothing => {}
                Rest::Begun => begun = Some(owner),
                Rest::Whole => owners.push_back(owner),
            }
            if let Some(error) = written.error {
                self.refuse_publishes(owner, &written.refused, &error);
            }
            self.move_on(owner);
        }
        // What was begun is ended before another queue begins one: each takes as much memory as its message.
        disk.list_first(begun.into_iter().chain(owners));
    }

    /// What was written may go on.
    fn move_on(&mut self, owner: Owner) {
        match owner {
            Owner::Channel(key) => self.mark_channel(key),
            Owner::Topic(key) if self.topics.get(key).is_some_and(|topic| topic.flows()) => self.pump_later(key),
            Owner::Topic(_) => {}
        }
    }

    /// A queue could not write these messages.
    #[cold]
    fn refuse_publishes(&mut self, owner: Owner, refused: &[Refused], reason: &str) {
        let wanted = match owner {
            Owner::Topic(_) => 1,
            Owner::Channel(key) => {
                let Some(channel) = self.channels.get_mut(key) else { return };
                channel.counters.messages -= refused.len() as u64;
                self.topics.get(channel.topic).map_or(0, |topic| topic.channels.len())
            }
        };
        for lost in refused.chunk_by(|one, next| Rc::ptr_eq(&one.ticket, &next.ticket)) {
            let ticket = &lost[0].ticket;
            let bytes = lost.iter().map(|refused| refused.bytes).sum();
            if ticket.refuse(reason, (lost.len() as u64, bytes)) == wanted {
                self.take_back(ticket);
            }
        }
    }

    /// Count as rejected what of a publish reached no queue. Each queue that refuses some refuses the last ones: what all of them refuse is what one does that
    /// refuses least.
    fn take_back(&mut self, ticket: &Ticket) {
        let Some(topic) = self.topics.get_mut(ticket.topic) else { return };
        let (messages, bytes) = ticket.least();
        topic.counters.messages -= messages;
        topic.counters.bytes -= bytes;
        topic.counters.rejected += messages;
    }

    /// Whether an answer has to wait: it is to a `publish` of which something is to be written, or others of the connection wait.
    pub(crate) fn is_held(&self, key: ConnKey, publish: Option<&Publish>) -> bool {
        publish.is_some_and(|publish| !publish.is_written()) || self.conns.get(key).is_some_and(|conn| !conn.held.is_empty())
    }

    /// Give an answer, and the next commands of its connection a chance, when everything before it is written.
    #[cold]
    pub(crate) fn hold(&mut self, key: ConnKey, reply: Reply, publish: Option<Publish>, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.held.push_back(Held { reply, publish });
        if conn.held.len() == 1 {
            self.holding.push(key);
            self.park_besides(key, now);
        }
    }

    /// Give the answers that waited for what is written by now.
    pub(crate) fn release_held(&mut self, now: Nanos) {
        for key in std::mem::take(&mut self.holding) {
            if self.give_held(key, now) {
                self.resume_besides(key);
            } else {
                self.holding.push(key);
            }
        }
    }

    /// True: nothing is held any more.
    fn give_held(&mut self, key: ConnKey, now: Nanos) -> bool {
        while let Some(conn) = self.conns.get_mut(key) {
            if conn.held.front().is_some_and(Held::waits) {
                return false;
            }
            let Some(Held { reply, mut publish }) = conn.held.pop_front() else { break };
            if self.give(key, reply, publish.as_mut(), now) {
                self.end_refused(key);
            }
        }
        true
    }

    /// A slice of an MPUB was refused: that is the answer to all of it, and the last one.
    pub(crate) fn end_refused(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.held = VecDeque::new();
        if conn.http.is_some() {
            self.end_requests(key);
        }
    }
}
