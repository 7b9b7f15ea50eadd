//! The queue of a topic or a channel: a bounded number of messages in memory, the rest on disk, in order.
//!
//! While any message is on disk, new messages follow it there. When memory is empty, messages return in portions.
//! `write` stores overflow at the end of a turn or in later turns, before the publisher is answered
//! (`engine/delivery/overflow.rs`). A message that the disk refuses stays in memory, unless its publisher still awaits
//! an answer.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::memory::Stock;
use crate::queueing::disk_ticket::{Owner, Ticket};
use crate::queueing::message::Message;
use crate::queueing::shared_disk::Disk;
use crate::storage::disk_queue::{DiskQueue, Portion};
use crate::storage::store::is_no_damage;
use crate::time::Nanos;

/// What one read from disk returns at most.
const PORTION: Portion = Portion { messages: 1_000, bytes: 1 << 20 };

/// Consecutive failed reads, about 1 s apart, after which the queue skips the segment.
const READ_FAILURES: u32 = 5;

#[derive(Debug)]
pub struct Queue {
    memory: VecDeque<Message>,
    room: usize, // memory takes a message if it holds fewer; 0 while others are on disk
    beyond: Beyond,
}

/// Destination of messages beyond the memory bound.
#[derive(Debug)]
enum Beyond {
    /// `keeps`: memory takes what its stock has no room for, too.
    Nowhere {
        dropped: u64,
        stock: Option<Stock>,
        keeps: bool,
    },
    Disk(Box<Spill>),
}

#[derive(Debug)]
struct Spill {
    disk: Rc<Disk>,
    owner: Owner,
    name: Box<str>,
    room: usize,
    files: Option<DiskQueue>,
    tail: VecDeque<(Message, Option<Rc<Ticket>>)>, // not written yet, each with the ticket of its publish
    listed: bool,                                  // in the list of queues to write
    stalled: bool,                                 // reading failed: `tend` allows the next attempt
    read_failures: u32,
}

/// Unwritten remainder of a queue.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    #[default]
    Nothing,
    /// A partly written message, and perhaps others behind it.
    Begun,
    /// Whole messages only.
    Whole,
}

/// Outcome of a write.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub bytes: u64,
    pub files: u64,            // files begun
    pub rest: Rest,            // the caller must list the queue again for this
    pub refused: Vec<Refused>, // dropped messages
    pub error: Option<String>,
}

/// A message that the disk refused.
#[derive(Debug)]
pub(crate) struct Refused {
    pub ticket: Rc<Ticket>,
    pub bytes: u64, // of its body
}

/// Messages that the final save could not write, and the first error.
#[derive(Debug, Default)]
pub(crate) struct Unsaved {
    pub messages: Vec<Message>,
    pub error: Option<String>,
}

impl Unsaved {
    pub fn extend(&mut self, other: Self) {
        self.messages.extend(other.messages);
        self.error = self.error.take().or(other.error);
    }

    /// Records that only the first `written` of `all` reached the disk.
    fn add_unwritten(
        &mut self,
        files: &mut DiskQueue,
        mut all: impl Iterator<Item = Message>,
        (written, result): (u64, Result<(), String>),
    ) {
        for message in all.by_ref().take(written as usize) {
            files.keep_until_synced(message.stored);
        }
        self.messages.extend(all);
        self.error = self.error.take().or(result.err());
    }
}

impl Spill {
    fn on_disk(&self) -> usize {
        self.files.as_ref().map_or(0, |files| files.unread() as usize)
    }

    fn len(&self) -> usize {
        self.on_disk() + self.tail.len()
    }

    fn list(&mut self) {
        if !self.listed {
            self.listed = true;
            self.disk.list(self.owner);
        }
    }
}

impl Queue {
    /// A queue bounded only by the engine's memory limit.
    pub fn in_memory() -> Self {
        let beyond = Beyond::Nowhere { dropped: 0, stock: None, keeps: true };
        Self { memory: VecDeque::new(), room: usize::MAX, beyond }
    }

    /// A queue that `stock` bounds by the word of `has_room_for`: who has not asked, or has to, may add all the same.
    pub fn in_stock(stock: Stock) -> Self {
        let beyond = Beyond::Nowhere { dropped: 0, stock: Some(stock), keeps: true };
        Self { memory: VecDeque::new(), room: usize::MAX, beyond }
    }

    /// A queue that drops messages beyond `room`, or beyond what `stock` takes.
    pub fn ephemeral(room: usize, stock: Stock) -> Self {
        // An ephemeral queue without any memory would be none: a turn may bring a portion before a consumer gets the
        // first.
        let room = if room == 0 { PORTION.messages as usize } else { room };
        let beyond = Beyond::Nowhere { dropped: 0, stock: Some(stock), keeps: false };
        Self { memory: VecDeque::new(), room, beyond }
    }

    pub(crate) fn on_disk(disk: Rc<Disk>, owner: Owner, name: String, room: usize) -> Self {
        let (files, tail) = Default::default();
        let (listed, stalled, read_failures) = Default::default();
        let spill = Spill { disk, owner, name: name.into(), room, files, tail, listed, stalled, read_failures };
        Self { memory: VecDeque::new(), room, beyond: Beyond::Disk(Box::new(spill)) }
    }

    pub fn len(&self) -> usize {
        self.memory.len() + self.backend_len()
    }

    /// Messages that are not in memory.
    pub fn backend_len(&self) -> usize {
        match &self.beyond {
            Beyond::Nowhere { .. } => 0,
            Beyond::Disk(spill) => spill.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.backend_len() == 0
    }

    /// Messages dropped for lack of room.
    pub fn dropped(&self) -> u64 {
        match &self.beyond {
            Beyond::Nowhere { dropped, .. } => *dropped,
            Beyond::Disk(_) => 0,
        }
    }

    /// Messages in memory, in order.
    pub fn memory(&self) -> &VecDeque<Message> {
        &self.memory
    }

    /// Whether a turn is scheduled to write part of it.
    pub fn is_to_be_written(&self) -> bool {
        self.has_unwritten() && matches!(&self.beyond, Beyond::Disk(spill) if spill.listed)
    }

    /// Whether it holds messages that are not on disk yet.
    pub fn has_unwritten(&self) -> bool {
        matches!(&self.beyond, Beyond::Disk(spill) if !spill.tail.is_empty())
    }

    /// Messages that the disk did not take yet.
    #[cfg(any(test, feature = "harness"))]
    pub fn unwritten(&self) -> impl Iterator<Item = &Message> {
        let spill = if let Beyond::Disk(spill) = &self.beyond { Some(spill) } else { None };
        spill.into_iter().flat_map(|spill| &spill.tail).map(|(message, _)| message)
    }

    /// Whether a message is partly written.
    #[cfg(test)]
    pub fn has_begun(&self) -> bool {
        matches!(&self.beyond, Beyond::Disk(spill) if spill.files.as_ref().is_some_and(DiskQueue::has_begun))
    }

    pub fn push_back(&mut self, message: Message) {
        let fits = match &self.beyond {
            Beyond::Nowhere { stock: Some(stock), keeps: false, .. } => stock.has_room_for(message.cost()),
            _ => true,
        };
        if self.memory.len() < self.room && fits {
            self.stock_up(&message);
            self.memory.push_back(message);
        } else {
            self.overflow(message);
        }
    }

    fn stock(&mut self) -> Option<&mut Stock> {
        if let Beyond::Nowhere { stock, .. } = &mut self.beyond { stock.as_mut() } else { None }
    }

    /// Whether a message of this cost has room beside the others: on disk, or in the memory that the queue may have.
    pub fn has_room_for(&self, cost: u64) -> bool {
        let stock = if let Beyond::Nowhere { stock, .. } = &self.beyond { stock.as_ref() } else { None };
        stock.is_none_or(|stock| stock.has_room_for(cost))
    }

    fn stock_up(&mut self, message: &Message) {
        if let Some(stock) = self.stock() {
            stock.add(message.cost());
        }
    }

    #[cold]
    fn overflow(&mut self, message: Message) {
        match &mut self.beyond {
            Beyond::Nowhere { dropped, .. } => *dropped += 1,
            Beyond::Disk(spill) => {
                self.room = 0;
                let ticket = spill.disk.ticket();
                spill.tail.push_back((message, ticket));
                spill.list();
            }
        }
    }

    /// Keeps at most `room` messages in memory from now on; what is there stays.
    pub(crate) fn set_room(&mut self, room: usize) {
        if let Beyond::Disk(spill) = &mut self.beyond {
            spill.room = room;
            self.settle();
        }
    }

    /// Sends new messages to disk, if the queue has one, until the present messages are gone.
    pub(crate) fn divert_to_disk(&mut self) {
        if matches!(self.beyond, Beyond::Disk(_)) && !self.memory.is_empty() {
            self.room = 0;
        }
    }

    /// Whether memory may exceed its bound: no message elsewhere would be overtaken, and later ones have a destination.
    pub(crate) fn can_keep(&self) -> bool {
        match self.beyond {
            Beyond::Nowhere { .. } => self.room == usize::MAX,
            Beyond::Disk(_) => self.backend_len() == 0,
        }
    }

    /// Appends to memory, even beyond the bound. Requires `can_keep`.
    pub(crate) fn keep_back(&mut self, message: Message) {
        debug_assert!(self.can_keep());
        self.stock_up(&message);
        self.memory.push_back(message);
    }

    /// Prepends to memory, even beyond the bound.
    pub fn push_front(&mut self, message: Message) {
        self.stock_up(&message);
        self.memory.push_front(message);
    }

    /// Whether `pop_front` has a message; reads from disk if memory has none.
    pub fn ready(&mut self, now: Nanos) -> bool {
        !self.memory.is_empty() || self.refill(now)
    }

    pub fn pop_front(&mut self) -> Option<Message> {
        let message = self.memory.pop_front()?;
        if let Some(stock) = self.stock() {
            stock.subtract(message.cost());
        }
        Some(message)
    }

    #[cold]
    fn refill(&mut self, now: Nanos) -> bool {
        let Beyond::Disk(spill) = &mut self.beyond else { return false };
        if spill.stalled {
            return false;
        }
        if let Some(files) = spill.files.as_mut().filter(|files| files.unread() > 0) {
            let before = files.unread();
            match spill.disk.read(files, PORTION, now, |message| self.memory.push_back(message)) {
                Ok(()) => spill.read_failures = 0,
                Err(error) => {
                    spill.stalled = true;
                    if files.unread() < before {
                        spill.read_failures = 0; // progress was made: another message is unreadable
                    }
                    spill.read_failures += u32::from(!is_no_damage(&error));
                    if spill.read_failures == READ_FAILURES {
                        spill.read_failures = 0;
                        spill.disk.give_up_segment(files);
                    }
                }
            }
        }
        if spill.on_disk() == 0 && self.memory.is_empty() && !spill.listed {
            self.memory.extend(spill.tail.drain(..).map(|(message, _)| message));
        }
        self.settle();
        !self.memory.is_empty()
    }

    /// Allows memory again if no message elsewhere precedes the next one.
    fn settle(&mut self) {
        if let Beyond::Disk(spill) = &self.beyond {
            self.room = if spill.len() == 0 { spill.room } else { 0 };
        }
    }

    /// Writes overflow until it comes to `max_bytes`; of a partly written message, no more than its rest. Refused
    /// messages without a waiting publish stay in memory.
    pub(crate) fn write(&mut self, max_bytes: u64) -> Written {
        let Beyond::Disk(spill) = &mut self.beyond else { return Written::default() };
        spill.listed = false;
        if spill.tail.is_empty() {
            return Written::default();
        }
        // Keeps written messages in memory if a fast consumer would read them back at once.
        let mut keeps = spill.on_disk() == 0 && self.memory.is_empty();
        let files = spill.files.get_or_insert_with(|| DiskQueue::new(&spill.name));
        let before = (files.written_bytes(), files.begun_files());
        let max_bytes = files.left_of_begun().map_or(max_bytes, |left| left.min(max_bytes));
        let (written, result) = spill.disk.append(files, spill.tail.iter().map(|(message, _)| message), max_bytes);
        let (bytes, begun) = (files.written_bytes() - before.0, files.begun_files() - before.1);
        let mut outcome = Written { bytes, files: begun, ..Written::default() };
        let mut bytes = 0;
        for (mut message, _) in spill.tail.drain(..written as usize) {
            let size = message.record(0).size() as u64;
            bytes += size;
            keeps &= (self.memory.len() as u64) < PORTION.messages && bytes <= PORTION.bytes;
            files.keep_until_synced(message.stored.take());
            if keeps {
                message.stored = files.skip(size);
                self.memory.push_back(message);
            }
        }
        if let Err(error) = result {
            outcome.error = Some(error);
            spill.tail.retain_mut(|(message, ticket)| {
                let Some(ticket) = ticket.take() else { return true };
                outcome.refused.push(Refused { ticket, bytes: message.body_len() as u64 });
                false
            });
        } else if !spill.tail.is_empty() {
            spill.listed = true;
            outcome.rest = if files.has_begun() { Rest::Begun } else { Rest::Whole };
        }
        self.settle();
        outcome
    }

    /// Syncs files and retries failed work; returns whether the queue needs another call later.
    pub(crate) fn tend(&mut self) -> bool {
        let Beyond::Disk(spill) = &mut self.beyond else { return false };
        spill.stalled = false;
        if !spill.tail.is_empty() {
            spill.list();
        }
        if let Some(files) = &mut spill.files {
            spill.disk.sync(files);
            if files.is_gone() {
                spill.files = None;
            }
        }
        spill.files.is_some() || !spill.tail.is_empty()
    }

    pub(crate) fn sync(&mut self) {
        if let Beyond::Disk(spill) = &mut self.beyond
            && let Some(files) = &mut spill.files
        {
            spill.disk.sync(files);
        }
    }

    /// Syncs if the bound on unsynced changes is reached, or if records elsewhere wait for copies in this queue.
    pub(crate) fn sync_if_due(&mut self) {
        if let Beyond::Disk(spill) = &mut self.beyond
            && let Some(files) = &mut spill.files
            && spill.disk.sync_is_due(files)
        {
            spill.disk.sync(files);
        }
    }

    /// Takes over the files of an earlier incarnation. Returns the messages beside the queue, each with the wall clock
    /// until which it is deferred.
    pub(crate) fn restore(&mut self, mut files: DiskQueue, now: Nanos) -> std::io::Result<Vec<(Message, i64)>> {
        let Beyond::Disk(spill) = &mut self.beyond else { return Ok(Vec::new()) };
        let aside = spill.disk.read_aside(&mut files, now)?;
        spill.files = Some(files);
        self.settle();
        Ok(aside)
    }

    /// Drops all messages, on disk too.
    pub fn clear(&mut self) {
        self.memory = VecDeque::new();
        if let Some(stock) = self.stock() {
            stock.clear();
        }
        if let Beyond::Disk(spill) = &mut self.beyond {
            spill.tail = VecDeque::new();
            if let Some(files) = spill.files.take() {
                spill.disk.destroy(files);
            }
        }
        self.settle();
    }

    /// Saves all messages at shutdown: `front` precedes those in memory; each of `aside` has the wall clock of its
    /// deferral.
    ///
    /// `tend` makes them durable once all queues have saved.
    pub(crate) fn save(&mut self, front: Vec<Message>, aside: Vec<(Message, i64)>) -> Unsaved {
        let mut unsaved = Unsaved::default();
        let memory = std::mem::take(&mut self.memory);
        let Beyond::Disk(spill) = &mut self.beyond else { return unsaved };
        if front.is_empty() && memory.is_empty() && aside.is_empty() && spill.tail.is_empty() {
            return unsaved;
        }
        let files = spill.files.get_or_insert_with(|| DiskQueue::new(&spill.name));
        let tail: Vec<Message> = std::mem::take(&mut spill.tail).into_iter().map(|(message, _)| message).collect();
        let written = spill.disk.append(files, tail.iter(), u64::MAX);
        unsaved.add_unwritten(files, tail.into_iter(), written);
        let written = spill.disk.prepend(files, front.iter().chain(&memory));
        unsaved.add_unwritten(files, front.into_iter().chain(memory), written);
        let written = spill.disk.put_aside(files, &aside);
        unsaved.add_unwritten(files, aside.into_iter().map(|(message, _)| message), written);
        unsaved
    }
}
