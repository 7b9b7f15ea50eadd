//! Overflow of a turn to disk, and the answers that wait for it.
//!
//! Nothing is acknowledged before it is written, to memory or to a file. A turn writes a quantum of what overflowed
//! before it answers, queue by queue, and goes on in the next turn: a megabyte on memory that is new to the page cache
//! would take one or two milliseconds. A publish of which something is left is answered when nothing is any more: each
//! message that is to be written holds its `Ticket`, and the last one tells. Behind such an answer all others of the
//! connection wait, and its next commands (`engine/input.rs`).

use std::collections::VecDeque;
use std::rc::Rc;

use crate::clients::connection::Connection;
use crate::clients::reply::{Held, Reply};
use crate::engine::Engine;
use crate::keys::{ConnKey, TopicKey};
use crate::protocol::codec;
use crate::queueing::disk_ticket::{Fate, Owner, Released};
use crate::queueing::publish::Publish;
use crate::queueing::queue::{Refused, Rest};
use crate::queueing::shared_disk::Storage;
use crate::time::{Nanos, SHORT_PATIENCE_NS};

/// What a write costs besides its bytes, in bytes: some 3 us.
const WRITE_COST: u64 = 8 << 10;

impl Engine {
    /// Starts the release of a publish to this topic, until `take_fate`. If the disk refuses a message, the publish is
    /// answered so.
    pub(crate) fn begin_release(&self, topic: TopicKey, conn: ConnKey) {
        if let Some(Storage { disk, .. }) = &self.disk {
            let queues = self.topics.get(topic).map_or(1, |topic| topic.channels.len().max(1));
            disk.begin_release(Released { topic, conn, queues });
        }
    }

    /// Of the publish that was just decided, if any of it overflowed.
    pub(crate) fn take_fate(&self) -> Option<Rc<Fate>> {
        self.disk.as_ref().and_then(|storage| storage.disk.take_fate())
    }

    /// Write a quantum of what overflowed, before anything is answered.
    pub(crate) fn write_overflow(&mut self) {
        self.write_listed(self.disk.as_ref().map_or(0, |storage| storage.quantum));
    }

    /// Writes all overflow at shutdown and gives the answers that waited for it. A client without an answer sends
    /// again.
    pub fn answer_held(&mut self, now: Nanos) {
        self.write_listed(u64::MAX);
        self.release_held(now);
    }

    /// From now on a turn writes so many bytes.
    #[cfg(any(test, feature = "harness"))]
    pub fn write_in_portions(&mut self, bytes: u64) {
        self.disk.iter_mut().for_each(|storage| storage.quantum = bytes);
    }

    /// Writes overflow, queue by queue, until it has cost `most` bytes.
    fn write_listed(&mut self, most: u64) {
        let Some(disk) = self.shared_disk().filter(|disk| disk.is_listed()) else { return };
        let (mut owners, mut left) = (VecDeque::from(disk.take_listed()), most);
        let mut begun = None;
        while left > 0 {
            let Some(owner) = owners.pop_front() else { break };
            let Some(queue) = self.queue_of(owner) else { continue };
            let written = queue.write(left);
            queue.sync_if_due();
            left = left.saturating_sub(written.bytes + WRITE_COST * (1 + written.files));
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
            Owner::Topic(key) if self.topics.get(key).is_some_and(|topic| topic.flows()) => self.fan_out_later(key),
            Owner::Topic(_) => {}
            Owner::Session(key) => self.list_owing(key),
            Owner::Group(key) => self.list_member(key),
        }
    }

    /// A queue could not write these messages.
    #[cold]
    fn refuse_publishes(&mut self, owner: Owner, refused: &[Refused], reason: &str) {
        if let Owner::Channel(key) = owner
            && let Some(channel) = self.channels.get_mut(key)
        {
            channel.counters.messages -= refused.len() as u64;
        }
        self.tally_left(owner);
        for lost in refused.chunk_by(|one, next| Rc::ptr_eq(&one.ticket, &next.ticket)) {
            let ticket = &lost[0].ticket;
            let bytes = lost.iter().map(|refused| refused.bytes).sum();
            let (by, least) = ticket.fate.refuse(reason, (lost.len() as u64, bytes));
            if by == ticket.publish.queues {
                self.take_back(ticket.publish.topic, least);
            }
        }
    }

    /// Counts messages of a publish that reached no queue as rejected.
    ///
    /// A queue refuses the last messages of a publish, so all queues refuse those that the queue with the fewest
    /// refuses.
    fn take_back(&mut self, topic: TopicKey, (messages, bytes): (u64, u64)) {
        let Some(topic) = self.topics.get_mut(topic) else { return };
        topic.counters.messages -= messages;
        topic.counters.bytes -= bytes;
        topic.counters.rejected += messages;
    }

    /// Whether an answer must wait: its `publish` has unwritten messages, or earlier answers of the connection wait.
    pub(crate) fn is_held(&self, key: ConnKey, publish: Option<&Publish>) -> bool {
        publish.is_some_and(|publish| !publish.is_written()) || self.conns.get(key).is_some_and(Connection::is_held)
    }

    /// Give an answer, and the next commands of its connection a chance, when everything before it is written.
    #[cold]
    pub(crate) fn hold(&mut self, key: ConnKey, reply: Reply, publish: Option<Publish>, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if let (Reply::Response(codec::OK), Some(sub)) = (&reply, &mut conn.subscription) {
            sub.unanswered = true;
        }
        let is_first = !conn.is_held();
        conn.held.get_or_insert_default().push_back(Held { reply, publish });
        if is_first {
            self.defer_for_disk(key, now);
        }
    }

    /// Give the answers that waited for what is written by now.
    pub(crate) fn release_held(&mut self, now: Nanos) {
        let Some(settled) = self.disk.as_ref().map(|storage| storage.disk.take_settled()) else { return };
        for key in settled {
            self.give_held(key, now);
        }
    }

    fn give_held(&mut self, key: ConnKey, now: Nanos) {
        let mut gave = false;
        while let Some(conn) = self.conns.get_mut(key) {
            let Some(held) = &mut conn.held else { break };
            if held.front().is_some_and(Held::waits) {
                return;
            }
            let Some(Held { reply, mut publish }) = held.pop_front() else { break };
            if held.is_empty() {
                conn.held = None;
            }
            gave = true;
            self.begin_what_it_answers(key, &reply, now);
            if self.give(key, reply, publish.as_mut(), now) {
                self.end_refused(key);
            }
        }
        if gave {
            self.resume_stored(key, now);
        }
    }

    /// What could not begin before this answer is given.
    fn begin_what_it_answers(&mut self, key: ConnKey, reply: &Reply, now: Nanos) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        match (reply, &mut conn.subscription, &mut conn.layers) {
            (Reply::Response(codec::OK), Some(sub), _) => {
                sub.unanswered = false;
                self.list_if_ready(key);
            }
            (Reply::Start(_), _, Some(layers)) => layers.handshake_deadline = now + SHORT_PATIENCE_NS,
            _ => {}
        }
    }

    /// A slice of an MPUB was refused: that is the answer to all of it, and the last one.
    pub(crate) fn end_refused(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.held = None;
        if conn.http.is_some() {
            self.end_requests(key);
        }
    }
}
