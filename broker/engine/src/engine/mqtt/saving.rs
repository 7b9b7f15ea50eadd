//! Sessions and retained messages on disk: written with the turn that changes them, before it is answered, and restored
//! at the start.
//!
//! A session that outlives its connection has its queue on disk: what it is owed is written before its publisher is
//! answered, also while its client is connected. So has a group with such a member (`shared_groups`).

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use crate::engine::Engine;
use crate::id::MessageId;
use crate::keys::{GroupKey, SessionKey};
use crate::mqtt::group;
use crate::mqtt::outgoing::Outgoing;
use crate::mqtt::saved_session::{Renewal, Saved, SavedSession, SavedSubscription};
use crate::mqtt::session::{Begun, NEVER_EXPIRES, Seldom, Session};
use crate::mqtt::will::Will;
use crate::protocol::link_frames::RETAINED_TOPIC;
use crate::protocol::mqtt::attributes::Attributes;
use crate::protocol::mqtt::topic_filter::Filter;
use crate::queueing::disk_ticket::Owner;
use crate::queueing::journal::{Entry, Journal};
use crate::queueing::message::{Alone, Message};
use crate::queueing::queue::Queue;
use crate::queueing::shared_disk::Disk;
use crate::scheduling::work_budget::COPIED_A_UNIT;
use crate::storage::disk_queue::{DiskQueue, Portion};
use crate::storage::volume;
use crate::time::{NS_PER_S, Nanos};

/// Names that no topic has: a plus is not allowed there.
const JOURNAL: &str = "mqtt+state";
const QUEUE: &str = "mqtt+queue+";

/// Objects that a turn writes anew.
const RENEWED_A_TURN: usize = 64;

impl Engine {
    // ---- a turn ---------------------------------------------------------------------------------------------------

    /// A session has changed: if it is kept on disk, it is written before the turn is answered.
    pub(crate) fn note_session(&mut self, key: SessionKey) {
        if self.journal.is_none() {
            return;
        }
        let Some(session) = self.mqtt.sessions.get_mut(key).filter(|session| !session.is_noted) else { return };
        if session.is_durable() || session.entry.is_some() {
            session.is_noted = true;
            self.schedule.noted.push(key);
        }
    }

    /// Writes the sessions that have changed.
    pub(crate) fn save_sessions(&mut self, now: Nanos) {
        for key in std::mem::take(&mut self.schedule.noted) {
            if let Some(session) = self.mqtt.sessions.get_mut(key) {
                session.is_noted = false;
                self.save_session(key, now);
            }
        }
    }

    fn save_session(&mut self, key: SessionKey, now: Nanos) {
        let Some(session) = self.mqtt.sessions.get(key) else { return };
        if !session.is_durable() {
            return self.save_end(key, now);
        }
        let bytes = Saved::Lives(self.saved(session, now)).encode();
        self.work.note((bytes.len() / COPIED_A_UNIT) as u32);
        let entry = self.put(&bytes, now);
        if let Some(session) = self.mqtt.sessions.get_mut(key) {
            session.entry = entry;
        }
    }

    /// Writes that a session has ended, if it is on disk.
    pub(crate) fn save_end(&mut self, key: SessionKey, now: Nanos) {
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        if session.entry.take().is_none() {
            return;
        }
        let bytes = Saved::Ended(session.client_id.to_string()).encode();
        let message = self.record_of(&bytes, now);
        self.journal.iter_mut().for_each(|journal| journal.put_last(message.clone()));
    }

    fn put(&mut self, bytes: &[u8], now: Nanos) -> Option<Entry> {
        let message = self.record_of(bytes, now);
        self.journal.as_mut().map(|journal| journal.put(message))
    }

    fn record_of(&mut self, bytes: &[u8], now: Nanos) -> Message {
        let wall_ns = self.clock.wall(now);
        let alone = Alone { id: self.ids.next(wall_ns), wall_ns, attributes: &[], body: bytes };
        self.builder.alone(&self.memory.messages, alone, now, 0)
    }

    pub(crate) fn saved(&self, session: &Session, now: Nanos) -> SavedSession {
        let of_session = session.subscriptions.iter().filter_map(|place| {
            let subscriber = self.mqtt.filters.get(*place)?;
            let (id, options) = (subscriber.id, subscriber.options);
            Some(SavedSubscription { filter: self.mqtt.filters.pattern(place.node), id, options })
        });
        let shared = session.groups().iter().filter_map(|key| {
            let group = self.mqtt.groups.get(*key)?;
            let member = group.members.iter().find(|member| self.is_of(member.session, session))?;
            Some(SavedSubscription { filter: group.name.to_string(), id: member.id, options: member.options })
        });
        let is_away = session.conn.is_none() && session.ends_at < Nanos::MAX;
        SavedSession {
            client_id: session.client_id.to_string(),
            queue: session.queue_number(),
            since_wall_ns: session.since_wall_ns,
            expiry_s: session.expiry_s,
            ends_wall_ns: if is_away { self.clock.wall(now) + (session.ends_at - now) } else { 0 },
            will: session.will.as_deref().cloned(),
            subscriptions: of_session.chain(shared).collect(),
            received: session.received().collect(),
        }
    }

    fn is_of(&self, key: SessionKey, session: &Session) -> bool {
        self.mqtt.sessions.get(key).is_some_and(|other| std::ptr::eq(other, session))
    }

    /// Keeps a message as the retained one of its name, or removes that.
    pub(crate) fn retain(&mut self, name: &str, message: &Message, now: Nanos) {
        let is_shared = self.topic_names.contains_key(RETAINED_TOPIC); // others may have it
        if message.body_len() == 0 && !self.mqtt.retained.contains(name) && !is_shared {
            return;
        }
        let mut kept = message.clone().detached();
        kept.stored = None; // the record of another queue
        let before = self.mqtt.retained.version(name);
        if kept.wall_ns() <= before {
            // Another broker's clock is ahead, or ours was set back: this one is the latest all the same.
            let (id, wall_ns) = (kept.id, before + 1);
            let later = Alone { id, wall_ns, attributes: message.attributes(), body: message.body() };
            kept = self.builder.alone(&self.memory.messages, later, message.times.arrival, 0);
        }
        self.share_retained(name, &kept, now);
        self.keep_retained(name, kept);
    }

    /// The same without a word to other brokers.
    pub(crate) fn keep_retained(&mut self, name: &str, kept: Message) {
        let is_removal = kept.body_len() == 0;
        let is_ours = name.starts_with("$SYS/"); // told anew after the start
        let entry = match self.journal.as_mut().filter(|_| !is_ours) {
            Some(journal) if is_removal => {
                journal.put_last(kept.clone());
                None
            }
            Some(journal) => Some(journal.put(kept.clone())),
            None => None,
        };
        self.mqtt.retained.keep(name, kept, entry);
    }

    /// A retained message has expired.
    pub(crate) fn forget_retained(&mut self, message: &Message, now: Nanos) {
        let Some(attributes) = Attributes::decode(message.attributes()) else { return };
        let (id, wall_ns) = (message.id, message.wall_ns());
        let alone = Alone { id, wall_ns, attributes: message.attributes(), body: &[] };
        let removal = self.builder.alone(&self.memory.messages, alone, message.times.arrival, 0);
        self.retain(attributes.name, &removal, now);
    }

    /// Has what a session is owed go through files from now on, if it is to outlive its connection.
    pub(crate) fn keep_on_disk(&mut self, key: SessionKey, now: Nanos) {
        let Some(session) = self.mqtt.sessions.get(key).filter(|session| session.is_durable()) else { return };
        session.groups().to_vec().into_iter().for_each(|group| self.keep_group_on_disk(group));
        let Some(session) = self.mqtt.sessions.get(key) else { return };
        if self.journal.is_none() || session.outgoing.as_ref().is_some_and(|outgoing| outgoing.is_on_disk) {
            return;
        }
        let queue = self.session_queue(key, now);
        let Some(session) = self.mqtt.sessions.get_mut(key) else { return };
        let outgoing = session.outgoing_in(|| self.memory.stock(self.config.max_memory_bytes));
        let mut old = std::mem::replace(&mut outgoing.queue, queue);
        outgoing.is_on_disk = true;
        while let Some(message) = old.pop_front() {
            outgoing.queue.push_back(message);
        }
    }

    /// Writes some of the live objects anew, when that is due.
    pub(crate) fn renew_journal(&mut self, now: Nanos) {
        let Some(journal) = &mut self.journal else { return };
        self.renewal = match std::mem::take(&mut self.renewal) {
            Renewal::Idle if journal.wants_renewal() => Renewal::Retained("".into(), journal.written_bytes()),
            Renewal::Idle => Renewal::Idle,
            Renewal::Retained(after, begun) => {
                match self.mqtt.retained.renew(&after, RENEWED_A_TURN, |message| journal.put(message)) {
                    Some(last) => Renewal::Retained(last, begun),
                    None => {
                        let durable = |(_, session): &(SessionKey, &Session)| session.entry.is_some();
                        let keys = self.mqtt.sessions.iter().filter(durable).map(|(key, _)| key).collect();
                        Renewal::Sessions(keys, begun)
                    }
                }
            }
            Renewal::Sessions(mut keys, begun) => {
                let some = keys.split_off(keys.len().saturating_sub(RENEWED_A_TURN));
                some.into_iter().for_each(|key| self.note_session(key));
                self.save_sessions(now);
                if keys.is_empty() {
                    self.journal.iter_mut().for_each(|journal| journal.renewed(begun));
                    Renewal::Idle
                } else {
                    Renewal::Sessions(keys, begun)
                }
            }
        };
    }

    pub(crate) fn is_renewing(&self) -> bool {
        !matches!(self.renewal, Renewal::Idle)
    }

    /// The queue of what a session is owed.
    pub(crate) fn session_queue(&mut self, key: SessionKey, now: Nanos) -> Queue {
        let Some(disk) = self.shared_disk() else { return Queue::in_stock(self.new_stock()) };
        let number = self.ids.next(self.clock.wall(now)).0;
        let Some(session) = self.mqtt.sessions.get_mut(key).filter(|session| session.is_durable()) else {
            return Queue::in_stock(self.new_stock());
        };
        session.seldom().queue_number = number;
        self.note_session(key);
        Queue::on_disk(disk, Owner::Session(key), format!("{QUEUE}{number:016x}"), 0)
    }

    // ---- the start ------------------------------------------------------------------------------------------------

    /// Restores sessions and what is retained, and begins the journal. `true`: a queue of files is ours.
    pub(crate) fn restore_mqtt(&mut self, disk: &Rc<Disk>, found: &mut Found, now: Nanos) -> io::Result<()> {
        let mut files = match found.remove(JOURNAL) {
            Some(of_journal) => disk.open(JOURNAL, &of_journal)?,
            None => DiskQueue::new(JOURNAL),
        };
        let mut records = Vec::new();
        while files.unread() > 0 {
            let before = files.unread();
            disk.read(&mut files, ALL, now, |message| records.push(message))?;
            if files.unread() == before {
                break;
            }
        }
        self.ids.stay_above(MessageId(files.highest_id()));
        self.journal = Some(Journal::new(Rc::clone(disk), files));
        let old: Vec<Message> = records.into_iter().map(|message| self.restore_record(message, now)).collect();
        let forgotten = self.mqtt.retained.trim();
        if forgotten > 0 {
            let why = self.mqtt.retained.fullness();
            self.drop_retained("this broker's earlier incarnation", &why, forgotten);
        }
        self.restore_queues(disk, found, now)?;
        let keys: Vec<SessionKey> = self.mqtt.sessions.keys().collect();
        keys.into_iter().for_each(|key| self.keep_on_disk(key, now));
        self.renewal = Renewal::Retained("".into(), 0);
        while self.is_renewing() {
            self.renew_journal(now);
        }
        drop(old); // what was written anew takes the place of all earlier records
        Ok(())
    }

    /// Applies one record; gives it back, for its place on disk is needed until all are written anew.
    fn restore_record(&mut self, message: Message, now: Nanos) -> Message {
        if let Some(attributes) = Attributes::decode(message.attributes()) {
            let mut kept = message.clone();
            kept.stored = None;
            self.mqtt.retained.keep(attributes.name, kept, Some(Entry::default()));
            return message;
        }
        match Saved::decode(message.body()) {
            Some(Saved::Lives(saved)) => {
                let key = self.restore_session(&saved, now);
                if let Some(session) = self.mqtt.sessions.get_mut(key) {
                    (session.since_wall_ns, session.begun) = (saved.since_wall_ns, Begun::Restored);
                }
                self.mqtt.moves.latest_ns = self.mqtt.moves.latest_ns.max(saved.since_wall_ns);
            }
            Some(Saved::Ended(client_id)) => {
                if let Some(key) = self.mqtt.session_of(&client_id) {
                    self.drop_session(key);
                }
            }
            None => {}
        }
        message
    }

    pub(crate) fn restore_session(&mut self, saved: &SavedSession, now: Nanos) -> SessionKey {
        if let Some(key) = self.mqtt.session_of(&saved.client_id) {
            self.drop_session(key);
        }
        let mut session = Session::away(&saved.client_id);
        session.expiry_s = saved.expiry_s;
        session.window = self.config.mqtt_max_in_flight;
        session.entry = Some(Entry::default());
        let after = |seconds: u32| now + Nanos::from(seconds) * NS_PER_S;
        session.will = saved.will.clone().map(|will| Box::new(Will { due_at: after(will.delay_s), ..will }));
        let received = saved.received.iter().copied().collect();
        *session.seldom() = Seldom { queue_number: saved.queue, received, ..Seldom::default() };
        session.tidy();
        session.ends_at = match (saved.expiry_s, saved.ends_wall_ns) {
            (NEVER_EXPIRES, _) => Nanos::MAX,
            (seconds, 0) => after(seconds),
            (seconds, ends) => (now + (ends - self.clock.wall(now)).max(0)).min(after(seconds)),
        };
        let key = self.mqtt.add_session(session);
        self.subscribe_as(key, saved);
        self.arm_session(key);
        key
    }

    /// Has a session subscribe to what a saved one has, besides what it has already.
    pub(crate) fn subscribe_as(&mut self, key: SessionKey, saved: &SavedSession) {
        for SavedSubscription { filter, id, options } in &saved.subscriptions {
            let Some(filter) = Filter::parse(filter) else { continue };
            match filter.group {
                Some(group) => _ = self.join(key, group, filter.pattern, *options, *id),
                None if self.place_of(key, filter.pattern).is_some() => {}
                None => _ = self.add_subscription(key, filter.pattern, *options, *id),
            }
        }
    }

    /// Forgets a session without a word, as if it had never been. What waits for groups that end with it is elsewhere.
    pub(crate) fn drop_session(&mut self, key: SessionKey) {
        for (group, _) in self.groups_left_by(key) {
            let Some(group) = self.mqtt.groups.get_mut(group) else { continue };
            group.queue.clear();
            self.mqtt.tally.trim(&mut group.owed, 0);
        }
        self.unsubscribe_all(key);
        self.mqtt.remove_session(key);
    }

    /// Queues of groups go to them, if a member is there; the others are kept until it is known which are declared.
    fn restore_groups(&mut self, disk: &Rc<Disk>, found: &mut Found, now: Nanos) -> io::Result<()> {
        let keys: Vec<GroupKey> = self.mqtt.groups.keys().collect();
        for key in keys {
            let Some(group) = self.mqtt.groups.get_mut(key).filter(|group| group.is_on_disk) else { continue };
            let name = group.queue_name();
            let Some(of_queue) = found.remove(&name) else { continue };
            let mut files = disk.open(&name, &of_queue)?;
            self.ids.stay_above(MessageId(files.highest_id()));
            disk.sync(&mut files);
            group.queue.restore(files, now)?;
            self.mqtt.uncounted.push(Owner::Group(key));
        }
        let names: Vec<String> = found.keys().filter(|name| name.starts_with(group::QUEUE)).cloned().collect();
        for name in names {
            let Some(of_queue) = found.remove(&name) else { continue };
            let mut files = disk.open(&name, &of_queue)?;
            self.ids.stay_above(MessageId(files.highest_id()));
            disk.sync(&mut files);
            self.mqtt.declared.left.insert(name, files);
        }
        Ok(())
    }

    /// Queues of sessions go to them; those of others are removed.
    fn restore_queues(&mut self, disk: &Rc<Disk>, found: &mut Found, now: Nanos) -> io::Result<()> {
        self.restore_groups(disk, found, now)?;
        let names: Vec<String> = found.keys().filter(|name| name.starts_with(QUEUE)).cloned().collect();
        for name in names {
            let Some(of_queue) = found.remove(&name) else { continue };
            let mut files = disk.open(&name, &of_queue)?;
            self.ids.stay_above(MessageId(files.highest_id()));
            let number = u64::from_str_radix(&name[QUEUE.len()..], 16).ok();
            let owner = self.mqtt.sessions.iter().find(|(_, session)| Some(session.queue_number()) == number);
            let Some(key) = owner.map(|(key, _)| key) else {
                disk.destroy(files);
                continue;
            };
            disk.sync(&mut files);
            let stock = self.new_stock();
            let mut queue = Queue::on_disk(Rc::clone(disk), Owner::Session(key), name, 0);
            queue.restore(files, now)?;
            if let Some(session) = self.mqtt.sessions.get_mut(key) {
                let mut outgoing = Outgoing::new(queue, stock, session.window);
                outgoing.is_on_disk = true;
                session.outgoing = Some(Box::new(outgoing));
                self.mqtt.uncounted.push(Owner::Session(key));
            }
        }
        Ok(())
    }
}

/// Files of earlier incarnations, by queue.
type Found = BTreeMap<String, volume::Found>;

const ALL: Portion = Portion { messages: u64::MAX, bytes: u64::MAX };
