//! What becomes of a message for a shared subscription: it waits in the queue of the group until a member has room,
//! here or at another broker.
//!
//! A group with a member whose session outlives its connection has its queue on disk, as such sessions have theirs. The
//! file has its name from that of the group. What waits comes back with the members: a group ends with its last one.
//! A group that a topic file declares is there as long as it does, and has its queue on disk. It is at all brokers of
//! the topic: what waits where no member is connected goes to brokers that have some.

use std::cell::LazyCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use crate::engine::Engine;
use crate::engine::mqtt::routing::met_limit;
use crate::event::Event;
use crate::keys::{ChannelKey, GroupKey, TallyKey, TopicKey};
use crate::mqtt::elsewhere::link_peers::{RemoteGroup, way_of};
use crate::mqtt::elsewhere::moves::{Carried, Owed, Word};
use crate::mqtt::forms::{Forms, Heading, Target};
use crate::mqtt::group::{Group, Member};
use crate::mqtt::session::Session;
use crate::protocol::mqtt::attributes::Attributes;
use crate::protocol::mqtt::packet::Qos;
use crate::protocol::mqtt::topic_filter::Filter;
use crate::queueing::disk_ticket::Owner;
use crate::queueing::message::{Alone, Message};
use crate::queueing::queue::Queue;
use crate::scheduling::work_budget::message_units;
use crate::time::Nanos;

/// Messages of a group that go to other brokers in a turn.
const LENT_A_TURN: usize = 64;

impl Engine {
    pub(crate) fn give_to_group(
        &mut self,
        forms: &mut Forms,
        key: GroupKey,
        message: Message,
        topic: TallyKey,
        now: Nanos,
    ) {
        let Some(group) = self.mqtt.groups.get(key) else { return };
        let full = met_limit(&group.queue, group.queue.len(), self.room_of(group, &message), message.cost());
        let waits = || !group.queue.is_empty() || self.ready_member(key).is_none();
        let full = full.filter(|_| waits());
        let was_admitted = full.is_some() && self.was_admitted(&message);
        let Some(group) = self.mqtt.groups.get_mut(key) else { return };
        let topic = self.mqtt.tally.key_of_shared(key, &mut group.counts, topic);
        if let Some(limit) = full.filter(|_| !(group.is_on_disk && was_admitted)) {
            let name = group.name.clone();
            self.limits.note(limit, &name);
            self.mqtt.drop_for_full(topic, &name);
            return;
        }
        let is_sure = || Attributes::decode(message.attributes()).is_some_and(|known| known.qos != Qos::AtMostOnce);
        if group.is_on_disk && group.queue.is_empty() && !is_sure() {
            group.queue.push_front(message); // of QoS 0, and the next one: it needs no disk
        } else {
            group.queue.push_back(message);
        }
        self.mqtt.tally.give(&mut group.owed, topic);
        self.mqtt.tally.wait(&mut group.owed, topic);
        self.send_shared(forms, key, now);
    }

    /// How many messages may wait for a group when this one comes. What other brokers have kept for a declared one
    /// within their own bounds has room here, where its members are.
    fn room_of(&self, group: &Group, message: &Message) -> usize {
        let most = self.config.mqtt_max_queued;
        let is_lent = group.is_declared && way_of(message.times.trace).is_some();
        if is_lent { most.saturating_mul(1 + self.linked_brokers().len()) } else { most }
    }

    /// Gives the queue of a group to its members in turn, as far as they have room. Gives the units.
    pub(crate) fn send_shared(&mut self, forms: &mut Forms, key: GroupKey, now: Nanos) -> u32 {
        let mut units = 0;
        while let Some(member) = self.next_member(key) {
            let Some(group) = self.mqtt.groups.get_mut(key) else { break };
            if !group.queue.ready(now) {
                break;
            }
            let Some(message) = group.queue.pop_front() else { break };
            group.members.rotate_left(member + 1);
            let Some(member) = group.members.back().copied() else { break };
            units += message_units(message.body_len());
            let body = message.clone();
            let topic = self.tally_taken_shared(key, &body);
            let Some(heading) = Heading::of(&body, "", self.clock.wall(now)) else {
                self.mqtt.counters.expired += 1;
                continue;
            };
            if !self.may_have(member.session, self.topic_key(self.topic_of_name(heading.name)), now) {
                let Some(group) = self.mqtt.groups.get_mut(key) else { break };
                group.queue.push_front(message.clone()); // another member may have it
                self.mqtt.tally.wait(&mut group.owed, topic);
                continue;
            }
            let target = Target {
                session: member.session,
                qos: member.options.qos.min(heading.qos),
                retain: member.options.retain_as_published && heading.retain,
                ids: Some(member.id).into_iter().filter(|id| *id > 0).collect(),
                group: Some(key),
                topic,
            };
            let mark = self.mark_of_name(heading.name, &body, now);
            let kept = (target.qos != Qos::AtMostOnce).then_some(message);
            forms.clear();
            self.deliver_mqtt(forms, &target, &heading, body.body(), kept, mark);
        }
        units
    }

    /// A message has left the queue of a group; gives the topic that it counted for.
    pub(crate) fn tally_taken_shared(&mut self, key: GroupKey, message: &Message) -> TallyKey {
        let topic = self.tally_of(message);
        let Some(group) = self.mqtt.groups.get_mut(key) else { return topic };
        let topic = self.mqtt.tally.key_of_shared(key, &mut group.counts, topic);
        self.mqtt.tally.take(&mut group.owed, topic, group.queue.len())
    }

    /// What waits for a group may go on: the next member gets its turn, or the last one, which leaves for another
    /// broker.
    pub(crate) fn list_member(&mut self, key: GroupKey) {
        let Some(group) = self.mqtt.groups.get(key) else { return };
        let next = self.next_member(key).and_then(|at| group.members.get(at));
        let next = next.or_else(|| group.members.front().filter(|_| group.members.len() == 1));
        if let Some(session) = next.map(|member| member.session) {
            self.list_owing(session);
        }
    }

    /// Has the topic's file declare these groups (`$share/GROUP/FILTER`), instead of those that it declared; `false`:
    /// one is no such name.
    pub fn set_mqtt_groups(&mut self, topic: &str, groups: &[String], now: Nanos) -> bool {
        let parsed: Option<Vec<Filter<'_>>> = groups.iter().map(|name| Filter::parse(name)).collect();
        let Some(parsed) = parsed.filter(|parsed| parsed.iter().all(|filter| filter.group.is_some())) else {
            return false;
        };
        let before = self.mqtt.declared.set(topic, groups);
        for (name, filter) in groups.iter().zip(parsed) {
            let known = self.mqtt.by_group.get(&**name).copied();
            let stock = self.new_stock();
            let key = known.unwrap_or_else(|| self.mqtt.add_group(name, filter.pattern, stock));
            self.mqtt.groups.get_mut(key).into_iter().for_each(|group| group.is_declared = true);
            self.keep_group_on_disk(key);
            self.claim_left(key, now);
        }
        for name in before.into_iter().filter(|name| !groups.iter().any(|kept| **kept == **name)) {
            if let Some(key) = self.mqtt.by_group.get(&name).copied().filter(|_| !self.mqtt.declared.has(&name)) {
                self.mqtt.groups.get_mut(key).into_iter().for_each(|group| group.is_declared = false);
                self.end_unused_group(key);
            }
        }
        self.note_declared();
        true
    }

    /// Takes over what an earlier incarnation kept for a group.
    fn claim_left(&mut self, key: GroupKey, now: Nanos) {
        let Some(group) = self.mqtt.groups.get_mut(key).filter(|group| group.is_on_disk) else { return };
        let name = group.queue_name();
        let Some(files) = self.mqtt.declared.left.remove(&name) else { return };
        if let Err(error) = group.queue.restore(files, now) {
            self.events.push(Event::DiskRepaired { file: name, what: format!("cannot be read: {error}") });
        }
        self.mqtt.uncounted.push(Owner::Group(key));
    }

    /// All groups that there shall be have been declared since the start: files of others are removed.
    pub fn forget_left_groups(&mut self) {
        let left = std::mem::take(&mut self.mqtt.declared.left);
        if let Some(disk) = self.shared_disk() {
            left.into_values().for_each(|files| disk.destroy(files));
        }
    }

    /// Has what waits for a group go through files from now on, if the session of a member outlives its connection, or
    /// a topic file declares it.
    pub(crate) fn keep_group_on_disk(&mut self, key: GroupKey) {
        let Some(group) = self.mqtt.groups.get_mut(key).filter(|group| !group.is_on_disk) else { return };
        let Some(disk) = self.disk.as_ref().map(|storage| Rc::clone(&storage.disk)) else { return };
        let is_durable = |member: &Member| self.mqtt.sessions.get(member.session).is_some_and(Session::is_durable);
        if !group.is_declared && !group.members.iter().any(is_durable) {
            return;
        }
        let queue = Queue::on_disk(disk, Owner::Group(key), group.queue_name(), 0);
        let mut old = std::mem::replace(&mut group.queue, queue);
        group.is_on_disk = true;
        while let Some(message) = old.pop_front() {
            group.queue.push_back(message);
        }
    }

    /// Takes what is in flight to members, in order: it is what their groups hold next.
    pub(crate) fn take_all_shared(&mut self) -> HashMap<GroupKey, Vec<Message>> {
        let mut taken: HashMap<GroupKey, Vec<Message>> = HashMap::new();
        let outgoing = self.mqtt.sessions.values_mut().filter_map(|session| session.outgoing.as_mut());
        for (group, message, _) in outgoing.flat_map(|outgoing| outgoing.take_shared()) {
            taken.entry(group).or_default().push(message);
        }
        taken.values_mut().for_each(|messages| messages.sort_by_key(|message| message.id));
        taken
    }

    /// Gives a message to groups at other brokers, once each: to members that are connected there, else to a broker
    /// that keeps the group, if this one does not. Members here come first.
    pub(super) fn share_with_others(
        &mut self,
        groups: &mut Vec<GroupKey>,
        topic: TopicKey,
        message: &Message,
        heading: &Heading<'_>,
        now: Nanos,
    ) {
        let mut found = Vec::new();
        self.mqtt.peers.by_pattern.matching(heading.name, &mut found);
        found.sort_unstable();
        let mut remote = std::mem::take(&mut self.mqtt.peers.groups);
        for at in found {
            let Some(group) = remote.get_mut(at) else { continue };
            let local = self.mqtt.by_group.get(&group.name).copied();
            if local.is_some_and(|key| self.ready_member(key).is_some()) {
                continue;
            }
            let mut channel = self.channel_for(&mut group.with_members, topic);
            if channel.is_none() && local.is_none() {
                channel = self.channel_for(&mut group.keepers, topic);
            }
            let Some(channel) = channel else { continue };
            groups.retain(|key| Some(*key) != local);
            self.put_shared(channel, &group.name, message, heading, now);
        }
        self.mqtt.peers.groups = remote;
    }

    /// A message that another broker has sent for a group that is not here any more goes on to a broker that has it
    /// now: as one that moves, since it is of a topic that this one may not have. If the group has ended, nobody is
    /// owed it.
    pub(super) fn share_on(&mut self, name: &str, message: &Message, now: Nanos) {
        let linked = self.linked_brokers();
        let group = self.mqtt.peers.groups.iter().find(|group| *group.name == *name);
        let brokers = group.into_iter().flat_map(|group| group.with_members.iter().chain(&group.keepers));
        let to =
            brokers.filter(|broker| linked.contains(broker)).min_by_key(|broker| !self.is_hearing(broker)).cloned();
        let Some(to) = to else {
            let topic = self.tally_key_of(message);
            return self.mqtt.drop_with_group(topic, name, 1);
        };
        let message = Some(Carried::of(message));
        let owed = Owed { packet_id: 0, qos: Qos::AtMostOnce, retain: false, group: name, message };
        self.tell_broker(&to, Word::Owed { client: "", wall_ns: 0, owed }, now);
    }

    /// What waits for declared groups may go to members at other brokers, where none is connected here.
    pub(crate) fn list_lending(&mut self) {
        let remote = self.mqtt.peers.groups.iter().filter(|group| !group.with_members.is_empty());
        let remote = remote.filter_map(|group| self.mqtt.by_group.get(&group.name));
        let groups = remote.filter_map(|key| Some((*key, self.mqtt.groups.get(*key)?)));
        let lends = |group: &Group| group.is_declared && !group.queue.is_empty() && !self.has_member_here(group);
        self.mqtt.peers.lending = groups.filter(|(_, group)| lends(group)).map(|(key, _)| key).collect();
    }

    /// Goes on with that, some messages of each group in a turn.
    pub(crate) fn lend_shared(&mut self, now: Nanos) {
        if self.mqtt.peers.lending.is_empty() {
            return;
        }
        let mut remote = std::mem::take(&mut self.mqtt.peers.groups);
        for key in std::mem::take(&mut self.mqtt.peers.lending) {
            let there = self.mqtt.groups.get(key).filter(|group| !self.has_member_here(group));
            let at = there.and_then(|group| remote.binary_search_by(|one| (*one.name).cmp(&group.name)).ok());
            let Some(to) = at.and_then(|at| remote.get_mut(at)) else { continue };
            if (0..LENT_A_TURN).all(|_| self.lend_one(key, to, now)) {
                self.mqtt.peers.lending.push(key);
            }
        }
        self.mqtt.peers.groups = remote;
    }

    /// False: nothing more can go. Its record stays on disk until the other broker has answered.
    fn lend_one(&mut self, key: GroupKey, to: &mut RemoteGroup, now: Nanos) -> bool {
        let Some(group) = self.mqtt.groups.get_mut(key) else { return false };
        if !group.queue.ready(now) {
            return false;
        }
        let Some(message) = group.queue.pop_front() else { return false };
        let topic = self.tally_taken_shared(key, &message);
        let Some(heading) = Heading::of(&message, "", self.clock.wall(now)) else {
            self.mqtt.counters.expired += 1;
            return true;
        };
        let owner = self.topic_key(self.topic_of_name(heading.name));
        let Some(channel) = owner.and_then(|owner| self.channel_for(&mut to.with_members, owner)) else {
            let Some(group) = self.mqtt.groups.get_mut(key) else { return false };
            group.queue.push_front(message.clone());
            self.mqtt.tally.wait(&mut group.owed, topic);
            return false;
        };
        self.put_shared(channel, &to.name, &message, &heading, now);
        true
    }

    /// The channel of the broker that is next, of those that take messages now; else of any.
    fn channel_for(&self, brokers: &mut VecDeque<Box<str>>, topic: TopicKey) -> Option<ChannelKey> {
        let topic = self.topics.get(topic)?;
        let named = |name: &str| {
            let is_it = |key: &&ChannelKey| self.channels.get(**key).is_some_and(|channel| &*channel.name == name);
            topic.channels.iter().find(is_it).copied()
        };
        let takes = |key: &ChannelKey| {
            let channel = self.channels.get(*key);
            channel.is_some_and(|channel| !channel.consumers.is_empty() && channel.queue.is_empty())
        };
        let ready = brokers.iter().position(|name| named(name).is_some_and(|key| takes(&key)));
        let at = ready.or_else(|| brokers.iter().position(|name| named(name).is_some()))?;
        let key = named(&brokers[at]);
        brokers.rotate_left(at + 1);
        key
    }

    /// Puts a copy of a message for one group alone into the channel of a link. It is a message of its own: the channel
    /// may have the other one too.
    fn put_shared(&mut self, channel: ChannelKey, group: &str, message: &Message, heading: &Heading<'_>, now: Nanos) {
        let expires_wall_ns = Attributes::decode(message.attributes()).map_or(0, |known| known.expires_wall_ns);
        let Heading { origin, name, qos, retain, properties, .. } = *heading;
        let mut bytes = Vec::new();
        Attributes { origin, expires_wall_ns, qos, retain, name, group, properties }.encode(&mut bytes);
        let wall_ns = message.wall_ns();
        let id = self.ids.next(wall_ns);
        let alone = Alone { id, wall_ns, attributes: &bytes, body: message.body() };
        let mut copy = self.builder.alone(&self.memory.messages, alone, message.times.arrival, 0);
        (copy.times, copy.foreign, copy.stored) = (message.times, message.foreign, message.stored.clone());
        copy.times.queued = now;
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.put(copy, now);
        }
        self.mark_channel(channel);
    }

    /// The member that is next, of those that are connected and have room, if there is something for it.
    fn next_member(&self, key: GroupKey) -> Option<usize> {
        let is_owed = self.mqtt.groups.get(key).is_some_and(|group| !group.queue.is_empty());
        if is_owed { self.ready_member(key) } else { None }
    }

    fn ready_member(&self, key: GroupKey) -> Option<usize> {
        let group = self.mqtt.groups.get(key)?;
        let filter = LazyCell::new(|| Filter::parse(&group.name));
        // Who may read what may have changed since a member joined.
        let may_share = |session: &Session| {
            let may = |filter: Filter<'_>| session.may_subscribe(filter, self.object_of(filter.pattern));
            session.grant.is_none() || filter.is_some_and(may)
        };
        group.members.iter().position(|member| {
            self.has_room(member.session) && self.mqtt.sessions.get(member.session).is_some_and(may_share)
        })
    }
}
