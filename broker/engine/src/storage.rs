//! The engine's side of the disk: which queues go there, the end of a turn, the end and the begin of an incarnation.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use crate::bucket::Nanos;
use crate::config::Config;
use crate::disk::queue::{DiskQueue, Portion};
use crate::disk::store::{Job, Store};
use crate::disk::volume::Volume;
use crate::engine::{ChannelKey, Engine, TopicKey};
use crate::event::Event;
use crate::id::MessageId;
use crate::message::{Message, Meter};
use crate::publish::Outcome;
use crate::queue::{Queue, Unsaved};
use crate::timer::Timer;
use crate::topic::Topic;
use crate::wire;

/// How soon what the disk refused is tried again.
const RETRY_NS: Nanos = 1_000_000_000;

/// Whose queue it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Topic(TopicKey),
    Channel(ChannelKey),
}

/// What all queues of an engine share. Each has it, none keeps a borrow of it.
#[derive(Debug)]
pub(crate) struct Disk {
    volume: RefCell<Volume>,
    scratch: RefCell<Vec<u8>>,
    to_write: RefCell<Vec<Owner>>,
    events: RefCell<Vec<Event>>,
    meter: Meter,
    sync_every: u64,
    publish: Cell<Option<usize>>, // whose messages are being released
    jobs: Cell<usize>,            // under way
    sync_failed: Cell<bool>,
    failing: Cell<bool>,
    stirred: Cell<bool>, // something happened that the end of the turn must look at
}

impl Disk {
    fn new(store: Box<dyn Store>, incarnation: u64, config: &Config, meter: Meter) -> Self {
        Self {
            volume: RefCell::new(Volume::new(store, incarnation, config.max_bytes_per_file)),
            scratch: RefCell::default(),
            to_write: RefCell::default(),
            events: RefCell::default(),
            meter,
            sync_every: config.sync_every,
            publish: Cell::new(None),
            jobs: Cell::new(0),
            sync_failed: Cell::new(false),
            failing: Cell::new(false),
            stirred: Cell::new(false),
        }
    }

    pub fn publish(&self) -> Option<usize> {
        self.publish.get()
    }

    /// This queue has something to write.
    pub fn list(&self, owner: Owner) {
        self.to_write.borrow_mut().push(owner);
    }

    pub fn append<'a>(&self, files: &mut DiskQueue, messages: impl Iterator<Item = &'a Message>) -> (u64, Result<(), String>) {
        let done = files.append(&mut self.volume.borrow_mut(), messages.map(|message| message.record(0)));
        self.noted(done)
    }

    pub fn prepend<'a>(&self, files: &mut DiskQueue, messages: impl Iterator<Item = &'a Message>) -> (u64, Result<(), String>) {
        let done = files.prepend(&mut self.volume.borrow_mut(), messages.map(|message| message.record(0)));
        self.noted(done)
    }

    pub fn put_aside(&self, files: &mut DiskQueue, messages: &[(Message, i64)]) -> (u64, Result<(), String>) {
        let records = messages.iter().map(|(message, until_wall_ns)| message.record(*until_wall_ns));
        let done = files.put_aside(&mut self.volume.borrow_mut(), records);
        self.noted(done)
    }

    fn noted(&self, (written, result): (u64, io::Result<()>)) -> (u64, Result<(), String>) {
        self.stirred.set(true);
        match result {
            Ok(()) => self.works(),
            Err(error) => {
                let reason = error.to_string();
                self.fail(error);
                return (written, Err(reason));
            }
        }
        (written, Ok(()))
    }

    pub fn read(&self, files: &mut DiskQueue, portion: Portion, now: Nanos, mut sink: impl FnMut(Message)) -> io::Result<()> {
        self.stirred.set(true);
        let scratch = &mut *self.scratch.borrow_mut();
        let volume = &mut *self.volume.borrow_mut();
        files.read(volume, portion, |read| sink(Message::from_disk(scratch, &self.meter, read, now))).map(|_| ())
    }

    pub fn read_aside(&self, files: &mut DiskQueue, now: Nanos) -> io::Result<Vec<(Message, i64)>> {
        let (scratch, mut aside) = (&mut *self.scratch.borrow_mut(), Vec::new());
        files.read_aside(&mut self.volume.borrow_mut(), |read| {
            let until_wall_ns = read.record.until_wall_ns;
            aside.push((Message::from_disk(scratch, &self.meter, read, now), until_wall_ns));
        })?;
        Ok(aside)
    }

    pub fn sync_is_due(&self, files: &DiskQueue) -> bool {
        files.changes() >= self.sync_every
    }

    pub fn sync(&self, files: &mut DiskQueue) {
        let job = files.sync();
        if !job.is_empty() {
            self.begin(job);
        }
    }

    fn begin(&self, job: Job) {
        self.stirred.set(true);
        self.jobs.set(self.jobs.get() + 1);
        self.volume.borrow_mut().store.begin(job);
    }

    pub fn give_up_segment(&self, files: &mut DiskQueue) {
        files.give_up_segment(&mut self.volume.borrow_mut());
    }

    pub fn destroy(&self, files: DiskQueue) {
        self.stirred.set(true);
        let (job, result) = files.destroy(&mut self.volume.borrow_mut());
        self.begin(job);
        if let Err(error) = result {
            self.fail(error);
        }
    }

    pub fn fail(&self, error: io::Error) {
        self.stirred.set(true);
        if !self.failing.replace(true) {
            self.events.borrow_mut().push(Event::DiskFailed { reason: error.to_string() });
        }
    }

    fn works(&self) {
        if self.failing.replace(false) {
            self.events.borrow_mut().push(Event::DiskWorks);
        }
    }

    fn take_outcomes(&self, outcomes: Vec<io::Result<()>>) {
        self.jobs.set(self.jobs.get() - outcomes.len());
        for outcome in outcomes {
            if let Err(error) = outcome {
                self.sync_failed.set(true);
                self.fail(error);
            }
        }
    }

    fn take_events(&self) -> Vec<Event> {
        let mut events = std::mem::take(&mut *self.events.borrow_mut());
        let reports = std::mem::take(&mut self.volume.borrow_mut().reports);
        events.extend(reports.into_iter().map(|report| Event::DiskRepaired { file: report.file, what: report.what }));
        events
    }
}

impl Engine {
    /// This new engine with queues that go on on disk, and begin with what an earlier one left there. `incarnation`: a number that no other process uses.
    pub fn with_store(mut self, store: Box<dyn Store>, incarnation: u64, wall_offset: i64, now: Nanos) -> io::Result<Self> {
        self.set_wall_offset(wall_offset);
        let disk = Rc::new(Disk::new(store, incarnation, &self.config, self.meter.clone()));
        self.disk = Some(Rc::clone(&disk));
        self.restore(&disk, now)?;
        Ok(self)
    }

    pub(crate) fn topic_queue(&self, key: TopicKey, name: &str) -> Queue {
        self.queue(Owner::Topic(key), name, || name.to_owned())
    }

    pub(crate) fn channel_queue(&self, key: ChannelKey, topic: TopicKey, name: &str) -> Queue {
        let topic = self.topics.get(topic).map_or("", |topic| &topic.name);
        self.queue(Owner::Channel(key), name, || format!("{topic}:{name}"))
    }

    fn queue(&self, owner: Owner, name: &str, file: impl FnOnce() -> String) -> Queue {
        match &self.disk {
            _ if wire::is_ephemeral(name) => Queue::ephemeral(self.config.mem_queue_size),
            None => Queue::in_memory(),
            Some(disk) => Queue::on_disk(Rc::clone(disk), owner, file(), self.config.mem_queue_size),
        }
    }

    fn queue_of(&mut self, owner: Owner) -> Option<&mut Queue> {
        match owner {
            Owner::Topic(key) => self.topics.get_mut(key).map(|topic| &mut topic.queue),
            Owner::Channel(key) => self.channels.get_mut(key).map(|channel| &mut channel.queue),
        }
    }

    // ---- the begin of an incarnation ---------------------------------------------------------------------------------------------------

    /// Topics and channels that have something on disk come back with it. The topics are held: who knows more of them (other channels, whether they are
    /// paused) says so before `release_topic`.
    fn restore(&mut self, disk: &Rc<Disk>, now: Nanos) -> io::Result<()> {
        let found = disk.volume.borrow_mut().found()?;
        for (name, found) in found {
            let (topic, channel) = name.split_once(':').map_or((&*name, None), |(topic, channel)| (topic, Some(channel)));
            if !std::iter::once(topic).chain(channel).all(|name| wire::name(name.as_bytes()).is_some()) {
                continue; // not one of ours
            }
            let mut files = DiskQueue::open(&mut disk.volume.borrow_mut(), &name, &found)?;
            if wire::is_ephemeral(topic) {
                disk.destroy(files);
                continue;
            }
            self.ids.stay_above(MessageId(files.highest_id()));
            disk.sync(&mut files);
            if files.is_gone() {
                continue;
            }
            let topic_key = self.topic_held(topic, true);
            match channel {
                None => self.restore_topic(topic_key, files, now)?,
                Some(channel) => self.restore_channel(topic_key, channel, files, now)?,
            }
        }
        if self.refusal.is_none() {
            self.release_restored(now);
        }
        self.tend_disk(now);
        Ok(())
    }

    fn restore_topic(&mut self, key: TopicKey, files: DiskQueue, now: Nanos) -> io::Result<()> {
        let Some(topic) = self.topics.get_mut(key) else { return Ok(()) };
        topic.restored = topic.queue.restore(files, now)?.into_iter().map(|(message, _)| message).collect();
        Ok(())
    }

    fn restore_channel(&mut self, topic: TopicKey, name: &str, files: DiskQueue, now: Nanos) -> io::Result<()> {
        let key = self.channel_of(topic, name, now);
        let Some(channel) = self.channels.get_mut(key) else { return Ok(()) };
        // Wall time may have been set anew meanwhile: nothing is deferred for longer than it could have been.
        let longest = self.config.max_req_timeout_ms as Nanos * 1_000_000;
        for (message, until_wall_ns) in channel.queue.restore(files, now)? {
            let left = until_wall_ns.saturating_sub(self.wall_offset).saturating_sub(now).clamp(0, longest);
            let due = channel.defer(message, now + left);
            self.timers.arm(&mut channel.armed, due, Timer::Deferred(key));
        }
        Ok(())
    }

    /// What waited for tokens when an earlier incarnation ended waits for those of its topic's bucket again.
    pub(crate) fn restore_waiting(&mut self, key: TopicKey, now: Nanos) {
        let Some(topic) = self.topics.get_mut(key) else { return };
        for message in std::mem::take(&mut topic.restored) {
            let Some(limiter) = self.topics.get_mut(key).and_then(|topic| topic.limiter.as_mut()) else { return };
            let publisher = limiter.trace.publisher("(restored)");
            if let (Some(message), _) = limiter.decide(message, publisher, now, now) {
                self.release(key, message, now);
            }
        }
    }

    /// Everything is in place: a topic that has no limit by now has none, and what waited for tokens goes.
    pub(crate) fn release_restored(&mut self, now: Nanos) {
        let unlimited = |topic: &Topic| topic.limiter.is_none() && !topic.restored.is_empty();
        let keys: Vec<TopicKey> = self.topics.iter().filter(|(_, topic)| unlimited(topic)).map(|(key, _)| key).collect();
        for key in keys {
            let restored = self.topics.get_mut(key).map(|topic| std::mem::take(&mut topic.restored));
            for message in restored.into_iter().flatten() {
                self.release(key, message, now);
            }
        }
    }

    // ---- the turn ----------------------------------------------------------------------------------------------------------------------

    /// From now on messages are released for this publish: if the disk refuses one of them, it is answered so.
    pub(crate) fn answers_for(&self, publish: Option<usize>) {
        if let Some(disk) = &self.disk {
            disk.publish.set(publish);
        }
    }

    /// Write what overflowed, one write a queue, before anything is acknowledged.
    pub(crate) fn write_overflow(&mut self) {
        let Some(disk) = self.disk.as_ref().filter(|disk| !disk.to_write.borrow().is_empty()) else { return };
        let owners = std::mem::take(&mut *disk.to_write.borrow_mut());
        for owner in owners {
            let Some(queue) = self.queue_of(owner) else { continue };
            let written = queue.write();
            queue.sync_if_due();
            if let Owner::Channel(key) = owner
                && let Some(channel) = self.channels.get_mut(key)
            {
                channel.counters.messages -= written.refused.len() as u64;
            }
            if let Some(error) = written.error {
                self.refuse_publishes(&written.refused, &error);
            }
        }
    }

    #[cold]
    fn refuse_publishes(&mut self, refused: &[usize], reason: &str) {
        for &index in refused {
            let Some(publish) = self.turn.publishes.get_mut(index) else { continue };
            if matches!(publish.outcome, Outcome::Failed(_)) {
                continue;
            }
            publish.outcome = Outcome::Failed(reason.into());
            if let Some(topic) = self.topics.get_mut(publish.topic) {
                topic.counters.messages -= u64::from(publish.count);
                topic.counters.bytes -= publish.bytes;
                topic.counters.rejected += u64::from(publish.count);
            }
        }
    }

    /// Hear of jobs that ended, tell what happened, and come back when something is to be synced.
    pub(crate) fn tend_disk(&mut self, now: Nanos) {
        let Some(disk) = self.disk.as_ref().filter(|disk| disk.stirred.get()) else { return };
        let outcomes = disk.volume.borrow_mut().store.outcomes();
        disk.take_outcomes(outcomes);
        disk.stirred.set(disk.jobs.get() > 0);
        self.events.extend(disk.take_events());
        let after = if disk.failing.get() { RETRY_NS.min(self.sync_timeout_ns()) } else { self.sync_timeout_ns() };
        self.timers.arm(&mut self.disk_armed, now.saturating_add(after), Timer::Disk);
    }

    fn sync_timeout_ns(&self) -> Nanos {
        Nanos::try_from(self.config.sync_timeout_ms).unwrap_or(Nanos::MAX).saturating_mul(1_000_000)
    }

    /// Every queue that is on disk: sync it, try again what failed.
    pub(crate) fn handle_disk_timer(&mut self, at: Nanos) {
        if !self.disk_armed.fire(at) {
            return;
        }
        let Some(disk) = self.disk.clone() else { return };
        let sync_failed = disk.sync_failed.take();
        let mut more = false;
        for (key, topic) in &mut self.topics {
            if topic.queue.tend(sync_failed) {
                more = true;
                self.pumping.push(key);
            }
        }
        let mut waiting = Vec::new();
        for (key, channel) in &mut self.channels {
            if channel.queue.tend(sync_failed) {
                more = true;
                waiting.push(key);
            }
        }
        for key in waiting {
            self.mark_channel(key);
        }
        if more {
            disk.stirred.set(true);
        }
    }

    // ---- the end of an incarnation -----------------------------------------------------------------------------------------------------

    /// Write everything that waits anywhere, to be there at the next start. The error says how many messages could not be.
    pub fn save(&mut self) -> Result<(), String> {
        let Some(disk) = self.disk.clone() else { return Ok(()) };
        let (mut unsaved, wall_offset) = (Unsaved::default(), self.wall_offset);
        for (key, message) in self.server.iter_mut().flat_map(|server| server.drain()) {
            if let Some(topic) = self.topics.get_mut(key) {
                topic.queue.push_back(message); // it has paid, and waits for nothing but this server
            }
        }
        for topic in self.topics.values_mut() {
            let waiting = topic.limiter.take().into_iter().flat_map(|limiter| limiter.backlog.into_waiting());
            let aside = topic.restored.drain(..).chain(waiting).map(|message| (message, 0)).collect();
            unsaved.extend(topic.queue.save(Vec::new(), aside));
        }
        for channel in self.channels.values_mut() {
            let deferred = std::mem::take(&mut channel.deferred).into_iter();
            let aside = deferred.map(|((due, _), message)| (message, due + wall_offset)).collect();
            let mut in_flight: Vec<_> = channel.in_flight.drain().map(|(_, entry)| entry).collect();
            in_flight.sort_by_key(|entry| (entry.delivered, entry.message.id));
            unsaved.extend(channel.queue.save(in_flight.into_iter().map(|entry| entry.message).collect(), aside));
        }
        // Only now is a record that was read needed no more: what could not be written elsewhere still holds its own.
        let queues =
            self.topics.values_mut().map(|topic| &mut topic.queue).chain(self.channels.values_mut().map(|channel| &mut channel.queue));
        for queue in queues {
            queue.tend(false);
        }
        let outcomes = disk.volume.borrow_mut().store.wait();
        let not_synced = outcomes.iter().find_map(|outcome| outcome.as_ref().err()).map(ToString::to_string);
        disk.take_outcomes(outcomes);
        self.events.extend(disk.take_events());
        let lost = unsaved.messages.iter().filter(|message| message.stored.is_none()).count();
        match unsaved.error.or(not_synced) {
            None => Ok(()),
            Some(error) => Err(format!("{lost} messages could not be saved: {error}")),
        }
    }
}
