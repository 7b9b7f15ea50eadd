//! The engine's use of the disk: which queues go there, the end of a turn, start and end of an incarnation.

use std::io;
use std::rc::Rc;

use crate::engine::Engine;
use crate::id::MessageId;
use crate::keys::{ChannelKey, TopicKey};
use crate::protocol::codec;
use crate::queueing::disk_ticket::Owner;
use crate::queueing::journal::Journal;
use crate::queueing::queue::{Queue, Unsaved};
use crate::queueing::shared_disk::{Disk, Storage};
use crate::queueing::topic::Topic;
use crate::scheduling::service_time::ServiceTime;
use crate::scheduling::work_budget::{QUANTUM_BYTES, TURN_UNITS};
use crate::storage::disk_queue::DiskQueue;
use crate::storage::store::Store;
use crate::time::{NS_PER_S, Nanos};
use crate::timer::Timer;

impl Engine {
    /// Gives this new engine a disk: restores the queues that an earlier incarnation left. `incarnation`: unique to
    /// this process.
    pub fn with_store(
        mut self,
        store: Box<dyn Store>,
        incarnation: u64,
        wall_offset: i64,
        now: Nanos,
    ) -> io::Result<Self> {
        self.clock.set_offset(wall_offset);
        let disk = Rc::new(Disk::new(store, incarnation, &self.config, self.memory.messages.clone()));
        self.disk = Some(Storage::new(Rc::clone(&disk), QUANTUM_BYTES as u64));
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
            _ if codec::is_ephemeral(name) => Queue::ephemeral(self.config.mem_queue_size, self.new_stock()),
            None => Queue::in_memory(),
            Some(storage) => Queue::on_disk(Rc::clone(&storage.disk), owner, file(), self.config.mem_queue_size),
        }
    }

    /// What the queues share of the disk, if there is one.
    pub(crate) fn shared_disk(&self) -> Option<Rc<Disk>> {
        self.disk.as_ref().map(|storage| Rc::clone(&storage.disk))
    }

    pub(crate) fn queue_of(&mut self, owner: Owner) -> Option<&mut Queue> {
        match owner {
            Owner::Topic(key) => self.topics.get_mut(key).map(|topic| &mut topic.queue),
            Owner::Channel(key) => self.channels.get_mut(key).map(|channel| &mut channel.queue),
            Owner::Session(key) => {
                self.mqtt.sessions.get_mut(key)?.outgoing.as_mut().map(|outgoing| &mut outgoing.queue)
            }
            Owner::Group(key) => self.mqtt.groups.get_mut(key).map(|group| &mut group.queue),
        }
    }

    // ---- start of an incarnation ----------------------------------------------------------------------------------

    /// Restores topics and channels with files on disk.
    ///
    /// The topics are held until `release_topic`: Python may still add channels, or say that they are paused.
    fn restore(&mut self, disk: &Rc<Disk>, now: Nanos) -> io::Result<()> {
        let mut found = disk.found()?;
        self.restore_mqtt(disk, &mut found, now)?;
        for (name, found) in found {
            let (topic, channel) =
                name.split_once(':').map_or((&*name, None), |(topic, channel)| (topic, Some(channel)));
            if !std::iter::once(topic).chain(channel).all(|name| codec::name(name.as_bytes()).is_some()) {
                continue; // not one of ours
            }
            let mut files = disk.open(&name, &found)?;
            if codec::is_ephemeral(topic) {
                disk.destroy(files);
                continue;
            }
            self.ids.stay_above(MessageId(files.highest_id()));
            disk.sync(&mut files);
            if files.is_empty() {
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
            let left = until_wall_ns.saturating_sub(self.clock.offset()).saturating_sub(now).clamp(0, longest);
            let due = channel.defer(message, now + left);
            self.timers.arm(&mut channel.armed, due, Timer::Deferred(key));
        }
        Ok(())
    }

    /// Queues one portion of the backlog of an earlier incarnation at the topic's bucket; the next portion follows in
    /// the next turn.
    pub(crate) fn restore_waiting(&mut self, key: TopicKey, now: Nanos) {
        self.restore_up_to(TURN_UNITS as usize, key, now);
        if self.topics.get(key).is_some_and(|topic| topic.limiter.is_some() && !topic.restored.is_empty()) {
            self.fan_out_later(key);
        }
    }

    /// Queues the rest of that backlog, before any later message is decided.
    #[cold]
    pub(crate) fn restore_rest(&mut self, key: TopicKey, now: Nanos) {
        self.restore_up_to(usize::MAX, key, now);
    }

    fn restore_up_to(&mut self, most: usize, key: TopicKey, now: Nanos) {
        let Some(topic) = self.topics.get_mut(key).filter(|topic| !topic.restored.is_empty()) else { return };
        let Some(limiter) = topic.limiter.as_mut() else { return };
        let publisher = limiter.trace.publisher("(restored)");
        for _ in 0..most {
            let Some(topic) = self.topics.get_mut(key) else { return };
            let Some(limiter) = topic.limiter.as_mut() else { return };
            let Some(message) = topic.restored.pop_front() else { break };
            if let (Some(message), _) = limiter.decide(message, publisher, now, now) {
                self.release(key, message, now);
            }
        }
        if let Some(limiter) = self.topics.get_mut(key).and_then(|topic| topic.limiter.as_mut()) {
            limiter.note_unfinished(now, now);
        }
        self.arm_release(key);
    }

    /// Everything is in place: a topic that has no limit by now has none, and what waited for tokens goes.
    pub(crate) fn release_restored(&mut self, now: Nanos) {
        let unlimited = |topic: &Topic| topic.limiter.is_none() && !topic.restored.is_empty();
        let keys: Vec<TopicKey> =
            self.topics.iter().filter(|(_, topic)| unlimited(topic)).map(|(key, _)| key).collect();
        for key in keys {
            let restored =
                self.topics.get_mut(key).map(|topic| std::mem::take(&mut topic.restored)).unwrap_or_default();
            self.release_waiting(key, restored.into_iter(), now);
        }
    }

    // ---- the turn -------------------------------------------------------------------------------------------------

    /// Collects ended disk jobs, reports events, and arms the next sync.
    pub(crate) fn tend_disk(&mut self, now: Nanos) {
        let sync_timeout_ns = self.sync_timeout_ns();
        let Some(Storage { disk, armed, .. }) = self.disk.as_mut().filter(|storage| storage.disk.is_stirred()) else {
            return;
        };
        disk.collect_outcomes();
        if disk.take_copied() {
            // At once: a crash before that brings what moved to a channel twice.
            self.topics.values_mut().for_each(|topic| topic.queue.sync());
        }
        disk.calm();
        self.events.extend(disk.take_events());
        // What the disk refused is tried again after a second.
        let after = if disk.is_failing() { NS_PER_S.min(sync_timeout_ns) } else { sync_timeout_ns };
        self.timers.arm(armed, now.saturating_add(after), Timer::Disk);
    }

    /// Bytes of messages from which the disk takes new messages.
    pub(crate) fn half_of_memory(&self) -> u64 {
        self.config.max_memory_bytes / 2
    }

    /// Sends growing queues to disk once messages take half of their memory: an undrained topic must not use up the
    /// memory of all.
    ///
    /// Queues that become empty use memory again, so this repeats with every sixteenth more.
    pub(crate) fn relieve_memory(&mut self) {
        let (used, half) = (self.memory.messages.used(), self.half_of_memory());
        let Some(storage) = &mut self.disk else { return };
        if used < half {
            storage.relieve_at = half;
        } else if used >= storage.relieve_at {
            storage.relieve_at = used + self.config.max_memory_bytes / 16;
            let topics = self.topics.values_mut().map(|topic| &mut topic.queue);
            topics.chain(self.channels.values_mut().map(|channel| &mut channel.queue)).for_each(Queue::divert_to_disk);
        }
    }

    fn sync_timeout_ns(&self) -> Nanos {
        Nanos::try_from(self.config.sync_timeout_ms).unwrap_or(Nanos::MAX).saturating_mul(1_000_000)
    }

    /// Every queue that is on disk: sync it, try again what failed.
    pub(crate) fn handle_disk_timer(&mut self, at: Nanos) {
        let Some(storage) = &mut self.disk else { return };
        if !storage.armed.fire(at) {
            return;
        }
        let disk = Rc::clone(&storage.disk);
        let (mut waiting, mut moving) = (Vec::new(), Vec::new());
        for (key, channel) in &mut self.channels {
            if channel.queue.tend() {
                waiting.push(key);
            }
        }
        // Jobs run in order: what went from a topic to its channels is synced there before it goes here.
        for (key, topic) in &mut self.topics {
            if topic.queue.tend() {
                moving.push(key);
            }
        }
        let mut owing = Vec::new();
        for (key, session) in &mut self.mqtt.sessions {
            if session.outgoing.as_mut().is_some_and(|outgoing| outgoing.queue.tend()) {
                owing.push(key);
            }
        }
        let mut shared = Vec::new();
        for (key, group) in &mut self.mqtt.groups {
            if group.queue.tend() {
                shared.push(key);
            }
        }
        let is_written = !self.journal.as_mut().is_some_and(Journal::tend);
        let are_done = waiting.is_empty() && moving.is_empty() && owing.is_empty() && shared.is_empty();
        if !are_done || !is_written {
            disk.stir();
        }
        waiting.into_iter().for_each(|key| self.mark_channel(key));
        owing.into_iter().for_each(|key| self.list_owing(key));
        shared.into_iter().for_each(|key| self.list_member(key));
        moving.into_iter().for_each(|key| self.fan_out_later(key));
    }

    // ---- end of an incarnation ------------------------------------------------------------------------------------

    /// Saves all waiting messages for the next start. The error says how many could not be written.
    pub fn save(&mut self) -> Result<(), String> {
        let Some(disk) = self.shared_disk() else { return Ok(()) };
        let (mut unsaved, wall_offset) = (Unsaved::default(), self.clock.offset());
        for (key, message) in self.server.drain() {
            if let Some(topic) = self.topics.get_mut(key) {
                topic.queue.push_back(message); // it has its token, and waits for this server alone
            }
        }
        for topic in self.topics.values_mut() {
            let waiting = topic.limiter.take().into_iter().flat_map(|limiter| limiter.backlog.into_waiting());
            let aside = waiting.chain(topic.restored.drain(..)).map(|message| (message, 0)).collect();
            unsaved.extend(topic.queue.save(Vec::new(), aside));
        }
        for channel in self.channels.values_mut() {
            channel.stock.clear();
            let deferred = std::mem::take(&mut channel.deferred).into_iter();
            let aside = deferred.map(|((due, _), message)| (message, due + wall_offset)).collect();
            let mut in_flight: Vec<_> = channel.in_flight.drain().map(|(_, entry)| entry).collect();
            in_flight.sort_by_key(|entry| (entry.delivered, entry.message.id));
            unsaved.extend(channel.queue.save(in_flight.into_iter().map(|entry| entry.message).collect(), aside));
        }
        let mut in_flight = self.take_all_shared();
        for (key, group) in &mut self.mqtt.groups {
            unsaved.extend(group.queue.save(in_flight.remove(&key).unwrap_or_default(), Vec::new()));
        }
        for session in self.mqtt.sessions.values_mut() {
            let Some(outgoing) = &mut session.outgoing else { continue };
            let front = outgoing.end_flights().filter_map(|entry| entry.message).collect();
            unsaved.extend(outgoing.queue.save(front, Vec::new()));
        }
        self.journal.as_mut().map(Journal::tend);
        // A job that is under way knows nothing of what was just written; what of it failed is done again.
        disk.wait();
        // Records read earlier are released only now. A message that is not written or synced elsewhere keeps its own
        // record.
        self.channels.values_mut().for_each(|channel| _ = channel.queue.tend());
        let of_sessions = self.mqtt.sessions.values_mut().filter_map(|session| session.outgoing.as_mut());
        of_sessions.for_each(|outgoing| _ = outgoing.queue.tend());
        self.mqtt.groups.values_mut().for_each(|group| _ = group.queue.tend());
        let of_channels = disk.wait();
        self.topics.values_mut().for_each(|topic| _ = topic.queue.tend());
        let not_synced = of_channels.or(disk.wait());
        self.events.extend(disk.take_events());
        let lost = unsaved.messages.iter().filter(|message| message.stored.is_none()).count();
        match unsaved.error.or(not_synced) {
            None => Ok(()),
            Some(error) => Err(format!("{lost} messages could not be saved: {error}")),
        }
    }
}
