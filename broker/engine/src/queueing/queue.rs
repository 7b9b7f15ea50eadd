//! The queue of a topic or a channel: in memory up to a number of messages, beyond it on disk, in order.
//!
//! As long as anything is on disk, what comes goes there too; what is read comes back in portions when the memory is empty. What overflows is written at the end of
//! the turn or in the next ones, before its publisher is told (`write`, `engine/delivery/overflow.rs`). If the disk refuses a message it stays in memory as any other, unless
//! its publisher can still be told.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::queueing::disk_ticket::{Owner, Ticket};
use crate::queueing::message::Message;
use crate::queueing::shared_disk::Disk;
use crate::storage::disk_queue::{DiskQueue, Portion};
use crate::storage::store::is_no_damage;
use crate::time::Nanos;

/// What comes back from disk at once.
const PORTION: Portion = Portion { messages: 1_000, bytes: 1 << 20 };

/// Reads that fail, a second or so apart, until a file is given up for the next.
const READ_FAILURES: u32 = 5;

#[derive(Debug)]
pub struct Queue {
    memory: VecDeque<Message>,
    room: usize, // a message goes to memory if fewer are there: 0 while others are on disk
    beyond: Beyond,
}

/// Where messages go that memory does not take.
#[derive(Debug)]
enum Beyond {
    Nowhere { dropped: u64 },
    Disk(Box<Spill>),
}

#[derive(Debug)]
struct Spill {
    disk: Rc<Disk>,
    owner: Owner,
    name: Box<str>,
    room: usize,
    files: Option<DiskQueue>,
    tail: VecDeque<(Message, Option<Rc<Ticket>>)>, // not written yet; with the publish to be answered then
    listed: bool,                                  // among those that are to be written
    stalled: bool,                                 // reading failed: not again before the next look
    read_failures: u32,
}

/// What is left to write.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    #[default]
    Nothing,
    /// A message of which a part is written, and perhaps others.
    Begun,
    /// Messages.
    Whole,
}

/// What became of a write.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub bytes: u64,
    pub files: u64,            // that were begun
    pub rest: Rest,            // the queue is to be listed again for that
    pub refused: Vec<Refused>, // messages that are dropped
    pub error: Option<String>,
}

/// A message that was not written.
#[derive(Debug)]
pub(crate) struct Refused {
    pub ticket: Rc<Ticket>,
    pub bytes: u64, // of its body
}

/// What could not be written at the end, and why.
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

    /// Of `all` only the first were written.
    fn note(&mut self, files: &mut DiskQueue, mut all: impl Iterator<Item = Message>, (written, result): (u64, Result<(), String>)) {
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
    /// Bounded by nothing but the memory of all.
    pub fn in_memory() -> Self {
        Self { memory: VecDeque::new(), room: usize::MAX, beyond: Beyond::Nowhere { dropped: 0 } }
    }

    /// What is more than `room` is dropped.
    pub fn ephemeral(room: usize) -> Self {
        // An ephemeral queue without any memory would be none: a turn may bring a portion before a consumer gets the first.
        let room = if room == 0 { PORTION.messages as usize } else { room };
        Self { memory: VecDeque::new(), room, beyond: Beyond::Nowhere { dropped: 0 } }
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

    /// The part of `len` that is not in memory.
    pub fn backend_len(&self) -> usize {
        match &self.beyond {
            Beyond::Nowhere { .. } => 0,
            Beyond::Disk(spill) => spill.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.backend_len() == 0
    }

    /// Messages that there was no room for.
    pub fn dropped(&self) -> u64 {
        match &self.beyond {
            Beyond::Nowhere { dropped } => *dropped,
            Beyond::Disk(_) => 0,
        }
    }

    /// Messages in memory, in order.
    pub fn memory(&self) -> &VecDeque<Message> {
        &self.memory
    }

    /// Whether a turn is to write some of it.
    pub fn is_to_be_written(&self) -> bool {
        self.has_unwritten() && matches!(&self.beyond, Beyond::Disk(spill) if spill.listed)
    }

    /// Whether there is something that the disk did not take yet.
    pub fn has_unwritten(&self) -> bool {
        matches!(&self.beyond, Beyond::Disk(spill) if !spill.tail.is_empty())
    }

    /// Messages that the disk did not take yet.
    #[cfg(any(test, feature = "harness"))]
    pub fn unwritten(&self) -> impl Iterator<Item = &Message> {
        let spill = if let Beyond::Disk(spill) = &self.beyond { Some(spill) } else { None };
        spill.into_iter().flat_map(|spill| &spill.tail).map(|(message, _)| message)
    }

    /// Whether a part of a message is written.
    #[cfg(test)]
    pub fn has_begun(&self) -> bool {
        matches!(&self.beyond, Beyond::Disk(spill) if spill.files.as_ref().is_some_and(DiskQueue::has_begun))
    }

    pub fn push_back(&mut self, message: Message) {
        if self.memory.len() < self.room {
            self.memory.push_back(message);
        } else {
            self.overflow(message);
        }
    }

    #[cold]
    fn overflow(&mut self, message: Message) {
        match &mut self.beyond {
            Beyond::Nowhere { dropped } => *dropped += 1,
            Beyond::Disk(spill) => {
                self.room = 0;
                let ticket = spill.disk.ticket();
                spill.tail.push_back((message, ticket));
                spill.list();
            }
        }
    }

    /// What comes goes to disk, if there is one, until all that is here is gone.
    pub(crate) fn take_no_memory(&mut self) {
        if matches!(self.beyond, Beyond::Disk(_)) && !self.memory.is_empty() {
            self.room = 0;
        }
    }

    /// Whether memory may take more than it has room for: nothing is elsewhere that would be overtaken, and what comes later has a place.
    pub(crate) fn can_keep(&self) -> bool {
        match self.beyond {
            Beyond::Nowhere { .. } => self.room == usize::MAX,
            Beyond::Disk(_) => self.backend_len() == 0,
        }
    }

    /// Behind everything, in memory however much there is, where it can be kept there.
    pub(crate) fn keep_back(&mut self, message: Message) {
        debug_assert!(self.can_keep());
        self.memory.push_back(message);
    }

    /// In front of everything, in memory however much there is.
    pub fn push_front(&mut self, message: Message) {
        self.memory.push_front(message);
    }

    /// Whether there is a message to pop: some come from disk if memory has none.
    pub fn ready(&mut self, now: Nanos) -> bool {
        !self.memory.is_empty() || self.refill(now)
    }

    pub fn pop_front(&mut self) -> Option<Message> {
        self.memory.pop_front()
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
                        spill.read_failures = 0; // it is another message that cannot be read
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

    /// What comes next may go to memory again if nothing is in front of it elsewhere.
    fn settle(&mut self) {
        if let Beyond::Disk(spill) = &self.beyond {
            self.room = if spill.len() == 0 { spill.room } else { 0 };
        }
    }

    /// Write what overflowed, until that has come to `most` bytes; no more than what is left of a message that was begun. Refused messages that no publish answers for stay in memory.
    pub(crate) fn write(&mut self, most: u64) -> Written {
        let Beyond::Disk(spill) = &mut self.beyond else { return Written::default() };
        spill.listed = false;
        if spill.tail.is_empty() {
            return Written::default();
        }
        // What a consumer who keeps up would read back at once need not be read.
        let mut keeps = spill.on_disk() == 0 && self.memory.is_empty();
        let files = spill.files.get_or_insert_with(|| DiskQueue::new(&spill.name));
        let before = (files.written_bytes(), files.begun_files());
        let most = files.left_of_begun().map_or(most, |left| left.min(most));
        let (written, result) = spill.disk.append(files, spill.tail.iter().map(|(message, _)| message), most);
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

    /// Sync files, try again what failed. Whether there is anything that wants this again later.
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

    /// Sync now if as much was written and read as one may lose, or if somebody waits for it.
    pub(crate) fn sync_if_due(&mut self) {
        if let Beyond::Disk(spill) = &mut self.beyond
            && let Some(files) = &mut spill.files
            && spill.disk.sync_is_due(files)
        {
            spill.disk.sync(files);
        }
    }

    /// Take over what an earlier incarnation left; gives what stood beside the queue, and until when.
    pub(crate) fn restore(&mut self, mut files: DiskQueue, now: Nanos) -> std::io::Result<Vec<(Message, i64)>> {
        let Beyond::Disk(spill) = &mut self.beyond else { return Ok(Vec::new()) };
        let aside = spill.disk.read_aside(&mut files, now)?;
        spill.files = Some(files);
        self.settle();
        Ok(aside)
    }

    /// Drop everything, on disk too.
    pub fn clear(&mut self) {
        self.memory = VecDeque::new();
        if let Beyond::Disk(spill) = &mut self.beyond {
            spill.tail = VecDeque::new();
            if let Some(files) = spill.files.take() {
                spill.disk.destroy(files);
            }
        }
        self.settle();
    }

    /// The end of an incarnation: write everything, `front` before what is in memory, `aside` with the instants until which they are deferred. `tend` makes
    /// it last, once all queues have written theirs.
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
        unsaved.note(files, tail.into_iter(), written);
        let written = spill.disk.prepend(files, front.iter().chain(&memory));
        unsaved.note(files, front.into_iter().chain(memory), written);
        let written = spill.disk.put_aside(files, &aside);
        unsaved.note(files, aside.into_iter().map(|(message, _)| message), written);
        unsaved
    }
}
