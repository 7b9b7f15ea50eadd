//! State on disk, as records of which the latest of each object counts.
//!
//! It is a queue of files whose records are read once, at the start. The owner of an object keeps the receipt of its
//! latest record, and drops it with the next one; files go once nobody needs a record of theirs. An object that is gone
//! leaves a last record that says so, which must outlive the earlier ones: it is kept until all live objects have been
//! written anew.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::queueing::message::Message;
use crate::queueing::shared_disk::Disk;
use crate::storage::disk_queue::DiskQueue;
use crate::storage::receipts::Receipt;

/// Bytes written since all objects were last written anew, from which on that is due again, if they are no more.
const RENEW_BYTES: u64 = 16 << 20;

/// The record of an object; its drop frees the record.
pub(crate) type Entry = Rc<OnceCell<Rc<Receipt>>>;

#[derive(Debug)]
pub(crate) struct Journal {
    disk: Rc<Disk>,
    files: DiskQueue,
    unwritten: VecDeque<(Message, Entry)>, // the disk has refused
    last_words: Vec<Entry>,                // of objects that are gone
    renewed_at: u64,                       // bytes written when all objects had been written anew
    live: u64,                             // bytes of all objects then
}

impl Journal {
    pub fn new(disk: Rc<Disk>, files: DiskQueue) -> Self {
        Self { disk, files, unwritten: VecDeque::new(), last_words: Vec::new(), renewed_at: 0, live: 0 }
    }

    /// Writes the state of an object. What the disk refuses is tried again with the next one, and by `tend`.
    pub fn put(&mut self, message: Message) -> Entry {
        let entry = Entry::default();
        self.unwritten.push_back((message, Rc::clone(&entry)));
        self.write();
        entry
    }

    /// Writes that an object is gone.
    pub fn put_last(&mut self, message: Message) {
        let entry = self.put(message);
        self.last_words.push(entry);
    }

    fn write(&mut self) {
        while let Some((message, _)) = self.unwritten.front() {
            let size = message.record(0).size() as u64;
            let (written, _) = self.disk.append(&mut self.files, std::iter::once(message), u64::MAX);
            if written == 0 {
                return; // an event says so
            }
            let Some((_, entry)) = self.unwritten.pop_front() else { return };
            if let Some(receipt) = self.files.skip(size) {
                let _ = entry.set(receipt); // it is new
            }
        }
        if self.disk.sync_is_due(&self.files) {
            self.disk.sync(&mut self.files);
        }
    }

    /// Syncs, and tries again what failed; returns whether that is to be repeated.
    pub fn tend(&mut self) -> bool {
        self.write();
        self.disk.sync(&mut self.files);
        !self.files.is_gone() || !self.unwritten.is_empty()
    }

    /// Whether all live objects are to be written anew, so that files of old records can go.
    pub fn wants_renewal(&self) -> bool {
        self.files.written_bytes() - self.renewed_at > RENEW_BYTES.max(2 * self.live)
    }

    /// All objects have been written since the journal had `begun` bytes.
    pub fn renewed(&mut self, begun: u64) {
        self.last_words.clear();
        self.renewed_at = self.files.written_bytes();
        self.live = self.renewed_at - begun;
    }

    pub fn written_bytes(&self) -> u64 {
        self.files.written_bytes()
    }
}
