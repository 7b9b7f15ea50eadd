//! Disk state shared by all queues of an engine: the volume, queues to write, jobs under way, health.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;

use crate::config::Config;
use crate::event::Event;
use crate::keys::ConnKey;
use crate::memory::Meter;
use crate::queueing::disk_ticket::{Fate, Owner, Released, Ticket};
use crate::queueing::message::{Builder, Message};
use crate::storage::disk_queue::{DiskQueue, Portion};
use crate::storage::job::Errand;
use crate::storage::store::{Job, Outcome, Store};
use crate::storage::volume::{Found, Volume};
use crate::time::Nanos;
use crate::timer::Armed;

/// Unsynced bytes after which a queue is synced, whatever its number of messages. Syncing megabytes blocks its core in
/// the kernel for about 1 ms.
const SYNC_BYTES: u64 = 256 << 10;

/// Kind of disk operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Write,
    Read,
    Sync,
}

/// An engine's disk, and what the engine does with it from time to time.
#[derive(Debug)]
pub(crate) struct Storage {
    pub disk: Rc<Disk>,
    pub armed: Armed,
    pub quantum: u64,    // bytes written in a turn
    pub relieve_at: u64, // bytes of messages from which on queues go on on disk
}

impl Storage {
    pub fn new(disk: Rc<Disk>, quantum: u64) -> Self {
        Self { disk, armed: Armed::default(), quantum, relieve_at: 0 }
    }
}

/// Disk state shared by all queues of an engine. No queue keeps a borrow of it.
#[derive(Debug)]
pub(crate) struct Disk {
    volume: RefCell<Volume>,
    builder: RefCell<Builder>,
    to_write: RefCell<Vec<Owner>>,
    events: RefCell<Vec<Event>>,
    meter: Meter,
    sync_every: u64,
    released: Cell<Option<Released>>,    // the publish whose messages are being released
    ticket: RefCell<Option<Rc<Ticket>>>, // the ticket of `released`
    settled: Rc<RefCell<Vec<ConnKey>>>,  // connections whose publishes have settled
    errands: RefCell<VecDeque<Rc<Errand>>>, // of jobs under way, in order
    failing: Cell<Option<Operation>>,
    copied: Cell<bool>,  // copies in channels are durable: topics may drop the records
    stirred: Cell<bool>, // the end of the turn must check the disk
}

impl Disk {
    pub fn new(store: Box<dyn Store>, incarnation: u64, config: &Config, meter: Meter) -> Self {
        Self {
            volume: RefCell::new(Volume::new(store, incarnation, config.max_bytes_per_file)),
            builder: RefCell::default(),
            to_write: RefCell::default(),
            events: RefCell::default(),
            meter,
            sync_every: config.sync_every,
            released: Cell::new(None),
            ticket: RefCell::default(),
            settled: Rc::default(),
            errands: RefCell::default(),
            failing: Cell::new(None),
            copied: Cell::new(false),
            stirred: Cell::new(false),
        }
    }

    pub fn begin_release(&self, publish: Released) {
        self.released.set(Some(publish));
    }

    /// The ticket of the publish whose messages are being released.
    pub fn ticket(&self) -> Option<Rc<Ticket>> {
        let publish = self.released.get()?;
        Some(Rc::clone(self.ticket.borrow_mut().get_or_insert_with(|| Rc::new(Ticket::new(publish, &self.settled)))))
    }

    pub fn take_fate(&self) -> Option<Rc<Fate>> {
        self.released.set(None);
        self.ticket.take().map(|ticket| ticket.fate())
    }

    pub fn has_settled(&self) -> bool {
        !self.settled.borrow().is_empty()
    }

    /// Connections with a publish whose writes have ended. A connection may appear twice, or still await other
    /// publishes.
    pub fn take_settled(&self) -> Vec<ConnKey> {
        self.settled.take()
    }

    /// Adds a queue to those that have overflow to write.
    pub fn list(&self, owner: Owner) {
        self.to_write.borrow_mut().push(owner);
    }

    pub fn append<'a>(
        &self,
        files: &mut DiskQueue,
        messages: impl Iterator<Item = &'a Message>,
        most: u64,
    ) -> (u64, Result<(), String>) {
        let done = files.append(&mut self.volume.borrow_mut(), messages.map(|message| message.record(0)), most);
        self.record_result(done)
    }

    pub fn prepend<'a>(
        &self,
        files: &mut DiskQueue,
        messages: impl Iterator<Item = &'a Message>,
    ) -> (u64, Result<(), String>) {
        let done = files.prepend(&mut self.volume.borrow_mut(), messages.map(|message| message.record(0)));
        self.record_result(done)
    }

    pub fn put_aside(&self, files: &mut DiskQueue, messages: &[(Message, i64)]) -> (u64, Result<(), String>) {
        let records = messages.iter().map(|(message, until_wall_ns)| message.record(*until_wall_ns));
        let done = files.put_aside(&mut self.volume.borrow_mut(), records);
        self.record_result(done)
    }

    fn record_result(&self, (written, result): (u64, io::Result<()>)) -> (u64, Result<(), String>) {
        self.stirred.set(true);
        match result {
            Ok(()) => self.works(Operation::Write),
            Err(error) => {
                let reason = error.to_string();
                self.fail(Operation::Write, &error);
                return (written, Err(reason));
            }
        }
        (written, Ok(()))
    }

    pub fn read(
        &self,
        files: &mut DiskQueue,
        portion: Portion,
        now: Nanos,
        mut sink: impl FnMut(Message),
    ) -> io::Result<()> {
        self.stirred.set(true);
        let builder = &mut *self.builder.borrow_mut();
        let volume = &mut *self.volume.borrow_mut();
        let result = files.read(volume, portion, |read| sink(Message::from_disk(builder, &self.meter, read, now)));
        match &result {
            Ok(_) => self.works(Operation::Read),
            Err(error) => self.fail(Operation::Read, error),
        }
        result.map(|_| ())
    }

    pub fn read_aside(&self, files: &mut DiskQueue, now: Nanos) -> io::Result<Vec<(Message, i64)>> {
        let (builder, mut aside) = (&mut *self.builder.borrow_mut(), Vec::new());
        files.read_aside(&mut self.volume.borrow_mut(), |read| {
            let until_wall_ns = read.record.until_wall_ns;
            aside.push((Message::from_disk(builder, &self.meter, read, now), until_wall_ns));
        })?;
        Ok(aside)
    }

    pub fn sync_is_due(&self, files: &DiskQueue) -> bool {
        files.changes() >= self.sync_every || files.unsynced() >= SYNC_BYTES || files.has_copies()
    }

    pub fn sync(&self, files: &mut DiskQueue) {
        if let Some(job) = files.sync() {
            self.begin(job, files.errand());
        }
    }

    fn begin(&self, job: Job, errand: Rc<Errand>) {
        self.stirred.set(true);
        self.errands.borrow_mut().push_back(errand);
        self.volume.borrow_mut().store.begin(job);
    }

    pub fn give_up_segment(&self, files: &mut DiskQueue) {
        files.give_up_segment(&mut self.volume.borrow_mut());
    }

    pub fn destroy(&self, files: DiskQueue) {
        self.stirred.set(true);
        let (job, result) = files.destroy(&mut self.volume.borrow_mut());
        self.begin(job, Rc::default()); // no queue is left to learn its outcome
        if let Err(error) = result {
            self.fail(Operation::Write, &error);
        }
    }

    #[cold]
    fn fail(&self, operation: Operation, error: &io::Error) {
        self.stirred.set(true);
        let before = self.failing.get();
        if before != Some(Operation::Write) {
            self.failing.set(Some(operation));
        }
        if before.is_none() {
            self.events.borrow_mut().push(Event::DiskFailed { reason: error.to_string() });
        }
    }

    /// Clears a failure of the same kind; a successful write clears any.
    fn works(&self, operation: Operation) {
        let failing = self.failing.get();
        if failing.is_some() && (operation == Operation::Write || failing == Some(operation)) {
            self.failing.set(None);
            self.events.borrow_mut().push(Event::DiskWorks);
        }
    }

    /// Collects ended jobs; returns the first error among them.
    pub fn collect_outcomes(&self) -> Option<String> {
        let outcomes = self.volume.borrow_mut().store.outcomes();
        self.take_outcomes(&outcomes)
    }

    /// Waits for all jobs under way; returns the first error among them.
    pub fn wait(&self) -> Option<String> {
        let outcomes = self.volume.borrow_mut().store.wait();
        self.take_outcomes(&outcomes)
    }

    fn take_outcomes(&self, outcomes: &[Outcome]) -> Option<String> {
        for (outcome, errand) in outcomes.iter().zip(self.errands.borrow_mut().drain(..outcomes.len())) {
            self.copied.set(errand.end(outcome) | self.copied.get());
        }
        let error = outcomes.iter().find_map(|outcome| outcome.result.as_ref().err());
        match error {
            Some(error) => self.fail(Operation::Sync, error),
            None if outcomes.is_empty() => {}
            None => self.works(Operation::Sync),
        }
        error.map(ToString::to_string)
    }

    /// Whether the end of this turn must check the disk.
    pub fn is_stirred(&self) -> bool {
        self.stirred.get()
    }

    pub fn calm(&self) {
        self.stirred.set(!self.errands.borrow().is_empty());
    }

    pub fn stir(&self) {
        self.stirred.set(true);
    }

    pub fn take_copied(&self) -> bool {
        self.copied.take()
    }

    pub fn is_failing(&self) -> bool {
        self.failing.get().is_some()
    }

    pub fn is_listed(&self) -> bool {
        !self.to_write.borrow().is_empty()
    }

    /// Puts these queues before all that are listed.
    pub fn list_first(&self, owners: impl Iterator<Item = Owner>) {
        self.to_write.borrow_mut().splice(..0, owners);
    }

    /// Takes the list of queues that have overflow to write, each once.
    pub fn take_listed(&self) -> Vec<Owner> {
        std::mem::take(&mut *self.to_write.borrow_mut())
    }

    /// Files of earlier incarnations, by queue.
    pub fn found(&self) -> io::Result<BTreeMap<String, Found>> {
        self.volume.borrow_mut().found()
    }

    pub fn open(&self, name: &str, found: &Found) -> io::Result<DiskQueue> {
        DiskQueue::open(&mut self.volume.borrow_mut(), name, found)
    }

    pub fn take_events(&self) -> Vec<Event> {
        let mut events = std::mem::take(&mut *self.events.borrow_mut());
        let reports = std::mem::take(&mut self.volume.borrow_mut().reports);
        events.extend(reports.into_iter().map(|report| Event::DiskRepaired { file: report.file, what: report.what }));
        events
    }
}
